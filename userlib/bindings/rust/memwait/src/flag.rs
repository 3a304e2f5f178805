// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event::{Handle, Operation, Wait};
use crate::memory::{Ref, Shareable};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::os::raw::c_int;

/// A flag, and the threads and futures that wait until it is set. Its layout is C's
/// `memwait_event_t`, a word of four bytes; zeroed memory is one that is not set.
#[repr(transparent)]
pub struct Event {
    raw: UnsafeCell<memwait_event_t>,
}

// SAFETY: its functions are for all threads.
unsafe impl Sync for Event {}
// SAFETY: C's layout.
unsafe impl Shareable for Event {}

impl Event {
    /// Not set.
    #[must_use]
    pub const fn new() -> Event {
        Event {
            raw: UnsafeCell::new(memwait_event_t { reserved: [0] }),
        }
    }

    /// Out of date at once. `false`, too, if it is of a kind that this library does not know.
    #[must_use]
    pub fn is_set(&self) -> bool {
        // SAFETY: it is there.
        unsafe { memwait_event_is_set(self.raw.get()) == 1 }
    }

    /// Sets it, and wakes all that wait.
    pub fn set(&self) -> Result<(), Error> {
        // SAFETY: it is there.
        check(unsafe { memwait_event_set(self.raw.get()) })
    }

    /// What waits from here on waits for the next [`set`](Event::set).
    pub fn clear(&self) -> Result<(), Error> {
        // SAFETY: it is there.
        check(unsafe { memwait_event_clear(self.raw.get()) })
    }

    /// Blocks until it is set.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: it is there.
        check(unsafe { memwait_event_wait(self.raw.get()) })
    }

    /// `ETIMEDOUT`: the time has come.
    pub fn wait_until(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        let time = deadline.into();

        // SAFETY: it is there.
        check(unsafe { memwait_event_clockwait(self.raw.get(), time.clock, &time.time) })
    }
}

impl Ref<Event> {
    /// Ends when it is set.
    pub fn wait_async(&self, on: &Handle) -> Operation<UntilSet> {
        Operation::new(on, UntilSet(self.clone()))
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

/// To find it set.
pub struct UntilSet(Ref<Event>);

// SAFETY: the share in the event keeps it in place; it has no owner.
unsafe impl Wait for UntilSet {
    type Output = Result<(), Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let raw = self.0.raw.get();

        // SAFETY: the caller's promise.
        unsafe {
            match deadline {
                None => memwait_event_wait_async(raw, op),
                Some(time) => memwait_event_clockwait_async(raw, time.clock, &time.time, op),
            }
        }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        check(result)
    }

    fn give_back(&self, _: c_int) {}
}
