// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::{check, Error};
use crate::event_loop::Handle;
use crate::memory::{Shareable, Shared};
use crate::operation::{Operation, Wait};
use crate::time::Deadline;
use memwait_sys::*;
use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem::{size_of, MaybeUninit};
use std::os::raw::{c_int, c_uint};
use std::pin::Pin;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// A bounded queue of items for several senders and receivers, which can be threads and futures. A
/// clone refers to the same queue.
///
/// If a future is dropped after it has received an item, the item is sent again, as the newest
/// item. If there is no room, the future's [`Loop`](crate::Loop) sends the item later. Until then,
/// or if that loop is dropped or the channel is closed, the next receive by this handle or a clone
/// returns the item, and other processes do not see it. The item is lost if there is still no room
/// when the last of these handles is dropped.
pub struct Channel<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    raw: *mut memwait_channel_t,
    capacity: usize,
    memory: Arc<dyn Any + Send + Sync>,
    kept: Mutex<Kept<T>>,
}

/// Items that were given back, and could not be sent yet.
struct Kept<T> {
    items: VecDeque<KeptItem<T>>,
    /// The process to which the items belong: a child process has copies, which it ignores.
    process: u32,
}

struct KeptItem<T> {
    item: T,
    /// The pending operation that sends the item, if any.
    again: Option<Box<dyn Again>>,
}

trait Again: Send {
    /// `None`: the operation is pending.
    fn result(&mut self) -> Option<Result<(), Error>>;
    /// Cancels. Returns whether the operation was pending, and will not send the item.
    fn cancel(&self) -> bool;
}

impl<T: Copy + Send + 'static> Again for Operation<Resending<T>> {
    fn result(&mut self) -> Option<Result<(), Error>> {
        struct Nobody;

        impl Wake for Nobody {
            fn wake(self: Arc<Self>) {}
        }

        let waker = Waker::from(Arc::new(Nobody));
        match Pin::new(self).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn cancel(&self) -> bool {
        Operation::cancel(self)
    }
}

impl<T> KeptItem<T> {
    /// Whether the item has been sent. If it cannot be sent, it stays in this list.
    fn is_sent(&mut self) -> bool {
        match self.again.as_mut().and_then(|again| again.result()) {
            None => false,
            Some(result) => {
                self.again = None;
                result.is_ok()
            }
        }
    }

    /// Cancels the operation that sends the item. Returns true if no operation sends it now.
    fn is_free(&mut self) -> bool {
        if self.again.as_ref().map_or(false, |again| again.cancel()) {
            self.again = None;
        }
        self.again.is_none()
    }
}

// SAFETY: any thread may call the channel's functions, and items are copied from thread to thread.
unsafe impl<T: Send> Send for Inner<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Inner<T> {}

/// A cache line.
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

impl<T: Copy + Send + 'static> Channel<T> {
    /// A channel in this process's memory, for this process only. `EINVAL`: `T` has no size, or
    /// `capacity` is 0 or above 2^30.
    pub fn new(capacity: usize) -> Result<Channel<T>, Error> {
        let size = size_of_channel::<T>(capacity)?;
        let lines = Arc::new(Lines(
            (0..size / size_of::<Line>() + 1)
                .map(|_| UnsafeCell::new(Line([0; 64])))
                .collect(),
        ));
        // A pointer to all lines: a pointer to the first line would be valid for that line only.
        let raw = lines.0.as_ptr() as *mut memwait_channel_t;

        // SAFETY: the memory has that size.
        unsafe { Channel::init(raw, size, MEMWAIT_PRIVATE, capacity, lines) }
    }

    unsafe fn init(
        raw: *mut memwait_channel_t,
        size: usize,
        flags: c_uint,
        capacity: usize,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Channel<T>, Error> {
        // SAFETY: the caller guarantees this.
        check(unsafe { memwait_channel_init(raw, size, flags, size_of::<T>(), capacity) })?;
        Ok(Channel::at(raw, capacity, memory))
    }

    fn at(
        raw: *mut memwait_channel_t,
        capacity: usize,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Channel<T> {
        Channel {
            inner: Arc::new(Inner {
                raw,
                capacity,
                memory,
                kept: Mutex::new(Kept {
                    items: VecDeque::new(),
                    process: process::id(),
                }),
            }),
        }
    }

    /// Sends an item. Blocks while the channel is full. `EPIPE`: the channel is closed.
    pub fn send(&self, item: T) -> Result<(), Error> {
        // SAFETY: the channel and the item are valid.
        check(unsafe {
            memwait_channel_send(self.inner.raw, (&item as *const T).cast(), size_of::<T>())
        })
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn send_until(&self, item: T, deadline: impl Into<Deadline>) -> Result<(), Error> {
        let time = deadline.into();
        let (raw, item) = (self.inner.raw, (&item as *const T).cast());

        // SAFETY: the channel and the item are valid.
        check(unsafe {
            memwait_channel_clocksend(raw, item, size_of::<T>(), time.clock, &time.time)
        })
    }

    /// Sends without blocking. `EAGAIN`: the channel is full. `EBUSY`: another thread is sending.
    pub fn try_send(&self, item: T) -> Result<(), Error> {
        self.inner.try_send(&item)
    }

    /// Waits in the same FIFO queue as the threads that send. If the future is dropped, the item
    /// may or may not have been sent.
    pub fn send_async(&self, item: T, on: &Handle) -> Operation<Sending<T>> {
        let sending = Sending {
            channel: self.inner.clone(),
            item,
        };

        Operation::new(on, sending)
    }

    /// Receives an item. Blocks while the channel is empty. `None`: the channel is closed and
    /// empty.
    pub fn recv(&self) -> Result<Option<T>, Error> {
        self.receive(|raw, item| {
            // SAFETY: the channel is valid, and there is room for the item.
            unsafe { memwait_channel_recv(raw, item.cast(), size_of::<T>()) }
        })
    }

    /// Like the function without `_until`, with a deadline. `ETIMEDOUT`: the deadline has passed.
    pub fn recv_until(&self, deadline: impl Into<Deadline>) -> Result<Option<T>, Error> {
        let time = deadline.into();

        self.receive(|raw, item| {
            // SAFETY: the channel is valid, and there is room for the item.
            unsafe {
                memwait_channel_clockrecv(raw, item.cast(), size_of::<T>(), time.clock, &time.time)
            }
        })
    }

    /// Receives without blocking. `EAGAIN`: the channel is empty. `EBUSY`: another thread is
    /// receiving.
    pub fn try_recv(&self) -> Result<Option<T>, Error> {
        self.receive(|raw, item| {
            // SAFETY: the channel is valid, and there is room for the item.
            unsafe { memwait_channel_tryrecv(raw, item.cast(), size_of::<T>()) }
        })
    }

    /// Waits in the same FIFO queue as the threads that receive.
    pub fn recv_async(&self, on: &Handle) -> Operation<Receiving<T>> {
        let receiving = Receiving {
            channel: self.inner.clone(),
            item: UnsafeCell::new(MaybeUninit::uninit()),
            on: on.clone(),
        };

        Operation::new(on, receiving)
    }

    fn receive(
        &self,
        receive: impl FnOnce(*mut memwait_channel_t, *mut T) -> c_int,
    ) -> Result<Option<T>, Error> {
        let mut item = MaybeUninit::uninit();

        if let Some(item) = self.inner.kept().take() {
            return Ok(Some(item));
        }
        let err = receive(self.inner.raw, item.as_mut_ptr());
        self.inner.received(err, &item)
    }

    /// Closes the channel: sends fail, but items that were sent can still be received.
    pub fn close(&self) -> Result<(), Error> {
        // SAFETY: the object is valid.
        check(unsafe { memwait_channel_close(self.inner.raw) })
    }

    /// The maximum number of items.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.capacity
    }

    /// The number of items now. It may change immediately.
    #[must_use]
    pub fn len(&self) -> usize {
        // SAFETY: the object is valid.
        unsafe { memwait_channel_length(self.inner.raw) + self.inner.kept().items.len() }
    }

    /// Whether the channel is empty now. This may change immediately.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

struct Lines(Vec<UnsafeCell<Line>>);

// SAFETY: only the channel accesses them.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

fn size_of_channel<T>(capacity: usize) -> Result<usize, Error> {
    // SAFETY: the arguments are numbers.
    match unsafe { memwait_channel_size(size_of::<T>(), capacity) } {
        0 => Err(Error::new(EINVAL)),
        size => Ok(size),
    }
}

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Channel<T> {
        Channel {
            inner: self.inner.clone(),
        }
    }
}

impl<T> fmt::Debug for Channel<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl<T> Inner<T> {
    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);

        if !kept.items.is_empty() && kept.process != process::id() {
            kept.items.clear();
        }
        kept.items.retain_mut(|item| !item.is_sent());
        kept
    }

    fn try_send(&self, item: &T) -> Result<(), Error> {
        // SAFETY: the channel and the item are valid.
        check(unsafe {
            memwait_channel_trysend(self.raw, (item as *const T).cast(), size_of::<T>())
        })
    }

    /// Sends kept items while there is room.
    fn send_kept(&self, kept: &mut Kept<T>) {
        while let Some(kept_item) = kept.items.front_mut() {
            if !kept_item.is_free() || self.try_again_to_send(&kept_item.item).is_err() {
                break;
            }
            kept.items.pop_front();
        }
    }

    /// Retries while another thread is sending, but does not wait for a thread that is stopped.
    fn try_again_to_send(&self, item: &T) -> Result<(), Error> {
        const TIMES: usize = 1000;

        for _ in 1..TIMES {
            let result = self.try_send(item);

            if result != Err(Error::new(EBUSY)) {
                return result;
            }
            thread::yield_now();
        }
        self.try_send(item)
    }

    fn received(&self, err: c_int, item: &MaybeUninit<T>) -> Result<Option<T>, Error> {
        let mut kept = self.kept();

        match err {
            0 => {
                // There is room now. Receivers that are waiting have not seen the kept items.
                self.send_kept(&mut kept);
                // SAFETY: the library has copied the sender's T, which is Copy, into it.
                Ok(Some(unsafe { item.as_ptr().read() }))
            }
            // An item may have been given back during the wait.
            EPIPE | EAGAIN | ETIMEDOUT => match kept.take() {
                None if err != EPIPE => Err(Error::new(err)),
                item => Ok(item),
            },
            err => Err(Error::new(err)),
        }
    }
}

impl<T: Copy + Send + 'static> Inner<T> {
    fn give_back(&self, item: T, on: &Handle) {
        let mut again = Operation::new(
            on,
            Resending {
                raw: self.raw,
                item,
                _memory: self.memory.clone(),
            },
        );

        let again: Option<Box<dyn Again>> = match again.result() {
            Some(Ok(())) => return,
            Some(Err(_)) => None,
            None => Some(Box::new(again)),
        };
        let mut kept = self.kept();

        kept.process = process::id();
        kept.items.push_back(KeptItem { item, again });
    }
}

impl<T> Kept<T> {
    /// The first item that is not being sent.
    fn take(&mut self) -> Option<T> {
        let at = self.items.iter_mut().position(KeptItem::is_free)?;

        self.items.remove(at).map(|kept| kept.item)
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        let mut kept = self.kept();

        self.send_kept(&mut kept);
    }
}

impl Shared {
    /// Creates a channel at `offset`. `EINVAL`: it would not lie within the memory, or would be
    /// misaligned; or the arguments are invalid, see [`Channel::new`].
    ///
    /// # Safety
    /// See [`attach`](Shared::attach). In addition, nothing may use the object that was
    /// there before.
    pub unsafe fn channel<T: Copy + Send + Shareable>(
        &self,
        offset: usize,
        capacity: usize,
    ) -> Result<Channel<T>, Error> {
        let size = size_of_channel::<T>(capacity)?;
        let place = self.at(offset, size, 8)?;

        // SAFETY: the channel fits there.
        unsafe { Channel::init(place.cast(), size, 0, capacity, self.owner()) }
    }

    /// Returns the channel at `offset`. `EINVAL`: there is no channel, it does not lie within the
    /// memory, or its items have another size.
    ///
    /// # Safety
    /// See [`attach`](Shared::attach). In addition, all items that are sent must be valid `T`s.
    pub unsafe fn attach_channel<T: Copy + Send + Shareable>(
        &self,
        offset: usize,
    ) -> Result<Channel<T>, Error> {
        let place = self.at(offset, 0, 8)?.cast();
        let (mut size, mut capacity) = (0, 0);

        // SAFETY: the memory is valid.
        check(unsafe {
            memwait_channel_attach(place, self.size() - offset, &mut size, &mut capacity)
        })?;
        if size != size_of::<T>() {
            return Err(Error::new(EINVAL));
        }
        Ok(Channel::at(place, capacity, self.owner()))
    }
}

/// The operation of `Channel::send_async()`.
pub struct Sending<T> {
    channel: Arc<Inner<T>>,
    item: T,
}

// SAFETY: the future's share prevents the channel from moving, and the channel has no owner.
unsafe impl<T: Copy + Send + 'static> Wait for Sending<T> {
    type Output = Result<(), Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);
        let raw = self.channel.raw;
        let item = (&self.item as *const T).cast();
        let size = size_of::<T>();

        // SAFETY: the caller guarantees this.
        unsafe { memwait_channel_clocksend_async(raw, item, size, clock, time, op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        check(result)
    }
}

/// The operation of `Channel::recv_async()`.
pub struct Receiving<T> {
    channel: Arc<Inner<T>>,
    item: UnsafeCell<MaybeUninit<T>>,
    on: Handle,
}

/// The operation that sends an item that was given back.
struct Resending<T> {
    raw: *mut memwait_channel_t,
    item: T,
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: see Inner.
unsafe impl<T: Send> Send for Resending<T> {}

// SAFETY: the operation's share prevents the channel from moving, and the channel has no owner.
unsafe impl<T: Copy + Send + 'static> Wait for Resending<T> {
    type Output = Result<(), Error>;

    unsafe fn begin(&self, op: *mut memwait_op_t, _: Option<&Deadline>) -> c_int {
        let item = (&self.item as *const T).cast();

        // SAFETY: the caller guarantees this.
        unsafe { memwait_channel_send_async(self.raw, item, size_of::<T>(), op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        check(result)
    }
}

/// The result of a receive that took a kept item.
const FROM_KEPT: c_int = -1;

// SAFETY: the future's share prevents the channel from moving, and the channel has no owner. The
// library writes the item before the callback, and nothing else accesses it until then.
unsafe impl<T: Copy + Send + 'static> Wait for Receiving<T> {
    type Output = Result<Option<T>, Error>;

    fn at_hand(&self) -> Option<c_int> {
        let kept = self.channel.kept().take()?;

        // SAFETY: the operation is not pending.
        unsafe { (*self.item.get()).write(kept) };
        Some(FROM_KEPT)
    }

    unsafe fn begin(&self, op: *mut memwait_op_t, deadline: Option<&Deadline>) -> c_int {
        let (clock, time) = Deadline::until(deadline);
        let raw = self.channel.raw;
        let item = self.item.get();
        let size = size_of::<T>();

        // SAFETY: the caller guarantees this.
        unsafe { memwait_channel_clockrecv_async(raw, item.cast(), size, clock, time, op) }
    }

    fn output(&self, result: c_int, _: bool) -> Self::Output {
        // SAFETY: the operation is not pending any more.
        let item = unsafe { &*self.item.get() };

        if result == FROM_KEPT {
            // SAFETY: at_hand() has written the item.
            return Ok(Some(unsafe { item.assume_init() }));
        }
        self.channel.received(result, item)
    }

    unsafe fn give_back(&self, _: *mut memwait_op_t, result: c_int) {
        if let Ok(Some(item)) = self.output(result, false) {
            self.channel.give_back(item, &self.on);
        }
    }
}
