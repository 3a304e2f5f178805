# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the tests: memory, children, and a table with a case for each object that can wait."""

import mmap
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import memwait

ITEM = b"an item!"


def limit(seconds):
    """The time limit that ends a hang: seconds on an idle machine, times the measured slowness
    (see measure_slowness() in selftests/vm/init).
    """
    return seconds * int(os.environ.get("MEMWAIT_SLOWNESS", "1"))


def waiters(memory, offset=0, size=512):
    """Counts the threads and tasks that wait on any word in that range. Waiters of a fair lock wait
    on a byte, so each byte is looked up.
    """
    total = 0
    for at in range(offset, offset + size):
        word = memwait.Word(memory, at, size=1)
        total += word.waiters()
        word.close()
    return total


def until(condition):
    pause = 0.0005
    while not condition():
        # Let the awaited thread or process run, because there may be only one
        # CPU.
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


class Child:
    """A child process that calls a function; its exit status is 0 if the function returns."""

    def __init__(self, function, *args):
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                function(*args)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)

    def kill(self, number):
        os.kill(self.pid, number)

    def join(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Holder:
    """A thread that calls functions for a test, so that it can hold a lock that others wait for."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(1)

    def __call__(self, function, *args):
        return self.pool.submit(function, *args).result()

    def close(self):
        self.pool.shutdown()


class Case:
    """An object, and how to wait for it, wake a waiter, and undo a wake that had no waiter."""

    size = 512

    def __init__(self, memory):
        self.memory = memory
        self.make()
        self.block()

    def make(self):
        self.object = self.kind(self.memory, create=True)

    def block(self):
        pass

    def block_again(self):
        """Makes the object block again after a waiter has acquired it."""

    def waits(self, n):
        return waiters(self.memory, 0, self.size) == n

    def timed_out(self, result):
        return result is False


class LockCase(Case):
    kind = memwait.Lock

    def block(self):
        assert self.object.acquire() is True

    def wait(self, timeout=-1):
        return self.object.acquire(timeout=timeout)

    async def wait_async(self):
        if not await self.object.acquire_async():
            return False
        self.object.release()
        return True

    def finish(self):
        self.object.release()

    def wake(self):
        self.object.release()

    def again(self):
        assert self.object.acquire(False) is True

    def block_again(self):
        self.again()


class FairCase(LockCase):
    def make(self):
        self.object = memwait.Lock(self.memory, create=True, fair=True)


class RobustCase(LockCase):
    def make(self):
        self.object = memwait.Lock(self.memory, create=True, repair=print)


class RLockCase(LockCase):
    kind = memwait.RLock


class ReaderCase(LockCase):
    def make(self):
        self.lock = memwait.RWLock(self.memory, create=True)
        self.object = self.lock.reader

    def block(self):
        self.lock.writer.acquire()

    def wake(self):
        self.lock.writer.release()

    def again(self):
        assert self.lock.writer.acquire(False) is True


class WriterCase(LockCase):
    def make(self):
        self.lock = memwait.RWLock(self.memory, create=True)
        self.object = self.lock.writer

    def block(self):
        self.lock.reader.acquire()

    def wake(self):
        self.lock.reader.release()

    def again(self):
        assert self.lock.writer.acquire(False) is True
        self.lock.writer.release()
        self.lock.reader.acquire()


class ConditionCase(Case):
    def make(self):
        self.lock = memwait.Lock(self.memory, 64, create=True)
        self.object = memwait.Condition(self.memory, lock=self.lock, create=True)

    def wait(self, timeout=None):
        with self.object:
            return self.object.wait(timeout)

    async def wait_async(self):
        async with self.object:
            return await self.object.wait_async()

    def finish(self):
        pass

    def wake(self):
        with self.object:
            self.object.notify()

    def again(self):
        assert self.lock.acquire(False) is True
        self.lock.release()


class SemaphoreCase(Case):
    def make(self):
        self.object = memwait.Semaphore(self.memory, value=0, create=True)

    def wait(self, timeout=None):
        return self.object.acquire(timeout=timeout)

    async def wait_async(self):
        return await self.object.acquire_async()

    def finish(self):
        pass

    def wake(self):
        self.object.release()

    def again(self):
        assert self.object.get_value() == 1
        assert self.object.acquire(False) is True


class BoundedCase(SemaphoreCase):
    def make(self):
        self.object = memwait.BoundedSemaphore(self.memory, create=True)

    def block(self):
        self.object.acquire()

    def again(self):
        try:
            self.object.release()
        except ValueError:
            super().again()
            return
        assert False, "a permit is still acquired"


class BarrierCase(Case):
    def make(self):
        self.object = memwait.Barrier(self.memory, parties=2, create=True)

    def wait(self, timeout=None):
        return self.object.wait(timeout) in (0, 1)

    async def wait_async(self):
        return await self.object.wait_async() in (0, 1)

    def timed_out(self, result):
        # The timeout broke the barrier for all participants.
        self.object.reset()
        return isinstance(result, memwait.BrokenBarrierError)

    def finish(self):
        pass

    def wake(self):
        if not self.waits(0):
            self.object.wait()

    def again(self):
        try:
            self.object.wait(0)
        except memwait.BrokenBarrierError:
            self.object.reset()
            return
        assert False, "another participant had arrived"


class WaitGroupCase(Case):
    def make(self):
        self.object = memwait.WaitGroup(self.memory, count=1, create=True)

    def wait(self, timeout=None):
        return self.object.wait(timeout)

    async def wait_async(self):
        return await self.object.wait_async()

    def finish(self):
        self.object.add()

    def wake(self):
        self.object.done()

    def again(self):
        assert self.object.wait(0) is True
        self.object.add(1)


class GetCase(Case):
    def make(self):
        self.object = memwait.Queue(self.memory, item_size=8, maxsize=2, create=True)

    def wait(self, timeout=None):
        return self.object.get(timeout=timeout) == ITEM

    async def wait_async(self):
        return await self.object.get_async() == ITEM

    def timed_out(self, result):
        return type(result).__name__ == "Empty"

    def finish(self):
        pass

    def wake(self):
        self.object.put(ITEM)

    def again(self):
        assert self.object.qsize() == 1
        assert self.object.get_nowait() == ITEM


class PutCase(GetCase):
    def block(self):
        self.object.put(bytes(8))
        self.object.put(bytes(8))

    def wait(self, timeout=None):
        return self.object.put(ITEM, timeout=timeout) is None

    async def wait_async(self):
        return await self.object.put_async(ITEM) is None

    def timed_out(self, result):
        return type(result).__name__ == "Full"

    def wake(self):
        self.object.get()

    def again(self):
        # A task that was woken before it was cancelled may have put its item.
        if self.object.qsize() == 1:
            self.object.put(ITEM)
        assert self.object.full()


class WordCase(Case):
    size = 4

    def make(self):
        self.object = memwait.Word(self.memory)

    def wait(self, timeout=None):
        return self.object.wait(0, timeout)

    async def wait_async(self):
        return await self.object.wait_async(0)

    def timed_out(self, result):
        return result is memwait.Outcome.TIMED_OUT

    def finish(self):
        pass

    def wake(self):
        self.object.notify(1)

    def again(self):
        assert self.object.notify() == 0


class EventCase(Case):
    kind = memwait.Event

    def wait(self, timeout=None):
        return self.object.wait(timeout)

    async def wait_async(self):
        return await self.object.wait_async()

    def finish(self):
        self.object.clear()

    def wake(self):
        self.object.set()

    def again(self):
        assert self.object.is_set()
        assert self.object.wait(0) is True
        self.object.clear()


CASES = [LockCase, FairCase, RobustCase, RLockCase, ReaderCase, WriterCase, ConditionCase,
         SemaphoreCase, BoundedCase, BarrierCase, WaitGroupCase, GetCase, PutCase, WordCase,
         EventCase]


def each_case(test):
    """Calls test(self, case, hold) for each case. hold(function) runs the function in the thread
    that makes the object block.
    """

    def run(self):
        for kind in CASES:
            hold = Holder()
            with self.subTest(kind.__name__), mmap.mmap(-1, 4096) as memory:
                case = hold(kind, memory)
                try:
                    test(self, case, hold)
                    self.assertTrue(case.waits(0), "there is still a waiter")
                finally:
                    for held in (case.object, getattr(case, "lock", None)):
                        if hasattr(held, "close"):
                            held.close()
                    case = held = None
            hold.close()

    return run


def interrupted(function):
    """Calls the function, and raises AssertionError unless ^C (SIGINT) ended it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        function()
    except KeyboardInterrupt:
        return
    raise AssertionError("not interrupted")


def waits_fail(error):
    """From now on, MEMWAIT_IOC_WAIT_ASYNC fails with this error in this thread, by seccomp(2)."""
    import ctypes
    import platform
    import struct
    ioctl = {"x86_64": 16}.get(platform.machine(), 29)
    code = (
        (0x20, 0, 0, 0),                        # load the system call's number
        (0x15, 0, 4, ioctl),
        (0x20, 0, 0, 24),                       # load the low half of its second argument
        (0x54, 0, 0, 0xffff),                   # keep its type and number
        (0x15, 0, 1, 0xd803),                   # MEMWAIT_IOC_WAIT_ASYNC
        (0x06, 0, 0, 0x50000 | error),          # SECCOMP_RET_ERRNO
        (0x06, 0, 0, 0x7fff0000),               # SECCOMP_RET_ALLOW
    )
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(text))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    zero = ctypes.c_ulong(0)
    assert not prctl(38, ctypes.c_ulong(1), zero, zero, zero), "PR_SET_NO_NEW_PRIVS"
    assert not prctl(22, ctypes.c_ulong(2), program, zero, zero), "PR_SET_SECCOMP"
