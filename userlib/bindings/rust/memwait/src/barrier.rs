// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event::{Handle, Operation, Wait};
use crate::memory::{Ref, Shareable};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::os::raw::c_int;

/// Where a number of threads and futures meet. Its layout is C's `memwait_barrier_t`. Zeroed memory
/// is not a barrier: `EINVAL`.
#[repr(transparent)]
pub struct Barrier {
    raw: UnsafeCell<memwait_barrier_t>,
}

// SAFETY: its functions are for all threads.
unsafe impl Sync for Barrier {}
// SAFETY: C's layout.
unsafe impl Shareable for Barrier {}

impl Barrier {
    /// For `count`, and no more at a time. `EINVAL`: 0.
    pub fn new(count: u32) -> Result<Barrier, Error> {
        Barrier::with_flags(count, 0)
    }

    /// For this process only.
    pub fn private(count: u32) -> Result<Barrier, Error> {
        Barrier::with_flags(count, MEMWAIT_PRIVATE)
    }

    fn with_flags(count: u32, flags: u32) -> Result<Barrier, Error> {
        let mut raw = memwait_barrier_t { reserved: [0; 4] };

        // SAFETY: memory for one. It has no address in it, so it may move before it is used.
        check(unsafe { memwait_barrier_init(&mut raw, flags, count) })?;
        Ok(Barrier {
            raw: UnsafeCell::new(raw),
        })
    }

    /// Blocks until all are here. True for a single caller. `EPIPE`: it was aborted or reset; a
    /// party in Python that times out aborts it.
    pub fn wait(&self) -> Result<bool, Error> {
        // SAFETY: it is there.
        met(unsafe { memwait_barrier_wait(self.raw.get()) })
    }

    /// `ETIMEDOUT`: the time has come, and the caller is not counted.
    pub fn wait_until(&self, deadline: impl Into<Deadline>) -> Result<bool, Error> {
        let time = deadline.into();

        // SAFETY: it is there.
        met(unsafe { memwait_barrier_clockwait(self.raw.get(), time.clock, &time.time) })
    }

    /// `EPIPE` for all that wait, and all that come before a reset.
    pub fn abort(&self) -> Result<(), Error> {
        // SAFETY: it is there.
        check(unsafe { memwait_barrier_abort(self.raw.get()) })
    }

    /// `EPIPE` for all that wait. Those that come then meet.
    pub fn reset(&self) -> Result<(), Error> {
        // SAFETY: it is there.
        check(unsafe { memwait_barrier_reset(self.raw.get()) })
    }
}

impl Ref<Barrier> {
    /// It is counted from when it is polled first.
    pub fn wait_async(&self, on: &Handle) -> Operation<Meeting> {
        Operation::new(on, Meeting(self.clone()))
    }
}

impl std::fmt::Debug for Barrier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Barrier").finish_non_exhaustive()
    }
}

fn met(result: c_int) -> Result<bool, Error> {
    match result {
        MEMWAIT_BARRIER_SERIAL_THREAD => Ok(true),
        err => check(err).map(|()| false),
    }
}

/// To meet there.
pub struct Meeting(Ref<Barrier>);

// SAFETY: the share in the barrier keeps it in place; it has no owner.
unsafe impl Wait for Meeting {
    type Output = Result<bool, Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let raw = self.0.raw.get();

        // SAFETY: the caller's promise.
        unsafe {
            match deadline {
                None => memwait_barrier_wait_async(raw, op),
                Some(time) => memwait_barrier_clockwait_async(raw, time.clock, &time.time, op),
            }
        }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        met(result)
    }

    fn give_back(&self, _: c_int) {}
}
