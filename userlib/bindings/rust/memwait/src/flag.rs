// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::Error;
use crate::event::{Handle, Operation};
use crate::memory::{Ref, Shareable};
use crate::time::Deadline;
use crate::word::{notify, wait, wait_async, wait_until, Outcome, Scope, WaitingFor, ALL};
use memwait_sys::ETIMEDOUT;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

/// A flag, and the threads and futures that wait until it is set. It is Python's `memwait.Event`, a
/// word of four bytes; zeroed memory is one that is not set.
#[repr(transparent)]
pub struct Event {
    /// Odd: it is set. Each set and clear adds one, so that a waiter that is woken after a clear
    /// knows whether it was set meanwhile, or a notify has come too late.
    word: AtomicU32,
}

// SAFETY: a word.
unsafe impl Shareable for Event {}

impl Event {
    /// Not set.
    #[must_use]
    pub const fn new() -> Event {
        Event {
            word: AtomicU32::new(0),
        }
    }

    /// Out of date at once.
    #[must_use]
    pub fn is_set(&self) -> bool {
        is_set(self.load())
    }

    /// Sets it, and wakes all that wait.
    pub fn set(&self) -> Result<(), Error> {
        self.change(true);
        // Also if it was set: by a process that has died before it could wake them.
        notify(&self.word, ALL, Scope::Shared).map(|_| ())
    }

    /// What waits from here on waits for the next [`set`](Event::set).
    pub fn clear(&self) {
        self.change(false);
    }

    /// Blocks until it is set.
    pub fn wait(&self) -> Result<(), Error> {
        let seen = self.load();

        while !is_set(seen) && self.load() == seen {
            wait(&self.word, seen, Scope::Shared)?;
        }
        Ok(())
    }

    /// `ETIMEDOUT`: the time has come.
    pub fn wait_until(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        let (seen, deadline) = (self.load(), deadline.into());

        while !is_set(seen) && self.load() == seen {
            let outcome = wait_until(&self.word, seen, Scope::Shared, deadline)?;
            self.check(outcome, seen)?;
        }
        Ok(())
    }

    fn load(&self) -> u32 {
        // acquire: pairs with change(): what was done before it was set is seen.
        self.word.load(Ordering::Acquire)
    }

    fn change(&self, set: bool) {
        // release: see load(). acquire: of one that finds it set already.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |value| {
                (is_set(value) != set).then(|| value.wrapping_add(1))
            });
    }

    /// After the time has come it looks once more.
    fn check(&self, outcome: Outcome, seen: u32) -> Result<(), Error> {
        if outcome == Outcome::TimedOut && self.load() == seen {
            return Err(Error::new(ETIMEDOUT));
        }
        Ok(())
    }
}

impl Ref<Event> {
    /// Ends when it is set.
    pub fn wait_async(&self, on: &Handle) -> UntilSet {
        UntilSet {
            event: self.clone(),
            on: on.clone(),
            deadline: None,
            waiting: None,
        }
    }
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("Event")
            .field(&self.is_set())
            .finish()
    }
}

/// A future that ends when an [`Event`] is set.
#[must_use = "futures do nothing unless polled"]
pub struct UntilSet {
    event: Ref<Event>,
    on: Handle,
    deadline: Option<Deadline>,
    /// The value that it has seen, and still waits with.
    waiting: Option<(u32, Operation<WaitingFor<AtomicU32>>)>,
}

impl UntilSet {
    /// As that of an [`Operation`]: ends with `ETIMEDOUT` at a time.
    pub fn until(mut self, deadline: impl Into<Deadline>) -> UntilSet {
        self.deadline = Some(deadline.into());
        self
    }

    fn begin(&mut self, seen: u32) {
        let word = self.event.map(|event| &event.word);
        let mut operation = wait_async(&word, seen, Scope::Shared, &self.on);

        if let Some(deadline) = self.deadline {
            operation = operation.until(deadline);
        }
        self.waiting = Some((seen, operation));
    }
}

impl Future for UntilSet {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.waiting.is_none() {
            let seen = self.event.load();

            if is_set(seen) {
                return Poll::Ready(Ok(()));
            }
            self.begin(seen);
        }
        while let Some((seen, operation)) = &mut self.waiting {
            let seen = *seen;
            let outcome = match Pin::new(operation).poll(context) {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => break,
            };

            if self.event.load() != seen {
                return Poll::Ready(Ok(()));
            }
            self.event.check(outcome, seen)?;
            self.begin(seen);
        }
        Poll::Pending
    }
}

impl std::fmt::Debug for UntilSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("UntilSet").finish_non_exhaustive()
    }
}

fn is_set(value: u32) -> bool {
    value & 1 == 1
}
