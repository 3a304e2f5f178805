# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Locks, queues and more in shared memory, for threads and for asyncio, across processes.

Each object lies at an offset of a buffer: multiprocessing.shared_memory.SharedMemory, mmap.mmap or
anything else that can be written to. create=True makes it; without that, what is there is used.
Zeroed memory is an unlocked Lock and RWLock, a Condition, an Event that is not set, a Semaphore of
value 0 and a WaitGroup of count 0; an RLock, Barrier, Queue or BoundedSemaphore must be created
once. A BoundedSemaphore takes the bytes behind a Semaphore for its count. Layout says what lies
where; a Segment is named memory that knows it.

    memory = SharedMemory(create=True, size=64)
    lock = memwait.Lock(memory, create=True)
    with lock: ...              # a thread; others run meanwhile, and ^C ends the wait
    async with lock: ...        # a task; its event loop goes on

Threads and tasks of all processes stand in one queue. A method NAME_async is NAME for tasks. A task
that is cancelled takes nothing. All tasks of a thread are one owner: an RLock lets in each of them.

An object holds its buffer, which cannot be closed before: call close() of the object first. Objects
of a SharedMemory can be pickled, and so given to processes that are spawned; a child of fork() uses
those that it has.

Without the device /dev/memwait every operation is an OSError that says so; see available().
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

# Of this package; version is that of the library that the program runs with.
__version__ = "1.0.0-rc"

__all__ = [
    "Barrier", "BoundedSemaphore", "BrokenBarrierError", "Condition", "Event", "JoinableQueue",
    "Layout", "Lock", "NotRecoverable", "Outcome", "OwnerDied", "Queue", "RLock", "RWLock",
    "Segment", "Semaphore", "ShutDown", "WaitGroup", "Word", "available", "version",
]


_Result = TypeVar("_Result")

# What a mixin is mixed with.
if TYPE_CHECKING:
    from ._memwait import _Buffer
    from ._segment import Segment
    _Base = _memwait.Object
else:
    _Base = object


def __getattr__(name: str) -> Any:
    # It imports multiprocessing, which most do not need.
    if name == "Segment":
        from ._segment import Segment
        return Segment
    raise AttributeError(f"module 'memwait' has no attribute {name!r}")


class _Hub:
    """The memwait loop of an asyncio loop, which polls it, and with which it closes."""

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
            # Somebody has closed the descriptor. Any OSError may be of a signal's handler.
            self.asyncio_loop.remove_reader(self.loop.fileno())
            setattr(self.asyncio_loop, "_memwait_hub", None)
            for operation in self.loop.close():
                operation.callback(operation)
            raise


def _close_with(asyncio_loop: asyncio.AbstractEventLoop) -> None:
    """Nobody else would cancel what is pending, and others would wait behind it."""
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
    """Begin an operation of an object in the running event loop; the future is for its end."""
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
            # It may have ended, and this task not been told of it.
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
        """What a cancelled task had got."""
        operation.give_back()

    def _options(self) -> dict[str, Any]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise ValueError("operation on a closed object")
        if not hasattr(self.buffer, "buf"):
            raise TypeError(f"cannot pickle a {type(self).__name__} of a buffer without a name: "
                            "attach by name and offset")
        return _attach, (type(self), self.buffer, self.offset, self._options())

    def _state(self) -> str:
        """What it is now, out of date at once."""
        return ""

    def _waiters(self) -> str:
        """How many wait for any byte of it, of all processes; nothing if nobody does."""
        count = 0
        try:
            # Nobody waits for an item of a queue.
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
            # Such as no channel in zeroed memory.
            state = ": not one"
        return f"<memwait.{type(self).__name__} at {self.offset:#x}{state}{self._waiters()}>"


class _Acquired:
    """`async with` for what has acquire(), release() and acquire_async()."""

    __slots__ = ()

    async def __aenter__(self: Any) -> None:
        if not self.acquire(False):
            await self.acquire_async()

    async def __aexit__(self: Any, kind: Any, value: Any, traceback: Any) -> None:
        try:
            self.release()
        except RuntimeError:
            # A repair has failed: its exception says so.
            if kind is None:
                raise


class _Lock(_Acquired, _Object):
    __slots__ = ()

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """acquire() for tasks. False: not within timeout seconds."""
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
            # To know more is to take it, and perhaps to repair it.
            return ""
        return "unlocked "


class Lock(_Lock, _memwait.Lock):
    """A lock as threading.Lock, which any thread may release.

    fair: it is handed over in the order of waiting; else whoever finds it free takes it.
    repair: a function. When an owner has died with the lock, the next owner calls this, with the
        lock taken. If it raises, the lock is unlocked and cannot be taken again: NotRecoverable.
        All users give a function: a user without gets OwnerDied, and all others NotRecoverable.
        Such a lock is released by the thread that has it.
    private: of one process. Waiting costs less.

    fair, private and whether there is a repair are properties of the lock in the buffer, set by
    create=True.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.LOCK_SIZE


class RLock(_Lock, _memwait.RLock):
    """A lock that its owner can take again, as threading.RLock. It must be created: zeroed memory
    is a Lock. The tasks of a thread are one owner. See Lock.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.LOCK_SIZE


class Condition(_Object, _memwait.Condition):
    """A condition variable as threading.Condition, of a Lock or RLock. A task that is cancelled has
    an RLock once afterwards, however often it had taken it.
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
        """locked() of its lock."""
        locked: bool = self.lock.locked()
        return locked

    def wait_for(self, predicate: Callable[[], _Result], timeout: float | None = None) -> _Result:
        """Wait until predicate() is true, and return what it returned last."""
        end = _deadline(timeout)
        result = predicate()
        while not result:
            if not self.wait(_left(end)):
                return predicate()
            result = predicate()
        return result

    async def wait_async(self, timeout: float | None = None) -> bool:
        """wait() for tasks. A task that is cancelled takes the lock again before it leaves.

        A coroutine that is closed here cannot: what it releases on its way out, in `finally` or at
        the end of `async with`, is refused. So is the next release by its thread if it releases
        nothing.
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
                        # The coroutine is closed, and cannot wait.
                        self.lock._lose()
                raise
            if operation.lost_lock:
                # The device has failed, or the loop has lost its descriptor.
                try:
                    await self._lock_again()
                except BaseException:
                    operation.give_back()
                    raise
        notified: bool = operation.finish()
        return notified

    async def _lock_again(self) -> None:
        """However often the task is cancelled meanwhile, which it is afterwards."""
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
                # Its traceback has this frame.
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
    """A semaphore as threading.Semaphore. value is for create=True.

    fair: a release is for whoever has waited longest, thread or task, as with asyncio.Semaphore. Its
    value is 32767 at most. It is a property of the semaphore in the buffer, set by create=True.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.SEMAPHORE_SIZE

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """acquire() for tasks. False: not within timeout seconds."""
        taken: bool = await _wait(self, _memwait.WAIT, timeout)
        return taken

    def locked(self) -> bool:
        """True if its value is 0, so that acquire() waits: out of date at once."""
        return not self.get_value()

    def _state(self) -> str:
        return f": value={self.get_value()}"


class BoundedSemaphore(Semaphore, _memwait.BoundedSemaphore):
    """A semaphore as threading.BoundedSemaphore: whoever releases what nobody has acquired, in any
    process, gets a ValueError. value is for create=True.

    It is a Semaphore, and a count behind it: a program of another language may use the Semaphore,
    but what it acquires and releases is not counted. It must be created: zeroed memory has the
    bound 0, and behind a Semaphore that was created without a bound may lie anything.
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
    """One side of an RWLock, which is used as a lock."""

    __slots__ = ("_rwlock", "_verb")
    _rwlock: RWLock
    _verb: int

    def __new__(cls, rwlock: RWLock, write: bool) -> _Side:
        self = super().__new__(cls, rwlock, write)
        self._rwlock = rwlock
        self._verb = _memwait.WRITE if write else _memwait.READ
        return self

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """acquire() for tasks. False: not within timeout seconds."""
        begun = time.monotonic()
        taken: bool | None = await _wait(self._rwlock, self._verb, timeout)
        while taken is None:
            # A reader that has repaired it has had it for writing.
            left = None if timeout is None else begun + float(timeout) - time.monotonic()
            taken = await _wait(self._rwlock, self._verb, left)
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._rwlock, self._verb == _memwait.WRITE)

    def __repr__(self) -> str:
        name = "writer" if self._verb == _memwait.WRITE else "reader"
        return f"<{name} of {self._rwlock!r}>"


class RWLock(_Object, _memwait.RWLock):
    """A read-write lock: many have its `reader` at a time, or one its `writer`. Both are used as a
    Lock is: acquire(), release(), acquire_async(), with, async with.

    Readers are preferred. fair: in the order of waiting. prefer_writer: the first writer that waits
    precedes later readers. repair: as of a Lock, if a writer dies; a reader that dies stays one.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.RWLOCK_SIZE

    @property
    def reader(self) -> _Side:
        """The lock that many have at a time."""
        return _Side(self, False)

    @property
    def writer(self) -> _Side:
        """The lock that excludes all others."""
        return _Side(self, True)

    def _options(self) -> dict[str, Any]:
        return {"repair": self.repair}


class Barrier(_Object, _memwait.Barrier):
    """parties threads or tasks meet, as at threading.Barrier; parties is for create=True. No more
    than parties may be there at a time.

    action: a function, which one of them calls when all have come, before any goes on. All users
        give one, or none does: each calls its own. If it raises, the barrier is broken. The others
        meet the one that acts a second time, for which they have as long again. So reset() only
        when nobody is within wait(), or those who were and those who come anew may meet.
    timeout: for those who give none to wait().

    One that has timed out breaks the barrier. One that leaves by ^C or cancellation has not come,
    and breaks nothing; but if there is an action it does, as the others may be waiting for that.
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
        """How many meet."""
        return self._inspect()[0]

    @property
    def n_waiting(self) -> int:
        """How many wait now."""
        return self._inspect()[1]

    @property
    def broken(self) -> bool:
        """Whether it is broken now."""
        return self._inspect()[2]

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all have come. It returns 0 to one of them, and 1 to the others.

        BrokenBarrierError: the barrier was aborted or reset, or somebody has timed out.
        """
        timeout = self._timeout if timeout is None else timeout
        if self._action is None:
            return super().wait(timeout)
        # A number that is no time breaks nothing.
        with self._breaking(OverflowError, TypeError, ValueError):
            place = super().wait(timeout)
        if place == 0:
            self._act()
        with self._breaking():
            super().wait(timeout)
        return place

    async def wait_async(self, timeout: float | None = None) -> int:
        """wait() for tasks. The action is called, and not awaited."""
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
        """All meet twice, and whoever does not come the second time is missed."""
        process = os.getpid()
        try:
            yield
        except (BrokenBarrierError, *harmless):
            # All have been told. It may have been reset since.
            raise
        except BaseException:
            # A child of fork() has not come, but its parent.
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
    """A count, and a wait until it is 0.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.WAITGROUP_SIZE

    async def wait_async(self, timeout: float | None = None) -> bool:
        """wait() for tasks. False: not within timeout seconds."""
        done: bool = await _wait(self, _memwait.WAIT, timeout)
        return done


class Event(_Object, _memwait.Event):
    """A flag and those who wait for it, as threading.Event and asyncio.Event.
    """

    __slots__ = ("__weakref__",)
    SIZE = _memwait.EVENT_SIZE

    async def wait_async(self, timeout: float | None = None) -> bool:
        """wait() for tasks."""
        was_set: bool = await _wait(self, _memwait.WAIT, timeout)
        return was_set

    def _state(self) -> str:
        return ": set" if self.is_set() else ": unset"


class Queue(_Object, _memwait.Queue):
    """A queue as queue.Queue, of items that are bytes, all of item_size: a channel of libmemwait.
    item_size and maxsize are for create=True; one that is there knows its own. JoinableQueue has
    other objects, and join().

    put_nowait() and get_nowait() raise Full and Empty also while another one puts or gets.

    An item that a task had got when it was cancelled goes back into the queue, behind the others.
    While there is no room, after shutdown(), and once the event loop has ended, it is for the next
    get() of this object.
    """

    __slots__ = ("__weakref__", "_kept", "_process")

    def __init__(self, buffer: _Buffer, offset: int = 0, *, item_size: int = 0, maxsize: int = 0,
                 create: bool = False, private: bool = False) -> None:
        # What has got an item, and what sends it again if that could begin. Each of the former
        # holds the queue, which so cannot be closed before its item is delivered.
        self._kept: collections.OrderedDict[_memwait.Operation, _memwait.Operation | None] = \
            collections.OrderedDict()
        self._process = os.getpid()

    def _own(self) -> collections.OrderedDict[_memwait.Operation, _memwait.Operation | None]:
        """What is kept. A child of fork() has copies of its parent's items, who still has them."""
        if self._process != os.getpid():
            self._kept.clear()
            self._process = os.getpid()
        return self._kept

    @staticmethod
    def size(item_size: int, maxsize: int) -> int:
        """How many bytes a queue needs."""
        return _memwait.queue_size(item_size, maxsize)

    def get(self, block: bool = True, timeout: float | None = None) -> bytes:
        """Receive an item. queue.Empty: there was none. ShutDown: after shutdown()."""
        item = self._get_kept() if self._kept else None
        if item is None:
            try:
                item = super().get(block, timeout)
            except (queue.Empty, ShutDown):
                # One may be kept since.
                item = self._get_kept()
                if item is None:
                    raise
            self._settle()
        return item

    def get_nowait(self) -> bytes:
        """get(block=False)"""
        return self.get(False)

    def shutdown(self, immediate: bool = False) -> None:
        """Stop sending, in all processes. What was sent can be received; immediate drops it."""
        super().shutdown()
        while immediate:
            try:
                Queue.get(self)
            except ShutDown:
                break
            self._dropped()

    def _dropped(self) -> None:
        """An item that nobody will receive."""

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
        """`async for item in queue`: until it is shut down, and all was received."""
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.get_async()
        except ShutDown:
            raise StopAsyncIteration from None

    def _state(self) -> str:
        return f": {self.qsize()} of {self.maxsize}"

    def empty(self) -> bool:
        """True if there is no item, out of date at once."""
        return not self.qsize()

    def full(self) -> bool:
        """True if there is no room, out of date at once."""
        return self.qsize() >= self.maxsize

    def qsize(self) -> int:
        """The number of items, out of date at once."""
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
            pass    # The device fails, or the loop is closed.
        finally:
            self._own()[operation] = sending
        if sending is not None and not sending.pending:
            self._sent(operation, sending)

    def _sent(self, operation: _memwait.Operation, sending: _memwait.Operation) -> None:
        """An item has been sent again; or cannot be, and stays kept."""
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
        """The first that is kept, and is not sent any more."""
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
        """Put a kept item into the queue again. It stays kept if that fails."""
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
        """Of what is kept, as the loop that was to send it has ended, one may have room now."""
        sending = next(iter(self._own().values()), None)
        if self._kept and (sending is None or not sending.pending):
            with contextlib.suppress(OSError, queue.Full, ShutDown, ValueError):
                self._put_back(0)

    def close(self) -> None:
        """Let go of the buffer. The object in it stays as it is.

        BufferError if a thread or a task waits for it, or if an item that a cancelled task had got
        has no room in the queue, or cannot go back after shutdown(). Every later use is a
        ValueError.
        """
        while not self.closed and self._own():
            try:
                # Not at once: another process may be within a put.
                self._put_back(0.1)
            except (queue.Full, ShutDown) as error:
                why = "it is shut down" if isinstance(error, ShutDown) else "it has no room"
                raise BufferError("an item of a cancelled task cannot go back into the queue, as "
                                  f"{why}: get() it first") from None
        super().close()


class JoinableQueue(Queue):
    """A queue of objects as multiprocessing.JoinableQueue: they are pickled, into at most item_size
    bytes, and join() waits until each was told of by task_done().

    It is a Queue, and a WaitGroup behind it, and must be created as one. Who unpickles runs what
    the others have sent: trust all that can write to the buffer. A process that dies with an item
    has not told of it.
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
        """How many bytes a queue needs."""
        return Queue.size(item_size, maxsize) + _memwait.WAITGROUP_SIZE

    def _pickled(self, item: Any) -> bytes:
        data = pickle.dumps(item)
        if len(data) > self.item_size:
            raise ValueError(f"the pickled item has {len(data)} bytes, more than item_size, "
                             f"{self.item_size}")
        # What follows a pickle is ignored.
        return data.ljust(self.item_size, b"\0")

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Send an object. queue.Full: there was no room. ShutDown: after shutdown()."""
        self._put_counted(self._unfinished, self._pickled(item), block, timeout)

    async def put_async(self, item: Any, timeout: float | None = None) -> None:
        """put() for tasks. If the task is cancelled, the item may have been sent."""
        data = self._pickled(item)
        process = os.getpid()
        self._unfinished.add()
        try:
            await super().put_async(data, timeout)
        except BaseException:
            # In a child of fork() it is its parent's.
            if process == os.getpid():
                self._unfinished.done()
            raise

    def _give_back(self, operation: _memwait.Operation) -> None:
        if operation.sent:
            # put_async() takes one from the count.
            self._unfinished.add()
        super()._give_back(operation)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Receive an object. queue.Empty: there was none. ShutDown: after shutdown()."""
        return pickle.loads(super().get(block, timeout))

    async def get_async(self, timeout: float | None = None) -> Any:
        """get() for tasks."""
        return pickle.loads(await super().get_async(timeout))

    def task_done(self) -> None:
        """Tell that one item that was received needs no more work. ValueError: no item is left."""
        self._unfinished.done()

    def _dropped(self) -> None:
        # More may have been told of than were received.
        with contextlib.suppress(ValueError):
            self.task_done()

    def join(self) -> None:
        """Wait until task_done() was called for each item that was put, and not dropped."""
        self._unfinished.wait()

    async def join_async(self) -> None:
        """join() for tasks."""
        await self._unfinished.wait_async()

    def close(self) -> None:
        """Let go of the buffer, as a Queue does. BufferError also if somebody is in join()."""
        self._unfinished.close()
        try:
            super().close()
        except BaseException:
            self._unfinished = WaitGroup(self.buffer, self._unfinished.offset)
            raise


class Outcome(enum.IntEnum):
    """How a wait on a Word has ended."""

    OK = 0
    NOT_EQUAL = 1
    TIMED_OUT = 2

    def __bool__(self) -> bool:
        """False: the time has passed, as wait() of an Event says it."""
        return self is not Outcome.TIMED_OUT


class Word(_Object, _memwait.Word):
    """An integer of 1, 2, 4 or 8 bytes, and those who wait for it: Atomics of ECMAScript. A wait is
    over by a notify, not by a change.
    """

    __slots__ = ("__weakref__",)

    def _waiters(self) -> str:
        try:
            count = self.waiters()
        except OSError:
            count = 0
        return f", waiters={count}" if count else ""

    def wait(self, expected: int, timeout: float | None = None) -> Outcome:
        """Wait while the word is as expected, until a notify: Outcome.OK, NOT_EQUAL, TIMED_OUT."""
        return Outcome(super().wait(expected, timeout))

    def _options(self) -> dict[str, Any]:
        return {"size": self.size, "private": self.private}

    async def wait_async(self, expected: int, timeout: float | None = None) -> Outcome:
        """wait() for tasks."""
        return Outcome(await _wait(self, _memwait.COMPARE, timeout, expected))

    async def watch(self, expected: int) -> AsyncGenerator[int, None]:
        """Wait if the word is as expected; then yield the number of notifies whenever some came.

        Notifies between two steps are added up. Those that are left at the end pass to others. Use
        contextlib.aclosing() if you leave the loop early.
        """
        hub = _Hub.running()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] | None = None

        def told(operation: _memwait.Operation) -> None:
            if future is not None and not future.done():
                future.set_result(None)

        operation = self._begin(hub.loop, told, _memwait.WATCH, None, expected)
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
    """Layout(**fields): what lies where in a buffer.

    A field is a class, as memwait.Lock; (memwait.Queue, item_size, maxsize); or a number of bytes.
    layout["name"] is its offset, and layout.size what all need.

        layout = Layout(lock=Lock, jobs=(Queue, 64, 100), table=4096)
        memory = SharedMemory(create=True, size=layout.size)
        lock = Lock(memory, layout["lock"], create=True)
    """

    #: What each field is aligned to: a cache line.
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
                raise ValueError("a field has no negative size")
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
