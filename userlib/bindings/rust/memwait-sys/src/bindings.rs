// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
// Made by bindgen from memwait.h. After a change of the header, run make bindgen.
pub type __time_t = ::std::os::raw::c_long;
pub type __clockid_t = ::std::os::raw::c_int;
pub type __syscall_slong_t = ::std::os::raw::c_long;
pub type clockid_t = __clockid_t;
/// \<time.h> does not declare this type in plain C99.
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct timespec {
    pub tv_sec: __time_t,
    pub tv_nsec: __syscall_slong_t,
}
#[test]
fn bindgen_test_layout_timespec() {
    assert_eq!(
        ::std::mem::size_of::<timespec>(),
        16usize,
        concat!("Size of: ", stringify!(timespec))
    );
    assert_eq!(
        ::std::mem::align_of::<timespec>(),
        8usize,
        concat!("Alignment of ", stringify!(timespec))
    );
    fn test_field_tv_sec() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<timespec>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).tv_sec) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(timespec),
                "::",
                stringify!(tv_sec)
            )
        );
    }
    test_field_tv_sec();
    fn test_field_tv_nsec() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<timespec>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).tv_nsec) as usize - ptr as usize
            },
            8usize,
            concat!(
                "Offset of field: ",
                stringify!(timespec),
                "::",
                stringify!(tv_nsec)
            )
        );
    }
    test_field_tv_nsec();
}
pub type __u32 = ::std::os::raw::c_uint;
pub type __u64 = ::std::os::raw::c_ulonglong;
/// word, expected value and deadline of a wait
/// - `addr`: address of the word, aligned to its size
/// - `expected`: wait only while the word holds this value; bits above the word's size are ignored
/// - `deadline`: absolute time in ns, on CLOCK_MONOTONIC of the caller's time namespace or, with
///   MEMWAIT_CLOCK_REALTIME, on CLOCK_REALTIME; MEMWAIT_FOREVER: no deadline
/// - `flags`: MEMWAIT_SIZE_\*, MEMWAIT_PRIVATE, MEMWAIT_CLOCK_REALTIME, MEMWAIT_OWNED
/// - `reserved`: 0
///
/// With MEMWAIT_OWNED the lower 62 bits of a 64-bit `expected` are the owner's id, 0 for no owner. A
/// word smaller than 64 bits names no owner. If the owner is dead, the wait returns
/// MEMWAIT_OWNER_DIED immediately. If the owner dies later, or if a waiter dies after it was woken
/// with MEMWAIT_OK or MEMWAIT_OWNER_DIED, the word's oldest MEMWAIT_OWNED waiter gets
/// MEMWAIT_OWNER_DIED. The kernel watches only the last woken waiter, and only while other
/// MEMWAIT_OWNED waiters are queued. A thread that calls exit(2) ends, but does not die. Its end is
/// reported only to waiters of a 64-bit word that may name the thread. The kernel never writes to
/// the word. A waiter that gets MEMWAIT_OWNER_DIED must check the word. If it waits again, it joins
/// the end of the queue.
///
/// A call with `deadline` 0 never waits.
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct memwait_wait {
    pub addr: __u64,
    pub expected: __u64,
    pub deadline: __u64,
    pub flags: __u32,
    pub reserved: __u32,
}
#[test]
fn bindgen_test_layout_memwait_wait() {
    assert_eq!(
        ::std::mem::size_of::<memwait_wait>(),
        32usize,
        concat!("Size of: ", stringify!(memwait_wait))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_wait>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_wait))
    );
    fn test_field_addr() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_wait>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).addr) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_wait),
                "::",
                stringify!(addr)
            )
        );
    }
    test_field_addr();
    fn test_field_expected() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_wait>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).expected) as usize - ptr as usize
            },
            8usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_wait),
                "::",
                stringify!(expected)
            )
        );
    }
    test_field_expected();
    fn test_field_deadline() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_wait>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).deadline) as usize - ptr as usize
            },
            16usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_wait),
                "::",
                stringify!(deadline)
            )
        );
    }
    test_field_deadline();
    fn test_field_flags() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_wait>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).flags) as usize - ptr as usize
            },
            24usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_wait),
                "::",
                stringify!(flags)
            )
        );
    }
    test_field_flags();
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_wait>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            28usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_wait),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
/// a word and how many waiters to wake
/// - `addr`: address of the word, aligned to its size
/// - `count`: max. waiters to wake, oldest first; MEMWAIT_ALL: all. Must be 0 for MEMWAIT_IOC_WAITERS
/// - `flags`: MEMWAIT_SIZE_\*, MEMWAIT_PRIVATE. The size determines only the alignment of `addr`; waiters
///   of all sizes at `addr` share one queue
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct memwait_notify {
    pub addr: __u64,
    pub count: __u32,
    pub flags: __u32,
}
#[test]
fn bindgen_test_layout_memwait_notify() {
    assert_eq!(
        ::std::mem::size_of::<memwait_notify>(),
        16usize,
        concat!("Size of: ", stringify!(memwait_notify))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_notify>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_notify))
    );
    fn test_field_addr() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_notify>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).addr) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_notify),
                "::",
                stringify!(addr)
            )
        );
    }
    test_field_addr();
    fn test_field_count() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_notify>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).count) as usize - ptr as usize
            },
            8usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_notify),
                "::",
                stringify!(count)
            )
        );
    }
    test_field_count();
    fn test_field_flags() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_notify>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).flags) as usize - ptr as usize
            },
            12usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_notify),
                "::",
                stringify!(flags)
            )
        );
    }
    test_field_flags();
}
extern "C" {
    pub fn memwait_version() -> ::std::os::raw::c_uint;
}
extern "C" {
    /// Describes an error number, positive or negative, as this library uses it; the texts of
    /// strerror(3) do not mention the device. Not for outcomes, whose numbers overlap with error
    /// numbers: see memwait_stroutcome() and memwait_op_strerror(). The next call of any of the three
    /// functions in the same thread may overwrite the text.
    pub fn memwait_strerror(error: ::std::os::raw::c_int) -> *const ::std::os::raw::c_char;
}
extern "C" {
    /// Describes a result of a word function or of memwait_loop_run(): MEMWAIT_OK ...
    /// MEMWAIT_OWNER_DIED, or a negative error number.
    pub fn memwait_stroutcome(result: ::std::os::raw::c_int) -> *const ::std::os::raw::c_char;
}
extern "C" {
    /// Opens the device and returns 0 if it can be used. Otherwise returns the negative error number
    /// that other functions would fail with: -ENOENT, -ENXIO, -EACCES, -EMFILE ... from open(2);
    /// -ENOTTY: the file is not this device; -ENOSYS: the module is too old; -EPERM ...: from a seccomp
    /// filter.
    pub fn memwait_available() -> ::std::os::raw::c_int;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct memwait_loop {
    _unused: [u8; 0],
}
/// An event source: a context of /dev/memwait and its pending operations.
pub type memwait_loop_t = memwait_loop;
/// An operation. The caller owns the memory; the library allocates none. After memwait_op_init() an
/// operation can be used any number of times, but only for one purpose at a time. It must not move
/// while it is pending, that is, until its callback begins (for memwait_watch\*(), its last
/// callback), or until memwait_op_cancel() returns 0.
#[repr(C)]
#[derive(Copy, Clone)]
pub union memwait_op_t {
    pub reserved: [u64; 24usize],
    pub align: *mut ::std::os::raw::c_void,
}
#[test]
fn bindgen_test_layout_memwait_op_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_op_t>(),
        192usize,
        concat!("Size of: ", stringify!(memwait_op_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_op_t>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_op_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_op_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_op_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
    fn test_field_align() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_op_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).align) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_op_t),
                "::",
                stringify!(align)
            )
        );
    }
    test_field_align();
}
impl Default for memwait_op_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// Runs within memwait_loop_dispatch(), memwait_loop_run() or memwait_op_wait(), in the calling
/// thread, which holds no lock of the library. The callback may do anything, such as begin `op`
/// again, free it, cancel, lock, dispatch or end its thread, except close the loop or leave by
/// longjmp() or an exception.
/// `result`: the result of the blocking function.
pub type memwait_callback_t = ::std::option::Option<
    unsafe extern "C" fn(
        op: *mut memwait_op_t,
        result: ::std::os::raw::c_int,
        data: *mut ::std::os::raw::c_void,
    ),
>;
extern "C" {
    #[must_use]
    /// Creates a loop. `flags` must be 0. -ENOENT, -ENODEV, -EACCES, -EMFILE ...: from open(2) for
    /// /dev/memwait; -ENOTTY: the file is not this device; -ENOSYS: the module is too old; -ENOMEM: no
    /// memory; -ENOSPC: the user has reached the limit on waits or on ids.
    pub fn memwait_loop_new(
        loop_: *mut *mut memwait_loop_t,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Ends all pending operations, as memwait_op_cancel() does, and frees the loop. The words and
    /// objects that they wait for must still exist. No other thread may use the loop or its operations
    /// during the call; afterwards only memwait_op_init() and memwait_op_pending() may be called for the
    /// operations. -EBUSY, with nothing done: a thread is within memwait_loop_dispatch(),
    /// memwait_loop_run() or memwait_op_wait(), for example in a callback. A child process closes only
    /// its copy. If `loop` is NULL, nothing is done.
    pub fn memwait_loop_close(loop_: *mut memwait_loop_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Returns the descriptor to poll for POLLIN. The descriptor is readable while there is something to
    /// dispatch, except for completions that a dispatching thread has already read. Do not read or close
    /// it. -EINVAL: `loop` is NULL.
    pub fn memwait_loop_fd(loop_: *const memwait_loop_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Runs the callbacks of all operations that had completed when it was called, but no more than
    /// `most`, which may be MEMWAIT_ALL; never blocks. Returns how many ran, or a negative error number:
    /// -EPERM in a child process. If completed operations remain, the descriptor stays readable and
    /// gets a new edge: one call for each readiness event is enough, even with edge-triggered polling.
    /// Threads may dispatch concurrently.
    pub fn memwait_loop_dispatch(
        loop_: *mut memwait_loop_t,
        most: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// For programs without an event loop of their own: dispatches until no operation is pending or
    /// memwait_loop_stop() is called, and returns 0. When the deadline has passed, runs the callbacks of
    /// all operations that have completed by then, and returns MEMWAIT_TIMED_OUT if an operation is
    /// still pending. `timeout`, `flags`: as for memwait_wait32(); the flags are MEMWAIT_CLOCK_REALTIME
    /// and MEMWAIT_RELATIVE. If CLOCK_REALTIME is set while this function sleeps, the function takes the
    /// new time into account within a second.
    ///
    /// Several threads may run one loop. An operation is not pending while its callback is running, so
    /// another thread that checks at that time may return. This function is a cancellation point. -EPERM
    /// in a child process.
    pub fn memwait_loop_run(
        loop_: *mut memwait_loop_t,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Makes every memwait_loop_run() and memwait_op_wait() that is in progress on the loop, in any
    /// thread, return after the current callback. If no such call is in progress, the next such call
    /// returns immediately. Callable from any thread or signal handler. -EPERM in a child process.
    pub fn memwait_loop_stop(loop_: *mut memwait_loop_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Returns the number of pending operations. The program's event loop should run while it is not 0.
    pub fn memwait_loop_pending(loop_: *const memwait_loop_t) -> usize;
}
extern "C" {
    /// Binds an operation that is not pending to a loop. `callback` may be NULL, for example if
    /// memwait_op_wait() waits for the operation; `data` is passed to the callback. Must be called before
    /// all other functions for operations, which fail with EINVAL for zeroed memory, and cannot detect
    /// other uninitialised memory.
    pub fn memwait_op_init(
        op: *mut memwait_op_t,
        loop_: *mut memwait_loop_t,
        callback: memwait_callback_t,
        data: *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Cancels an operation, from any thread. 0: the callback will not run, nothing is locked or
    /// consumed, and a wake-up that the operation had received is passed to the next waiter. -ENOENT:
    /// the operation is not pending; its callback has returned, or is running in this thread.
    /// -EINPROGRESS: its callback is still running in another thread, and may use the data that belongs
    /// to the operation; an operation of memwait_watch\*() is cancelled, but stays pending until that
    /// callback returns. -EPERM: in a child process. Other errors come from a seccomp filter, and the
    /// operation is still pending.
    pub fn memwait_op_cancel(op: *mut memwait_op_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Gives back what an operation received when it ended, for a caller that no longer wants the
    /// result, as if memwait_op_cancel() had been called before the end:
    ///
    /// ```text
    /// lock			is unlocked. If the result was EOWNERDEAD and the data has not been
    /// 			repaired, the next owner gets EOWNERDEAD
    /// semaphore		is posted
    /// condition variable	is signalled, and its mutex unlocked
    /// word			is notified, for one waiter
    /// received item is sent again by the same operation, as the newest item
    /// ```
    ///
    /// Does nothing and returns 0 for other operations, and for an operation that failed, timed out, was
    /// cancelled or was undone. However, a wait for a condition variable that timed out has locked the
    /// mutex; this function unlocks it. -EINPROGRESS: the item is being sent; the callback runs with 0,
    /// or with the error of the send. -EBUSY: the operation is pending. -EINVAL: it was never begun.
    /// -EPERM: another thread owns the lock, or the operation belongs to the parent process. Other
    /// errors are those of the unlock, post, notify or send. If the send fails, the item is still in the
    /// memory into which it was received.
    ///
    /// An _async function that refuses its arguments does not begin the operation: after such a failure
    /// this function would give back an earlier result. The object must still exist, and so must the
    /// array of a wait for several words. If an item must be sent again, the loop must not have been
    /// closed.
    pub fn memwait_op_undo(op: *mut memwait_op_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Dispatches the loop until a pending operation has ended and no other thread is running its
    /// callback. The operation must stay in place until this call has returned. On a loop that only the
    /// calling thread uses, this is a blocking wait that memwait_loop_stop() can end. If this call
    /// returns 0, `*result` (if `result` is not NULL) is the result that the callback gets. -EINTR: the
    /// wait was stopped; the operation is still pending, at its queue position: wait again, or cancel
    /// it. -ECANCELED: the operation was cancelled. -EINVAL: the operation has not begun since
    /// memwait_op_init(). -EPERM: in a child process. This function is a cancellation point; the
    /// operation stays pending if the thread is cancelled.
    pub fn memwait_op_wait(
        op: *mut memwait_op_t,
        result: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Returns 1 if the operation is pending, or 0.
    pub fn memwait_op_pending(op: *const memwait_op_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// After memwait_wait_any_async(): the index of the word that MEMWAIT_OK or MEMWAIT_NOT_EQUAL refers
    /// to. 0 for other operations.
    pub fn memwait_op_index(op: *const memwait_op_t) -> ::std::os::raw::c_uint;
}
extern "C" {
    /// In the callback of memwait_watch\*(): the number of notifies that MEMWAIT_OK reports. 0 for
    /// MEMWAIT_TIMED_OUT and for other operations.
    pub fn memwait_op_count(op: *const memwait_op_t) -> ::std::os::raw::c_uint;
}
extern "C" {
    /// Describes the `result` that a callback receives, or `*result` of memwait_op_wait(), for any kind of
    /// operation. Can be called in the callback and later, until the operation is initialised or begun
    /// again.
    pub fn memwait_op_strerror(
        op: *const memwait_op_t,
        result: ::std::os::raw::c_int,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    #[must_use]
    /// Checks that \*word == expected, and then waits until the word is notified or the timeout passes. A
    /// word is a naturally aligned integer of the size in the function's name, atomic or not.
    /// `timeout`: NULL: wait forever; otherwise a deadline on CLOCK_MONOTONIC, or on CLOCK_REALTIME with
    /// MEMWAIT_CLOCK_REALTIME, or a time from now with MEMWAIT_RELATIVE. `flags`: MEMWAIT_PRIVATE,
    /// MEMWAIT_CLOCK_REALTIME, MEMWAIT_RELATIVE, MEMWAIT_OWNED.
    ///
    /// With MEMWAIT_OWNED, a death ends the wait with MEMWAIT_OWNER_DIED; see memwait(4). The lower 62
    /// bits of a 64-bit word are its owner's id. The calling thread gets an id; this can fail with
    /// -EOPNOTSUPP, -ENOSPC or -ENOMEM.
    ///
    /// Returns MEMWAIT_OK, MEMWAIT_NOT_EQUAL, MEMWAIT_TIMED_OUT, MEMWAIT_OWNER_DIED; or -EINVAL
    /// (misaligned), -EFAULT, -EINTR, -EOPNOTSUPP (device memory; 64 bits on a 32-bit kernel), -ENOMEM.
    pub fn memwait_wait8(
        word: *const ::std::os::raw::c_void,
        expected: u8,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_wait16(
        word: *const ::std::os::raw::c_void,
        expected: u16,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_wait32(
        word: *const ::std::os::raw::c_void,
        expected: u32,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_wait64(
        word: *const ::std::os::raw::c_void,
        expected: u64,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// The form of memwait_wait\*() for an operation; with MEMWAIT_OWNED it uses the id of the
    /// operation's loop. Returns MEMWAIT_PENDING if the callback will run, with MEMWAIT_OK,
    /// MEMWAIT_TIMED_OUT or MEMWAIT_OWNER_DIED; otherwise the result of the wait. -EBUSY, -EPERM and
    /// -ENOSPC: see \*_async() at the top of this file.
    pub fn memwait_wait8_async(
        word: *const ::std::os::raw::c_void,
        expected: u8,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_wait16_async(
        word: *const ::std::os::raw::c_void,
        expected: u16,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_wait32_async(
        word: *const ::std::os::raw::c_void,
        expected: u32,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_wait64_async(
        word: *const ::std::os::raw::c_void,
        expected: u64,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Like memwait_wait\*_async(), but notifies do not end the operation: when one or more have arrived,
    /// the callback runs with MEMWAIT_OK, and memwait_op_count() returns how many. The word is compared
    /// only when the operation begins. Only one callback of the operation runs at a time; notifies that
    /// arrive while it is running are reported by the next callback. The operation ends with
    /// MEMWAIT_TIMED_OUT or by memwait_op_cancel(). The callback may itself cancel the operation, and
    /// then free it or begin it again. After a cancel, notifies that were counted but not reported to a
    /// callback are passed to the next waiters, one to each. MEMWAIT_OWNED fails with -EINVAL.
    pub fn memwait_watch8(
        word: *const ::std::os::raw::c_void,
        expected: u8,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_watch16(
        word: *const ::std::os::raw::c_void,
        expected: u16,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_watch32(
        word: *const ::std::os::raw::c_void,
        expected: u32,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_watch64(
        word: *const ::std::os::raw::c_void,
        expected: u64,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Wakes at most `count` waiters, oldest first; MEMWAIT_ALL: all. Waiters of all sizes share one
    /// queue.
    /// `flags`: 0 or MEMWAIT_PRIVATE. If `flags` contains a size, such as MEMWAIT_SIZE_U32, `word` must be
    /// aligned to that size. Returns how many were woken, or -EFAULT ...
    pub fn memwait_notify(
        word: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Applies an atomic operation (MEMWAIT_CHANGE_SET, _ADD, _AND, _OR, _XOR) to a 32-bit word and
    /// wakes at most `count` waiters, in one system call that no signal, not even SIGKILL, can split.
    /// `*old` (if not NULL): the previous value. `flags`: 0 or MEMWAIT_PRIVATE. Returns how many were
    /// woken; or -EINVAL, -EFAULT, -EOPNOTSUPP with nothing done.
    ///
    /// With MEMWAIT_CHANGE_IF_NONE_WOKEN in `operation` the word is changed only if there was no waiter
    /// to wake: each waiter is woken or sees the change. If a waiter was woken, `*old` is 0.
    pub fn memwait_change_notify32(
        word: *mut ::std::os::raw::c_void,
        operation: ::std::os::raw::c_uint,
        operand: u32,
        count: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
        old: *mut u32,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Sets `*id` to the id of the calling thread, which marks it as a word's owner: nonzero, random,
    /// within MEMWAIT_OWNER_MASK, the same in every process and namespace. -EOPNOTSUPP: the kernel has
    /// no ids; -ENOSPC: the user has reached the limit on ids; -ENOMEM: no memory; or an error of
    /// open(2).
    pub fn memwait_owner(id: *mut u64) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Returns the number of waiters, which may be stale on return. For tests and diagnosis.
    pub fn memwait_waiters(
        word: *const ::std::os::raw::c_void,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Checks that all `count` words (1 to MEMWAIT_GROUP_MAX) have their expected values, and then waits
    /// until one of the words is notified. The wait consumes exactly one notify. Set addr, expected and
    /// flags (MEMWAIT_SIZE_U8 ... _U64, MEMWAIT_PRIVATE) in each element of `waits`, and all other
    /// members to 0; a word may occur several times. `timeout` and `flags`: as for memwait_wait32(),
    /// without MEMWAIT_PRIVATE and MEMWAIT_OWNED. `*index` (if `index` is not NULL): with MEMWAIT_OK, the
    /// index of the notified word; with MEMWAIT_NOT_EQUAL, the index of the first word that differs.
    ///
    /// Returns the same results as memwait_wait32().
    pub fn memwait_wait_any(
        waits: *const memwait_wait,
        count: ::std::os::raw::c_uint,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        index: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// The form of memwait_wait_any() for an operation; memwait_op_index() returns the index. `waits`
    /// must stay unchanged while the operation is pending.
    pub fn memwait_wait_any_async(
        waits: *const memwait_wait,
        count: ::std::os::raw::c_uint,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// If \*word == expected, wakes at most `count` waiters and moves at most `move` others to the end of
    /// `target`'s queue, in one system call. `flags`: 0 or MEMWAIT_PRIVATE, for both words. `*woken` and
    /// `*moved` (if not NULL): how many waiters were woken and moved. A move does not change which word a
    /// waiter waits for: after a signal a thread checks its original word again, and a cancelled
    /// operation that was notified passes the wake-up to the next waiter of its original word.
    ///
    /// Returns 0; MEMWAIT_NOT_EQUAL, with nothing done; a negative error number, as memwait_wait32()
    /// does; or -EXDEV if the words belong to two files, or only one of them belongs to a file.
    pub fn memwait_requeue8(
        word: *const ::std::os::raw::c_void,
        expected: u8,
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        move_: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
        woken: *mut ::std::os::raw::c_uint,
        moved: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn memwait_requeue16(
        word: *const ::std::os::raw::c_void,
        expected: u16,
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        move_: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
        woken: *mut ::std::os::raw::c_uint,
        moved: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn memwait_requeue32(
        word: *const ::std::os::raw::c_void,
        expected: u32,
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        move_: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
        woken: *mut ::std::os::raw::c_uint,
        moved: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn memwait_requeue64(
        word: *const ::std::os::raw::c_void,
        expected: u64,
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        move_: ::std::os::raw::c_uint,
        flags: ::std::os::raw::c_uint,
        woken: *mut ::std::os::raw::c_uint,
        moved: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Does memwait_notify(target, count), and then waits on `word`, in one system call. `flags`: as for
    /// memwait_wait32(); MEMWAIT_PRIVATE applies to both words. `*notified` (if `notified` is not NULL):
    /// how many waiters of `target` were woken.
    ///
    /// Returns the same results as memwait_wait32(). -EINTR: the notify is done; continue with
    /// memwait_wait32() etc. After other errors, `*notified` shows whether waiters were woken.
    pub fn memwait_notify_wait8(
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        word: *const ::std::os::raw::c_void,
        expected: u8,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        notified: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_notify_wait16(
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        word: *const ::std::os::raw::c_void,
        expected: u16,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        notified: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_notify_wait32(
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        word: *const ::std::os::raw::c_void,
        expected: u32,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        notified: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_notify_wait64(
        target: *const ::std::os::raw::c_void,
        count: ::std::os::raw::c_uint,
        word: *const ::std::os::raw::c_void,
        expected: u64,
        timeout: *const timespec,
        flags: ::std::os::raw::c_uint,
        notified: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Notifies `count` words in one system call. Set addr, count and flags in each element of `notifies`,
    /// as for memwait_notify(). `woken`: NULL, or an array that receives how many waiters each notify
    /// woke. A loop that waits for many of the words is woken only a few times.
    ///
    /// Returns the number of words notified. If this is less than `count`, the next notify failed. If the
    /// first notify failed, returns -EINVAL, -EFAULT or -EOPNOTSUPP.
    pub fn memwait_notify_many(
        notifies: *const memwait_notify,
        count: ::std::os::raw::c_uint,
        woken: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
/// Mutexes
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct memwait_mutex_t {
    pub reserved: [u32; 10usize],
}
#[test]
fn bindgen_test_layout_memwait_mutex_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_mutex_t>(),
        40usize,
        concat!("Size of: ", stringify!(memwait_mutex_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_mutex_t>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_mutex_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_mutex_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_mutex_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
extern "C" {
    #[must_use]
    /// EINVAL: no such kind.
    pub fn memwait_mutex_init(
        mutex: *mut memwait_mutex_t,
        kind: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EBUSY: the mutex is locked (if ROBUST: by a living thread). Afterwards the memory may be reused
    /// or initialised again.
    pub fn memwait_mutex_destroy(mutex: *mut memwait_mutex_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// These functions are not cancellation points, and signals do not interrupt them. EDEADLK: the kind
    /// is ERRORCHECK, and the caller holds the mutex. EAGAIN: the kind is RECURSIVE, and the caller has
    /// locked the mutex too many times.
    ///
    /// All functions that lock a ROBUST mutex: EOWNERDEAD: the mutex is locked, and the previous owner
    /// died while it held the mutex. Repair the data that it protects and call
    /// memwait_mutex_consistent(). ENOTRECOVERABLE: the mutex was unlocked without that call; it can
    /// only be destroyed.
    pub fn memwait_mutex_lock(mutex: *mut memwait_mutex_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// EBUSY: the mutex is locked (if ROBUST: by a living thread).
    pub fn memwait_mutex_trylock(mutex: *mut memwait_mutex_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// ETIMEDOUT: the deadline passed.
    pub fn memwait_mutex_timedlock(
        mutex: *mut memwait_mutex_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_mutex_clocklock(
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EPERM: the mutex is not locked; or the kind checks the owner, and another thread owns it.
    pub fn memwait_mutex_unlock(mutex: *mut memwait_mutex_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Returns 1 if the mutex is locked (if RECURSIVE, ERRORCHECK or ROBUST: by the caller), 0 if it is
    /// not, or -EINVAL.
    pub fn memwait_mutex_is_held(mutex: *mut memwait_mutex_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// After EOWNERDEAD: marks the protected data consistent. EINVAL: the mutex is not ROBUST, or the
    /// call is not needed. EPERM: another thread owns the mutex.
    pub fn memwait_mutex_consistent(mutex: *mut memwait_mutex_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// With 0 or EOWNERDEAD, as the result of the callback or as the return value, the mutex is locked.
    /// If the kind checks the owner, the thread that runs the callback is the owner.
    pub fn memwait_mutex_lock_async(
        mutex: *mut memwait_mutex_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_mutex_clocklock_async(
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Runs the callback with the mutex locked and the result 0 or EOWNERDEAD, then unlocks the mutex.
    /// Never blocks. 0: the callback has run. EINPROGRESS: the callback will run; if locking fails, it
    /// runs with the error and without the mutex. Other errors: the callback has not run and will not
    /// run. The callback must leave the mutex locked. If it returns in a child process, the parent
    /// still holds the mutex.
    pub fn memwait_mutex_execute_locked(
        mutex: *mut memwait_mutex_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
/// Condition variables
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct memwait_cond_t {
    pub reserved: [u32; 12usize],
}
#[test]
fn bindgen_test_layout_memwait_cond_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_cond_t>(),
        48usize,
        concat!("Size of: ", stringify!(memwait_cond_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_cond_t>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_cond_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_cond_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_cond_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
extern "C" {
    #[must_use]
    /// EINVAL: unknown flags.
    pub fn memwait_cond_init(
        cond: *mut memwait_cond_t,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EBUSY: there are waiters, including operations whose wake-up has not been dispatched. Once all
    /// waiters have been woken, destroy waits for them to return, without a time limit. A waiter that is
    /// killed before it has returned is still counted: unless the condition variable is PRIVATE, destroy
    /// then returns EBUSY if no waiter returns within ten seconds. Afterwards the memory can be
    /// initialised again.
    pub fn memwait_cond_destroy(cond: *mut memwait_cond_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Unlock the mutex (a recursive mutex completely), and lock it again before any return except
    /// ENOTRECOVERABLE. Spurious returns are possible, as in POSIX: recheck the predicate. Cancellation
    /// points: cleanup handlers run with the mutex locked, and no signal is consumed. ETIMEDOUT: the
    /// deadline passed. EPERM: the mutex is not locked. With EPERM, or without the device, the mutex was
    /// never unlocked. With a ROBUST mutex: EOWNERDEAD: the mutex is locked, and an owner died during
    /// the wait. ENOTRECOVERABLE: the mutex is not locked.
    pub fn memwait_cond_wait(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_cond_timedwait(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_cond_clockwait(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Wake one waiter, all waiters, or up to `count` waiters, oldest first, of those that are waiting at
    /// the time of the call. The mutex need not be locked.
    pub fn memwait_cond_signal(cond: *mut memwait_cond_t) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn memwait_cond_broadcast(cond: *mut memwait_cond_t) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn memwait_cond_notify(
        cond: *mut memwait_cond_t,
        count: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// The caller must hold the mutex. EINPROGRESS: the mutex is now unlocked, and the callback will run
    /// with the mutex locked and the result 0 or ETIMEDOUT. After any other return value the mutex is
    /// still locked. A cancelled operation neither locks the mutex nor loses a signal.
    ///
    /// If the callback gets ENOMEM or ENOSPC, the operation could not wait for the mutex, which is not
    /// locked; a signal that it received has passed to the next waiter. EOWNERDEAD and ENOTRECOVERABLE:
    /// as for memwait_cond_wait().
    pub fn memwait_cond_wait_async(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_cond_clockwait_async(
        cond: *mut memwait_cond_t,
        mutex: *mut memwait_mutex_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
/// Semaphores
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct memwait_sem_t {
    pub reserved: [u64; 4usize],
}
#[test]
fn bindgen_test_layout_memwait_sem_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_sem_t>(),
        32usize,
        concat!("Size of: ", stringify!(memwait_sem_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_sem_t>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_sem_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_sem_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_sem_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
extern "C" {
    #[must_use]
    /// EINVAL: unknown flags; `value` is too large.
    pub fn memwait_sem_init(
        sem: *mut memwait_sem_t,
        flags: ::std::os::raw::c_uint,
        value: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EBUSY: there are waiters. A woken waiter counts only if the semaphore is private.
    pub fn memwait_sem_destroy(sem: *mut memwait_sem_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// The blocking waits are cancellation points. EINTR: as in sem_wait(3). Neither cancellation nor a
    /// signal ends the sleep on a FAIR semaphore. ETIMEDOUT: the deadline passed. memwait_sem_trywait():
    /// EAGAIN if the value is 0.
    pub fn memwait_sem_wait(sem: *mut memwait_sem_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_sem_trywait(sem: *mut memwait_sem_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_sem_timedwait(
        sem: *mut memwait_sem_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_sem_clockwait(
        sem: *mut memwait_sem_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_sem_wait_async(
        sem: *mut memwait_sem_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_sem_clockwait_async(
        sem: *mut memwait_sem_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Async-signal-safe. EOVERFLOW: the value is already the maximum. After an error nothing was
    /// posted.
    pub fn memwait_sem_post(sem: *mut memwait_sem_t) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn memwait_sem_getvalue(
        sem: *const memwait_sem_t,
        value: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
}
/// Read-write locks. By default they prefer readers, like those of glibc: waiting writers do not
/// block readers. If there is always at least one reader, writers starve.
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct memwait_rwlock_t {
    pub reserved: [u32; 14usize],
}
#[test]
fn bindgen_test_layout_memwait_rwlock_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_rwlock_t>(),
        56usize,
        concat!("Size of: ", stringify!(memwait_rwlock_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_rwlock_t>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_rwlock_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_rwlock_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_rwlock_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
extern "C" {
    #[must_use]
    /// EINVAL: no such kind.
    pub fn memwait_rwlock_init(
        rwlock: *mut memwait_rwlock_t,
        kind: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EBUSY: the lock is held (if ROBUST: by readers or a living writer). The last thread to unlock may
    /// destroy the lock: destroy waits for an earlier writer that is still in unlock. If that writer was
    /// killed, destroy returns EBUSY after ten seconds, unless the lock is PRIVATE or ROBUST.
    pub fn memwait_rwlock_destroy(rwlock: *mut memwait_rwlock_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// A thread may lock for reading several times, and must unlock the same number of times, except for
    /// a FAIR or PREFER_WRITER lock, where the second read lock may wait behind a writer forever. A
    /// reader must not lock for writing. EAGAIN: too many readers. EBUSY: a try function would have to
    /// wait. ETIMEDOUT: the deadline passed.
    ///
    /// All functions that lock a ROBUST lock: EOWNERDEAD: a writer died, and the caller holds the write
    /// lock, even if it requested a read lock. Repair the protected data, call
    /// memwait_rwlock_consistent(), and unlock. ENOTRECOVERABLE: the lock was unlocked without that
    /// call. A reader that dies still counts as a reader: writers wait forever. ENOENT etc. and ENOSPC:
    /// as for a ROBUST mutex.
    pub fn memwait_rwlock_rdlock(rwlock: *mut memwait_rwlock_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_tryrdlock(rwlock: *mut memwait_rwlock_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_timedrdlock(
        rwlock: *mut memwait_rwlock_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_clockrdlock(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_rdlock_async(
        rwlock: *mut memwait_rwlock_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_clockrdlock_async(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_wrlock(rwlock: *mut memwait_rwlock_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_trywrlock(rwlock: *mut memwait_rwlock_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_timedwrlock(
        rwlock: *mut memwait_rwlock_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_clockwrlock(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_wrlock_async(
        rwlock: *mut memwait_rwlock_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_rwlock_clockwrlock_async(
        rwlock: *mut memwait_rwlock_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EPERM: the lock is not held; or it is ROBUST, and another thread holds the write lock.
    pub fn memwait_rwlock_unlock(rwlock: *mut memwait_rwlock_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// See memwait_mutex_consistent().
    pub fn memwait_rwlock_consistent(rwlock: *mut memwait_rwlock_t) -> ::std::os::raw::c_int;
}
/// Barriers
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct memwait_barrier_t {
    pub reserved: [u64; 4usize],
}
#[test]
fn bindgen_test_layout_memwait_barrier_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_barrier_t>(),
        32usize,
        concat!("Size of: ", stringify!(memwait_barrier_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_barrier_t>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_barrier_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_barrier_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_barrier_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
extern "C" {
    #[must_use]
    /// `flags`: 0 or MEMWAIT_PRIVATE. `count`: how many threads and operations meet; EINVAL if 0. Unless
    /// the barrier is PRIVATE, no more than `count` threads and operations may use it at the same time:
    /// when `count` of them have met, the barrier could let any others through as well.
    pub fn memwait_barrier_init(
        barrier: *mut memwait_barrier_t,
        flags: ::std::os::raw::c_uint,
        count: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EBUSY: there are waiters. Waits for woken waiters to return, like memwait_cond_destroy(). This
    /// function and the functions below fail with EINVAL for zeroed memory.
    pub fn memwait_barrier_destroy(barrier: *mut memwait_barrier_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// A wait that fails with ETIMEDOUT withdraws its arrival, and so does a cancelled operation. EPIPE:
    /// the barrier was aborted or reset.
    pub fn memwait_barrier_wait(barrier: *mut memwait_barrier_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_barrier_timedwait(
        barrier: *mut memwait_barrier_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_barrier_clockwait(
        barrier: *mut memwait_barrier_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// 0: all have met. MEMWAIT_BARRIER_SERIAL_THREAD: all have met, and the caller is the serial
    /// thread. EINPROGRESS: the callback will get one of these results. At a PRIVATE barrier the last
    /// participant to arrive is the serial thread.
    pub fn memwait_barrier_wait_async(
        barrier: *mut memwait_barrier_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_barrier_clockwait_async(
        barrier: *mut memwait_barrier_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// All waiters, and all callers until the next memwait_barrier_reset(), get EPIPE.
    pub fn memwait_barrier_abort(barrier: *mut memwait_barrier_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// All waiters get EPIPE, and a new round begins, in which no participant has arrived. Participants
    /// that have met but not left may also get EPIPE.
    pub fn memwait_barrier_reset(barrier: *mut memwait_barrier_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// `count`: the count that was passed to memwait_barrier_init(). `waiting`: how many threads and
    /// operations are waiting; may be stale on return. Either may be NULL. EPIPE: the barrier is
    /// aborted; the numbers are set even then.
    pub fn memwait_barrier_inspect(
        barrier: *mut memwait_barrier_t,
        count: *mut ::std::os::raw::c_uint,
        waiting: *mut ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
/// Wait groups: wait until a count is zero.
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct memwait_waitgroup_t {
    pub reserved: [u32; 8usize],
}
#[test]
fn bindgen_test_layout_memwait_waitgroup_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_waitgroup_t>(),
        32usize,
        concat!("Size of: ", stringify!(memwait_waitgroup_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_waitgroup_t>(),
        8usize,
        concat!("Alignment of ", stringify!(memwait_waitgroup_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_waitgroup_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_waitgroup_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
extern "C" {
    #[must_use]
    /// `flags`: 0 or MEMWAIT_PRIVATE. EINVAL: `count` is too large.
    pub fn memwait_waitgroup_init(
        group: *mut memwait_waitgroup_t,
        flags: ::std::os::raw::c_uint,
        count: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EBUSY: the count is not zero, or the callback of a waiting operation has not begun. Waits for
    /// woken waiters to return, like memwait_cond_destroy().
    pub fn memwait_waitgroup_destroy(group: *mut memwait_waitgroup_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Adds `delta` to the count. EINVAL: the count would be negative. EOVERFLOW: the count would be too
    /// large. After an error the count is unchanged.
    pub fn memwait_waitgroup_add(
        group: *mut memwait_waitgroup_t,
        delta: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Subtracts 1 from the count.
    pub fn memwait_waitgroup_done(group: *mut memwait_waitgroup_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Waits until the count is zero, or has been zero momentarily. ETIMEDOUT: the deadline passed.
    pub fn memwait_waitgroup_wait(group: *mut memwait_waitgroup_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_waitgroup_timedwait(
        group: *mut memwait_waitgroup_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_waitgroup_clockwait(
        group: *mut memwait_waitgroup_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_waitgroup_wait_async(
        group: *mut memwait_waitgroup_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_waitgroup_clockwait_async(
        group: *mut memwait_waitgroup_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
/// Events: a flag that can be set and cleared. Threads and operations can wait until it is set.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct memwait_event_t {
    pub reserved: [u32; 1usize],
}
#[test]
fn bindgen_test_layout_memwait_event_t() {
    assert_eq!(
        ::std::mem::size_of::<memwait_event_t>(),
        4usize,
        concat!("Size of: ", stringify!(memwait_event_t))
    );
    assert_eq!(
        ::std::mem::align_of::<memwait_event_t>(),
        4usize,
        concat!("Alignment of ", stringify!(memwait_event_t))
    );
    fn test_field_reserved() {
        assert_eq!(
            unsafe {
                let uninit = ::std::mem::MaybeUninit::<memwait_event_t>::uninit();
                let ptr = uninit.as_ptr();
                ::std::ptr::addr_of!((*ptr).reserved) as usize - ptr as usize
            },
            0usize,
            concat!(
                "Offset of field: ",
                stringify!(memwait_event_t),
                "::",
                stringify!(reserved)
            )
        );
    }
    test_field_reserved();
}
extern "C" {
    #[must_use]
    /// The event is initially not set. `flags`: 0 or MEMWAIT_PRIVATE.
    pub fn memwait_event_init(
        event: *mut memwait_event_t,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// EBUSY: there are waiters. A woken waiter that has not returned does not count.
    pub fn memwait_event_destroy(event: *mut memwait_event_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Returns 1 if the event is set, 0 if it is not, or -EINVAL. May be stale on return.
    pub fn memwait_event_is_set(event: *const memwait_event_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Sets the event and wakes all waiters, even if the event was already set. Async-signal-safe.
    /// ENOENT ...: see the top of this file. If the event is set after such an error, no waiter was
    /// woken, and the next memwait_event_set() wakes the waiters.
    pub fn memwait_event_set(event: *mut memwait_event_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Later waiters wait until the event is set again. Waiters that an earlier set has woken return.
    pub fn memwait_event_clear(event: *mut memwait_event_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// Waits until the event is set, or has been set momentarily. ETIMEDOUT: the deadline passed.
    pub fn memwait_event_wait(event: *mut memwait_event_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_event_timedwait(
        event: *mut memwait_event_t,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_event_clockwait(
        event: *mut memwait_event_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_event_wait_async(
        event: *mut memwait_event_t,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_event_clockwait_async(
        event: *mut memwait_event_t,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct memwait_channel {
    _unused: [u8; 0],
}
/// A channel in the caller's memory: memwait_channel_size() bytes, aligned to 8 or, better, 64
/// bytes.
pub type memwait_channel_t = memwait_channel;
extern "C" {
    /// Returns the size of a channel in bytes, or 0 for invalid arguments: `item_size` must be below
    /// 2^32, `capacity` at most 2^30, and neither 0.
    pub fn memwait_channel_size(item_size: usize, capacity: usize) -> usize;
}
extern "C" {
    #[must_use]
    /// `memory`: size of the memory at `channel`, in bytes. `flags`: 0 or MEMWAIT_PRIVATE. EINVAL: the
    /// arguments are invalid, see memwait_channel_size(); `memory` is too small; or `channel` is
    /// misaligned. All other channel functions fail with EINVAL for zeroed memory, or for a channel with
    /// another layout.
    pub fn memwait_channel_init(
        channel: *mut memwait_channel_t,
        memory: usize,
        flags: ::std::os::raw::c_uint,
        item_size: usize,
        capacity: usize,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// For a process that maps a channel that another process has initialised: sets `*item_size` and
    /// `*capacity` to the values with which the channel was initialised. `memory`: size of the mapping at
    /// `channel`, in bytes. Also fails with EINVAL if, according to its header, the channel is larger
    /// than `memory`; it must not be used then.
    pub fn memwait_channel_attach(
        channel: *const memwait_channel_t,
        memory: usize,
        item_size: *mut usize,
        capacity: *mut usize,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Like memwait_cond_destroy(): waits for calls that have transferred an item or were woken.
    pub fn memwait_channel_destroy(channel: *mut memwait_channel_t) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// `size`: size of the item. EMSGSIZE: the channel has items of another size. EPIPE: the channel is
    /// closed. ETIMEDOUT: the deadline passed. memwait_channel_trysend(): EAGAIN: the channel is full.
    /// EBUSY: another thread is sending.
    pub fn memwait_channel_send(
        channel: *mut memwait_channel_t,
        item: *const ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_trysend(
        channel: *mut memwait_channel_t,
        item: *const ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_timedsend(
        channel: *mut memwait_channel_t,
        item: *const ::std::os::raw::c_void,
        size: usize,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_clocksend(
        channel: *mut memwait_channel_t,
        item: *const ::std::os::raw::c_void,
        size: usize,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// The item must stay valid and in place until the callback.
    pub fn memwait_channel_send_async(
        channel: *mut memwait_channel_t,
        item: *const ::std::os::raw::c_void,
        size: usize,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_clocksend_async(
        channel: *mut memwait_channel_t,
        item: *const ::std::os::raw::c_void,
        size: usize,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    /// EMSGSIZE: the channel has items of another size. EPIPE: the channel is closed and empty.
    /// ETIMEDOUT: the deadline passed. memwait_channel_tryrecv(): EAGAIN: the channel is empty. EBUSY:
    /// another thread is receiving; or the channel is empty and closed, and another thread is sending.
    pub fn memwait_channel_recv(
        channel: *mut memwait_channel_t,
        item: *mut ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_tryrecv(
        channel: *mut memwait_channel_t,
        item: *mut ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_timedrecv(
        channel: *mut memwait_channel_t,
        item: *mut ::std::os::raw::c_void,
        size: usize,
        abstime: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_clockrecv(
        channel: *mut memwait_channel_t,
        item: *mut ::std::os::raw::c_void,
        size: usize,
        clock: clockid_t,
        time: *const timespec,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_recv_async(
        channel: *mut memwait_channel_t,
        item: *mut ::std::os::raw::c_void,
        size: usize,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    #[must_use]
    pub fn memwait_channel_clockrecv_async(
        channel: *mut memwait_channel_t,
        item: *mut ::std::os::raw::c_void,
        size: usize,
        clock: clockid_t,
        time: *const timespec,
        op: *mut memwait_op_t,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Closes the channel for sending; items already sent can be received. Returns 0 even if the channel
    /// is already closed.
    pub fn memwait_channel_close(channel: *mut memwait_channel_t) -> ::std::os::raw::c_int;
}
extern "C" {
    /// Returns the number of items, which may be stale on return.
    pub fn memwait_channel_length(channel: *const memwait_channel_t) -> usize;
}
pub const EPERM: ::std::os::raw::c_int = 1;
pub const ENOENT: ::std::os::raw::c_int = 2;
pub const EINTR: ::std::os::raw::c_int = 4;
pub const EAGAIN: ::std::os::raw::c_int = 11;
pub const EBUSY: ::std::os::raw::c_int = 16;
pub const EINVAL: ::std::os::raw::c_int = 22;
pub const EPIPE: ::std::os::raw::c_int = 32;
pub const ETIMEDOUT: ::std::os::raw::c_int = 110;
pub const EINPROGRESS: ::std::os::raw::c_int = 115;
pub const ECANCELED: ::std::os::raw::c_int = 125;
pub const EOWNERDEAD: ::std::os::raw::c_int = 130;
pub const ENOTRECOVERABLE: ::std::os::raw::c_int = 131;
pub const CLOCK_REALTIME: clockid_t = 0;
pub const CLOCK_MONOTONIC: clockid_t = 1;
/// notified
pub const MEMWAIT_OK: ::std::os::raw::c_int = 0;
/// the word had a different value
pub const MEMWAIT_NOT_EQUAL: ::std::os::raw::c_int = 1;
/// the deadline passed
pub const MEMWAIT_TIMED_OUT: ::std::os::raw::c_int = 2;
/// async wait queued
pub const MEMWAIT_PENDING: ::std::os::raw::c_int = 3;
/// the owner, or a waiter woken earlier, died
pub const MEMWAIT_OWNER_DIED: ::std::os::raw::c_int = 4;
pub const MEMWAIT_SIZE_U8: ::std::os::raw::c_uint = 0;
pub const MEMWAIT_SIZE_U16: ::std::os::raw::c_uint = 1;
pub const MEMWAIT_SIZE_U32: ::std::os::raw::c_uint = 2;
pub const MEMWAIT_SIZE_U64: ::std::os::raw::c_uint = 3;
pub const MEMWAIT_SIZE_MASK: ::std::os::raw::c_uint = 3;
/// all users of the word share one address space
pub const MEMWAIT_PRIVATE: ::std::os::raw::c_uint = 128;
/// the deadline is on CLOCK_REALTIME
pub const MEMWAIT_CLOCK_REALTIME: ::std::os::raw::c_uint = 256;
/// the wait also ends with OWNER_DIED
pub const MEMWAIT_OWNED: ::std::os::raw::c_uint = 2048;
pub const MEMWAIT_OWNER_MASK: u64 = 4611686018427387903;
/// word = operand
pub const MEMWAIT_CHANGE_SET: ::std::os::raw::c_uint = 0;
/// word += operand
pub const MEMWAIT_CHANGE_ADD: ::std::os::raw::c_uint = 1;
/// word &= operand
pub const MEMWAIT_CHANGE_AND: ::std::os::raw::c_uint = 2;
/// word |= operand
pub const MEMWAIT_CHANGE_OR: ::std::os::raw::c_uint = 3;
/// word ^= operand
pub const MEMWAIT_CHANGE_XOR: ::std::os::raw::c_uint = 4;
pub const MEMWAIT_CHANGE_IF_NONE_WOKEN: ::std::os::raw::c_uint = 256;
/// count: every waiter
pub const MEMWAIT_ALL: ::std::os::raw::c_uint = 4294967295;
/// max. words in a group
pub const MEMWAIT_GROUP_MAX: ::std::os::raw::c_uint = 128;
pub const MEMWAIT_VERSION_MAJOR: ::std::os::raw::c_uint = 1;
pub const MEMWAIT_VERSION_MINOR: ::std::os::raw::c_uint = 0;
pub const MEMWAIT_VERSION_PATCH: ::std::os::raw::c_uint = 0;
pub const MEMWAIT_VERSION: ::std::os::raw::c_uint = 65536;
pub const MEMWAIT_RELATIVE: ::std::os::raw::c_uint = 65536;
/// any thread that finds it free gets it
pub const MEMWAIT_MUTEX_NORMAL: ::std::os::raw::c_uint = 0;
/// its owner can lock it again
pub const MEMWAIT_MUTEX_RECURSIVE: ::std::os::raw::c_uint = 1;
/// relock: EDEADLK; unlock by others: EPERM
pub const MEMWAIT_MUTEX_ERRORCHECK: ::std::os::raw::c_uint = 2;
pub const MEMWAIT_MUTEX_FAIR: ::std::os::raw::c_uint = 4;
/// if the owner dies, the next gets EOWNERDEAD
pub const MEMWAIT_MUTEX_ROBUST: ::std::os::raw::c_uint = 8;
/// timedwait's deadline is on CLOCK_MONOTONIC
pub const MEMWAIT_COND_MONOTONIC: ::std::os::raw::c_uint = 16;
pub const MEMWAIT_SEM_VALUE_MAX: ::std::os::raw::c_uint = 2147483647;
pub const MEMWAIT_SEM_FAIR: ::std::os::raw::c_uint = 4;
pub const MEMWAIT_SEM_FAIR_VALUE_MAX: ::std::os::raw::c_uint = 32767;
/// the default
pub const MEMWAIT_RWLOCK_PREFER_READER: ::std::os::raw::c_uint = 0;
/// granted in FIFO order
pub const MEMWAIT_RWLOCK_FAIR: ::std::os::raw::c_uint = 4;
/// if a writer dies: EOWNERDEAD
pub const MEMWAIT_RWLOCK_ROBUST: ::std::os::raw::c_uint = 8;
/// no recursive read locks
pub const MEMWAIT_RWLOCK_PREFER_WRITER: ::std::os::raw::c_uint = 16;
pub const MEMWAIT_BARRIER_SERIAL_THREAD: ::std::os::raw::c_int = -1;
pub const MEMWAIT_WAITGROUP_MAX: ::std::os::raw::c_uint = 1073741823;
