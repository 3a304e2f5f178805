// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event_loop::{Handle, Loop};
use crate::memory::{Ref, Shareable};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_int, c_uint};
use std::ptr;

/// A mutex with the data that it guards, for threads and futures. Its layout is that of C's
/// `memwait_mutex_t` followed by a `T`, as in a `#[repr(C)]` struct.
///
/// A panic unlocks the mutex and does not poison it. If a process dies while it holds the mutex,
/// the mutex stays locked: see [`RobustMutex`]. A mutex has no owner, so futures that lock it may
/// move between threads.
#[repr(C)]
pub struct Mutex<T> {
    raw: UnsafeCell<memwait_mutex_t>,
    data: UnsafeCell<T>,
}

// SAFETY: it returns only one &mut T at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: it has C's layout, followed by that of T.
unsafe impl<T: Shareable> Shareable for Mutex<T> {}

const fn raw_mutex(kind: c_uint) -> UnsafeCell<memwait_mutex_t> {
    UnsafeCell::new(memwait_mutex_t {
        reserved: [0, 0, kind, 0, 0, 0, 0, 0, 0, 0],
    })
}

impl<T> Mutex<T> {
    /// An unlocked mutex. Any thread or future that finds it unlocked may lock it.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            raw: raw_mutex(MEMWAIT_MUTEX_NORMAL),
            data: UnsafeCell::new(value),
        }
    }

    /// A mutex that is handed over in FIFO order. It is slower.
    pub const fn fair(value: T) -> Mutex<T> {
        Mutex {
            raw: raw_mutex(MEMWAIT_MUTEX_FAIR),
            data: UnsafeCell::new(value),
        }
    }

    /// Only this process uses the mutex: waiting and waking cost less.
    #[must_use]
    pub fn private(mut self) -> Mutex<T> {
        self.raw.get_mut().reserved[2] |= MEMWAIT_PRIVATE;
        self
    }

    /// Locks the mutex. Blocks while the mutex is locked.
    pub fn lock(&self) -> Result<MutexGuard<T, &Mutex<T>>, Error> {
        lock(self, None)
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn lock_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<MutexGuard<T, &Mutex<T>>, Error> {
        lock(self, Some(&deadline.into()))
    }

    /// Locks without blocking. `None`: the mutex is locked.
    pub fn try_lock(&self) -> Result<Option<MutexGuard<T, &Mutex<T>>>, Error> {
        try_lock(self)
    }

    /// The data. No lock is needed, because the reference is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Returns the data.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }

    pub(crate) fn raw(&self) -> *mut memwait_mutex_t {
        self.raw.get()
    }
}

impl<T: Send + 'static> Ref<Mutex<T>> {
    /// Waits in the same FIFO queue as the threads that lock the mutex.
    pub fn lock_async(&self, on: &Handle) -> Operation<Locking<T, Ref<Mutex<T>>>> {
        Operation::new(on, Locking::new(self))
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// A [`Mutex`] whose next owner is notified if the owner dies while it holds the mutex, that is, if
/// a thread ends or a process is killed, at any instruction. The next function that locks the mutex
/// then returns the locked mutex as [`LockError::OwnerDied`].
///
/// The owner is a thread. A future that locks the mutex therefore stays in the thread of its loop.
#[repr(transparent)]
pub struct RobustMutex<T>(Mutex<T>);

// SAFETY: it has the layout of a Mutex<T>.
unsafe impl<T: Shareable> Shareable for RobustMutex<T> {}

impl<T> RobustMutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> RobustMutex<T> {
        RobustMutex(Mutex {
            raw: raw_mutex(MEMWAIT_MUTEX_ROBUST),
            data: UnsafeCell::new(value),
        })
    }

    /// Only this process uses the mutex, which costs less.
    #[must_use]
    pub fn private(self) -> RobustMutex<T> {
        RobustMutex(self.0.private())
    }

    /// Locks the mutex. Blocks while a live owner holds it. `ENOTRECOVERABLE`: an owner died, and
    /// the next owner did not declare the data consistent.
    pub fn lock(&self) -> LockResult<MutexGuard<T, &RobustMutex<T>>> {
        lock(self, None)
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn lock_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> LockResult<MutexGuard<T, &RobustMutex<T>>> {
        lock(self, Some(&deadline.into()))
    }

    /// Locks without blocking. `None`: a live owner holds the mutex.
    #[allow(clippy::type_complexity)]
    pub fn try_lock(
        &self,
    ) -> Result<Option<MutexGuard<T, &RobustMutex<T>>>, LockError<MutexGuard<T, &RobustMutex<T>>>>
    {
        try_lock(self)
    }

    /// The data. No lock is needed, because the reference is exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Returns the data.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: Send + 'static> Ref<RobustMutex<T>> {
    /// Waits in the same FIFO queue as the threads that lock the mutex.
    ///
    /// If the future would return [`LockError::OwnerDied`], but is dropped first, the next owner
    /// gets [`LockError::OwnerDied`] instead.
    pub fn lock_async(&self, on: &Loop) -> Operation<Locking<T, Ref<RobustMutex<T>>>> {
        Operation::new(on, Locking::new(self))
    }
}

impl<T: Default> Default for RobustMutex<T> {
    fn default() -> RobustMutex<T> {
        RobustMutex::new(T::default())
    }
}

impl<T> fmt::Debug for RobustMutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RobustMutex")
            .finish_non_exhaustive()
    }
}

/// The result of locking a [`RobustMutex`].
pub type LockResult<G> = Result<G, LockError<G>>;

/// The error from locking a [`RobustMutex`]: either the mutex is locked, and its last owner has
/// died, or locking failed.
pub enum LockError<G> {
    /// The mutex is locked; its last owner has died.
    OwnerDied(OwnerDied<G>),
    /// The mutex is not locked.
    Failed(Error),
}

impl<G> LockError<G> {
    /// The error number. If the mutex was locked, this function unlocks it, and the number is
    /// `EOWNERDEAD`.
    pub fn into_error(self) -> Error {
        match self {
            LockError::OwnerDied(_) => Error::new(EOWNERDEAD),
            LockError::Failed(error) => error,
        }
    }
}

impl<G> fmt::Display for LockError<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::OwnerDied(_) => Error::new(EOWNERDEAD).fmt(formatter),
            LockError::Failed(error) => error.fmt(formatter),
        }
    }
}

impl<G> fmt::Debug for LockError<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::OwnerDied(_) => formatter.write_str("OwnerDied"),
            LockError::Failed(error) => error.fmt(formatter),
        }
    }
}

impl<G> std::error::Error for LockError<G> {}

/// A locked [`RobustMutex`] whose last owner has died. The owner may have changed none, some or all
/// of the data. Repair the data, and call [`consistent`](OwnerDied::consistent). If this value is
/// dropped instead, the mutex is unlocked, and cannot be locked again: `ENOTRECOVERABLE`.
///
/// The dead owner may not have notified a condition variable: notify all of its waiters.
///
/// Access to the data is unsafe. A thread may leak its guard with `Box::leak()`, pass a reference
/// to the data to another thread, and end. A thread may also use such a reference in a destructor
/// of a thread-local variable, after its end has been reported.
///
/// ```compile_fail,E0133
/// # fn owner_died<T, P: memwait::Place<T>>(died: memwait::OwnerDied<memwait::MutexGuard<T, P>>) {
/// died.get();
/// # }
/// ```
pub struct OwnerDied<G> {
    guard: G,
}

impl<G> fmt::Debug for OwnerDied<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OwnerDied").finish_non_exhaustive()
    }
}

impl<G: DerefMut> OwnerDied<G> {
    /// The data as the owner left it.
    ///
    /// # Safety
    /// If the owner was a thread of this process, no other thread and no destructor may use
    /// references to the data that the owner has leaked. A process that has died leaves no
    /// references.
    pub unsafe fn get(&self) -> &G::Target {
        &self.guard
    }

    /// The data, so that the caller can repair it.
    ///
    /// # Safety
    /// See [`get`](OwnerDied::get).
    pub unsafe fn get_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<T, P: Place<T>> OwnerDied<MutexGuard<T, P>> {
    /// Declares the data consistent, and returns the guard.
    ///
    /// # Safety
    /// See [`get`](OwnerDied::get).
    pub unsafe fn consistent(self) -> Result<MutexGuard<T, P>, Error> {
        // SAFETY: the mutex is valid.
        check(unsafe { memwait_mutex_consistent(self.guard.raw()) })?;
        Ok(self.guard)
    }
}

/// The repair function of a [`LockResult`].
pub trait Repair {
    /// The guard.
    type Guard: DerefMut;

    /// Returns the guard. If the owner has died, first calls `repair` with the data and declares
    /// the data consistent. If `repair` panics, the mutex is not recoverable.
    ///
    /// # Safety
    /// See [`OwnerDied::get`].
    unsafe fn repair(
        self,
        repair: impl FnOnce(&mut <Self::Guard as Deref>::Target),
    ) -> Result<Self::Guard, Error>;
}

impl<T, P: Place<T>> Repair for LockResult<MutexGuard<T, P>> {
    type Guard = MutexGuard<T, P>;

    unsafe fn repair(self, repair: impl FnOnce(&mut T)) -> Result<MutexGuard<T, P>, Error> {
        match self {
            Ok(guard) => Ok(guard),
            Err(LockError::Failed(error)) => Err(error),
            Err(LockError::OwnerDied(mut died)) => {
                // SAFETY: the caller guarantees this.
                unsafe {
                    repair(died.get_mut());
                    died.consistent()
                }
            }
        }
    }
}

/// The type by which a guard refers to its mutex: a `&` or a [`Ref`], to a [`Mutex`] or a
/// [`RobustMutex`].
///
/// Only this crate can get the mutex: a `&Mutex<T>` to a [`RobustMutex`] could leave its thread.
///
/// ```compile_fail,E0061
/// fn mutex_of<T, P: memwait::Place<T>>(place: &P) -> &memwait::Mutex<T> {
///     place.mutex()
/// }
/// ```
pub trait Place<T>: Sized {
    /// The error type of functions that lock the mutex.
    type Failure;
    /// The type of the loop on which a future waits for the mutex.
    type On: AsRef<Handle> + 'static;

    #[doc(hidden)]
    fn mutex(&self, token: Token) -> &Mutex<T>;
    #[doc(hidden)]
    fn owner_died(guard: MutexGuard<T, Self>, token: Token) -> Self::Failure;
    #[doc(hidden)]
    fn failed(error: Error, token: Token) -> Self::Failure;
}

/// Code outside this crate can neither name nor construct this type, and therefore can neither call
/// nor implement the methods above.
pub struct Token(());

pub(crate) const TOKEN: Token = Token(());

macro_rules! place {
    ($mutex:ident, $ty:ty, $failure:ty, $on:ty, $($lifetime:lifetime)?) => {
        impl<$($lifetime,)? T $(: $lifetime)?> Place<T> for $ty {
            type Failure = $failure;
            type On = $on;

            fn mutex(&self, _: Token) -> &Mutex<T> {
                place!(@mutex $mutex self)
            }

            fn owner_died(guard: MutexGuard<T, Self>, _: Token) -> Self::Failure {
                place!(@died $mutex guard)
            }

            fn failed(error: Error, _: Token) -> Self::Failure {
                place!(@failed $mutex error)
            }
        }
    };
    (@mutex Mutex $self:ident) => { $self };
    (@mutex RobustMutex $self:ident) => { &$self.0 };
    // A Mutex is not robust, unless the caller of Shared::attach() has broken its promise. Unlock
    // it.
    (@died Mutex $guard:ident) => {{
        drop($guard);
        Error::new(EOWNERDEAD)
    }};
    (@died RobustMutex $guard:ident) => { LockError::OwnerDied(OwnerDied { guard: $guard }) };
    (@failed Mutex $error:ident) => { $error };
    (@failed RobustMutex $error:ident) => { LockError::Failed($error) };
}

place!(Mutex, &'a Mutex<T>, Error, Handle, 'a);
place!(RobustMutex, &'a RobustMutex<T>, LockError<MutexGuard<T, Self>>, Loop, 'a);
place!(Mutex, Ref<Mutex<T>>, Error, Handle,);
place!(
    RobustMutex,
    Ref<RobustMutex<T>>,
    LockError<MutexGuard<T, Self>>,
    Loop,
);

fn lock<T, P: Place<T>>(
    place: P,
    deadline: Option<&Deadline>,
) -> Result<MutexGuard<T, P>, P::Failure> {
    let raw = place.mutex(TOKEN).raw.get();
    // SAFETY: the mutex is valid.
    let err = unsafe {
        match deadline {
            None => memwait_mutex_lock(raw),
            Some(deadline) => memwait_mutex_clocklock(raw, deadline.clock, &deadline.time),
        }
    };

    guarded(place, err)
}

fn try_lock<T, P: Place<T>>(place: P) -> Result<Option<MutexGuard<T, P>>, P::Failure> {
    // SAFETY: the mutex is valid.
    match unsafe { memwait_mutex_trylock(place.mutex(TOKEN).raw.get()) } {
        EBUSY => Ok(None),
        err => guarded(place, err).map(Some),
    }
}

/// Converts the result of a function that locks.
pub(crate) fn guarded<T, P: Place<T>>(
    place: P,
    err: c_int,
) -> Result<MutexGuard<T, P>, P::Failure> {
    match err {
        0 => Ok(MutexGuard::new(place)),
        EOWNERDEAD => Err(P::owner_died(MutexGuard::new(place), TOKEN)),
        err => Err(P::failed(Error::new(err), TOKEN)),
    }
}

/// A locked mutex, and access to its data. The mutex is unlocked when the guard is dropped. `P` is
/// a `&` or [`Ref`] to the mutex.
///
/// The guard of a [`Mutex`] may leave its thread, because the mutex has no owner: a task of an
/// executor with several threads can hold it across an `await`. The guard of a [`RobustMutex`]
/// stays in the thread that owns it. In a child process a guard of the parent must be
/// forgotten, because it would unlock the parent's mutex.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MutexGuard<T, P: Place<T>> {
    place: P,
    in_its_thread: PhantomData<*mut T>,
}

// SAFETY: a shared reference to it gives a shared reference to the data.
unsafe impl<T: Sync, P: Place<T>> Sync for MutexGuard<T, P> {}
// SAFETY: any thread may unlock it, and may use the data and the reference.
unsafe impl<T: Send> Send for MutexGuard<T, &Mutex<T>> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for MutexGuard<T, Ref<Mutex<T>>> {}

impl<T, P: Place<T>> MutexGuard<T, P> {
    fn new(place: P) -> MutexGuard<T, P> {
        MutexGuard {
            place,
            in_its_thread: PhantomData,
        }
    }

    pub(crate) fn raw(&self) -> *mut memwait_mutex_t {
        self.place.mutex(TOKEN).raw.get()
    }

    /// Returns the place, and leaves the mutex as it is.
    pub(crate) fn into_place(self) -> P {
        let this = ManuallyDrop::new(self);

        // SAFETY: the place is read once, and not dropped here.
        unsafe { ptr::read(&this.place) }
    }

    /// Unlocks the mutex. Unlike drop(), it returns an error if a waiter could not be woken.
    pub fn unlock(self) -> Result<(), Error> {
        let place = self.into_place();

        // SAFETY: the guard holds it.
        check(unsafe { memwait_mutex_unlock(place.mutex(TOKEN).raw.get()) })
    }
}

impl<T, P: Place<T>> Drop for MutexGuard<T, P> {
    fn drop(&mut self) {
        // SAFETY: the guard holds it.
        unsafe { memwait_mutex_unlock(self.raw()) };
    }
}

impl<T, P: Place<T>> Deref for MutexGuard<T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the mutex.
        unsafe { &*self.place.mutex(TOKEN).data.get() }
    }
}

impl<T, P: Place<T>> DerefMut for MutexGuard<T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the mutex.
        unsafe { &mut *self.place.mutex(TOKEN).data.get() }
    }
}

impl<T: fmt::Debug, P: Place<T>> fmt::Debug for MutexGuard<T, P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// The operation of `lock_async()`. It is bound to a thread if the loop is.
pub struct Locking<T, P: Place<T>> {
    place: P,
    on: PhantomData<P::On>,
    data: PhantomData<fn() -> T>,
}

impl<T, P: Place<T> + Clone> Locking<T, P> {
    fn new(place: &P) -> Locking<T, P> {
        Locking {
            place: place.clone(),
            on: PhantomData,
            data: PhantomData,
        }
    }
}

// SAFETY: the future's share prevents the mutex from moving. A robust mutex is bound to the loop's
// thread.
unsafe impl<T: Send + 'static, P: Place<T> + Clone + 'static> Wait for Locking<T, P> {
    type Output = Result<MutexGuard<T, P>, P::Failure>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);

        // SAFETY: the caller guarantees this.
        unsafe { memwait_mutex_clocklock_async(self.place.mutex(TOKEN).raw(), clock, time, op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        guarded(self.place.clone(), result)
    }
}
