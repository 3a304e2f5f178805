// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event_loop::Handle;
use crate::memory::{Ref, Shareable};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::os::raw::c_int;

/// A flag that threads and futures can wait for. Its layout is that of C's `memwait_event_t`, a
/// word of four bytes. Zeroed memory is an event that is not set.
#[repr(transparent)]
pub struct Event {
    raw: UnsafeCell<memwait_event_t>,
}

// SAFETY: any thread may call the event's functions.
unsafe impl Sync for Event {}
// SAFETY: it has the layout of the C type.
unsafe impl Shareable for Event {}

impl Event {
    /// An event that is not set.
    #[must_use]
    pub const fn new() -> Event {
        Event {
            raw: UnsafeCell::new(memwait_event_t { reserved: [0] }),
        }
    }

    /// Whether the event is set now. Returns `false` for a kind that this library does not know.
    #[must_use]
    pub fn is_set(&self) -> bool {
        // SAFETY: the object is valid.
        unsafe { memwait_event_is_set(self.raw.get()) == 1 }
    }

    /// Sets the event, and wakes all waiters.
    pub fn set(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_event_set(self.raw.get()) })
    }

    /// Clears the event: later waits wait for the next [`set`](Event::set).
    pub fn clear(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_event_clear(self.raw.get()) })
    }

    /// Blocks until the event is set.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_event_wait(self.raw.get()) })
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn wait_until(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        let time = deadline.into();

        // SAFETY: the object is valid.
        check(unsafe { memwait_event_clockwait(self.raw.get(), time.clock, &time.time) })
    }
}

impl Ref<Event> {
    /// Waits until the event is set.
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

/// The operation of `Event::wait_async()`.
pub struct UntilSet(Ref<Event>);

// SAFETY: the future's share prevents the event from moving, and the event has no owner.
unsafe impl Wait for UntilSet {
    type Output = Result<(), Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);

        // SAFETY: the caller guarantees this.
        unsafe { memwait_event_clockwait_async(self.0.raw.get(), clock, time, op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        check(result)
    }
}
