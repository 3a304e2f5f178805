// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event::{Handle, Loop, Operation, Wait};
use crate::memory::{Ref, Shareable};
use crate::time::Deadline;
use memwait_sys::*;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_int, c_uint};
use std::ptr;

/// A mutex and what it guards, for threads and futures. Its layout is C's `memwait_mutex_t`, and
/// then a `T`, as `#[repr(C)]` has them.
///
/// It is not poisoned by a panic, which unlocks it. If a process dies with it, it stays locked: see
/// [`RobustMutex`]. It has no owner: futures that lock it may move between threads.
#[repr(C)]
pub struct Mutex<T> {
    raw: UnsafeCell<memwait_mutex_t>,
    data: UnsafeCell<T>,
}

// SAFETY: it gives out a &mut T to one at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: C's layout, then that of T.
unsafe impl<T: Shareable> Shareable for Mutex<T> {}

const fn raw_mutex(kind: c_uint) -> UnsafeCell<memwait_mutex_t> {
    UnsafeCell::new(memwait_mutex_t {
        reserved: [0, 0, kind, 0, 0, 0, 0, 0, 0, 0],
    })
}

impl<T> Mutex<T> {
    /// The first that finds it unlocked has it.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            raw: raw_mutex(MEMWAIT_MUTEX_NORMAL),
            data: UnsafeCell::new(value),
        }
    }

    /// It is handed over in the order of arrival, and slower.
    pub const fn fair(value: T) -> Mutex<T> {
        Mutex {
            raw: raw_mutex(MEMWAIT_MUTEX_FAIR),
            data: UnsafeCell::new(value),
        }
    }

    /// For this process only: waiting and waking cost less.
    #[must_use]
    pub fn private(mut self) -> Mutex<T> {
        self.raw.get_mut().reserved[2] |= MEMWAIT_PRIVATE;
        self
    }

    /// Blocks until it is locked.
    pub fn lock(&self) -> Result<MutexGuard<T, &Mutex<T>>, Error> {
        lock(self, None)
    }

    /// `ETIMEDOUT`: the time has come.
    pub fn lock_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<MutexGuard<T, &Mutex<T>>, Error> {
        lock(self, Some(&deadline.into()))
    }

    /// `None`: it is locked.
    pub fn try_lock(&self) -> Result<Option<MutexGuard<T, &Mutex<T>>>, Error> {
        try_lock(self)
    }

    /// No lock is needed: nothing else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }

    pub(crate) fn raw(&self) -> *mut memwait_mutex_t {
        self.raw.get()
    }
}

impl<T: Send + 'static> Ref<Mutex<T>> {
    /// Waits in one queue with the threads that lock it.
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

/// A [`Mutex`] whose next owner is told if an owner dies with it: a thread ends or a process
/// is killed, at any instruction. What locks it then has it, as [`LockError::OwnerDied`].
///
/// The owner is a thread. So a future that locks it stays in the thread of its loop.
#[repr(transparent)]
pub struct RobustMutex<T>(Mutex<T>);

// SAFETY: that of Mutex<T>.
unsafe impl<T: Shareable> Shareable for RobustMutex<T> {}

impl<T> RobustMutex<T> {
    /// Unlocked.
    pub const fn new(value: T) -> RobustMutex<T> {
        RobustMutex(Mutex {
            raw: raw_mutex(MEMWAIT_MUTEX_ROBUST),
            data: UnsafeCell::new(value),
        })
    }

    /// For this process only.
    #[must_use]
    pub fn private(self) -> RobustMutex<T> {
        RobustMutex(self.0.private())
    }

    /// Blocks until it is locked. `ENOTRECOVERABLE`: an owner died, and the next one has not said
    /// that the data is consistent.
    pub fn lock(&self) -> LockResult<MutexGuard<T, &RobustMutex<T>>> {
        lock(self, None)
    }

    /// `ETIMEDOUT`: the time has come.
    pub fn lock_until(
        &self,
        deadline: impl Into<Deadline>,
    ) -> LockResult<MutexGuard<T, &RobustMutex<T>>> {
        lock(self, Some(&deadline.into()))
    }

    /// `None`: a living owner has it.
    #[allow(clippy::type_complexity)]
    pub fn try_lock(
        &self,
    ) -> Result<Option<MutexGuard<T, &RobustMutex<T>>>, LockError<MutexGuard<T, &RobustMutex<T>>>>
    {
        try_lock(self)
    }

    /// No lock is needed: nothing else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: Send + 'static> Ref<RobustMutex<T>> {
    /// Waits in one queue with the threads that lock it.
    ///
    /// If the future is dropped when it has ended with [`LockError::OwnerDied`], and that was not
    /// taken from it, nothing can lock the mutex again, `ENOTRECOVERABLE`.
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

/// Of what locks a [`RobustMutex`].
pub type LockResult<G> = Result<G, LockError<G>>;

/// Why a [`RobustMutex`] could not be locked, or that it is locked, and its owner has died.
pub enum LockError<G> {
    /// It is locked.
    OwnerDied(OwnerDied<G>),
    /// It is not locked.
    Failed(Error),
}

impl<G> LockError<G> {
    /// The error number; `EOWNERDEAD`, and it is unlocked, if it was locked.
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

/// A [`RobustMutex`] that is locked, and whose owner has died, when it had changed nothing of the
/// data, a part, or everything. Repair it, and call [`consistent`](OwnerDied::consistent). If this
/// is dropped instead, the mutex is unlocked, and nothing can lock it again:
/// `ENOTRECOVERABLE`.
///
/// The dead owner may not have notified a condition variable: notify all of its waiters.
///
/// What reaches the data is unsafe: a thread may leak its guard by `Box::leak()`, give a reference
/// to the data away and end; or use it in a destructor of its thread-local variables, when its end
/// has been told.
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
    /// What the owner has left.
    ///
    /// # Safety
    /// If a dead owner was a thread of this process, no reference to the data that it has left is
    /// used any more, by another thread or in a destructor. A dead process leaves none.
    pub unsafe fn get(&self) -> &G::Target {
        &self.guard
    }

    /// To repair it.
    ///
    /// # Safety
    /// As of [`get`](OwnerDied::get).
    pub unsafe fn get_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<T, P: Place<T>> OwnerDied<MutexGuard<T, P>> {
    /// The data is consistent.
    ///
    /// # Safety
    /// As of [`get`](OwnerDied::get).
    pub unsafe fn consistent(self) -> Result<MutexGuard<T, P>, Error> {
        // SAFETY: the mutex is there.
        check(unsafe { memwait_mutex_consistent(self.guard.raw()) })?;
        Ok(self.guard)
    }
}

/// What a [`LockResult`] can do.
pub trait Repair {
    /// The guard.
    type Guard: DerefMut;

    /// If the owner has died, calls `repair` with the data, says that it is consistent, and goes on
    /// with the guard. If `repair` panics, the mutex is not recoverable.
    ///
    /// # Safety
    /// As of [`OwnerDied::get`].
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
                // SAFETY: the caller's promise.
                unsafe {
                    repair(died.get_mut());
                    died.consistent()
                }
            }
        }
    }
}

/// How a guard refers to its mutex: by `&` or [`Ref`], to a [`Mutex`] or a [`RobustMutex`].
///
/// Its mutex is for this crate only: a `&Mutex<T>` of a [`RobustMutex`] would leave its thread.
///
/// ```compile_fail,E0061
/// fn mutex_of<T, P: memwait::Place<T>>(place: &P) -> &memwait::Mutex<T> {
///     place.mutex()
/// }
/// ```
pub trait Place<T>: Sized {
    /// Of what locks it.
    type Failure;
    /// What a future that locks it waits on.
    type On: AsRef<Handle> + 'static;

    #[doc(hidden)]
    fn mutex(&self, token: Token) -> &Mutex<T>;
    #[doc(hidden)]
    fn owner_died(guard: MutexGuard<T, Self>, token: Token) -> Self::Failure;
    #[doc(hidden)]
    fn failed(error: Error, token: Token) -> Self::Failure;
}

/// Outside of this crate it can be neither named nor made, and so the methods above neither called
/// nor implemented.
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
    // Not robust, or the promise of Shared::attach() is broken. It is unlocked.
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
    // SAFETY: the mutex is there.
    let err = unsafe {
        match deadline {
            None => memwait_mutex_lock(raw),
            Some(deadline) => memwait_mutex_clocklock(raw, deadline.clock, &deadline.time),
        }
    };

    guarded(place, err)
}

fn try_lock<T, P: Place<T>>(place: P) -> Result<Option<MutexGuard<T, P>>, P::Failure> {
    // SAFETY: the mutex is there.
    match unsafe { memwait_mutex_trylock(place.mutex(TOKEN).raw.get()) } {
        EBUSY => Ok(None),
        err => guarded(place, err).map(Some),
    }
}

/// What a function that locks has returned.
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

/// The locked mutex, and its data; unlocks it when dropped. `P` is a `&` or [`Ref`] to it.
///
/// That of a [`Mutex`] may leave its thread, as that has no owner: a task of an executor with
/// several threads holds it across an `await`. That of a [`RobustMutex`] stays in the thread that
/// owns it. In a child of `fork(2)` a guard of the parent must be forgotten, as it would unlock the
/// parent's mutex.
#[must_use = "it unlocks when it is dropped"]
pub struct MutexGuard<T, P: Place<T>> {
    place: P,
    in_its_thread: PhantomData<*mut T>,
}

// SAFETY: a shared reference to it is one to the data.
unsafe impl<T: Sync, P: Place<T>> Sync for MutexGuard<T, P> {}
// SAFETY: any thread may unlock it, and have the data and the reference to it.
unsafe impl<T: Send> Send for MutexGuard<T, &Mutex<T>> {}
// SAFETY: likewise.
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

    /// The place, with the mutex left as it is.
    pub(crate) fn into_place(self) -> P {
        let this = ManuallyDrop::new(self);

        // SAFETY: it is read once, and not dropped here.
        unsafe { ptr::read(&this.place) }
    }

    /// Unlocks it, and says if a waiter could not be woken, which dropping it does not.
    pub fn unlock(self) -> Result<(), Error> {
        let place = self.into_place();

        // SAFETY: it was locked.
        check(unsafe { memwait_mutex_unlock(place.mutex(TOKEN).raw.get()) })
    }
}

impl<T, P: Place<T>> Drop for MutexGuard<T, P> {
    fn drop(&mut self) {
        // SAFETY: it was locked.
        unsafe { memwait_mutex_unlock(self.raw()) };
    }
}

impl<T, P: Place<T>> Deref for MutexGuard<T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nothing else has the mutex.
        unsafe { &*self.place.mutex(TOKEN).data.get() }
    }
}

impl<T, P: Place<T>> DerefMut for MutexGuard<T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nothing else has the mutex.
        unsafe { &mut *self.place.mutex(TOKEN).data.get() }
    }
}

impl<T: fmt::Debug, P: Place<T>> fmt::Debug for MutexGuard<T, P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// To lock a mutex. It is bound to its thread if the loop is.
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

// SAFETY: the share in the mutex keeps it in place. A robust one is bound to the loop's thread.
unsafe impl<T: Send + 'static, P: Place<T> + Clone + 'static> Wait for Locking<T, P> {
    type Output = Result<MutexGuard<T, P>, P::Failure>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let raw = self.place.mutex(TOKEN).raw.get();

        // SAFETY: the caller's promise.
        unsafe {
            match deadline {
                None => memwait_mutex_lock_async(raw, op),
                Some(time) => memwait_mutex_clocklock_async(raw, time.clock, &time.time, op),
            }
        }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        guarded(self.place.clone(), result)
    }

    fn give_back(&self, result: c_int) {
        // Whatever it is, a guard or that the owner has died, unlocks when dropped.
        drop(guarded(self.place.clone(), result));
    }
}
