// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check_result, Error};
use crate::time::Deadline;
use memwait_sys::*;
use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::os::raw::{c_int, c_short, c_ulong, c_void};
use std::os::unix::io::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::process;
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

/// Nothing that can panic leaves anything half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the library may call back. It has a share in each operation that is pending.
struct Registry {
    is_closed: bool,
    pending: HashMap<usize, Arc<dyn Pending>>,
}

struct Inner {
    raw: *mut memwait_loop_t,
    registry: Mutex<Registry>,
    /// Of a waker, in a callback.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// How many calls of Loop::run() are in progress, in the loop's thread.
    runs: AtomicUsize,
}

impl Inner {
    /// Of several panics the first. Another one's payload is leaked, as its drop() may panic, too.
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

// SAFETY: threads may call the library's functions concurrently, but for memwait_loop_close(),
// which drop() calls, when nothing else has a share. What is pending can be ended and dropped by
// any thread: see Wait.
unsafe impl Send for Inner {}
// SAFETY: likewise.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: each operation has a share in this, so none is pending, nor is any call in
        // progress: callbacks run under a &Loop, which has one, too.
        unsafe { memwait_loop_close(self.raw) };
    }
}

/// Something that operations can begin on, a [`Loop`], for all threads.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

impl Handle {
    /// Makes [`Loop::run`] return, if it is in progress after the current callback, otherwise when
    /// it is called next.
    pub fn stop(&self) -> Result<(), Error> {
        // SAFETY: the loop is there.
        check_result(unsafe { memwait_loop_stop(self.0.raw) }).map(|_| ())
    }

    /// How many operations are pending. An event loop stays alive while it is not 0.
    #[must_use]
    pub fn pending(&self) -> usize {
        // SAFETY: the loop is there.
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

/// Where futures of this crate end: a descriptor to poll for reading, and
/// [`dispatch`](Loop::dispatch), which wakes the tasks of what has ended. It is a [`Handle`], too.
///
/// It stays in its thread, which alone dispatches it. So a [`RobustMutex`] that a
/// future has locked is that thread's.
///
/// When it is dropped, futures that are pending end with `ECANCELED`, and have taken nothing. In a
/// child of `fork(2)` a copy is unusable, `EPERM`, and dropping it does not disturb the parent.
/// A waker's panic goes on from the drop when all have ended.
///
/// [`RobustMutex`]: crate::RobustMutex
pub struct Loop {
    handle: Handle,
    // Neither Send nor Sync.
    in_its_thread: PhantomData<*mut ()>,
}

impl Loop {
    /// `ENOENT` or another error of `open(2)`: no device. `ENOSPC`: over the user's limit.
    pub fn new() -> Result<Loop, Error> {
        let mut raw = ptr::null_mut();

        // SAFETY: it writes the pointer.
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

    /// For other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Wakes the tasks of all operations that had ended when it was called; never blocks. Returns
    /// how many. Once for each readiness is enough, with edge-triggered polling too, as tokio's
    /// `AsyncFd`. A waker's panic goes on from here.
    pub fn dispatch(&self) -> Result<usize, Error> {
        // SAFETY: the loop is there.
        let result = unsafe { memwait_loop_dispatch(self.handle.0.raw, MEMWAIT_ALL) };

        self.handle.0.go_on_panicking();
        check_result(result).map(|count| count as usize)
    }

    /// Polls and dispatches until nothing is pending, or [`Handle::stop`]. A waker's panic goes on
    /// from here, after its callback.
    pub fn run(&self) -> Result<(), Error> {
        self.run_by(None).map(|_| ())
    }

    /// The same, until a time. False: it has come, and something is still pending.
    pub fn run_until(&self, deadline: impl Into<Deadline>) -> Result<bool, Error> {
        self.run_by(Some(&deadline.into()))
    }

    fn run_by(&self, deadline: Option<&Deadline>) -> Result<bool, Error> {
        let inner = &self.handle.0;
        let (time, flags) = Deadline::timeout(deadline);

        // relaxed, both: only this thread uses it.
        inner.runs.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the loop is there.
        let result = unsafe { memwait_loop_run(inner.raw, time, flags) };
        inner.runs.fetch_sub(1, Ordering::Relaxed);

        inner.go_on_panicking();
        check_result(result).map(|result| result != MEMWAIT_TIMED_OUT)
    }

    /// Runs a future to its end, on this thread: for programs without an executor. It may wait for
    /// other things than this loop's, too. Errors are of the loop: `EPERM`, `ENOSPC`.
    ///
    /// Meanwhile one more operation is [pending](Handle::pending), and a [`run`](Loop::run) within
    /// it ends only by [`Handle::stop`].
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
            // acquire: pairs with wake(): the future sees what was done before.
            while !signal.is_woken.swap(false, Ordering::Acquire) {
                let mut fd = PollFd {
                    fd: self.as_raw_fd(),
                    events: POLLIN,
                    revents: 0,
                };
                // SAFETY: one struct. Its errors are EINTR, and none that lasts.
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
    /// Not to be read or closed.
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the loop is there.
        unsafe { memwait_loop_fd(self.handle.0.raw) }
    }
}

impl AsFd for Loop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open while the loop lives.
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
            // A waker's panic must not keep the others from their end.
            let done = catch_unwind(AssertUnwindSafe(move || operation.end_early()));

            if let Err(panic) = done {
                self.handle.0.keep(panic);
            }
        }
        // A second panic would abort.
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
        // release: see block_on(). What has set it before has notified, or is that thread.
        if self.is_woken.swap(true, Ordering::Release) || thread::current().id() == self.thread {
            return;
        }
        // SAFETY: a word.
        unsafe { memwait_notify(address_of(&self.word), 1, MEMWAIT_PRIVATE) };
    }
}

/// `AtomicU32::as_ptr()` is of Rust 1.70.
fn address_of(word: &AtomicU32) -> *const c_void {
    (word as *const AtomicU32).cast()
}

struct Watch {
    // Of a Box, which would claim it for itself each time it moves.
    op: *mut memwait_op_t,
    signal: Arc<Signal>,
}

impl Watch {
    fn new(on: &Loop, signal: &Arc<Signal>) -> Result<Watch, Error> {
        let watch = Watch {
            op: Box::into_raw(Box::new(memwait_op_t { reserved: [0; 24] })),
            signal: signal.clone(),
        };

        // SAFETY: the operation and its word stay in place until drop() has cancelled it.
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
        // SAFETY: new() has made and initialised it; in the loop's thread, so that no callback of
        // it runs, it is not pending any more after this, and nothing else has it.
        unsafe {
            memwait_op_cancel(self.op);
            drop(Box::from_raw(self.op));
        }
    }
}

/// What a future of this crate waits for.
///
/// # Safety
/// `begin()` does what the documentation of libmemwait requires of an _async function.
/// `give_back()`, and drop(), may run in the loop's thread, if the future itself may leave the
/// thread it was begun in: then nothing in it is bound to a thread. Otherwise the loop is that
/// thread's.
pub unsafe trait Wait: 'static {
    /// Of the future.
    type Output;
    /// What `begin()` returns when the callback will run.
    const PENDING: c_int = EINPROGRESS;
    /// 1, or -1 if errors are negative.
    const SIGN: c_int = 1;

    /// The result, if there is nothing to begin.
    fn at_hand(&self) -> Option<c_int> {
        None
    }

    /// # Safety
    /// `op` has been initialised, and neither it nor this moves while it is pending.
    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int;

    /// Called once, and takes what was got. `at_once`: it is the result of `begin()`.
    fn output(&self, result: c_int, at_once: bool) -> Self::Output;

    /// Called once, instead: the callback has run for a future that is not polled any more.
    fn give_back(&self, result: c_int);

    /// The future is dropped, and was not polled.
    fn not_begun(&self) {}
}

enum State {
    New,
    Pending(Waker),
    Ended(c_int),
    /// The future is gone, and could not cancel.
    Abandoned,
    Taken,
}

struct Counted<K: ?Sized> {
    op: UnsafeCell<memwait_op_t>,
    state: Mutex<State>,
    deadline: Option<Deadline>,
    on: Handle,
    /// What it was made in.
    process: u32,
    kind: K,
}

trait Pending {
    /// In the callback, or instead of it.
    fn end(&self, result: c_int);
    /// Cancels it, and ends it with `ECANCELED`.
    fn end_early(&self);
}

impl<K: ?Sized> Counted<K> {
    fn key(&self) -> usize {
        self.op.get() as usize
    }

    /// In a child of fork(): what it has, or has ended with, is the parent's.
    fn is_parents(&self) -> bool {
        self.process != process::id()
    }

    /// Whether the callback will not run. If so, it is not pending any more.
    fn cancel(&self) -> bool {
        // SAFETY: it has been begun; its loop is there.
        let result = unsafe { memwait_op_cancel(self.op.get()) };

        // EPERM: in a child of fork(), where no callback runs.
        if result == -ENOENT || result == -EINPROGRESS {
            return false;
        }
        let share = lock(&self.on.0.registry).pending.remove(&self.key());
        drop(share);
        true
    }
}

impl<K: Wait> Pending for Counted<K> {
    fn end(&self, result: c_int) {
        let mut state = lock(&self.state);

        match mem::replace(&mut *state, State::Ended(result)) {
            State::Pending(waker) => {
                drop(state);
                waker.wake();
            }
            _ => {
                *state = State::Taken;
                drop(state);
                self.kind.give_back(result);
            }
        }
    }

    fn end_early(&self) {
        if self.cancel() {
            self.end(K::SIGN * ECANCELED);
        }
    }
}

unsafe extern "C" fn call_back(op: *mut memwait_op_t, result: c_int, data: *mut c_void) {
    // SAFETY: the loop is there while it is dispatched.
    let inner = unsafe { &*(data as *const Inner) };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let operation = lock(&inner.registry).pending.remove(&(op as usize));

        if let Some(operation) = operation {
            operation.end(result);
        }
    }));

    if let Err(panic) = done {
        inner.keep(panic);
        // relaxed: see Loop::run(). Without a run the stop would be kept for the next one.
        if inner.runs.load(Ordering::Relaxed) > 0 {
            // SAFETY: as above.
            unsafe { memwait_loop_stop(inner.raw) };
        }
    }
}

/// A future that waits on a [`Loop`]. It begins when it is polled first, and its place in the queue
/// is from then. What can be had at once is had without waiting.
///
/// Dropping it, in any thread that may have it, takes it back: nothing stays locked or consumed. If
/// what it waited for has come already, that is given back: it is unlocked, posted or notified, and
/// goes to the next in the queue; see [`Channel`](crate::Channel) for an item. A barrier that all
/// have reached stays so. Nor can be given back that the owner of a
/// [`RobustMutex`](crate::RobustMutex) has died: as where that is dropped without a repair, nothing
/// can lock it again. A future that is leaked stays in the queue, and what it waits on in
/// memory.
///
/// In a child of `fork(2)` the parent's futures have nothing. Polling does nothing if it is pending,
/// and otherwise ends with `EPERM`; dropping gives nothing back.
#[must_use = "futures do nothing unless polled"]
pub struct Operation<K: Wait> {
    shared: Arc<Counted<K>>,
}

// SAFETY: what is shared with the loop's thread is under a lock, or given to one of the two: `kind`
// is used by begin() in this thread before the library has the operation, and then by the one that
// finds the state ended. Wait says what it may be then.
unsafe impl<K: Wait + Send> Send for Operation<K> {}
// SAFETY: a shared reference to it is good for nothing.
unsafe impl<K: Wait> Sync for Operation<K> {}
impl<K: Wait> Unpin for Operation<K> {}

impl<K: Wait> Operation<K> {
    pub(crate) fn new(on: &Handle, kind: K) -> Operation<K> {
        Operation {
            shared: Arc::new(Counted {
                op: UnsafeCell::new(memwait_op_t { reserved: [0; 24] }),
                state: Mutex::new(State::New),
                deadline: None,
                on: on.clone(),
                process: process::id(),
                kind,
            }),
        }
    }

    /// Ends with `ETIMEDOUT`, or where there is another word for it with that, at a time: a
    /// `Duration` from now, an `Instant`, a `SystemTime`. Nothing happens if it has begun.
    pub fn until(mut self, deadline: impl Into<Deadline>) -> Operation<K> {
        if let Some(operation) = Arc::get_mut(&mut self.shared) {
            operation.deadline = Some(deadline.into());
        }
        self
    }

    /// Whether it was pending, and ends with `ECANCELED` now.
    pub(crate) fn cancel(&self) -> bool {
        let is_pending = matches!(&*lock(&self.shared.state), State::Pending(_));

        is_pending && {
            let cancelled = self.shared.cancel();

            if cancelled {
                self.shared.end(K::SIGN * ECANCELED);
            }
            cancelled
        }
    }

    fn begin(&self) -> c_int {
        let operation = &self.shared;
        let inner = &operation.on.0;

        if let Some(result) = operation.kind.at_hand() {
            return result;
        }
        // Held until the operation is pending, so that Loop's drop() either finds it so, or keeps
        // it from beginning. The library calls nothing back in here.
        let mut registry = lock(&inner.registry);

        if registry.is_closed {
            return K::SIGN * ECANCELED;
        }
        registry.pending.insert(operation.key(), operation.clone());
        // SAFETY: it is in the registry while it is pending, and so in place. The loop is there
        // while it calls back.
        let result = unsafe {
            let data = Arc::as_ptr(inner) as *mut c_void;

            memwait_op_init(operation.op.get(), inner.raw, Some(call_back), data);
            operation
                .kind
                .begin(operation.op.get(), operation.deadline.as_ref())
        };
        if result != K::PENDING {
            // This has a share as well, so nothing is dropped here.
            registry.pending.remove(&operation.key());
        }
        result
    }
}

impl<K: Wait> Future for Operation<K> {
    type Output = K::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<K::Output> {
        let operation = &self.shared;

        match &*lock(&operation.state) {
            State::Pending(waker) if waker.will_wake(context.waker()) => return Poll::Pending,
            _ => {}
        }
        // A waker's functions are called without the lock: they may dispatch, which takes it.
        let new = context.waker().clone();
        let mut state = lock(&operation.state);
        match &mut *state {
            State::Pending(waker) => {
                let old = mem::replace(waker, new);

                drop(state);
                drop(old);
                return Poll::Pending;
            }
            State::New | State::Ended(_) if operation.is_parents() => {
                *state = State::Taken;
                drop(state);
                return Poll::Ready(operation.kind.output(K::SIGN * EPERM, false));
            }
            State::Ended(result) => {
                let result = *result;

                *state = State::Taken;
                drop(state);
                return Poll::Ready(operation.kind.output(result, false));
            }
            State::New => *state = State::Pending(new),
            State::Abandoned | State::Taken => {
                drop(state);
                panic!("a future was polled after its end");
            }
        }
        drop(state);

        let result = self.begin();
        if result == K::PENDING {
            return Poll::Pending;
        }
        let waker = mem::replace(&mut *lock(&operation.state), State::Taken);
        drop(waker);
        Poll::Ready(operation.kind.output(result, true))
    }
}

impl<K: Wait> Drop for Operation<K> {
    fn drop(&mut self) {
        let operation = &self.shared;
        let mut state = lock(&operation.state);

        match mem::replace(&mut *state, State::Taken) {
            State::New | State::Ended(_) if operation.is_parents() => {}
            State::New => {
                drop(state);
                operation.kind.not_begun();
            }
            State::Pending(waker) => {
                // If it is too late to cancel, the callback finds this.
                *state = State::Abandoned;
                drop(state);
                drop(waker);
                operation.cancel();
            }
            State::Ended(result) => {
                drop(state);
                operation.kind.give_back(result);
            }
            State::Abandoned | State::Taken => {}
        }
    }
}

impl<K: Wait> fmt::Debug for Operation<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Operation").finish_non_exhaustive()
    }
}
