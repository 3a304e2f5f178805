// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event_loop::Handle;
use crate::memory::{Ref, Shareable};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::os::raw::c_int;

/// A count, and the threads and futures that wait until it is 0. Its layout is that of C's
/// `memwait_waitgroup_t`. Zeroed memory is a wait group whose count is 0.
#[repr(transparent)]
pub struct WaitGroup {
    raw: UnsafeCell<memwait_waitgroup_t>,
}

// SAFETY: any thread may call the wait group's functions.
unsafe impl Sync for WaitGroup {}
// SAFETY: it has the layout of the C type.
unsafe impl Shareable for WaitGroup {}

impl WaitGroup {
    /// The largest count.
    pub const MAX: u32 = MEMWAIT_WAITGROUP_MAX;

    /// A wait group whose count is 0.
    #[must_use]
    pub const fn new() -> WaitGroup {
        WaitGroup {
            raw: UnsafeCell::new(memwait_waitgroup_t { reserved: [0; 8] }),
        }
    }

    /// Only this process uses the wait group, which costs less.
    #[must_use]
    pub fn private(mut self) -> WaitGroup {
        self.raw.get_mut().reserved[4] |= MEMWAIT_PRIVATE;
        self
    }

    /// Adds to the count. If the count becomes 0, wakes all waiters. Call this function before the
    /// work that it counts begins. `EINVAL`: the count would be negative. `EOVERFLOW`: the count
    /// would exceed [`MAX`](WaitGroup::MAX).
    pub fn add(&self, delta: i32) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_waitgroup_add(self.raw.get(), delta) })
    }

    /// Subtracts 1 from the count.
    pub fn done(&self) -> Result<(), Error> {
        self.add(-1)
    }

    /// Blocks until the count is 0.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_waitgroup_wait(self.raw.get()) })
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn wait_until(&self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        let time = deadline.into();

        // SAFETY: the object is valid.
        check(unsafe { memwait_waitgroup_clockwait(self.raw.get(), time.clock, &time.time) })
    }
}

impl Ref<WaitGroup> {
    /// Waits until the count is 0.
    pub fn wait_async(&self, on: &Handle) -> Operation<UntilDone> {
        Operation::new(on, UntilDone(self.clone()))
    }
}

impl Default for WaitGroup {
    fn default() -> WaitGroup {
        WaitGroup::new()
    }
}

impl std::fmt::Debug for WaitGroup {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WaitGroup").finish_non_exhaustive()
    }
}

/// The operation of `WaitGroup::wait_async()`.
pub struct UntilDone(Ref<WaitGroup>);

// SAFETY: the future's share prevents the wait group from moving, and the wait group has no owner.
unsafe impl Wait for UntilDone {
    type Output = Result<(), Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);

        // SAFETY: the caller guarantees this.
        unsafe { memwait_waitgroup_clockwait_async(self.0.raw.get(), clock, time, op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        check(result)
    }
}
