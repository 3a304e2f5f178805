// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! The declarations of `memwait.h`, the header of libmemwait. The comments of the header, and
//! `man libmemwait`, document each function. The crate `memwait` is a safe interface.
//!
//! A test compares the declarations with the header: sizes, alignments, offsets, constants and
//! prototypes. `volatile` is omitted, which makes no difference to a caller.
#![warn(missing_docs)]
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

/// A clock of `clock_gettime(2)`.
pub type clockid_t = c_int;

/// `CLOCK_REALTIME` of `<time.h>`.
pub const CLOCK_REALTIME: clockid_t = 0;
/// `CLOCK_MONOTONIC` of `<time.h>`.
pub const CLOCK_MONOTONIC: clockid_t = 1;

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct timespec {
    /// Seconds.
    pub tv_sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub tv_nsec: i64,
}

impl timespec {
    /// A time. `tv_nsec` is below 1,000,000,000.
    #[must_use]
    pub const fn new(tv_sec: i64, tv_nsec: u32) -> timespec {
        timespec {
            tv_sec,
            tv_nsec: tv_nsec as i64,
        }
    }
}

/// A loop: an event source, and its pending operations. Used only through pointers.
#[repr(C)]
pub struct memwait_loop_t {
    opaque: [u8; 0],
    marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// A channel, in `memwait_channel_size()` bytes of the caller's. Used only through pointers.
#[repr(C)]
pub struct memwait_channel_t {
    opaque: [u8; 0],
    marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// An operation of a loop. It must not move while it is pending.
#[repr(C)]
pub struct memwait_op_t {
    /// For the library.
    pub reserved: [u64; 24],
}

/// A mutex. Zeroed memory is initialised.
#[repr(C, align(8))]
pub struct memwait_mutex_t {
    /// For the library, except that the third is the kind in a static initialiser.
    pub reserved: [u32; 10],
}

/// A condition variable. Zeroed memory is initialised.
#[repr(C, align(8))]
pub struct memwait_cond_t {
    /// For the library, except that the fifth has the flags in a static initialiser.
    pub reserved: [u32; 12],
}

/// A semaphore. Zeroed memory is initialised.
#[repr(C, align(8))]
pub struct memwait_sem_t {
    /// For the library, except for the value and the flags in a static initialiser.
    pub reserved: [u64; 4],
}

/// A read-write lock. Zeroed memory is initialised.
#[repr(C, align(8))]
pub struct memwait_rwlock_t {
    /// For the library, except that the fifth is the kind in a static initialiser.
    pub reserved: [u32; 14],
}

/// A barrier. It must be initialised by `memwait_barrier_init()`.
#[repr(C, align(8))]
pub struct memwait_barrier_t {
    /// For the library.
    pub reserved: [u64; 4],
}

/// A wait group. Zeroed memory is initialised.
#[repr(C, align(8))]
pub struct memwait_waitgroup_t {
    /// For the library, except that the fifth has the flags in a static initialiser.
    pub reserved: [u32; 8],
}

/// An event. Zeroed memory is an event that is not set.
#[repr(C)]
pub struct memwait_event_t {
    /// For the library.
    pub reserved: [u32; 1],
}

/// A word of `memwait_wait_any()`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct memwait_wait {
    /// Its address.
    pub addr: u64,
    /// The expected value: the wait blocks only if the word has it.
    pub expected: u64,
    /// Must be 0.
    pub deadline: u64,
    /// `MEMWAIT_SIZE_*`, `MEMWAIT_PRIVATE`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// A word of `memwait_notify_many()`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct memwait_notify {
    /// Its address.
    pub addr: u64,
    /// The number of waiters to wake.
    pub count: u32,
    /// `MEMWAIT_SIZE_*`, `MEMWAIT_PRIVATE`.
    pub flags: u32,
}

/// The callback at the end of an operation. It must not unwind.
pub type memwait_callback_t =
    Option<unsafe extern "C" fn(op: *mut memwait_op_t, result: c_int, data: *mut c_void)>;

// Elsewhere error numbers, alignments, or the C library's names for a 64-bit time differ.
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(
        target_arch = "aarch64",
        target_arch = "powerpc64",
        target_arch = "riscv64",
        target_arch = "s390x",
        target_arch = "x86_64"
    )
)))]
compile_error!("memwait-sys has no declarations for this target");

/// Constants, with the names and values of the header and of `<errno.h>`.
#[allow(missing_docs)]
mod constants {
    use std::os::raw::{c_int, c_uint};

    pub const MEMWAIT_VERSION_MAJOR: c_uint = 1;
    pub const MEMWAIT_VERSION_MINOR: c_uint = 0;
    pub const MEMWAIT_VERSION_PATCH: c_uint = 0;
    pub const MEMWAIT_VERSION: c_uint = 0x10000;

    pub const MEMWAIT_OK: c_int = 0;
    pub const MEMWAIT_NOT_EQUAL: c_int = 1;
    pub const MEMWAIT_TIMED_OUT: c_int = 2;
    pub const MEMWAIT_PENDING: c_int = 3;
    pub const MEMWAIT_OWNER_DIED: c_int = 4;

    pub const MEMWAIT_SIZE_U8: c_uint = 0x0;
    pub const MEMWAIT_SIZE_U16: c_uint = 0x1;
    pub const MEMWAIT_SIZE_U32: c_uint = 0x2;
    pub const MEMWAIT_SIZE_U64: c_uint = 0x3;
    pub const MEMWAIT_SIZE_MASK: c_uint = 0x3;
    pub const MEMWAIT_PRIVATE: c_uint = 0x80;
    pub const MEMWAIT_CLOCK_REALTIME: c_uint = 0x100;
    pub const MEMWAIT_OWNED: c_uint = 0x800;
    pub const MEMWAIT_RELATIVE: c_uint = 0x10000;
    pub const MEMWAIT_OWNER_MASK: u64 = (1 << 62) - 1;
    pub const MEMWAIT_ALL: c_uint = !0;
    pub const MEMWAIT_GROUP_MAX: c_uint = 128;

    pub const MEMWAIT_CHANGE_SET: c_uint = 0;
    pub const MEMWAIT_CHANGE_ADD: c_uint = 1;
    pub const MEMWAIT_CHANGE_AND: c_uint = 2;
    pub const MEMWAIT_CHANGE_OR: c_uint = 3;
    pub const MEMWAIT_CHANGE_XOR: c_uint = 4;
    pub const MEMWAIT_CHANGE_IF_NONE_WOKEN: c_uint = 0x100;

    pub const MEMWAIT_MUTEX_NORMAL: c_uint = 0x0;
    pub const MEMWAIT_MUTEX_RECURSIVE: c_uint = 0x1;
    pub const MEMWAIT_MUTEX_ERRORCHECK: c_uint = 0x2;
    pub const MEMWAIT_MUTEX_FAIR: c_uint = 0x4;
    pub const MEMWAIT_MUTEX_ROBUST: c_uint = 0x8;

    pub const MEMWAIT_COND_MONOTONIC: c_uint = 0x10;

    pub const MEMWAIT_SEM_VALUE_MAX: c_uint = 0x7fffffff;
    pub const MEMWAIT_SEM_FAIR: c_uint = 0x4;
    pub const MEMWAIT_SEM_FAIR_VALUE_MAX: c_uint = 0x7fff;

    pub const MEMWAIT_RWLOCK_PREFER_READER: c_uint = 0x0;
    pub const MEMWAIT_RWLOCK_FAIR: c_uint = 0x4;
    pub const MEMWAIT_RWLOCK_ROBUST: c_uint = 0x8;
    pub const MEMWAIT_RWLOCK_PREFER_WRITER: c_uint = 0x10;

    pub const MEMWAIT_BARRIER_SERIAL_THREAD: c_int = -1;

    pub const MEMWAIT_WAITGROUP_MAX: c_uint = 0x3fffffff;

    pub const EPERM: c_int = 1;
    pub const ENOENT: c_int = 2;
    pub const EINTR: c_int = 4;
    pub const EAGAIN: c_int = 11;
    pub const EBUSY: c_int = 16;
    pub const EINVAL: c_int = 22;
    pub const EPIPE: c_int = 32;
    pub const ETIMEDOUT: c_int = 110;
    pub const EINPROGRESS: c_int = 115;
    pub const ECANCELED: c_int = 125;
    pub const EOWNERDEAD: c_int = 130;
    pub const ENOTRECOVERABLE: c_int = 131;
}

pub use constants::*;

#[allow(missing_docs)]
#[link(name = "memwait")]
extern "C" {
    pub fn memwait_version() -> c_uint;
    pub fn memwait_strerror(error: c_int) -> *const c_char;
    pub fn memwait_stroutcome(result: c_int) -> *const c_char;
    pub fn memwait_available() -> c_int;
    pub fn memwait_loop_new(r#loop: *mut *mut memwait_loop_t, flags: c_uint) -> c_int;
    pub fn memwait_loop_close(r#loop: *mut memwait_loop_t) -> c_int;
    pub fn memwait_loop_fd(r#loop: *const memwait_loop_t) -> c_int;
    pub fn memwait_loop_dispatch(r#loop: *mut memwait_loop_t, most: c_uint) -> c_int;
    pub fn memwait_loop_run(
        r#loop: *mut memwait_loop_t,
        timeout: *const timespec,
        flags: c_uint,
    ) -> c_int;
    pub fn memwait_loop_stop(r#loop: *mut memwait_loop_t) -> c_int;
    pub fn memwait_loop_pending(r#loop: *const memwait_loop_t) -> usize;
    pub fn memwait_op_init(
        op: *mut memwait_op_t,
        r#loop: *mut memwait_loop_t,
        callback: memwait_callback_t,
        data: *mut c_void,
    ) -> c_int;
    pub fn memwait_op_cancel(op: *mut memwait_op_t) -> c_int;
    pub fn memwait_op_undo(op: *mut memwait_op_t) -> c_int;
    pub fn memwait_op_wait(op: *mut memwait_op_t, result: *mut c_int) -> c_int;
    pub fn memwait_op_pending(op: *const memwait_op_t) -> c_int;
    pub fn memwait_op_index(op: *const memwait_op_t) -> c_uint;
    pub fn memwait_op_strerror(op: *const memwait_op_t, result: c_int) -> *const c_char;
    pub fn memwait_op_count(op: *const memwait_op_t) -> c_uint;
    pub fn memwait_wait8(
        word: *const c_void,
        expected: u8,
        timeout: *const timespec,
        flags: c_uint,
    ) -> c_int;
    pub fn memwait_wait16(
        word: *const c_void,
        expected: u16,
        timeout: *const timespec,
        flags: c_uint,
    ) -> c_int;
    pub fn memwait_wait32(
        word: *const c_void,
        expected: u32,
        timeout: *const timespec,
        flags: c_uint,
    ) -> c_int;
    pub fn memwait_wait64(
        word: *const c_void,
        expected: u64,
        timeout: *const timespec,
        flags: c_uint,
    ) -> c_int;
    pub fn memwait_wait8_async(
        word: *const c_void,
        expected: u8,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_wait16_async(
        word: *const c_void,
        expected: u16,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_wait32_async(
        word: *const c_void,
        expected: u32,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_wait64_async(
        word: *const c_void,
        expected: u64,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_watch8(
        word: *const c_void,
        expected: u8,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_watch16(
        word: *const c_void,
        expected: u16,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_watch32(
        word: *const c_void,
        expected: u32,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_watch64(
        word: *const c_void,
        expected: u64,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_notify(word: *const c_void, count: c_uint, flags: c_uint) -> c_int;
    pub fn memwait_change_notify32(
        word: *mut c_void,
        operation: c_uint,
        operand: u32,
        count: c_uint,
        flags: c_uint,
        old: *mut u32,
    ) -> c_int;
    pub fn memwait_owner(id: *mut u64) -> c_int;
    pub fn memwait_waiters(word: *const c_void, flags: c_uint) -> c_int;
    pub fn memwait_wait_any(
        waits: *const memwait_wait,
        count: c_uint,
        timeout: *const timespec,
        flags: c_uint,
        index: *mut c_uint,
    ) -> c_int;
    pub fn memwait_wait_any_async(
        waits: *const memwait_wait,
        count: c_uint,
        timeout: *const timespec,
        flags: c_uint,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_requeue8(
        word: *const c_void,
        expected: u8,
        target: *const c_void,
        count: c_uint,
        r#move: c_uint,
        flags: c_uint,
        woken: *mut c_uint,
        moved: *mut c_uint,
    ) -> c_int;
    pub fn memwait_requeue16(
        word: *const c_void,
        expected: u16,
        target: *const c_void,
        count: c_uint,
        r#move: c_uint,
        flags: c_uint,
        woken: *mut c_uint,
        moved: *mut c_uint,
    ) -> c_int;
    pub fn memwait_requeue32(
        word: *const c_void,
        expected: u32,
        target: *const c_void,
        count: c_uint,
        r#move: c_uint,
        flags: c_uint,
        woken: *mut c_uint,
        moved: *mut c_uint,
    ) -> c_int;
    pub fn memwait_requeue64(
        word: *const c_void,
        expected: u64,
        target: *const c_void,
        count: c_uint,
        r#move: c_uint,
        flags: c_uint,
        woken: *mut c_uint,
        moved: *mut c_uint,
    ) -> c_int;
    pub fn memwait_notify_wait8(
        target: *const c_void,
        count: c_uint,
        word: *const c_void,
        expected: u8,
        timeout: *const timespec,
        flags: c_uint,
        notified: *mut c_uint,
    ) -> c_int;
    pub fn memwait_notify_wait16(
        target: *const c_void,
        count: c_uint,
        word: *const c_void,
        expected: u16,
        timeout: *const timespec,
        flags: c_uint,
        notified: *mut c_uint,
    ) -> c_int;
    pub fn memwait_notify_wait32(
        target: *const c_void,
        count: c_uint,
        word: *const c_void,
        expected: u32,
        timeout: *const timespec,
        flags: c_uint,
        notified: *mut c_uint,
    ) -> c_int;
    pub fn memwait_notify_wait64(
        target: *const c_void,
        count: c_uint,
        word: *const c_void,
        expected: u64,
        timeout: *const timespec,
        flags: c_uint,
        notified: *mut c_uint,
    ) -> c_int;
    pub fn memwait_notify_many(
        notifies: *const memwait_notify,
        count: c_uint,
        woken: *mut c_uint,
    ) -> c_int;
    pub fn memwait_mutex_init(mutex: *mut memwait_mutex_t, kind: c_uint) -> c_int;
    pub fn memwait_mutex_destroy(mutex: *mut memwait_mutex_t) -> c_int;
    pub fn memwait_mutex_lock(mutex: *mut memwait_mutex_t) -> c_int;
    pub fn memwait_mutex_trylock(mutex: *mut memwait_mutex_t) -> c_int;
    pub fn memwait_mutex_timedlock(mutex: *mut memwait_mutex_t, abstime: *const timespec) -> c_int;
    pub fn memwait_mutex_clocklock(
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_mutex_unlock(mutex: *mut memwait_mutex_t) -> c_int;
    pub fn memwait_mutex_is_held(mutex: *mut memwait_mutex_t) -> c_int;
    pub fn memwait_mutex_consistent(mutex: *mut memwait_mutex_t) -> c_int;
    pub fn memwait_mutex_lock_async(mutex: *mut memwait_mutex_t, op: *mut memwait_op_t) -> c_int;
    pub fn memwait_mutex_clocklock_async(
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_mutex_execute_locked(
        mutex: *mut memwait_mutex_t,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_cond_init(cond: *mut memwait_cond_t, flags: c_uint) -> c_int;
    pub fn memwait_cond_destroy(cond: *mut memwait_cond_t) -> c_int;
    pub fn memwait_cond_wait(cond: *mut memwait_cond_t, mutex: *mut memwait_mutex_t) -> c_int;
    pub fn memwait_cond_timedwait(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_cond_clockwait(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_cond_signal(cond: *mut memwait_cond_t) -> c_int;
    pub fn memwait_cond_broadcast(cond: *mut memwait_cond_t) -> c_int;
    pub fn memwait_cond_notify(cond: *mut memwait_cond_t, count: c_uint) -> c_int;
    pub fn memwait_cond_wait_async(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_cond_clockwait_async(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_sem_init(sem: *mut memwait_sem_t, flags: c_uint, value: c_uint) -> c_int;
    pub fn memwait_sem_destroy(sem: *mut memwait_sem_t) -> c_int;
    pub fn memwait_sem_wait(sem: *mut memwait_sem_t) -> c_int;
    pub fn memwait_sem_trywait(sem: *mut memwait_sem_t) -> c_int;
    pub fn memwait_sem_timedwait(sem: *mut memwait_sem_t, abstime: *const timespec) -> c_int;
    pub fn memwait_sem_clockwait(
        sem: *mut memwait_sem_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_sem_wait_async(sem: *mut memwait_sem_t, op: *mut memwait_op_t) -> c_int;
    pub fn memwait_sem_clockwait_async(
        sem: *mut memwait_sem_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_sem_post(sem: *mut memwait_sem_t) -> c_int;
    pub fn memwait_sem_getvalue(sem: *const memwait_sem_t, value: *mut c_int) -> c_int;
    pub fn memwait_rwlock_init(rwlock: *mut memwait_rwlock_t, kind: c_uint) -> c_int;
    pub fn memwait_rwlock_destroy(rwlock: *mut memwait_rwlock_t) -> c_int;
    pub fn memwait_rwlock_rdlock(rwlock: *mut memwait_rwlock_t) -> c_int;
    pub fn memwait_rwlock_tryrdlock(rwlock: *mut memwait_rwlock_t) -> c_int;
    pub fn memwait_rwlock_timedrdlock(
        rwlock: *mut memwait_rwlock_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_rwlock_clockrdlock(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_rwlock_rdlock_async(
        rwlock: *mut memwait_rwlock_t,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_rwlock_clockrdlock_async(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_rwlock_wrlock(rwlock: *mut memwait_rwlock_t) -> c_int;
    pub fn memwait_rwlock_trywrlock(rwlock: *mut memwait_rwlock_t) -> c_int;
    pub fn memwait_rwlock_timedwrlock(
        rwlock: *mut memwait_rwlock_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_rwlock_clockwrlock(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_rwlock_wrlock_async(
        rwlock: *mut memwait_rwlock_t,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_rwlock_clockwrlock_async(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_rwlock_unlock(rwlock: *mut memwait_rwlock_t) -> c_int;
    pub fn memwait_rwlock_consistent(rwlock: *mut memwait_rwlock_t) -> c_int;
    pub fn memwait_barrier_init(
        barrier: *mut memwait_barrier_t,
        flags: c_uint,
        count: c_uint,
    ) -> c_int;
    pub fn memwait_barrier_destroy(barrier: *mut memwait_barrier_t) -> c_int;
    pub fn memwait_barrier_wait(barrier: *mut memwait_barrier_t) -> c_int;
    pub fn memwait_barrier_timedwait(
        barrier: *mut memwait_barrier_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_barrier_clockwait(
        barrier: *mut memwait_barrier_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_barrier_wait_async(
        barrier: *mut memwait_barrier_t,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_barrier_clockwait_async(
        barrier: *mut memwait_barrier_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_barrier_abort(barrier: *mut memwait_barrier_t) -> c_int;
    pub fn memwait_barrier_reset(barrier: *mut memwait_barrier_t) -> c_int;
    pub fn memwait_barrier_inspect(
        barrier: *mut memwait_barrier_t,
        count: *mut c_uint,
        waiting: *mut c_uint,
    ) -> c_int;
    pub fn memwait_waitgroup_init(
        group: *mut memwait_waitgroup_t,
        flags: c_uint,
        count: c_uint,
    ) -> c_int;
    pub fn memwait_waitgroup_destroy(group: *mut memwait_waitgroup_t) -> c_int;
    pub fn memwait_waitgroup_add(group: *mut memwait_waitgroup_t, delta: c_int) -> c_int;
    pub fn memwait_waitgroup_done(group: *mut memwait_waitgroup_t) -> c_int;
    pub fn memwait_waitgroup_wait(group: *mut memwait_waitgroup_t) -> c_int;
    pub fn memwait_waitgroup_timedwait(
        group: *mut memwait_waitgroup_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_waitgroup_clockwait(
        group: *mut memwait_waitgroup_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_waitgroup_wait_async(
        group: *mut memwait_waitgroup_t,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_waitgroup_clockwait_async(
        group: *mut memwait_waitgroup_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_event_init(event: *mut memwait_event_t, flags: c_uint) -> c_int;
    pub fn memwait_event_destroy(event: *mut memwait_event_t) -> c_int;
    pub fn memwait_event_is_set(event: *const memwait_event_t) -> c_int;
    pub fn memwait_event_set(event: *mut memwait_event_t) -> c_int;
    pub fn memwait_event_clear(event: *mut memwait_event_t) -> c_int;
    pub fn memwait_event_wait(event: *mut memwait_event_t) -> c_int;
    pub fn memwait_event_timedwait(event: *mut memwait_event_t, abstime: *const timespec) -> c_int;
    pub fn memwait_event_clockwait(
        event: *mut memwait_event_t,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_event_wait_async(event: *mut memwait_event_t, op: *mut memwait_op_t) -> c_int;
    pub fn memwait_event_clockwait_async(
        event: *mut memwait_event_t,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_channel_size(item_size: usize, capacity: usize) -> usize;
    pub fn memwait_channel_init(
        channel: *mut memwait_channel_t,
        memory: usize,
        flags: c_uint,
        item_size: usize,
        capacity: usize,
    ) -> c_int;
    pub fn memwait_channel_attach(
        channel: *const memwait_channel_t,
        memory: usize,
        item_size: *mut usize,
        capacity: *mut usize,
    ) -> c_int;
    pub fn memwait_channel_destroy(channel: *mut memwait_channel_t) -> c_int;
    pub fn memwait_channel_send(
        channel: *mut memwait_channel_t,
        item: *const c_void,
        size: usize,
    ) -> c_int;
    pub fn memwait_channel_trysend(
        channel: *mut memwait_channel_t,
        item: *const c_void,
        size: usize,
    ) -> c_int;
    pub fn memwait_channel_timedsend(
        channel: *mut memwait_channel_t,
        item: *const c_void,
        size: usize,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_channel_clocksend(
        channel: *mut memwait_channel_t,
        item: *const c_void,
        size: usize,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_channel_send_async(
        channel: *mut memwait_channel_t,
        item: *const c_void,
        size: usize,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_channel_clocksend_async(
        channel: *mut memwait_channel_t,
        item: *const c_void,
        size: usize,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_channel_recv(
        channel: *mut memwait_channel_t,
        item: *mut c_void,
        size: usize,
    ) -> c_int;
    pub fn memwait_channel_tryrecv(
        channel: *mut memwait_channel_t,
        item: *mut c_void,
        size: usize,
    ) -> c_int;
    pub fn memwait_channel_timedrecv(
        channel: *mut memwait_channel_t,
        item: *mut c_void,
        size: usize,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_channel_clockrecv(
        channel: *mut memwait_channel_t,
        item: *mut c_void,
        size: usize,
        clock: clockid_t,
        abstime: *const timespec,
    ) -> c_int;
    pub fn memwait_channel_recv_async(
        channel: *mut memwait_channel_t,
        item: *mut c_void,
        size: usize,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_channel_clockrecv_async(
        channel: *mut memwait_channel_t,
        item: *mut c_void,
        size: usize,
        clock: clockid_t,
        abstime: *const timespec,
        op: *mut memwait_op_t,
    ) -> c_int;
    pub fn memwait_channel_close(channel: *mut memwait_channel_t) -> c_int;
    pub fn memwait_channel_length(channel: *const memwait_channel_t) -> usize;
}
