// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event_loop::Handle;
use crate::memory::{Ref, Shareable};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::os::raw::c_int;

/// A barrier at which a fixed number of threads and futures meet. Its layout is that of C's
/// `memwait_barrier_t`. Zeroed memory is not a barrier: functions called on it fail with `EINVAL`.
#[repr(transparent)]
pub struct Barrier {
    raw: UnsafeCell<memwait_barrier_t>,
}

// SAFETY: any thread may call the barrier's functions.
unsafe impl Sync for Barrier {}
// SAFETY: it has the layout of the C type.
unsafe impl Shareable for Barrier {}

impl Barrier {
    /// A barrier for `count` participants. No more than `count` may wait at the same time.
    /// `EINVAL`: `count` is 0.
    pub fn new(count: u32) -> Result<Barrier, Error> {
        Barrier::with_flags(count, 0)
    }

    /// A barrier that only this process uses, which costs less. Errors: see [`new`](Barrier::new).
    pub fn private(count: u32) -> Result<Barrier, Error> {
        Barrier::with_flags(count, MEMWAIT_PRIVATE)
    }

    fn with_flags(count: u32, flags: u32) -> Result<Barrier, Error> {
        let mut raw = memwait_barrier_t { reserved: [0; 4] };

        // SAFETY: it is memory for a barrier, which contains no address and may move before its
        // use.
        check(unsafe { memwait_barrier_init(&mut raw, flags, count) })?;
        Ok(Barrier {
            raw: UnsafeCell::new(raw),
        })
    }

    /// Blocks until all have arrived. Returns true to one of them. `EPIPE`: the barrier was aborted
    /// or reset. (A participant in Python whose wait times out aborts the barrier.)
    pub fn wait(&self) -> Result<bool, Error> {
        // SAFETY: the object is valid.
        met(unsafe { memwait_barrier_wait(self.raw.get()) })
    }

    /// `ETIMEDOUT`: the deadline has passed. The caller then no longer counts as arrived.
    pub fn wait_until(&self, deadline: impl Into<Deadline>) -> Result<bool, Error> {
        let time = deadline.into();

        // SAFETY: the object is valid.
        met(unsafe { memwait_barrier_clockwait(self.raw.get(), time.clock, &time.time) })
    }

    /// Breaks the barrier: all present and later waits fail with `EPIPE`, until a reset.
    pub fn abort(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_barrier_abort(self.raw.get()) })
    }

    /// All present waits fail with `EPIPE`. Later waits work again.
    pub fn reset(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_barrier_reset(self.raw.get()) })
    }
}

impl Ref<Barrier> {
    /// The future arrives at the barrier when it is first polled.
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

/// The operation of `Barrier::wait_async()`.
pub struct Meeting(Ref<Barrier>);

// SAFETY: the future's share prevents the barrier from moving, and the barrier has no owner.
unsafe impl Wait for Meeting {
    type Output = Result<bool, Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);

        // SAFETY: the caller guarantees this.
        unsafe { memwait_barrier_clockwait_async(self.0.raw.get(), clock, time, op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        met(result)
    }
}
