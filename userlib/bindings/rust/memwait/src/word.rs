// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! Words: atomic integers that threads and futures can wait for, like futexes.
use crate::error::{check_result, Error};
use crate::event_loop::Handle;
use crate::memory::Ref;
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::os::raw::{c_int, c_uint, c_void};
use std::sync::atomic::*;

/// A count for [`notify`]: all waiters.
pub const ALL: u32 = MEMWAIT_ALL;

/// Which processes use a word. All users must pass the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Any process.
    Shared,
    /// Only this process uses the word: waiting and waking cost less.
    Private,
}

impl Scope {
    fn flags(self) -> c_uint {
        match self {
            Scope::Shared => 0,
            Scope::Private => MEMWAIT_PRIVATE,
        }
    }
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A notify woke the waiter.
    Notified,
    /// The word had another value.
    NotEqual,
    /// The deadline passed.
    TimedOut,
}

fn outcome(result: c_int) -> Result<Outcome, Error> {
    Ok(match check_result(result)? {
        MEMWAIT_NOT_EQUAL => Outcome::NotEqual,
        MEMWAIT_TIMED_OUT => Outcome::TimedOut,
        _ => Outcome::Notified,
    })
}

/// An atomic integer of 8 to 64 bits.
pub trait Word: Send + Sync + sealed::Word + 'static {}

mod sealed {
    use super::*;

    pub trait Word: Sized {
        type Value: Copy + Send + 'static;

        unsafe fn wait(
            word: *const c_void,
            expected: Self::Value,
            timeout: *const timespec,
            flags: c_uint,
            op: Option<*mut memwait_op_t>,
        ) -> c_int;
    }
}

macro_rules! word {
    ($atomic:ident, $value:ty, $bits:ty, $wait:ident, $wait_async:ident) => {
        impl Word for $atomic {}

        impl sealed::Word for $atomic {
            type Value = $value;

            unsafe fn wait(
                word: *const c_void,
                expected: $value,
                timeout: *const timespec,
                flags: c_uint,
                op: Option<*mut memwait_op_t>,
            ) -> c_int {
                // SAFETY: the caller guarantees this.
                unsafe {
                    match op {
                        None => $wait(word, expected as $bits, timeout, flags),
                        Some(op) => $wait_async(word, expected as $bits, timeout, flags, op),
                    }
                }
            }
        }
    };
}

word!(AtomicU8, u8, u8, memwait_wait8, memwait_wait8_async);
word!(AtomicI8, i8, u8, memwait_wait8, memwait_wait8_async);
word!(AtomicU16, u16, u16, memwait_wait16, memwait_wait16_async);
word!(AtomicI16, i16, u16, memwait_wait16, memwait_wait16_async);
word!(AtomicU32, u32, u32, memwait_wait32, memwait_wait32_async);
word!(AtomicI32, i32, u32, memwait_wait32, memwait_wait32_async);
word!(AtomicU64, u64, u64, memwait_wait64, memwait_wait64_async);
word!(AtomicI64, i64, u64, memwait_wait64, memwait_wait64_async);

fn address<W>(word: &W) -> *const c_void {
    (word as *const W).cast()
}

fn block<W: Word>(
    word: &W,
    expected: W::Value,
    scope: Scope,
    deadline: Option<&Deadline>,
) -> Result<Outcome, Error> {
    let (time, flags) = Deadline::timeout(deadline);
    let flags = flags | scope.flags();

    loop {
        // SAFETY: the word is valid. If a signal handler ran, the thread retains its queue
        // position.
        match unsafe { W::wait(address(word), expected, time, flags, None) } {
            result if result == -EINTR => {}
            result => return outcome(result),
        }
    }
}

/// If the word has the expected value, blocks until it is notified.
pub fn wait<W: Word>(word: &W, expected: W::Value, scope: Scope) -> Result<Outcome, Error> {
    block(word, expected, scope, None)
}

/// Like [`wait`], with a deadline.
pub fn wait_until<W: Word>(
    word: &W,
    expected: W::Value,
    scope: Scope,
    deadline: impl Into<Deadline>,
) -> Result<Outcome, Error> {
    block(word, expected, scope, Some(&deadline.into()))
}

/// Like [`wait`], for a future. The word is compared when the future is first polled.
pub fn wait_async<W: Word>(
    word: &Ref<W>,
    expected: W::Value,
    scope: Scope,
    on: &Handle,
) -> Operation<WaitingFor<W>> {
    let waiting = WaitingFor {
        word: word.clone(),
        expected,
        scope,
    };

    Operation::new(on, waiting)
}

/// Wakes at most `count` waiters, oldest first. Returns how many it woke.
pub fn notify<W: Word>(word: &W, count: u32, scope: Scope) -> Result<u32, Error> {
    // SAFETY: the word is valid.
    let result = unsafe { memwait_notify(address(word), count, scope.flags()) };

    check_result(result).map(|woken| woken as u32)
}

/// Returns the current number of waiters, for tests and diagnosis. The number may change
/// immediately.
pub fn waiters<W: Word>(word: &W, scope: Scope) -> Result<u32, Error> {
    // SAFETY: the word is valid.
    let result = unsafe { memwait_waiters(address(word), scope.flags()) };

    check_result(result).map(|count| count as u32)
}

/// The operation of [`wait_async`].
pub struct WaitingFor<W: Word> {
    word: Ref<W>,
    expected: W::Value,
    scope: Scope,
}

// SAFETY: the future's share prevents the word from moving.
unsafe impl<W: Word> Wait for WaitingFor<W> {
    type Output = Result<Outcome, Error>;
    const PENDING: c_int = MEMWAIT_PENDING;
    const SIGN: c_int = -1;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (time, flags) = Deadline::timeout(deadline);
        let flags = flags | self.scope.flags();

        // SAFETY: the caller guarantees this.
        unsafe { W::wait(address(&*self.word), self.expected, time, flags, Some(op)) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        outcome(result)
    }
}
