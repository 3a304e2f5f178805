# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Locks, queues and more in shared memory, for threads and for asyncio, across processes.

Each object lies at an offset of a buffer: multiprocessing.shared_memory.SharedMemory, mmap.mmap or
any other writable buffer. With create=True the constructor initialises the object; without it, the
constructor attaches to an existing object. Zeroed memory is an unlocked Lock or RWLock, a
Condition, an Event that is not set, a Semaphore with the value 0 or a WaitGroup with the count 0.
An RLock, Barrier, Queue or BoundedSemaphore must be created once. A BoundedSemaphore stores its
count in the bytes after the semaphore. Layout computes offsets; a Segment is named memory that
finds objects by name.

    memory = SharedMemory(create=True, size=64)
    lock = memwait.Lock(memory, create=True)
    with lock: ...              # a thread: other threads run while it waits, and ^C ends the wait
    async with lock: ...        # a task: its event loop runs other tasks while it waits

Threads and tasks of all processes wait in one FIFO queue. NAME_async() is the form of NAME() for
tasks. A cancelled task takes nothing. The owner of a lock is a thread with all its tasks: if the
thread holds an RLock, each of its tasks can acquire it.

An object holds its buffer: call the object's close() before the buffer is closed. Objects in a
SharedMemory can be pickled, and therefore passed to spawned processes. A forked child process uses
the objects that it has inherited.

Without the device /dev/memwait every operation raises an OSError with the reason; see available().
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import functools
import math
import os
import pickle
import queue
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from threading import BrokenBarrierError
from typing import TYPE_CHECKING, Any, TypeVar

from . import _memwait
from ._memwait import NotRecoverable, OwnerDied, ShutDown, available, version

# The version of this package. "version" is the version of the library at run time.
__version__ = "1.0.0"

__all__ = [
    "Barrier", "BoundedSemaphore", "BrokenBarrierError", "Condition", "Event", "JoinableQueue",
    "Layout", "Lock", "NotRecoverable", "Outcome", "OwnerDied", "Queue", "RLock", "RWLock",
    "Segment", "Semaphore", "ShutDown", "WaitGroup", "Word", "available", "version",
]


_Result = TypeVar("_Result")

# The base class of the mixins.
if TYPE_CHECKING:
    from ._memwait import _Buffer
    from ._segment import Segment
    _Base = _memwait.Object
else:
    _Base = object


def __getattr__(name: str) -> Any:
    # Segment imports multiprocessing, which most programs do not need.
    if name == "Segment":
        from ._segment import Segment
        return Segment
    raise AttributeError(f"module 'memwait' has no attribute {name!r}")


class _Hub:
    """The memwait loop of an asyncio loop, which polls the memwait loop and finally closes it."""

    def __init__(self, asyncio_loop: asyncio.AbstractEventLoop) -> None:
        self.loop = _memwait.Loop()
        self.asyncio_loop = asyncio_loop
        asyncio_loop.add_reader(self.loop.fileno(), self.dispatch)

    @classmethod
    def running(cls) -> _Hub:
        asyncio_loop = asyncio.get_running_loop()
        hub: _Hub | None = getattr(asyncio_loop, "_memwait_hub", None)
        if hub is None:
            hub = cls(asyncio_loop)
            if not hasattr(asyncio_loop, "_memwait_hub"):
                _close_with(asyncio_loop)
            setattr(asyncio_loop, "_memwait_hub", hub)
        return hub

    def dispatch(self) -> None:
        try:
            self.loop.dispatch()
        except _memwait.LoopFailed:
            # The program has closed the descriptor. (A signal handler may also have raised an
            # OSError.)
            self.asyncio_loop.remove_reader(self.loop.fileno())
            setattr(self.asyncio_loop, "_memwait_hub", None)
            for operation in self.loop.close():
                operation.callback(operation)
            raise


def _close_with(asyncio_loop: asyncio.AbstractEventLoop) -> None:
    """Make close() cancel pending waits: otherwise waiters behind them would not be woken."""
    asyncio_close = asyncio_loop.close

    def close() -> None:
        asyncio_close()
        hub: _Hub | None = getattr(asyncio_loop, "_memwait_hub")
        setattr(asyncio_loop, "_memwait_hub", None)
        if hub is not None:
            hub.loop.close()

    setattr(asyncio_loop, "close", close)


def _wake(future: asyncio.Future[None], operation: _memwait.Operation) -> None:
    if not future.done():
        future.set_result(None)


def _begin(target: _memwait.Object, verb: int, timeout: float | None = None,
           argument: Any = None) -> tuple[_memwait.Operation, asyncio.Future[None]]:
    """Begin an operation in the running event loop. The future is done when the operation ends."""
    hub = _Hub.running()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wake = functools.partial(_wake, future)
    return target._begin(hub.loop, wake, verb, timeout, argument), future


async def _wait(target: Any, verb: int, timeout: float | None = None, argument: Any = None) -> Any:
    operation, future = _begin(target, verb, timeout, argument)
    if operation.pending:
        try:
            await future
        except BaseException:
            # The operation may have ended before this task was notified.
            if not operation.cancel():
                target._give_back(operation)
            raise
    return operation.finish()


def _deadline(timeout: float | None) -> float | None:
    end = None if timeout is None else time.monotonic() + timeout
    if end is not None and math.isnan(end):
        raise ValueError("timeout is not a number")
    return end


def _left(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()


def _attach(cls: Any, buffer: Any, offset: int, options: dict[str, Any]) -> Any:
    return cls(buffer, offset, **options)


class _Object(_Base):
    __slots__ = ()

    def _give_back(self, operation: _memwait.Operation) -> None:
        """Return the lock, permit or item that an operation took for a task that was cancelled."""
        operation.give_back()

    def _options(self) -> dict[str, Any]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise ValueError("operation on a closed object")
        if not hasattr(self.buffer, "buf"):
            raise TypeError(f"cannot pickle a {type(self).__name__} of a buffer without a name: "
                            "in the other process, attach at the same offset")
        return _attach, (type(self), self.buffer, self.offset, self._options())

    def _state(self) -> str:
        """The current state, which may change immediately."""
        return ""

    def _waiters(self) -> str:
        """Return a text with the number of waiters of all processes; it is empty if there are none.
        """
        count = 0
        try:
            # Waiters of a queue wait for words of its head, not of its items.
            for at in range(getattr(self, "SIZE", 0) or _memwait.queue_size(1, 1)):
                word = Word(self.buffer, self.offset + at, size=1)
                count += word.waiters()
                word.close()
        except OSError:
            pass    # There is no device.
        return f", waiters={count}" if count else ""

    def __repr__(self) -> str:
        if self.closed:
            return f"<memwait.{type(self).__name__} closed>"
        try:
            state = self._state()
        except ValueError:
            # For example, zeroed memory is no channel.
            state = ": invalid"
        return f"<memwait.{type(self).__name__} at {self.offset:#x}{state}{self._waiters()}>"


class _Acquired:
    """`async with` for classes with acquire(), release() and acquire_async()."""

    __slots__ = ()

    async def __aenter__(self: Any) -> None:
        if not self.acquire(False):
            await self.acquire_async()

    async def __aexit__(self: Any, kind: Any, value: Any, traceback: Any) -> None:
        try:
            self.release()
        except RuntimeError:
            # A repair function has failed, and its exception is already raised.
            if kind is None:
                raise


class _Lock(_Acquired, _Object):
    __slots__ = ()

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """acquire() for tasks. Return False if it timed out."""
        taken: bool = await _wait(self, _memwait.LOCK, timeout)
        return taken

    def _options(self) -> dict[str, Any]:
        return {"repair": self.repair}

    def __repr__(self: Any) -> str:
        try:
            state = self._locked()
        except (ValueError, OSError):
            return super().__repr__()
        return (f"<{state}memwait.{type(self).__name__} object at {self.offset:#x}"
                f"{self._waiters()}>")

    def _locked(self: Any) -> str:
        if self._is_owned():
            return "locked "
        if self.repair is not None or isinstance(self, RLock):
            # The state could be found only by acquiring the lock, and perhaps repairing the data.
            return ""
        return "unlocked "


class Lock(_Lock, _memwait.Lock):
    """A lock like threading.Lock, which any thread may release.

    fair: the lock is handed over in FIFO order. Otherwise any thread that finds it free can
        acquire it.
    repair: a function. If an owner dies while it holds the lock, the next owner calls its function
        with the lock held. If the function raises an exception, the lock is unlocked and cannot be
        acquired again: NotRecoverable. All users must pass a function: a user without a function
        gets OwnerDied, and then all others get NotRecoverable. A lock with repair= must be
        released by the thread that holds it.
    private: only one process uses the lock. Waiting costs less.

    fair, private and the presence of repair are properties of the lock in the buffer, and are set
    by create=True.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.LOCK_SIZE


class RLock(_Lock, _memwait.RLock):
    """A lock that its owner can acquire again, like threading.RLock. It must be created: zeroed
    memory is a Lock. The tasks of a thread are one owner. For the arguments, see Lock.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.LOCK_SIZE


class Condition(_Object, _memwait.Condition):
    """A condition variable like threading.Condition, for a Lock or an RLock. A task that is
    cancelled in a wait afterwards holds an RLock once, however many times it had acquired it.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.CONDITION_SIZE

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """acquire() for tasks."""
        taken: bool = await self.lock.acquire_async(timeout)
        return taken

    async def __aenter__(self) -> None:
        await self.lock.__aenter__()

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        await self.lock.__aexit__(kind, value, traceback)

    def locked(self) -> bool:
        """Return locked() of the lock."""
        locked: bool = self.lock.locked()
        return locked

    def wait_for(self, predicate: Callable[[], _Result], timeout: float | None = None) -> _Result:
        """Wait until predicate() is true. Return its last value."""
        end = _deadline(timeout)
        result = predicate()
        while not result:
            if not self.wait(_left(end)):
                return predicate()
            result = predicate()
        return result

    async def wait_async(self, timeout: float | None = None) -> bool:
        """wait() for tasks. A cancelled task reacquires the lock before it continues.

        A coroutine that is closed while it waits cannot reacquire the lock. Its release of the
        lock, in `finally` or at the end of `async with`, raises RuntimeError. If it does not
        release the lock, the next release by its thread raises RuntimeError.
        """
        operation, future = _begin(self, _memwait.WAIT, timeout)
        if operation.pending:
            try:
                await future
            except BaseException as error:
                if not operation.cancel():
                    operation.give_back()
                if operation.lost_lock:
                    if isinstance(error, asyncio.CancelledError):
                        await self._lock_again()
                    else:
                        # The coroutine is being closed, and cannot wait.
                        self.lock._lose()
                raise
            if operation.lost_lock:
                # The device failed, or the descriptor of the loop was closed.
                try:
                    await self._lock_again()
                except BaseException:
                    operation.give_back()
                    raise
        notified: bool = operation.finish()
        return notified

    async def _lock_again(self) -> None:
        """Acquire the lock. Cancellations of the task take effect only afterwards."""
        cancelled = None
        while True:
            try:
                await self.lock.acquire_async()
                break
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException:
                self.lock._lose()
                raise
        if cancelled:
            try:
                raise cancelled
            finally:
                # Its traceback refers to this frame: avoid a cycle.
                del cancelled

    async def wait_for_async(self, predicate: Callable[[], _Result],
                             timeout: float | None = None) -> _Result:
        """wait_for() for tasks."""
        end = _deadline(timeout)
        result = predicate()
        while not result:
            if not await self.wait_async(_left(end)):
                return predicate()
            result = predicate()
        return result

    def _options(self) -> dict[str, Any]:
        return {"lock": self.lock}


class Semaphore(_Acquired, _Object, _memwait.Semaphore):
    """A semaphore like threading.Semaphore. value is used with create=True only.

    fair: a release goes to the thread or task that has waited longest, as with asyncio.Semaphore.
    The value of a fair semaphore is at most 32767. fair is a property of the semaphore in the
    buffer, and is set by create=True.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.SEMAPHORE_SIZE

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """acquire() for tasks. Return False if it timed out."""
        taken: bool = await _wait(self, _memwait.WAIT, timeout)
        return taken

    def locked(self) -> bool:
        """Return whether the value is 0 now, so that acquire() would wait."""
        return not self.get_value()

    def _state(self) -> str:
        return f": value={self.get_value()}"


class BoundedSemaphore(Semaphore, _memwait.BoundedSemaphore):
    """A semaphore like threading.BoundedSemaphore: a release beyond the bound, by any process,
    raises ValueError. value is used with create=True only.

    The object is a Semaphore followed by a count. A program in another language may use the
    Semaphore, but its acquisitions and releases are not counted. A BoundedSemaphore must be
    created: zeroed memory has the bound 0, and the memory behind a plain Semaphore may contain
    anything.
    """

    __slots__ = ()
    SIZE = _memwait.BOUNDED_SEMAPHORE_SIZE

    def _state(self) -> str:
        taken = Word(self.buffer, self.offset + _memwait.SEMAPHORE_SIZE)
        value = self.get_value()
        bound = value + taken.load()
        taken.close()
        return f": value={value}/{bound}"


class _Side(_Acquired, _memwait.Side):
    """The reader or writer lock of an RWLock."""

    __slots__ = ("_rwlock", "_verb")
    _rwlock: RWLock
    _verb: int

    def __new__(cls, rwlock: RWLock, write: bool) -> _Side:
        self = super().__new__(cls, rwlock, write)
        self._rwlock = rwlock
        self._verb = _memwait.WRITE if write else _memwait.READ
        return self

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """acquire() for tasks. Return False if it timed out."""
        begun = time.monotonic()
        taken: bool | None = await _wait(self._rwlock, self._verb, timeout)
        while taken is None:
            # This reader acquired it for writing and repaired it: now acquire it for reading.
            left = None if timeout is None else begun + float(timeout) - time.monotonic()
            taken = await _wait(self._rwlock, self._verb, left)
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._rwlock, self._verb == _memwait.WRITE)

    def __repr__(self) -> str:
        name = "writer" if self._verb == _memwait.WRITE else "reader"
        return f"<{name} of {self._rwlock!r}>"


class RWLock(_Object, _memwait.RWLock):
    """A read-write lock: many threads can hold its `reader` at the same time, or one thread can
    hold its `writer`. Both are used like a Lock: acquire(), release(), acquire_async(), with, async
    with.

    By default readers are preferred. fair: the lock is acquired in FIFO order. prefer_writer: the
    first waiting writer precedes later readers. repair: as for a Lock, if a writer dies. If a
    reader dies, the lock stays locked for reading.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.RWLOCK_SIZE

    @property
    def reader(self) -> _Side:
        """The shared lock."""
        return _Side(self, False)

    @property
    def writer(self) -> _Side:
        """The exclusive lock."""
        return _Side(self, True)

    def _options(self) -> dict[str, Any]:
        return {"repair": self.repair}


class Barrier(_Object, _memwait.Barrier):
    """A barrier for `parties` threads or tasks, like threading.Barrier. parties is used with
    create=True only. No more than `parties` threads and tasks may wait at the same time.

    action: a function that one participant calls when all have arrived, before any participant
        continues. Either all users must pass a function or none, because each calls its own
        function. If the function raises an exception, the barrier is broken. The participants meet
        a second time after the action, again with the same timeout. Therefore call reset() only
        while no participant is within wait(): otherwise old and new participants may meet.
    timeout: the default timeout of wait().

    A participant that times out breaks the barrier. A participant that leaves because of ^C or a
    cancellation does not count as arrived and does not break the barrier, unless there is an
    action, because the others may be waiting for the second meeting.
    """

    __slots__ = ("__weakref__", "_action", "_timeout")
    SIZE = _memwait.BARRIER_SIZE
    _action: Callable[[], object] | None
    _timeout: float | None

    def __new__(cls, buffer: _Buffer, offset: int = 0, *, parties: int = 0,
                action: Callable[[], object] | None = None, timeout: float | None = None,
                create: bool = False, private: bool = False) -> Barrier:
        self = super().__new__(cls, buffer, offset, parties=parties, create=create, private=private)
        self._action = action
        self._timeout = timeout
        return self

    @property
    def parties(self) -> int:
        """The number of participants that a round needs."""
        return self._inspect()[0]

    @property
    def n_waiting(self) -> int:
        """The number of participants that are waiting now."""
        return self._inspect()[1]

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken now."""
        return self._inspect()[2]

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all participants have arrived. Return 0 to one of them, and 1 to the others.

        Raise BrokenBarrierError if the barrier was aborted or reset, or if a participant timed out.
        """
        timeout = self._timeout if timeout is None else timeout
        if self._action is None:
            return super().wait(timeout)
        # An invalid timeout does not break the barrier.
        with self._breaking(OverflowError, TypeError, ValueError):
            place = super().wait(timeout)
        if place == 0:
            self._act()
        with self._breaking():
            super().wait(timeout)
        return place

    async def wait_async(self, timeout: float | None = None) -> int:
        """wait() for tasks. The action is called, not awaited."""
        timeout = self._timeout if timeout is None else timeout
        place: int
        if self._action is None:
            place = await _wait(self, _memwait.WAIT, timeout)
            return place
        with self._breaking(OverflowError, TypeError, ValueError):
            place = await _wait(self, _memwait.WAIT, timeout)
        if place == 0:
            self._act()
        with self._breaking():
            await _wait(self, _memwait.WAIT, timeout)
        return place

    def _act(self) -> None:
        assert self._action is not None
        try:
            self._action()
        except BaseException:
            self.abort()
            raise

    @contextlib.contextmanager
    def _breaking(self, *harmless: type[Exception]) -> Iterator[None]:
        """With an action all meet twice, so a participant that leaves must break the barrier."""
        process = os.getpid()
        try:
            yield
        except (BrokenBarrierError, *harmless):
            # The others have also received the error, and the barrier may have been reset since
            # then.
            raise
        except BaseException:
            # In a child process: the parent is the participant.
            if process == os.getpid():
                self.abort()
            raise

    def _options(self) -> dict[str, Any]:
        return {"action": self._action, "timeout": self._timeout}

    def _state(self) -> str:
        try:
            parties, waiting, broken = self._inspect()
        except OSError:
            # There is no device.
            return ""
        return ": broken" if broken else f": waiters={waiting}/{parties}"

    def _waiters(self) -> str:
        return ""


class WaitGroup(_Object, _memwait.WaitGroup):
    """A count, and waits that end when it is 0, like Go's sync.WaitGroup."""

    __slots__ = ("__weakref__",)
    SIZE = _memwait.WAITGROUP_SIZE

    async def wait_async(self, timeout: float | None = None) -> bool:
        """wait() for tasks. Return False if it timed out."""
        done: bool = await _wait(self, _memwait.WAIT, timeout)
        return done


class Event(_Object, _memwait.Event):
    """A flag that threads and tasks can wait for, like threading.Event and asyncio.Event."""

    __slots__ = ("__weakref__",)
    SIZE = _memwait.EVENT_SIZE

    async def wait_async(self, timeout: float | None = None) -> bool:
        """wait() for tasks."""
        was_set: bool = await _wait(self, _memwait.WAIT, timeout)
        return was_set

    def _state(self) -> str:
        return ": set" if self.is_set() else ": unset"


class Queue(_Object, _memwait.Queue):
    """A queue like queue.Queue, for bytes objects that all have item_size bytes: a libmemwait
    channel. item_size and maxsize are used with create=True only; an existing queue has its own.
    For other items and join(), see JoinableQueue.

    put_nowait() and get_nowait() also raise Full and Empty if another thread or process is in the
    middle of a put or a get.

    If a task that is cancelled has already received an item, the item goes back to the end of the
    queue. If the queue is full or shut down, or if the event loop has ended, the item is returned
    by the next get() on this object.
    """

    __slots__ = ("__weakref__", "_kept", "_process")

    def __init__(self, buffer: _Buffer, offset: int = 0, *, item_size: int = 0, maxsize: int = 0,
                 create: bool = False, private: bool = False) -> None:
        # Operations that received an item for a cancelled task, each with the operation that sends
        # the item again (None if that could not begin). Each receive holds the queue, so the queue
        # cannot be closed before the item is delivered.
        self._kept: collections.OrderedDict[_memwait.Operation, _memwait.Operation | None] = \
            collections.OrderedDict()
        self._process = os.getpid()

    def _own(self) -> collections.OrderedDict[_memwait.Operation, _memwait.Operation | None]:
        """Return the kept items. A child process drops its copies: the parent still has them."""
        if self._process != os.getpid():
            self._kept.clear()
            self._process = os.getpid()
        return self._kept

    @staticmethod
    def size(item_size: int, maxsize: int) -> int:
        """Return the number of bytes that a queue needs."""
        return _memwait.queue_size(item_size, maxsize)

    def get(self, block: bool = True, timeout: float | None = None) -> bytes:
        """Receive an item. If there is none, raise ShutDown (after shutdown()) or Empty."""
        item = self._get_kept() if self._kept else None
        if item is None:
            try:
                item = super().get(block, timeout)
            except (queue.Empty, ShutDown):
                # An item may have been kept in the meantime.
                item = self._get_kept()
                if item is None:
                    raise
            self._settle()
        return item

    def get_nowait(self) -> bytes:
        """get(block=False)"""
        return self.get(False)

    def shutdown(self, immediate: bool = False) -> None:
        """Refuse further puts, in all processes. Items that were sent can still be received, except
        with immediate=True, which drops them.
        """
        super().shutdown()
        while immediate:
            try:
                Queue.get(self)
            except ShutDown:
                break
            self._dropped()

    def _dropped(self) -> None:
        """Called for each item that is dropped."""

    def put_nowait(self, item: Any) -> None:
        """put(item, block=False)"""
        self.put(item, False)

    async def get_async(self, timeout: float | None = None) -> bytes:
        """get() for tasks."""
        item = self._get_kept() if self._kept else None
        if item is None:
            try:
                item = await _wait(self, _memwait.RECV, timeout)
            except (queue.Empty, ShutDown):
                item = self._get_kept()
                if item is None:
                    raise
            self._settle()
        return item

    async def put_async(self, item: Any, timeout: float | None = None) -> None:
        """put() for tasks. If the task is cancelled, the item may have been sent."""
        await _wait(self, _memwait.SEND, timeout, item)

    def __aiter__(self) -> AsyncIterator[Any]:
        """`async for item in queue` ends when the queue is shut down and empty."""
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.get_async()
        except ShutDown:
            raise StopAsyncIteration from None

    def _state(self) -> str:
        return f": {self.qsize()} of {self.maxsize}"

    def empty(self) -> bool:
        """Return whether there is no item now."""
        return not self.qsize()

    def full(self) -> bool:
        """Return whether the queue is full now."""
        return self.qsize() >= self.maxsize

    def qsize(self) -> int:
        """Return the number of items now."""
        return super().qsize() + len(self._own())

    def _give_back(self, operation: _memwait.Operation) -> None:
        item = operation.item
        if item is None:
            operation.give_back()
            return
        sent = functools.partial(self._sent, operation)
        sending = None
        try:
            sending = self._begin(operation.loop, sent, _memwait.SEND, None, item)
        except (OSError, ValueError):
            pass    # The device failed, or the loop is closed.
        finally:
            self._own()[operation] = sending
        if sending is not None and not sending.pending:
            self._sent(operation, sending)

    def _sent(self, operation: _memwait.Operation, sending: _memwait.Operation) -> None:
        """Drop a kept item that was sent again. An item that could not be sent stays kept."""
        if self._has_sent(sending) and self._own().pop(operation, None) is not None:
            operation.finish()

    @staticmethod
    def _has_sent(sending: _memwait.Operation) -> bool:
        try:
            sending.finish()
        except (OSError, ShutDown, ValueError):
            return False
        return True

    def _take_kept(self) -> _memwait.Operation | None:
        """Return the first kept item that is not being sent again, and remove it."""
        while True:
            try:
                operation, sending = self._own().popitem(last=False)
            except KeyError:
                return None
            if sending is None or sending.cancel() or not self._has_sent(sending):
                return operation
            operation.finish()

    def _get_kept(self) -> bytes | None:
        operation = self._take_kept()
        return None if operation is None else operation.finish()

    def _put_back(self, timeout: float) -> None:
        """Put a kept item into the queue again. If that fails, the item stays kept."""
        operation = self._take_kept()
        if operation is None:
            return
        try:
            super().put(operation.item, True, timeout)
        except BaseException:
            Queue._give_back(self, operation)
            raise
        operation.finish()

    def _settle(self) -> None:
        """Put one kept item back if there is room now and no loop is sending it."""
        sending = next(iter(self._own().values()), None)
        if self._kept and (sending is None or not sending.pending):
            with contextlib.suppress(OSError, queue.Full, ShutDown, ValueError):
                self._put_back(0)

    def close(self) -> None:
        """Release the buffer. The queue in the buffer stays as it is.

        BufferError: a thread or a task is waiting for the queue, or an item that a cancelled task
        had received cannot go back because the queue is full or shut down. Every later use of this
        object raises ValueError.
        """
        while not self.closed and self._own():
            try:
                # Wait a moment: another process may be in the middle of put().
                self._put_back(0.1)
            except (queue.Full, ShutDown) as error:
                why = "shut down" if isinstance(error, ShutDown) else "full"
                raise BufferError("an item of a cancelled task cannot go back into the queue, "
                                  f"which is {why}: call get() first") from None
        super().close()


class JoinableQueue(Queue):
    """A queue of objects like multiprocessing.JoinableQueue. Each object is pickled into at most
    item_size bytes. join() waits until task_done() was called for each item.

    The object is a Queue followed by a WaitGroup, and must be created as such. Unpickling executes
    code that the sender chose: trust every process that can write to the buffer. If a process dies
    while it works on an item, task_done() is not called for that item.
    """

    __slots__ = ("_unfinished",)

    def __init__(self, buffer: _Buffer, offset: int = 0, *, item_size: int = 0, maxsize: int = 0,
                 create: bool = False, private: bool = False) -> None:
        super().__init__(buffer, offset, item_size=item_size, maxsize=maxsize, create=create,
                         private=private)
        self._unfinished = WaitGroup(buffer, offset + Queue.size(self.item_size, self.maxsize),
                                     create=create, private=private)

    @staticmethod
    def size(item_size: int, maxsize: int) -> int:
        """Return the number of bytes that a queue needs."""
        return Queue.size(item_size, maxsize) + _memwait.WAITGROUP_SIZE

    def _pickled(self, item: Any) -> bytes:
        data = pickle.dumps(item)
        if len(data) > self.item_size:
            raise ValueError(f"the pickled item has {len(data)} bytes, more than item_size "
                             f"({self.item_size})")
        # pickle ignores the bytes after the object.
        return data.ljust(self.item_size, b"\0")

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Send an object. Raise queue.Full if there is no room, and ShutDown after shutdown()."""
        self._put_counted(self._unfinished, self._pickled(item), block, timeout)

    async def put_async(self, item: Any, timeout: float | None = None) -> None:
        """put() for tasks. If the task is cancelled, the item may have been sent."""
        data = self._pickled(item)
        process = os.getpid()
        self._unfinished.add()
        try:
            await super().put_async(data, timeout)
        except BaseException:
            # In a child process, the item belongs to the parent.
            if process == os.getpid():
                self._unfinished.done()
            raise

    def _give_back(self, operation: _memwait.Operation) -> None:
        if operation.sent:
            # put_async() will subtract one from the count.
            self._unfinished.add()
        super()._give_back(operation)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Receive an object. If there is none, raise ShutDown (after shutdown()) or Empty."""
        return pickle.loads(super().get(block, timeout))

    async def get_async(self, timeout: float | None = None) -> Any:
        """get() for tasks."""
        return pickle.loads(await super().get_async(timeout))

    def task_done(self) -> None:
        """Report that the work on one received item is done. Raise ValueError for excess calls."""
        self._unfinished.done()

    def _dropped(self) -> None:
        # task_done() may have been called more often than items were received.
        with contextlib.suppress(ValueError):
            self.task_done()

    def join(self) -> None:
        """Wait until task_done() was called for each item that was put and not dropped."""
        self._unfinished.wait()

    async def join_async(self) -> None:
        """join() for tasks."""
        await self._unfinished.wait_async()

    def close(self) -> None:
        """Release the buffer, like a Queue. Raise BufferError while a thread or task is in join().
        """
        self._unfinished.close()
        try:
            super().close()
        except BaseException:
            self._unfinished = WaitGroup(self.buffer, self._unfinished.offset)
            raise


class Outcome(enum.IntEnum):
    """The result of a wait for a Word."""

    OK = 0
    NOT_EQUAL = 1
    TIMED_OUT = 2

    def __bool__(self) -> bool:
        """False if the wait timed out, as for wait() of an Event."""
        return self is not Outcome.TIMED_OUT


_memwait.set_outcomes(tuple(Outcome))


class Word(_Object, _memwait.Word):
    """An integer of 1, 2, 4 or 8 bytes that threads and tasks can wait for, as with ECMAScript's
    Atomics. A notify ends a wait; a change of the value does not.
    """

    __slots__ = ("__weakref__",)

    def _waiters(self) -> str:
        try:
            count = self.waiters()
        except OSError:
            count = 0
        return f", waiters={count}" if count else ""

    def _options(self) -> dict[str, Any]:
        return {"size": self.size, "private": self.private}

    async def wait_async(self, expected: int, timeout: float | None = None) -> Outcome:
        """wait() for tasks."""
        outcome: Outcome = await _wait(self, _memwait.COMPARE, timeout, expected)
        return outcome

    async def watch(self, expected: int) -> AsyncGenerator[int, None]:
        """If the word has the expected value, watch it: yield the number of notifies whenever there
        have been any. Otherwise end immediately.

        Notifies that arrive between two steps are added up. Notifies that are left over at the end
        are passed to other waiters. Use contextlib.aclosing() if you leave the loop early.
        """
        hub = _Hub.running()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] | None = None

        def notified(operation: _memwait.Operation) -> None:
            if future is not None and not future.done():
                future.set_result(None)

        operation = self._begin(hub.loop, notified, _memwait.WATCH, None, expected)
        try:
            while True:
                count = operation.take_count()
                if count:
                    yield count
                elif operation.pending:
                    future = loop.create_future()
                    await future
                else:
                    break
            operation.finish()
        finally:
            operation.cancel()
            count = operation.take_count()
            if count and not self.closed:
                self.notify(count)


class Layout:
    """Layout(**fields): the offsets of objects in a buffer.

    A field is a class, such as memwait.Lock; a tuple (memwait.Queue, item_size, maxsize); or a
    number of bytes. layout["name"] is the offset of a field, and layout.size is the size of all
    fields.

        layout = Layout(lock=Lock, jobs=(Queue, 64, 100), table=4096)
        memory = SharedMemory(create=True, size=layout.size)
        lock = Lock(memory, layout["lock"], create=True)
    """

    #: The alignment of each field: a cache line.
    ALIGN = 64

    def __init__(self, **fields: Any) -> None:
        self.size = 0
        self.offsets: dict[str, int] = {}
        for name, field in fields.items():
            self.offsets[name] = self.size
            self.size += -(-self._size(field) // self.ALIGN) * self.ALIGN

    @staticmethod
    def _size(field: Any) -> int:
        if isinstance(field, int):
            if field < 0:
                raise ValueError("the size of a field must not be negative")
            return field
        if isinstance(field, tuple):
            return int(field[0].size(*field[1:]))
        if field is Word:
            return 8
        return int(field.SIZE)

    def __getitem__(self, name: str) -> int:
        return self.offsets[name]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {offset}" for name, offset in self.offsets.items())
        return f"<memwait.Layout {fields}; size {self.size}>"
