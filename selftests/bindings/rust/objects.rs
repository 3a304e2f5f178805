// SPDX-License-Identifier: GPL-2.0-only
//! The crate memwait: threads, futures, processes; cancelled, dropped and killed waits; no device.
use memwait::word::{self, Outcome, Scope};
use memwait::*;
use std::future::Future;
use std::io::ErrorKind;
use std::os::raw::{c_char, c_int, c_uint, c_ulong, c_void};
use std::os::unix::io::AsRawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering::SeqCst,
};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

extern "C" {
    fn fork() -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
    fn _exit(status: c_int) -> !;
    fn pause() -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut EpollEvent) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut EpollEvent, most: c_int, timeout: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn mount(
        what: *const c_char,
        place: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
}

#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
struct EpollEvent {
    events: u32,
    data: u64,
}

/// `Is::<T>::SEND` is whether T is Send: an inherent constant takes precedence over the constant of
/// the trait.
struct Is<T>(std::marker::PhantomData<T>);

trait No {
    const SEND: bool = false;
    const SYNC: bool = false;
    const SHAREABLE: bool = false;
}

impl<T> No for Is<T> {}

/// `IsSync::<T>::SYNC` is whether T is Sync.
struct IsSync<T>(std::marker::PhantomData<T>);

impl<T> No for IsSync<T> {}

/// `IsShareable::<T>::SHAREABLE` is whether T is Shareable.
struct IsShareable<T>(std::marker::PhantomData<T>);

impl<T> No for IsShareable<T> {}

impl<T: Send> Is<T> {
    const SEND: bool = true;
}

impl<T: Sync> IsSync<T> {
    const SYNC: bool = true;
}

impl<T: Shareable> IsShareable<T> {
    const SHAREABLE: bool = true;
}

/// Returns whether a value, whose type has no name here, is Send: a method by value is found first.
struct Of<T>(T);

trait NotSend {
    fn is_send(&self) -> bool {
        false
    }
}

impl<T> NotSend for &Of<T> {}

trait IsSend {
    fn is_send(&self) -> bool {
        true
    }
}

impl<T: Send> IsSend for Of<T> {}

macro_rules! is_send {
    ($value:expr) => {
        (&Of($value)).is_send()
    };
}

type Data = std::cell::Cell<u32>;
type Pointer = *const u8;

const TYPES: () = {
    assert!(!Is::<Loop>::SEND && !IsSync::<Loop>::SYNC);
    assert!(Is::<Handle>::SEND && IsSync::<Handle>::SYNC);
    // Locks of values that are Send but not Sync (Data), and of values that are neither Send nor
    // Sync (Pointer).
    assert!(Is::<Mutex<Data>>::SEND && IsSync::<Mutex<Data>>::SYNC);
    assert!(!Is::<Mutex<Pointer>>::SEND && !IsSync::<Mutex<Pointer>>::SYNC);
    assert!(IsSync::<RobustMutex<Data>>::SYNC && !IsSync::<RobustMutex<Pointer>>::SYNC);
    assert!(IsSync::<RwLock<u32>>::SYNC && !IsSync::<RwLock<Data>>::SYNC);
    assert!(Is::<Ref<Mutex<Data>>>::SEND && !Is::<Ref<Data>>::SEND && !Is::<Ref<Pointer>>::SEND);
    assert!(Is::<Channel<Data>>::SEND && !Is::<Channel<Pointer>>::SEND);
    // A guard of a lock that records its owner must stay in its thread. All guards share the value.
    assert!(Is::<MutexGuard<Data, &Mutex<Data>>>::SEND);
    assert!(Is::<MutexGuard<u32, Ref<Mutex<u32>>>>::SEND);
    assert!(!Is::<MutexGuard<Pointer, &Mutex<Pointer>>>::SEND);
    assert!(!Is::<MutexGuard<u32, &RobustMutex<u32>>>::SEND);
    assert!(!Is::<MutexGuard<u32, Ref<RobustMutex<u32>>>>::SEND);
    assert!(!Is::<OwnerDied<MutexGuard<u32, &RobustMutex<u32>>>>::SEND);
    assert!(Is::<ReadGuard<u32, &RwLock<u32>>>::SEND);
    assert!(Is::<WriteGuard<u32, Ref<RwLock<u32>>>>::SEND);
    assert!(!Is::<ReadGuard<Data, &RwLock<Data>>>::SEND);
    assert!(!Is::<WriteGuard<Data, Ref<RwLock<Data>>>>::SEND);
    assert!(IsSync::<MutexGuard<u32, &Mutex<u32>>>::SYNC);
    assert!(!IsSync::<MutexGuard<Data, &Mutex<Data>>>::SYNC);
    // Compilers differ in the alignment of 128-bit integers.
    assert!(IsShareable::<Mutex<[u64; 2]>>::SHAREABLE && IsShareable::<i64>::SHAREABLE);
    assert!(!IsShareable::<u128>::SHAREABLE && !IsShareable::<i128>::SHAREABLE);
};

const SIGKILL: c_int = 9;
const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const EOVERFLOW: i32 = 75;
const ETIMEDOUT: i32 = 110;
const ECANCELED: i32 = 125;
const ENOTRECOVERABLE: i32 = 131;
const LONG: Duration = Duration::from_secs(100_000);
const SHORT: Duration = Duration::from_millis(20);

/// The time limit that ends a test that hangs: seconds on an idle machine, multiplied by the
/// measured slowness (see measure_slowness() in selftests/vm/init).
fn limit(seconds: c_uint) -> c_uint {
    let slowness = std::env::var("MEMWAIT_SLOWNESS");

    seconds * slowness.map_or(1, |times| times.parse().unwrap())
}

/// Forks a child that runs `work` and exits with 0, or with 1 after a panic.
fn child(work: impl FnOnce()) -> c_int {
    let pid = unsafe { fork() };

    if pid != 0 {
        return pid;
    }
    unsafe { alarm(limit(60)) };
    let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
    unsafe { _exit(failed as c_int) }
}

fn status_of(pid: c_int) -> c_int {
    let mut status = -1;

    while unsafe { waitpid(pid, &mut status, 0) } != pid {}
    status
}

fn kill_child(pid: c_int) {
    unsafe { kill(pid, SIGKILL) };
    assert_eq!(status_of(pid), SIGKILL);
}

/// Waits until the condition is true. Only the time limit of the test bounds the wait.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

fn errno<T, E: Into<AnyError>>(result: Result<T, E>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.into().0,
    }
}

struct AnyError(i32);

impl From<Error> for AnyError {
    fn from(error: Error) -> AnyError {
        AnyError(error.raw_os_error())
    }
}

impl<G> From<LockError<G>> for AnyError {
    fn from(error: LockError<G>) -> AnyError {
        AnyError(error.into_error().raw_os_error())
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn no_waker() -> Waker {
    Arc::new(Flag(AtomicBool::new(false))).into()
}

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&no_waker()))
}

fn begin<F: Future + Unpin>(mut future: F) -> F {
    assert!(poll_once(&mut future).is_pending());
    future
}

/// Dispatches until `count` callbacks have been called.
fn dispatch(on: &Loop, count: usize) {
    let mut called = 0;

    while called < count {
        called += on.dispatch().unwrap();
        thread::yield_now();
    }
}

/// This test runs first, because the library opens the device only once.
fn no_device() {
    let pid = child(|| {
        let (none, dev, tmpfs) = (b"none\0", b"/dev\0", b"tmpfs\0");
        let root = b"/\0";
        unsafe {
            assert_eq!(unshare(0x20000), 0);
            // MS_REC | MS_PRIVATE
            let private = 0x4000 | 0x40000;
            assert_eq!(
                mount(
                    none.as_ptr().cast(),
                    root.as_ptr().cast(),
                    std::ptr::null(),
                    private,
                    std::ptr::null()
                ),
                0
            );
            assert_eq!(
                mount(
                    none.as_ptr().cast(),
                    dev.as_ptr().cast(),
                    tmpfs.as_ptr().cast(),
                    0,
                    std::ptr::null()
                ),
                0
            );
        }
        let error = available().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("module"), "{}", error);
        assert_eq!(errno(Mutex::new(0).lock()), ENOENT);
        assert_eq!(errno(Mutex::new(0).try_lock()), ENOENT);
        assert_eq!(errno(RobustMutex::new(0).lock()), ENOENT);
        assert_eq!(errno(RwLock::new(0).read()), ENOENT);
        assert_eq!(errno(Semaphore::new(0).acquire()), ENOENT);
        assert_eq!(errno(Semaphore::new(0).post()), ENOENT);
        assert_eq!(errno(Event::new().wait()), ENOENT);
        assert_eq!(errno(WaitGroup::new().add(1)), ENOENT);
        assert_eq!(errno(Condvar::new().notify_all()), ENOENT);
        assert_eq!(errno(Barrier::new(2)), ENOENT);
        assert_eq!(errno(Channel::<u32>::new(2)), ENOENT);
        assert_eq!(
            errno(word::wait(&AtomicU32::new(0), 0, Scope::Shared)),
            ENOENT
        );
        assert_eq!(errno(Loop::new()), ENOENT);
    });
    assert_eq!(status_of(pid), 0);
}

fn bad_input() {
    let memory = Shared::anonymous(4096).unwrap();

    unsafe {
        assert_eq!(errno(memory.attach::<Mutex<u64>>(4096)), EINVAL);
        assert_eq!(errno(memory.attach::<Mutex<u64>>(4096 - 32)), EINVAL);
        assert_eq!(errno(memory.attach::<Mutex<u64>>(usize::MAX - 7)), EINVAL);
        assert_eq!(errno(memory.attach::<Mutex<u64>>(4)), EINVAL);
        assert_eq!(errno(memory.construct(4090, Semaphore::new(1))), EINVAL);
        // Zeroed memory is neither a barrier nor a channel.
        assert_eq!(errno(memory.attach::<Barrier>(0).unwrap().wait()), EINVAL);
        assert_eq!(errno(memory.attach_channel::<u32>(0)), EINVAL);
        assert_eq!(errno(memory.attach_channel::<u32>(4090)), EINVAL);
        assert_eq!(errno(memory.channel::<u32>(0, 4096)), EINVAL);
        assert_eq!(errno(memory.channel::<u32>(0, 0)), EINVAL);
        let channel = memory.channel::<u32>(0, 4).unwrap();
        assert_eq!((channel.capacity(), channel.len()), (4, 0));
        assert_eq!(errno(memory.attach_channel::<u64>(0)), EINVAL);
        assert!(memory.attach_channel::<u32>(0).is_ok());
    }
    assert_eq!(errno(Channel::<()>::new(1)), EINVAL);
    assert_eq!(errno(Barrier::new(0)), EINVAL);
    assert!(catch_unwind(|| Semaphore::new(1 << 31)).is_err());
    assert!(catch_unwind(|| Semaphore::fair(Semaphore::FAIR_MAX + 1)).is_err());
    for full in [
        Semaphore::new(Semaphore::MAX),
        Semaphore::fair(Semaphore::FAIR_MAX),
    ] {
        assert_eq!(errno(full.post()), EOVERFLOW);
    }
    let owner = Arc::new([0; 8].map(AtomicU64::new));
    let start = std::ptr::NonNull::from(&*owner).cast();
    let borrowed = unsafe { Shared::borrowed(start, 64, owner.clone()) };
    let sem = unsafe { borrowed.construct(32, Semaphore::new(1)).unwrap() };
    assert!(unsafe { borrowed.construct(40, Semaphore::new(1)).is_err() });
    drop(borrowed);
    assert_eq!(Arc::strong_count(&owner), 2);
    assert_eq!(sem.try_acquire(), Ok(true));
    drop(sem);
    assert_eq!(Arc::strong_count(&owner), 1);
    let file = memfd(100).unwrap();
    assert!(Shared::map(&file, 0, 101).is_err());
    assert!(Shared::map(&file, u64::MAX, 1).is_err());
    assert!(Shared::map(&file, 1, 1).is_err());
    assert!(Shared::map(&file, 0, 100).is_ok());
    let mut ready = Ref::new(Semaphore::new(1)).acquire_async(&Loop::new().unwrap());
    assert!(poll_once(&mut ready).is_ready());
    assert!(catch_unwind(AssertUnwindSafe(|| poll_once(&mut ready))).is_err());
}

/// Tests which types and futures can be moved to another thread.
fn bound_to_threads() {
    let () = TYPES;
    let on = Loop::new().unwrap();
    let robust = Ref::new(RobustMutex::new(0));
    let mutex = Ref::new(Mutex::new(0));
    let cond = Ref::new(Condvar::new());

    assert!(is_send!(mutex.lock_async(&on)));
    assert!(!is_send!(robust.lock_async(&on)));
    let guard = on.block_on(mutex.lock_async(&on)).unwrap().unwrap();
    assert!(is_send!(cond.wait_async(guard, &on)));
    let guard = on.block_on(robust.lock_async(&on)).unwrap().unwrap();
    assert!(!is_send!(cond.wait_async(guard, &on)));
    assert!(is_send!(Ref::new(RwLock::new(0)).read_async(&on)));
    assert!(is_send!(Channel::<u8>::new(1).unwrap().recv_async(&on)));

    // Guards are dropped in a thread that is not the thread that locked.
    let lock = Ref::new(RwLock::fair(0));
    let guards = (mutex.lock().unwrap(), lock.write().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut one, mut two) = guards;

            (*one, *two) = (1, 2);
        });
    });
    assert_eq!(*mutex.try_lock().unwrap().unwrap(), 1);
    assert_eq!(*lock.try_read().unwrap().unwrap(), 2);
    // A wait for a condition, which has the guard of the mutex, is dropped in another thread.
    let guard = on.block_on(mutex.lock_async(&on)).unwrap().unwrap();
    let wait = cond.wait_async(guard, &on);
    thread::spawn(move || drop(begin(wait))).join().unwrap();
    assert!(mutex.try_lock().unwrap().is_some());
}

fn events() {
    let memory = Shared::anonymous(4096).unwrap();
    let event = unsafe { memory.attach::<Event>(64).unwrap() };
    let on = Loop::new().unwrap();
    let waiters = || {
        let word = unsafe { memory.attach::<AtomicU32>(64).unwrap() };

        word::waiters(&*word, Scope::Shared).unwrap()
    };

    assert!(!event.is_set());
    assert_eq!(errno(event.wait_until(SHORT)), ETIMEDOUT);
    let timed = event.wait_async(&on).until(SHORT);
    assert_eq!(errno(on.block_on(timed).unwrap()), ETIMEDOUT);
    let mut waits = begin(event.wait_async(&on));
    let pid = child(|| {
        unsafe { memory.attach::<Event>(64).unwrap() }
            .wait()
            .unwrap()
    });
    until(|| waiters() == 2);
    // A notify of the word does not end a wait if the event was not set.
    let word = unsafe { memory.attach::<AtomicU32>(64).unwrap() };
    assert_eq!(word::notify(&*word, word::ALL, Scope::Shared), Ok(2));
    until(|| {
        assert_eq!(on.dispatch(), Ok(0));
        waiters() == 2
    });
    assert!(poll_once(&mut waits).is_pending());
    // Waits end even if the event is cleared immediately after it was set.
    event.set().unwrap();
    event.clear().unwrap();
    assert!(!event.is_set());
    dispatch(&on, 1);
    assert_eq!(poll_once(&mut waits), Poll::Ready(Ok(())));
    assert_eq!(status_of(pid), 0);
    event.set().unwrap();
    event.set().unwrap();
    assert!(event.is_set());
    assert_eq!(event.wait(), Ok(()));
    assert_eq!(on.block_on(event.wait_async(&on)), Ok(Ok(())));
    drop(begin(Ref::new(Event::new()).wait_async(&on)));
    assert_eq!(on.pending(), 0);
    assert!(is_send!(event.wait_async(&on)));
}

fn wait_groups() {
    let memory = Shared::anonymous(4096).unwrap();
    let group = unsafe { memory.attach::<WaitGroup>(64).unwrap() };
    let on = Loop::new().unwrap();

    assert_eq!(group.wait(), Ok(()));
    assert_eq!(errno(group.done()), EINVAL);
    assert_eq!(errno(group.add(WaitGroup::MAX as i32 + 1)), EOVERFLOW);
    group.add(2).unwrap();
    assert_eq!(errno(group.wait_until(SHORT)), ETIMEDOUT);
    let timed = group.wait_async(&on).until(SHORT);
    assert_eq!(errno(on.block_on(timed).unwrap()), ETIMEDOUT);
    let mut waits = begin(group.wait_async(&on));
    let pid = child(|| {
        let group = unsafe { memory.attach::<WaitGroup>(64).unwrap() };

        group.done().unwrap();
        group.wait().unwrap();
    });
    thread::sleep(SHORT);
    assert!(poll_once(&mut waits).is_pending());
    group.done().unwrap();
    dispatch(&on, 1);
    assert_eq!(poll_once(&mut waits), Poll::Ready(Ok(())));
    assert_eq!(status_of(pid), 0);
    let private = Ref::new(WaitGroup::new().private());
    private.add(1).unwrap();
    drop(begin(private.wait_async(&on)));
    assert_eq!(on.pending(), 0);
    assert!(is_send!(group.wait_async(&on)));
}

fn threads() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    let locks: [&'static Mutex<u32>; 3] = [
        &MUTEX,
        Box::leak(Box::new(Mutex::fair(0))),
        Box::leak(Box::new(Mutex::new(0).private())),
    ];

    for mutex in locks {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..200).for_each(|_| *mutex.lock().unwrap() += 1));
            }
        });
        let guard = mutex.lock().unwrap();
        assert_eq!(*guard, 600);
        assert!(mutex.try_lock().unwrap().is_none());
        assert_eq!(errno(mutex.lock_until(SHORT)), ETIMEDOUT);
        assert_eq!(errno(mutex.lock_until(SystemTime::UNIX_EPOCH)), ETIMEDOUT);
        assert_eq!(guard.unlock(), Ok(()));
        assert!(mutex.try_lock().unwrap().is_some());
    }

    let lock = RwLock::fair(5).private();
    assert_eq!(*lock.read().unwrap(), 5);
    assert_eq!(errno(lock.write_until(SHORT)), 0);
    let lock = RwLock::prefer_writer(5);
    let (one, two) = (lock.read().unwrap(), lock.try_read().unwrap().unwrap());
    assert_eq!(*one + *two, 10);
    assert!(lock.try_write().unwrap().is_none());
    assert_eq!(errno(lock.write_until(SHORT)), ETIMEDOUT);
    drop((one, two));
    *lock.write().unwrap() = 6;
    assert_eq!(*lock.read_until(LONG).unwrap(), 6);

    let before = Instant::now();
    let (mutex, cond) = (Mutex::new(false), Condvar::new());
    let mut guard = mutex.lock().unwrap();
    loop {
        let (again, timed_out) = cond.wait_until(guard, before + SHORT).unwrap();
        guard = again;
        if timed_out {
            break;
        }
    }
    assert!(before.elapsed() >= SHORT && !*guard);
    drop(guard);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut guard = mutex.lock().unwrap();
            while !*guard {
                guard = cond.wait(guard).unwrap();
            }
        });
        *mutex.lock().unwrap() = true;
        cond.notify_one().unwrap();
    });

    // A mutex and a condition variable are in one object.
    #[derive(Default)]
    struct Page {
        mutex: Mutex<[u32; 2]>,
        cond: Condvar,
    }
    let page = Box::new(Page::default());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut guard = page.mutex.lock().unwrap();
                guard[0] += 1;
                while guard[1] == 0 {
                    guard = page.cond.wait(guard).unwrap();
                }
                guard[0] -= 1;
            });
        }
        until(|| page.mutex.lock().unwrap()[0] == 3);
        let mut guard = page.mutex.lock().unwrap();
        guard[1] = 1;
        page.cond.notify_all().unwrap();
    });
    assert_eq!(*page.mutex.lock().unwrap(), [0, 1]);

    assert_eq!(Barrier::private(1).unwrap().wait(), Ok(true));
    let barrier = Barrier::new(3).unwrap();
    let leaders = AtomicUsize::new(0);
    assert_eq!(errno(barrier.wait_until(SHORT)), ETIMEDOUT);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| leaders.fetch_add(barrier.wait().unwrap() as usize, SeqCst));
        }
    });
    assert_eq!(leaders.load(SeqCst), 1);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(barrier.wait().unwrap_err().kind(), ErrorKind::BrokenPipe));
        barrier.abort().unwrap();
    });
    barrier.reset().unwrap();
    assert_eq!(errno(barrier.wait_until(SHORT)), ETIMEDOUT);

    let channel = Channel::<u64>::new(2).unwrap();
    thread::scope(|scope| {
        let sender = channel.clone();
        scope.spawn(move || {
            (0..100).for_each(|item| sender.send(item).unwrap());
            sender.close().unwrap();
        });
        for item in 0..100 {
            assert_eq!(channel.recv(), Ok(Some(item)));
        }
    });
    assert_eq!(channel.recv(), Ok(None));
    assert_eq!(channel.send(1).unwrap_err().kind(), ErrorKind::BrokenPipe);

    let word = AtomicU8::new(1);
    assert_eq!(word::wait(&word, 2, Scope::Private), Ok(Outcome::NotEqual));
    assert_eq!(
        word::wait_until(&word, 1, Scope::Private, SHORT),
        Ok(Outcome::TimedOut)
    );
    assert_eq!(
        word::wait_until(&word, 1, Scope::Shared, SystemTime::now() + SHORT),
        Ok(Outcome::TimedOut)
    );
    thread::scope(|scope| {
        let waiter = scope.spawn(|| word::wait(&word, 1, Scope::Private));
        until(|| word::waiters(&word, Scope::Private) == Ok(1));
        assert_eq!(word::notify(&word, word::ALL, Scope::Private), Ok(1));
        assert_eq!(waiter.join().unwrap(), Ok(Outcome::Notified));
    });
}

/// Drops each kind of future before it is polled, while it waits, and after its operation has
/// ended.
fn cancel() {
    let on = Loop::new().unwrap();

    let mutex = Ref::new(Mutex::new(7));
    drop(mutex.lock_async(&on));
    let guard = mutex.lock().unwrap();
    drop(begin(mutex.lock_async(&on)));
    assert_eq!(on.pending(), 0);
    let ended = begin(mutex.lock_async(&on));
    let mut last = begin(mutex.lock_async(&on));
    drop(guard);
    dispatch(&on, 1);
    assert!(mutex.try_lock().unwrap().is_none());
    drop(ended);
    dispatch(&on, 1);
    match poll_once(&mut last) {
        Poll::Ready(Ok(guard)) => assert_eq!(*guard, 7),
        _ => panic!("not locked"),
    }
    assert!(mutex.try_lock().unwrap().is_some());

    let robust = Ref::new(RobustMutex::new(7));
    let guard = robust.lock().unwrap();
    drop(begin(robust.lock_async(&on)));
    let ended = begin(robust.lock_async(&on));
    drop(guard);
    dispatch(&on, 1);
    drop(ended);
    assert!(robust.try_lock().unwrap().is_some());

    let lock = Ref::new(RwLock::new(7));
    let guard = lock.write().unwrap();
    drop(begin(lock.read_async(&on)));
    let (one, two) = (begin(lock.read_async(&on)), begin(lock.write_async(&on)));
    drop(guard);
    dispatch(&on, 1);
    drop(one);
    dispatch(&on, 1);
    drop(two);
    assert!(lock.try_write().unwrap().is_some());

    let sem = Ref::new(Semaphore::new(0));
    drop(begin(sem.acquire_async(&on)));
    let ended = begin(sem.acquire_async(&on));
    sem.post().unwrap();
    dispatch(&on, 1);
    assert_eq!(sem.value(), Ok(0));
    drop(ended);
    assert_eq!(sem.value(), Ok(1));

    let fair = Ref::new(Semaphore::fair(1).private());
    assert_eq!(fair.value(), Ok(1));
    fair.acquire().unwrap();
    let ended = begin(fair.acquire_async(&on));
    let mut next = begin(fair.acquire_async(&on));
    fair.post().unwrap();
    assert_eq!(fair.try_acquire(), Ok(false));
    dispatch(&on, 1);
    drop(ended);
    dispatch(&on, 1);
    assert_eq!(poll_once(&mut next), Poll::Ready(Ok(())));
    assert_eq!(fair.value(), Ok(0));

    let word = Ref::new(AtomicU32::new(0));
    drop(begin(word::wait_async(&word, 0, Scope::Shared, &on)));
    let ended = begin(word::wait_async(&word, 0, Scope::Shared, &on));
    let mut next = begin(word::wait_async(&word, 0, Scope::Shared, &on));
    assert_eq!(word::notify(&*word, 1, Scope::Shared), Ok(1));
    dispatch(&on, 1);
    drop(ended);
    dispatch(&on, 1);
    assert_eq!(poll_once(&mut next), Poll::Ready(Ok(Outcome::Notified)));

    let cond = Ref::new(Condvar::new());
    let locked = || on.block_on(mutex.lock_async(&on)).unwrap().unwrap();
    drop(cond.wait_async(locked(), &on));
    assert!(mutex.try_lock().unwrap().is_some());
    drop(begin(cond.wait_async(locked(), &on)));
    assert!(mutex.try_lock().unwrap().is_some());
    let ended = begin(cond.wait_async(locked(), &on));
    let mut next = begin(cond.wait_async(locked(), &on));
    cond.notify_one().unwrap();
    dispatch(&on, 1);
    assert!(mutex.try_lock().unwrap().is_none());
    drop(ended);
    dispatch(&on, 1);
    match poll_once(&mut next) {
        Poll::Ready(Ok((guard, timed_out))) => assert!(*guard == 7 && !timed_out),
        _ => panic!("not notified"),
    }
    assert!(mutex.try_lock().unwrap().is_some());

    let channel = Channel::<u32>::new(1).unwrap();
    drop(begin(channel.recv_async(&on)));
    let ended = begin(channel.recv_async(&on));
    channel.send(1).unwrap();
    dispatch(&on, 1);
    channel.send(2).unwrap();
    drop(begin(channel.send_async(9, &on)));
    drop(ended);
    assert_eq!(channel.len(), 2);
    assert_eq!(
        poll_once(&mut channel.recv_async(&on)),
        Poll::Ready(Ok(Some(1)))
    );
    assert_eq!(channel.try_recv(), Ok(Some(2)));
    // Another receiver waits, and gets the item.
    let ended = begin(channel.recv_async(&on));
    let mut waits = begin(channel.recv_async(&on));
    channel.send(3).unwrap();
    dispatch(&on, 1);
    drop(ended);
    dispatch(&on, 1);
    assert_eq!(poll_once(&mut waits), Poll::Ready(Ok(Some(3))));
    assert_eq!(
        channel.try_recv().unwrap_err().kind(),
        ErrorKind::WouldBlock
    );

    let barrier = Ref::new(Barrier::new(2).unwrap());
    drop(begin(barrier.wait_async(&on)));
    let mut waits = begin(barrier.wait_async(&on));
    assert!(barrier.wait_until(LONG).is_ok());
    dispatch(&on, 1);
    assert!(matches!(poll_once(&mut waits), Poll::Ready(Ok(_))));
    assert_eq!(on.pending(), 0);
}

/// Futures are dropped after they have received items.
fn items_given_back() {
    let memory = Shared::anonymous(4096).unwrap();
    let on = Loop::new().unwrap();
    let one = unsafe { memory.channel::<u32>(0, 1).unwrap() };
    let other = unsafe { memory.attach_channel::<u32>(0).unwrap() };
    let ended = || {
        let future = begin(one.recv_async(&on));
        one.send(1).unwrap();
        dispatch(&on, 1);
        future
    };
    let kept = || {
        let future = ended();
        one.send(2).unwrap();
        drop(future);
    };

    // Another handle waits, as another process might.
    let future = ended();
    let mut waits = begin(other.recv_async(&on));
    drop(future);
    dispatch(&on, 1);
    assert_eq!(poll_once(&mut waits), Poll::Ready(Ok(Some(1))));

    // The channel is full, and two receivers wait.
    let future = ended();
    let mut waits = [begin(one.recv_async(&on)), begin(one.recv_async(&on))];
    one.send(2).unwrap();
    drop(future);
    dispatch(&on, 1);
    assert_eq!(poll_once(&mut waits[0]), Poll::Ready(Ok(Some(2))));
    while on.pending() > 0 {
        on.dispatch().unwrap();
    }
    assert_eq!(poll_once(&mut waits[1]), Poll::Ready(Ok(Some(1))));
    drop(waits);

    // The channel is full, a receiver waits, and another process receives before that receiver.
    let future = ended();
    let mut waits = begin(one.recv_async(&on));
    one.send(2).unwrap();
    drop(future);
    assert_eq!(other.try_recv(), Ok(Some(2)));
    while on.pending() > 0 {
        on.dispatch().unwrap();
    }
    assert_eq!(poll_once(&mut waits), Poll::Ready(Ok(Some(1))));
    drop(waits);
    assert!(one.is_empty());

    // The channel is full, no receiver waits, and the loop is dropped.
    let short = Loop::new().unwrap();
    let future = begin(one.recv_async(&short));
    one.send(1).unwrap();
    dispatch(&short, 1);
    one.send(2).unwrap();
    drop(future);
    assert_eq!(short.pending(), 1);
    drop(short);
    assert_eq!(one.len(), 2);
    assert_eq!(one.try_recv(), Ok(Some(1)));
    assert_eq!(one.try_recv(), Ok(Some(2)));

    // A thread that receives gets the kept item without a dispatch.
    kept();
    assert_eq!(one.recv(), Ok(Some(1)));
    assert_eq!(one.recv(), Ok(Some(2)));
    assert_eq!(on.pending(), 0);

    // A child does not inherit a kept item.
    kept();
    assert_eq!(one.len(), 2);
    let pid = child(|| {
        assert_eq!(one.len(), 1);
        assert_eq!(one.try_recv(), Ok(Some(2)));
        assert!(one.is_empty());
    });
    assert_eq!(status_of(pid), 0);
    assert_eq!(one.try_recv(), Ok(Some(1)));

    // The handle is dropped, or the channel is closed.
    kept();
    assert_eq!(other.recv(), Ok(Some(2)));
    drop(one);
    assert_eq!(other.try_recv(), Ok(Some(1)));
    let future = begin(other.recv_async(&on));
    other.send(1).unwrap();
    dispatch(&on, 1);
    other.close().unwrap();
    drop(future);
    assert_eq!(other.recv(), Ok(Some(1)));
    assert_eq!(other.recv(), Ok(None));
}

fn timeouts() {
    let on = Loop::new().unwrap();
    let sem = Ref::new(Semaphore::new(0));
    let before = Instant::now();

    assert_eq!(
        errno(on.block_on(sem.acquire_async(&on).until(SHORT)).unwrap()),
        ETIMEDOUT
    );
    assert!(before.elapsed() >= SHORT);
    {
        let _waits = begin(sem.acquire_async(&on));
        on.handle().stop().unwrap();
        on.run().unwrap();
        assert_eq!(on.pending(), 1);
        assert_eq!(on.run_until(SHORT), Ok(false));
        assert_eq!(on.run_until(SystemTime::now() + SHORT), Ok(false));
        sem.release().unwrap();
        assert_eq!(on.run_until(LONG), Ok(true));
    }
    let word = Ref::new(AtomicU32::new(0));
    let wait = word::wait_async(&word, 0, Scope::Private, &on).until(Instant::now() + SHORT);
    assert_eq!(on.block_on(wait).unwrap(), Ok(Outcome::TimedOut));
    let mutex = Ref::new(Mutex::new(()));
    let cond = Ref::new(Condvar::new());
    on.block_on(async {
        let guard = mutex.lock_async(&on).await.unwrap();
        let before = Instant::now();
        let mut state = (guard, false);
        while !state.1 {
            let wait = cond.wait_async(state.0, &on).until(before + SHORT);
            state = wait.await.unwrap();
        }
        assert!(before.elapsed() >= SHORT && mutex.try_lock().unwrap().is_none());
        let again = mutex.lock_async(&on).until(SystemTime::now() + SHORT).await;
        assert_eq!(errno(again), ETIMEDOUT);
    })
    .unwrap();
}

/// The loop is dropped while futures wait. They fail with ECANCELED and hold nothing. A leaked
/// future has no effect.
fn drop_pending() {
    let on = Loop::new().unwrap();
    let mutex = Ref::new(Mutex::fair(0));
    let channel = Channel::<u32>::new(1).unwrap();
    let guard = mutex.lock().unwrap();
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker: Waker = flag.clone().into();
    let mut waits = mutex.lock_async(&on);
    let mut receives = begin(channel.recv_async(&on));
    let mut late = mutex.lock_async(&on);
    let mut late_receive = channel.recv_async(&on);

    assert!(Pin::new(&mut waits)
        .poll(&mut Context::from_waker(&waker))
        .is_pending());
    std::mem::forget(begin(mutex.lock_async(&on)));
    drop(on);
    assert!(flag.0.load(SeqCst));
    drop(guard);
    assert!(matches!(poll_once(&mut waits), Poll::Ready(Err(e)) if e.raw_os_error() == ECANCELED));
    assert!(
        matches!(poll_once(&mut receives), Poll::Ready(Err(e)) if e.raw_os_error() == ECANCELED)
    );
    assert!(matches!(poll_once(&mut late), Poll::Ready(Err(e)) if e.raw_os_error() == ECANCELED));
    assert!(
        matches!(poll_once(&mut late_receive), Poll::Ready(Err(e)) if e.raw_os_error() == ECANCELED)
    );
    assert!(mutex.try_lock().unwrap().is_some());
    channel.send(1).unwrap();
    assert_eq!(channel.try_recv(), Ok(Some(1)));
}

/// Many operations end at one edge, and there is one dispatch for each edge, as with tokio's
/// AsyncFd.
fn one_edge() {
    const CROWD: usize = 300;
    const EPOLLIN_EPOLLET: u32 = 0x8000_0001;
    let on = Loop::new().unwrap();
    let sem = Ref::new(Semaphore::new(0));
    let mut event = EpollEvent {
        events: EPOLLIN_EPOLLET,
        data: 0,
    };
    let epoll = unsafe { epoll_create1(0) };
    assert_eq!(
        unsafe { epoll_ctl(epoll, 1, on.as_raw_fd(), &mut event) },
        0
    );
    let mut waits: Vec<_> = (0..CROWD).map(|_| begin(sem.acquire_async(&on))).collect();
    for _ in 0..CROWD {
        sem.post().unwrap();
    }
    // If there were no edge now, there would never be another edge.
    while unsafe { epoll_wait(epoll, &mut event, 1, 0) } == 1 {
        on.dispatch().unwrap();
    }
    assert_eq!(on.pending(), 0);
    assert!(waits.iter_mut().all(|wait| poll_once(wait).is_ready()));
    assert_eq!(sem.value(), Ok(0));
    unsafe { close(epoll) };
}

/// Two threads and a future acquire a fair mutex in FIFO order.
fn fifo() {
    let on = Loop::new().unwrap();
    let mutex = Ref::new(Mutex::fair(Vec::new()));
    let guard = mutex.lock().unwrap();
    let queue = mutex.clone();
    let sleeper = |name, waiters| {
        let mutex = mutex.clone();
        // SAFETY: the first word of the mutex is its lock word; waiters sleep on its second byte.
        let word = unsafe { &*(&*queue as *const Mutex<_> as *const AtomicU8).add(1) };
        let thread = thread::spawn(move || mutex.lock().unwrap().push(name));

        until(|| word::waiters(word, Scope::Shared) == Ok(waiters));
        thread
    };
    let first = sleeper("first", 1);
    let mut second = begin(mutex.lock_async(&on));
    let third = sleeper("third", 3);
    drop(guard);
    on.block_on(async {
        (&mut second).await.unwrap().push("second");
    })
    .unwrap();
    first.join().unwrap();
    third.join().unwrap();
    assert_eq!(*mutex.lock().unwrap(), ["first", "second", "third"]);
}

/// One thread dispatches. Other threads begin, poll and drop futures. No permit is lost or
/// duplicated.
fn other_threads() {
    let on = Loop::new().unwrap();
    let sem = Ref::new(Semaphore::new(0).private());
    let dropped = AtomicU32::new(0);
    let ends = AtomicBool::new(false);

    thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (handle, sem, dropped) = (on.handle(), sem.clone(), &dropped);
                scope.spawn(move || {
                    for round in 0..300 {
                        let future = begin_or_end(sem.acquire_async(&handle));
                        sem.post().unwrap();
                        if round % 3 == 0 {
                            thread::yield_now();
                        }
                        drop(future);
                        dropped.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let ends = &ends;
        scope.spawn(move || {
            workers
                .into_iter()
                .for_each(|worker| worker.join().unwrap());
            ends.store(true, SeqCst);
        });
        while !ends.load(SeqCst) {
            on.dispatch().unwrap();
            thread::yield_now();
        }
    });
    while on.dispatch().unwrap() > 0 {}
    assert_eq!(on.pending(), 0);
    assert_eq!(sem.value(), Ok(dropped.load(SeqCst) - TAKEN.load(SeqCst)));
}

static TAKEN: AtomicU32 = AtomicU32::new(0);

fn begin_or_end<F: Future + Unpin>(mut future: F) -> Option<F> {
    if poll_once(&mut future).is_ready() {
        TAKEN.fetch_add(1, SeqCst);
        return None;
    }
    Some(future)
}

struct Panics;

/// The payload of the panic, which panics itself when it is dropped.
struct Payload;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(Payload);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload is dropped");
    }
}

/// Returns whether `work` panics.
fn panics(work: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => false,
        Err(payload) => {
            std::mem::forget(payload);
            true
        }
    }
}

fn begin_with<F: Future + Unpin>(mut future: F, waker: &Waker) -> F {
    assert!(Pin::new(&mut future)
        .poll(&mut Context::from_waker(waker))
        .is_pending());
    future
}

fn panicking_wakers() {
    let on = Loop::new().unwrap();
    let sem = Ref::new(Semaphore::new(0));
    let begin = |on: &Loop| begin_with(sem.acquire_async(on), &Arc::new(Panics).into());
    let post = || sem.post().unwrap();

    let mut futures = [begin(&on), begin(&on)];
    post();
    post();
    // One dispatch may call both wakers.
    assert!(panics(|| dispatch(&on, 2)));
    while on.pending() > 0 {
        panics(|| assert!(on.dispatch().is_ok()));
    }
    for future in &mut futures {
        assert_eq!(poll_once(future), Poll::Ready(Ok(())));
    }

    // A panic ends run() although a future is pending. It does not end the next run().
    let mut futures = [begin(&on), begin(&on)];
    post();
    assert!(panics(|| on.run().unwrap()));
    assert_eq!(poll_once(&mut futures[0]), Poll::Ready(Ok(())));
    assert_eq!(on.pending(), 1);
    post();
    assert!(panics(|| on.run().unwrap()));
    assert_eq!(poll_once(&mut futures[1]), Poll::Ready(Ok(())));
    let _waits = begin(&on);
    post();
    assert!(panics(|| dispatch(&on, 1)));
    let mut last = begin_with(sem.acquire_async(&on), &no_waker());
    post();
    on.run().unwrap();
    assert_eq!(poll_once(&mut last), Poll::Ready(Ok(())));

    let on = Loop::new().unwrap();
    let mut futures = [begin(&on), begin(&on)];
    assert!(panics(move || drop(on)));
    for future in &mut futures {
        assert!(matches!(poll_once(future), Poll::Ready(Err(e)) if e.raw_os_error() == ECANCELED));
    }
}

std::thread_local! {
    static DISPATCHED: std::cell::RefCell<Option<std::rc::Rc<Loop>>> = Default::default();
}

/// A waker that dispatches when it is dropped. This is like the waker of an executor that then runs
/// a task.
struct Dispatches;

impl Wake for Dispatches {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Dispatches {
    fn drop(&mut self) {
        let on = DISPATCHED.with(|on| on.borrow().clone());

        dispatch(&on.unwrap(), 1);
    }
}

fn wakers() {
    let on = std::rc::Rc::new(Loop::new().unwrap());
    let sem = Ref::new(Semaphore::new(0));

    DISPATCHED.with(|current| *current.borrow_mut() = Some(on.clone()));
    let mut future = begin_with(sem.acquire_async(&on), &Arc::new(Dispatches).into());
    sem.post().unwrap();
    assert!(poll_once(&mut future).is_pending());
    DISPATCHED.with(|current| current.borrow_mut().take());
    assert_eq!(poll_once(&mut future), Poll::Ready(Ok(())));

    // block_on() is woken by another thread while no operation is pending.
    let shared = Arc::new((AtomicBool::new(false), std::sync::Mutex::new(None::<Waker>)));
    let other = shared.clone();
    let thread = thread::spawn(move || {
        until(|| other.1.lock().unwrap().is_some());
        other.0.store(true, SeqCst);
        other.1.lock().unwrap().take().unwrap().wake();
    });
    on.block_on(std::future::poll_fn(|context| {
        if shared.0.load(SeqCst) {
            return Poll::Ready(());
        }
        *shared.1.lock().unwrap() = Some(context.waker().clone());
        Poll::Pending
    }))
    .unwrap();
    thread.join().unwrap();
}

/// The child cannot use copies of the parent's loop and futures, and creates its own loop and
/// futures.
fn forks() {
    let memory = Shared::anonymous(4096).unwrap();
    let sem = unsafe { memory.construct(0, Semaphore::new(0)).unwrap() };
    let on = Loop::new().unwrap();
    let mut waits = begin(sem.acquire_async(&on));
    let mut other = Some(begin(sem.acquire_async(&on)));
    let mut parents = Some(Loop::new().unwrap());
    let mutexes = [64, 128].map(|at| unsafe { memory.construct(at, Mutex::new(0)).unwrap() });
    let cond = unsafe { memory.construct(192, Condvar::new()).unwrap() };
    // Each of two futures holds a mutex. The operation of one future has ended; the other future
    // was not polled.
    let guard = mutexes[0].lock().unwrap();
    let mut ended = Some(begin(mutexes[0].lock_async(&on)));
    drop(guard);
    dispatch(&on, 1);
    let guard = on.block_on(mutexes[1].lock_async(&on)).unwrap().unwrap();
    let mut new = Some(cond.wait_async(guard, &on));
    let is_locked = |at: usize| mutexes[at].try_lock().unwrap().is_none();

    for polls in [false, true] {
        let pid = child(|| {
            let (mut ended, mut new) = (ended.take().unwrap(), new.take().unwrap());

            if polls {
                assert!(matches!(poll_once(&mut ended),
                    Poll::Ready(Err(e)) if e.raw_os_error() == EPERM));
                assert!(matches!(poll_once(&mut new),
                    Poll::Ready(Err(e)) if e.raw_os_error() == EPERM));
            }
            drop((ended, new));
            assert!(is_locked(0) && is_locked(1));
        });
        assert_eq!(status_of(pid), 0);
        assert!(is_locked(0) && is_locked(1));
    }
    assert!(matches!(
        poll_once(ended.as_mut().unwrap()),
        Poll::Ready(Ok(_))
    ));
    drop(new.take());
    assert!(!is_locked(0) && !is_locked(1));

    let pid = child(|| {
        assert_eq!(errno(on.dispatch()), EPERM);
        assert!(matches!(poll_once(&mut sem.acquire_async(&on)),
            Poll::Ready(Err(e)) if e.raw_os_error() == EPERM));
        drop(other.take());
        drop(parents.take());
        let own = Loop::new().unwrap();
        let third = begin(sem.acquire_async(&own));
        sem.post().unwrap();
        sem.post().unwrap();
        sem.post().unwrap();
        own.block_on(third).unwrap().unwrap();
    });
    assert_eq!(status_of(pid), 0);
    dispatch(&on, 2);
    assert_eq!(poll_once(&mut waits), Poll::Ready(Ok(())));
    assert_eq!(poll_once(other.as_mut().unwrap()), Poll::Ready(Ok(())));
    assert_eq!(sem.value(), Ok(0));
}

#[repr(C)]
struct Objects {
    ready: Semaphore,
    robust: RobustMutex<u32>,
    mutex: Mutex<u32>,
    lock: RwLock<u32>,
    cond: Condvar,
    sem: Semaphore,
}

// SAFETY: all fields are Shareable, and the layout is that of C.
unsafe impl Shareable for Objects {}

/// Kills a child that has run `work`, after which the child holds a lock or waits.
fn killed(objects: &Objects, work: impl FnOnce()) {
    let pid = child(|| {
        work();
        unsafe { pause() };
    });
    objects.ready.acquire().unwrap();
    kill_child(pid);
}

fn deaths() {
    let memory = Shared::map(&memfd(8192).unwrap(), 0, 8192).unwrap();
    // All these objects are valid as zeroes, except the robust mutex.
    let objects = unsafe { memory.attach::<Objects>(0).unwrap() };
    let robust = &objects.robust;
    let offset = robust as *const _ as usize - &*objects as *const _ as usize;
    let robust = unsafe { memory.construct(offset, RobustMutex::new(1)).unwrap() };
    let ready = || objects.ready.post().unwrap();
    let hold_robust = || {
        let mut guard = unsafe { robust.lock().repair(|_| ()).unwrap() };
        *guard += 1;
        std::mem::forget(guard);
        ready();
    };

    killed(&objects, hold_robust);
    match robust.lock() {
        // SAFETY: all other users of the data are processes that were killed.
        Err(LockError::OwnerDied(mut died)) => unsafe {
            assert_eq!(*died.get(), 2);
            *died.get_mut() = 3;
            assert_eq!(*died.consistent().unwrap(), 3);
        },
        other => panic!("{:?}", other),
    }
    assert_eq!(*robust.lock().unwrap(), 3);

    // A future gets OwnerDied, whether the owner dies before or after it was polled.
    let on = Loop::new().unwrap();
    killed(&objects, hold_robust);
    let guard = on.block_on(robust.lock_async(&on)).unwrap();
    assert!(matches!(&guard, Err(LockError::OwnerDied(died)) if unsafe { *died.get() } == 4));
    assert_eq!(*unsafe { guard.repair(|data| *data = 5).unwrap() }, 5);
    let pid = child(|| {
        hold_robust();
        unsafe { pause() };
    });
    objects.ready.acquire().unwrap();
    let waits = begin(robust.lock_async(&on));
    kill_child(pid);
    let guard = on.block_on(waits).unwrap();
    assert_eq!(*unsafe { guard.repair(|data| *data += 10).unwrap() }, 16);

    killed(&objects, || {
        std::mem::forget(objects.mutex.lock().unwrap());
        ready();
    });
    assert_eq!(errno(objects.mutex.lock_until(SHORT)), ETIMEDOUT);
    killed(&objects, || {
        std::mem::forget(objects.lock.write().unwrap());
        ready();
    });
    assert_eq!(errno(objects.lock.read_until(SHORT)), ETIMEDOUT);

    // A process that is killed while it waits takes nothing.
    let channel = unsafe { memory.channel::<u32>(4096, 2).unwrap() };
    killed(&objects, || {
        let on = Loop::new().unwrap();
        let waits = begin(objects_sem(&memory).acquire_async(&on));
        let receives = begin(channel.recv_async(&on));
        std::mem::forget((waits, receives, on));
        ready();
    });
    objects.sem.post().unwrap();
    objects.sem.acquire_until(LONG).unwrap();
    channel.send(1).unwrap();
    assert_eq!(channel.recv_until(LONG), Ok(Some(1)));
    killed(&objects, || {
        let on = Loop::new().unwrap();
        let guard = on.block_on(robust.lock_async(&on)).unwrap().unwrap();
        let cond = unsafe {
            let offset = &objects.cond as *const _ as usize - &*objects as *const _ as usize;
            memory.attach::<Condvar>(offset).unwrap()
        };
        std::mem::forget((begin(cond.wait_async(guard, &on)), on));
        ready();
    });
    let guard = robust.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = robust.lock().unwrap();
            objects.cond.notify_one().unwrap();
        });
        assert!(!objects.cond.wait_until(guard, LONG).unwrap().1);
    });

    // The guard of the dead owner's mutex is dropped without a repair.
    killed(&objects, hold_robust);
    drop(robust.lock());
    assert_eq!(errno(robust.lock()), ENOTRECOVERABLE);
}

fn objects_sem(memory: &Shared) -> Ref<Semaphore> {
    let objects = unsafe { memory.attach::<Objects>(0).unwrap() };
    let offset = &objects.sem as *const _ as usize - &*objects as *const _ as usize;

    unsafe { memory.attach(offset).unwrap() }
}

fn main() {
    let tests: &[(&str, fn())] = &[
        ("no device", no_device),
        ("bad input", bad_input),
        ("futures and threads", bound_to_threads),
        ("threads", threads),
        ("events", events),
        ("wait groups", wait_groups),
        ("futures are cancelled at each point", cancel),
        ("items of dropped futures are returned", items_given_back),
        ("futures time out", timeouts),
        ("a loop is dropped with futures pending", drop_pending),
        ("many operations end at one edge", one_edge),
        ("two threads and a future in FIFO order", fifo),
        ("futures are dropped in other threads", other_threads),
        ("wakers that panic", panicking_wakers),
        ("wakers that dispatch, and wakers in other threads", wakers),
        ("fork", forks),
        ("processes are killed", deaths),
    ];
    let mut status = 0;

    for (name, test) in tests {
        // End the program if a test hangs.
        unsafe { alarm(limit(120)) };
        let failed = catch_unwind(test).is_err();
        println!("{}ok {}", if failed { "not " } else { "" }, name);
        status |= failed as i32;
    }
    std::process::exit(status);
}
