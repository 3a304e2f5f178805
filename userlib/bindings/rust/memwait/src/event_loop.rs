// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check_result, Error};
use crate::time::Deadline;
use memwait_sys::*;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::os::raw::{c_int, c_short, c_ulong, c_void};
use std::os::unix::io::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

const POLLIN: c_short = 1;

extern "C" {
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
}

/// Poisoning is ignored, because no panic leaves the data of these locks half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pending operation, as its loop sees it.
pub(crate) trait Pending {
    /// Called in the callback, or instead of it.
    fn end(&self, result: c_int);
    /// Cancels the operation, which ends with `ECANCELED`.
    fn end_early(&self);
}

/// The operations whose callbacks the library may run. It holds a share in each pending operation.
pub(crate) struct Registry {
    pub(crate) is_closed: bool,
    /// The key is the address of the C operation.
    pub(crate) pending: HashMap<usize, Arc<dyn Pending>>,
}

pub(crate) struct Inner {
    pub(crate) raw: *mut memwait_loop_t,
    pub(crate) registry: Mutex<Registry>,
    /// The panic with which a waker in a callback has failed.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The number of calls of Loop::run() that are in progress, in the loop's thread.
    runs: AtomicUsize,
}

impl Inner {
    /// Stores the first of several panics. Leaks the others, because their drop() might panic.
    fn keep(&self, panic: Box<dyn Any + Send>) {
        let mut first = lock(&self.panic);

        if first.is_some() {
            mem::forget(panic);
        } else {
            *first = Some(panic);
        }
    }

    fn go_on_panicking(&self) {
        let panic = lock(&self.panic).take();

        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

// SAFETY: threads may call the library's functions concurrently, except memwait_loop_close(), which
// drop() calls when nothing else has a share. Any thread can end and drop pending operations: see
// Wait.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: each operation has a share in this, so none is pending. No call is in progress,
        // because callbacks run under a &Loop, which also has a share.
        unsafe { memwait_loop_close(self.raw) };
    }
}

/// The callback of all operations.
pub(crate) unsafe extern "C" fn call_back(op: *mut memwait_op_t, result: c_int, data: *mut c_void) {
    // SAFETY: the loop is valid while it is dispatched.
    let inner = unsafe { &*(data as *const Inner) };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let operation = lock(&inner.registry).pending.remove(&(op as usize));

        if let Some(operation) = operation {
            operation.end(result);
        }
    }));

    if let Err(panic) = done {
        inner.keep(panic);
        // relaxed: see Loop::run(). If no run is in progress, the stop would end the next run.
        if inner.runs.load(Ordering::Relaxed) > 0 {
            // SAFETY: as above.
            unsafe { memwait_loop_stop(inner.raw) };
        }
    }
}

/// A handle to a [`Loop`]: any thread can begin operations with it.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<Inner>);

impl Handle {
    /// Makes [`Loop::run`] return: after the current callback if `run` is in progress, otherwise
    /// when `run` is called next.
    pub fn stop(&self) -> Result<(), Error> {
        // SAFETY: the loop is valid.
        check_result(unsafe { memwait_loop_stop(self.0.raw) }).map(|_| ())
    }

    /// The number of pending operations. A program usually runs its event loop until this is 0.
    #[must_use]
    pub fn pending(&self) -> usize {
        // SAFETY: the loop is valid.
        unsafe { memwait_loop_pending(self.0.raw) }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Loop")
            .field("pending", &self.pending())
            .finish()
    }
}

/// The event source of this crate's futures: a descriptor to poll for reading, and
/// [`dispatch`](Loop::dispatch), which wakes the tasks whose operations have ended. A loop
/// dereferences to a [`Handle`].
///
/// A loop stays in its thread, and only this thread dispatches it. Therefore this thread is the
/// owner of a [`RobustMutex`] that a future has locked.
///
/// When the loop is dropped, pending futures end with `ECANCELED`, and have taken nothing. In a
/// child process the parent's loop is unusable (`EPERM`), and dropping it does not affect the
/// parent. If a waker panics, the drop resumes the panic after all futures have ended.
///
/// [`RobustMutex`]: crate::RobustMutex
pub struct Loop {
    handle: Handle,
    // Neither Send nor Sync.
    in_its_thread: PhantomData<*mut ()>,
}

impl Loop {
    /// `ENOENT` or another error of `open(2)`: no device. `ENOSPC`: the user has reached a limit.
    pub fn new() -> Result<Loop, Error> {
        let mut raw = ptr::null_mut();

        // SAFETY: the function writes the pointer.
        check_result(unsafe { memwait_loop_new(&mut raw, 0) })?;
        Ok(Loop {
            handle: Handle(Arc::new(Inner {
                raw,
                registry: Mutex::new(Registry {
                    is_closed: false,
                    pending: HashMap::new(),
                }),
                panic: Mutex::new(None),
                runs: AtomicUsize::new(0),
            })),
            in_its_thread: PhantomData,
        })
    }

    /// A handle, for this and other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Wakes the tasks of all operations that had ended before the call, and returns their number.
    /// Never blocks. One call each time the descriptor becomes readable is enough, even with
    /// edge-triggered polling, such as tokio's `AsyncFd`. If a waker panics, this function resumes
    /// the panic.
    pub fn dispatch(&self) -> Result<usize, Error> {
        // SAFETY: the loop is valid.
        let result = unsafe { memwait_loop_dispatch(self.handle.0.raw, MEMWAIT_ALL) };

        self.handle.0.go_on_panicking();
        check_result(result).map(|count| count as usize)
    }

    /// Polls and dispatches until nothing is pending, or until [`Handle::stop`]. If a waker panics,
    /// this function resumes the panic after the callback.
    pub fn run(&self) -> Result<(), Error> {
        self.run_by(None).map(|_| ())
    }

    /// Like [`run`](Loop::run), with a deadline. Returns false if operations are still pending at
    /// the deadline.
    pub fn run_until(&self, deadline: impl Into<Deadline>) -> Result<bool, Error> {
        self.run_by(Some(&deadline.into()))
    }

    fn run_by(&self, deadline: Option<&Deadline>) -> Result<bool, Error> {
        let inner = &self.handle.0;
        let (time, flags) = Deadline::timeout(deadline);

        // relaxed, both times: only this thread uses the number.
        inner.runs.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the loop is valid.
        let result = unsafe { memwait_loop_run(inner.raw, time, flags) };
        inner.runs.fetch_sub(1, Ordering::Relaxed);

        inner.go_on_panicking();
        check_result(result).map(|result| result != MEMWAIT_TIMED_OUT)
    }

    /// Runs a future to completion in this thread, for programs without an executor. The future may
    /// also wait for events that do not come from this loop. Errors come from the loop: `EPERM`,
    /// `ENOSPC`.
    ///
    /// During the call, one additional operation is [pending](Handle::pending). A
    /// [`run`](Loop::run) within the future therefore returns only after [`Handle::stop`].
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let signal = Arc::new(Signal {
            word: AtomicU32::new(0),
            is_woken: AtomicBool::new(false),
            thread: thread::current().id(),
        });
        let watch = Watch::new(self, &signal)?;
        let waker = Waker::from(signal.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = Box::pin(future);

        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                drop(watch);
                return Ok(output);
            }
            // acquire: pairs with the release in wake(), so that the future sees earlier stores.
            while !signal.is_woken.swap(false, Ordering::Acquire) {
                let mut fd = PollFd {
                    fd: self.as_raw_fd(),
                    events: POLLIN,
                    revents: 0,
                };
                // SAFETY: it is one struct. Its only error is EINTR.
                unsafe { poll(&mut fd, 1, -1) };
                self.dispatch()?;
            }
        }
    }
}

impl std::ops::Deref for Loop {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl AsRef<Handle> for Loop {
    fn as_ref(&self) -> &Handle {
        &self.handle
    }
}

impl AsRef<Handle> for Handle {
    fn as_ref(&self) -> &Handle {
        self
    }
}

impl AsRawFd for Loop {
    /// The descriptor. Do not read or close it.
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the loop is valid.
        unsafe { memwait_loop_fd(self.handle.0.raw) }
    }
}

impl AsFd for Loop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open while the loop lives.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let pending: Vec<_> = {
            let mut registry = lock(&self.handle.0.registry);

            registry.is_closed = true;
            registry.pending.values().cloned().collect()
        };
        for operation in pending {
            // If a waker panics, the other operations must still end.
            let done = catch_unwind(AssertUnwindSafe(move || operation.end_early()));

            if let Err(panic) = done {
                self.handle.0.keep(panic);
            }
        }
        // A second panic would abort the process.
        if !thread::panicking() {
            self.handle.0.go_on_panicking();
        }
    }
}

impl fmt::Debug for Loop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(formatter)
    }
}

/// The waker of `block_on()`: a word that its loop watches.
struct Signal {
    word: AtomicU32,
    is_woken: AtomicBool,
    thread: ThreadId,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // release: see block_on(). If the flag was already set, the thread that set it notifies, or
        // is the loop's thread.
        if self.is_woken.swap(true, Ordering::Release) || thread::current().id() == self.thread {
            return;
        }
        // SAFETY: it is a word.
        unsafe { memwait_notify(address_of(&self.word), 1, MEMWAIT_PRIVATE) };
    }
}

/// `AtomicU32::as_ptr()` exists since Rust 1.70.
fn address_of(word: &AtomicU32) -> *const c_void {
    (word as *const AtomicU32).cast()
}

struct Watch {
    // From a Box. (The Box itself would assert unique access each time it moves.)
    op: *mut memwait_op_t,
    signal: Arc<Signal>,
}

impl Watch {
    fn new(on: &Loop, signal: &Arc<Signal>) -> Result<Watch, Error> {
        let watch = Watch {
            op: Box::into_raw(Box::new(memwait_op_t { reserved: [0; 24] })),
            signal: signal.clone(),
        };

        // SAFETY: the operation and its word stay in place until drop() has cancelled the
        // operation.
        let result = unsafe {
            memwait_op_init(watch.op, on.handle.0.raw, None, ptr::null_mut());
            memwait_watch32(
                address_of(&watch.signal.word),
                0,
                ptr::null(),
                MEMWAIT_PRIVATE,
                watch.op,
            )
        };
        check_result(result)?;
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: new() has created and initialised it. This is the loop's thread, so its callback
        // does not run. After this it is not pending any more, and nothing else refers to it.
        unsafe {
            memwait_op_cancel(self.op);
            drop(Box::from_raw(self.op));
        }
    }
}
