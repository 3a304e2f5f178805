// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::event_loop::{call_back, lock, Handle, Pending};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::mem;
use std::os::raw::{c_int, c_void};
use std::pin::Pin;
use std::process;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The event for which a future of this crate waits.
///
/// # Safety
/// `begin()` must do what the documentation of libmemwait requires from an _async function. If the
/// future may leave the thread in which it began, `give_back()` and drop() must be callable in the
/// loop's thread: nothing in the future may be bound to a thread. Otherwise the loop must belong to
/// the thread of the future.
pub unsafe trait Wait: 'static {
    /// The output of the future.
    type Output;
    /// The value that `begin()` returns if the callback will run.
    const PENDING: c_int = EINPROGRESS;
    /// The sign of errors: 1, or -1 if they are negative.
    const SIGN: c_int = 1;

    /// The result, if it is available without an operation.
    fn at_hand(&self) -> Option<c_int> {
        None
    }

    /// # Safety
    /// `op` must have been initialised. Neither `op` nor `self` may move while the operation is
    /// pending.
    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int;

    /// Converts the result. Called once. `at_once`: `result` is the result of `begin()`.
    fn output(&self, result: c_int, at_once: bool) -> Self::Output;

    /// Called once, instead of output(): the operation ended, but the future was dropped.
    ///
    /// # Safety
    /// `op` must have ended with `result`.
    unsafe fn give_back(&self, op: *mut memwait_op_t, _result: c_int) {
        // SAFETY: the caller guarantees this. An error means that a waiter could not be woken.
        let _ = unsafe { memwait_op_undo(op) };
    }

    /// The future is dropped and has never been polled.
    fn not_begun(&self) {}
}

enum State {
    New,
    Pending(Waker),
    Ended(c_int),
    /// The future was dropped, and could not cancel the operation.
    Abandoned,
    Taken,
}

struct Counted<K: ?Sized> {
    op: UnsafeCell<memwait_op_t>,
    state: Mutex<State>,
    deadline: Option<Deadline>,
    on: Handle,
    /// The process in which it was created.
    process: u32,
    kind: K,
}

impl<K: ?Sized> Counted<K> {
    fn key(&self) -> usize {
        self.op.get() as usize
    }

    /// Whether this is a child process, in which case the result belongs to the parent.
    fn is_parents(&self) -> bool {
        self.process != process::id()
    }

    /// Cancels. Returns true if the callback will not run; the operation is then no longer pending.
    fn cancel(&self) -> bool {
        // SAFETY: the operation has begun, and its loop is valid.
        let result = unsafe { memwait_op_cancel(self.op.get()) };

        // EPERM: this is a child process, where no callback runs.
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
                // SAFETY: the callback runs.
                unsafe { self.kind.give_back(self.op.get(), result) };
            }
        }
    }

    fn end_early(&self) {
        if self.cancel() {
            self.end(K::SIGN * ECANCELED);
        }
    }
}

/// A future that waits on a [`Loop`]. The operation begins, and is queued, when the future is first
/// polled. If it does not have to wait, it ends immediately.
///
/// Dropping the future, in any thread that may own it, cancels the operation: nothing stays locked
/// or consumed. If the operation had already succeeded, its effect is undone: the object is
/// unlocked, posted or notified, for the next waiter in the queue. If the owner of a
/// [`RobustMutex`](crate::RobustMutex) had died, the next owner is notified of the death instead.
/// For items see [`Channel`](crate::Channel). A barrier that has opened stays open. A future that
/// is leaked stays in the queue, and its object stays in memory.
///
/// In a child process the parent's futures hold nothing. Polling such a future does nothing if the
/// future is pending, and otherwise returns `EPERM`. Dropping it gives nothing back.
///
/// [`Loop`]: crate::Loop
#[must_use = "futures do nothing unless polled"]
pub struct Operation<K: Wait> {
    shared: Arc<Counted<K>>,
}

// SAFETY: data that is shared with the loop's thread is under a lock, or used by one of the two
// threads at a time: begin() uses `kind` in this thread before the library knows the operation, and
// later the thread that finds the operation ended uses it. Wait says what `kind` may contain.
unsafe impl<K: Wait + Send> Send for Operation<K> {}
// SAFETY: nothing can be done with a shared reference to it.
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

    /// Sets a deadline: a `Duration` from now, an `Instant` or a `SystemTime`. At the deadline the
    /// operation ends with `ETIMEDOUT`, or with its own value for a timeout. Has no effect after
    /// the operation has begun.
    pub fn until(mut self, deadline: impl Into<Deadline>) -> Operation<K> {
        if let Some(operation) = Arc::get_mut(&mut self.shared) {
            operation.deadline = Some(deadline.into());
        }
        self
    }

    /// Cancels the operation. Returns whether it was pending, and now ends with `ECANCELED`.
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
        // Held until the operation is pending, so that Loop's drop() either finds it pending, or
        // prevents it from beginning. The library runs no callback in this function.
        let mut registry = lock(&inner.registry);

        if registry.is_closed {
            return K::SIGN * ECANCELED;
        }
        registry.pending.insert(operation.key(), operation.clone());
        // SAFETY: the operation is in the registry while it is pending, and stays in place. The
        // loop is valid while it runs the callback.
        let result = unsafe {
            let data = Arc::as_ptr(inner) as *mut c_void;

            memwait_op_init(operation.op.get(), inner.raw, Some(call_back), data);
            operation
                .kind
                .begin(operation.op.get(), operation.deadline.as_ref())
        };
        if result != K::PENDING {
            // This future also has a share, so this does not drop anything.
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
        // A waker's functions are called without the lock: they may call dispatch(), which locks
        // it.
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
                // If it is too late to cancel, the callback finds this state.
                *state = State::Abandoned;
                drop(state);
                drop(waker);
                operation.cancel();
            }
            State::Ended(result) => {
                drop(state);
                // SAFETY: the callback has run, or the operation was cancelled.
                unsafe { operation.kind.give_back(operation.op.get(), result) };
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
