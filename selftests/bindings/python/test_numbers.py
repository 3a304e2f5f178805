# SPDX-License-Identifier: GPL-2.0-only
"""Numbers as arguments: memwait treats them like threading, queue, asyncio or ctypes."""

import asyncio
import ctypes
import mmap
import queue
import signal
import sys
import threading
import unittest

import memwait
from common import limit, waiters
from memwait import _memwait

INFINITY = float("inf")
NAN = float("nan")
TIMEOUTS = [-INFINITY, -1e300, -sys.maxsize, -1e10, -9223372037.0, -2, -1.5, -1, -0.5, -1e-9, -0.0,
            0, False, 1e-9, 0.001, 1e10, 9223372037.0, sys.maxsize, 1e100, INFINITY]
NO_NUMBERS = ["1", b"1", [], {}, object(), 1j]
LONG = 9000000000       # seconds: some centuries, which threading accepts

# Numbers that exceed 8, 31, 32, 63 and 64 bits
TOO_SMALL = [-1, -128, -129, -1 << 31, (-1 << 31) - 1, -1 << 32, -sys.maxsize, -1 << 63,
             (-1 << 63) - 1, -1 << 64, -1 << 100]
TOO_LARGE = [1 << 31, 1 << 32, (1 << 32) + 1, sys.maxsize, 1 << 63, 1 << 64, (1 << 64) + 1, 1 << 100]


def outcome(function, *args, **options):
    """Returns the result of the function, or the type of the exception that it raises."""
    try:
        return function(*args, **options)
    except Exception as error:
        return type(error)


# Rows of each_timeout() whose lock is held, and for which a timeout of -1 means no timeout
FOREVER = "Lock", "reader", "writer", "Condition's lock"


class Pair:
    """Makes pairs of objects in the same state: one of memwait, one of Python's library."""

    def __init__(self, memory):
        self.memory = memory

    def lock(self):
        return memwait.Lock(self.memory, create=True), threading.Lock()

    def rlock(self):
        return memwait.RLock(self.memory, create=True), threading.RLock()

    def condition(self):
        ours = memwait.Condition(self.memory, 64, create=True,
                                 lock=memwait.Lock(self.memory, create=True))
        theirs = threading.Condition(threading.Lock())
        ours.acquire()
        theirs.acquire()
        return ours, theirs

    def event(self):
        return memwait.Event(self.memory, create=True), threading.Event()

    def semaphore(self, value=0):
        return (memwait.Semaphore(self.memory, value=value, create=True),
                threading.Semaphore(value))

    def bounded(self, value=0):
        return (memwait.BoundedSemaphore(self.memory, value=value, create=True),
                threading.BoundedSemaphore(value))

    def queue(self, items=0):
        ours = memwait.Queue(self.memory, item_size=8, maxsize=2, create=True)
        theirs = queue.Queue(2)
        for _ in range(items):
            ours.put(bytes(8))
            theirs.put(bytes(8))
        return ours, theirs


def taken(pair):
    for lock in pair:
        lock.acquire()
    return pair


def each_timeout(pair):
    """Returns {name: [our function, their function]}. Each function takes a timeout."""
    table = {}

    def row(name, objects, function):
        table[name] = [lambda t, used=used: function(used, t) for used in objects]

    row("Lock", taken(pair().lock()), lambda lock, t: lock.acquire(True, t))
    row("Lock, free", pair().lock(), lambda lock, t: lock.acquire(timeout=t) and lock.release())
    row("Lock, only tried", pair().lock(),
        lambda lock, t: lock.acquire(False, t) and lock.release())
    row("RLock", taken(pair().rlock()), lambda lock, t: lock.acquire(timeout=t) and lock.release())
    table["reader"] = table["Lock"][:]
    table["writer"] = table["Lock"][:]
    rwlock = memwait.RWLock(pair().memory, create=True)
    rwlock.writer.acquire()
    table["reader"][0] = lambda t: rwlock.reader.acquire(timeout=t)
    table["writer"][0] = lambda t: rwlock.writer.acquire(True, t)
    row("Condition", pair().condition(), lambda condition, t: condition.wait(t))
    row("Condition.wait_for", pair().condition(),
        lambda condition, t: condition.wait_for(lambda: 0, t))
    row("Condition's lock", pair().condition(), lambda condition, t: condition.acquire(True, t))
    row("Event", pair().event(), lambda event, t: event.wait(t))
    for value in (0, 1):
        for name in ("semaphore", "bounded"):
            row(f"{name} of {value}", getattr(pair(), name)(value),
                lambda used, t: used.acquire(timeout=t) and used.release())
    row("Semaphore, only tried", pair().semaphore(), lambda used, t: used.acquire(False, t))
    # A timeout breaks the barrier, so the barrier is reset before each wait.
    barrier = memwait.Barrier(pair().memory, parties=2, create=True)
    table["Barrier"] = [lambda t: barrier.reset() or barrier.wait(t),
                        lambda t: threading.Barrier(2).wait(t)]
    alone = memwait.Barrier(pair().memory, parties=1, create=True)
    table["Barrier of one"] = [lambda t: alone.wait(t), lambda t: threading.Barrier(1).wait(t)]
    row("Queue.get", pair().queue(), lambda used, t: used.get(timeout=t))
    row("Queue.get, an item", pair().queue(1),
        lambda used, t: used.put(used.get(timeout=t)))
    row("Queue.get, only tried", pair().queue(), lambda used, t: used.get(False, t))
    row("Queue.put", pair().queue(2), lambda used, t: used.put(bytes(8), timeout=t))
    row("Queue.put, only tried", pair().queue(2), lambda used, t: used.put(bytes(8), False, t))
    # Python's library has no counterpart to these classes; compare them with its Event.
    group = memwait.WaitGroup(pair().memory, count=1, create=True)
    table["WaitGroup"] = [lambda t: group.wait(t), table["Event"][1]]
    word = memwait.Word(pair().memory)
    table["Word"] = [lambda t: word.wait(0, t) is not memwait.Outcome.TIMED_OUT,
                     table["Event"][1]]
    return table


class Timeouts(unittest.TestCase):
    def setUp(self):
        self.table = each_timeout(lambda: Pair(mmap.mmap(-1, 4096)))
        # A call that waits forever is a failure.
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, self.ring))
        self.addCleanup(signal.alarm, 0)

    @staticmethod
    def ring(*_):
        raise InterruptedError("the call waits")

    def test_each(self):
        for name, (ours, theirs) in self.table.items():
            for timeout in TIMEOUTS:
                if timeout == -1 and name in FOREVER:
                    continue
                with self.subTest(f"{name}, {timeout!r}"):
                    expected = outcome(theirs, timeout)
                    signal.alarm(limit(10))
                    self.assertEqual(outcome(ours, timeout), expected)

    def test_no_numbers(self):
        """Not compared: some library functions loop forever with NaN, or accept non-numbers."""
        for name, (ours, theirs) in self.table.items():
            if name.startswith("Queue") and name.endswith("only tried"):
                continue
            for timeout in NO_NUMBERS:
                with self.subTest(f"{name}, {timeout!r}"):
                    self.assertIn(outcome(ours, timeout), (TypeError, ValueError))
            with self.subTest(f"{name}, NaN"):
                self.assertIs(outcome(ours, NAN), ValueError)

    def test_long_timeouts(self):
        """A timeout that threading accepts is no error, however long. A release ends the wait."""
        for timeout in (LONG, threading.TIMEOUT_MAX, None):
            ours, _ = Pair(mmap.mmap(-1, 4096)).semaphore()
            got = []
            thread = threading.Thread(target=lambda: got.append(ours.acquire(timeout=timeout)))
            thread.start()
            ours.release()
            thread.join()
            self.assertEqual(got, [True])

    def test_a_timeout_out_of_range_changes_nothing(self):
        """A wait that fails with OverflowError has taken nothing, and holds its lock again."""
        condition, _ = Pair(mmap.mmap(-1, 4096)).condition()
        for function in (condition.wait, lambda t: condition.wait_for(lambda: 0, t)):
            with self.assertRaises(OverflowError):
                function(1e100)
            self.assertTrue(condition.lock.locked())
        condition.release()
        barrier = memwait.Barrier(mmap.mmap(-1, 4096), parties=2, create=True)
        with self.assertRaises(OverflowError):
            barrier.wait(1e100)
        self.assertFalse(barrier.broken)
        # The failed wait was not counted as an arrival, so this wait times out.
        with self.assertRaises(threading.BrokenBarrierError):
            barrier.wait(0.001)


class Tasks(unittest.TestCase):
    def test_each(self):
        async def ours_for(wait, timeout):
            task = asyncio.ensure_future(wait(timeout))
            for _ in range(3):
                await asyncio.sleep(0)
            if timeout > 1:
                self.assertFalse(task.done())
                task.cancel()
            result, = await asyncio.gather(task, return_exceptions=True)
            return type(result) if isinstance(result, BaseException) else result

        async def theirs_for(timeout):
            return await ours_for(lambda t: asyncio.wait_for(asyncio.Semaphore(0).acquire(), t),
                                  timeout)

        async def main():
            lock = memwait.Lock(mmap.mmap(-1, 64), create=True)
            lock.acquire()
            rwlock = memwait.RWLock(mmap.mmap(-1, 64), create=True)
            rwlock.writer.acquire()
            jobs = memwait.Queue(mmap.mmap(-1, 4096), item_size=8, maxsize=1, create=True)
            full = memwait.Queue(mmap.mmap(-1, 4096), item_size=8, maxsize=1, create=True)
            full.put(bytes(8))
            condition = memwait.Condition(mmap.mmap(-1, 64), create=True,
                                          lock=memwait.Lock(mmap.mmap(-1, 64), create=True))

            async def wait_for(timeout, *predicate):
                async with condition:
                    wait = condition.wait_for_async if predicate else condition.wait_async
                    return await wait(*predicate, timeout)

            barrier = memwait.Barrier(mmap.mmap(-1, 256), parties=2, create=True)

            async def wait_at_barrier(timeout):
                barrier.reset()
                return await barrier.wait_async(timeout)

            word = memwait.Word(mmap.mmap(-1, 64))
            waits = {
                "Lock": (lock.acquire_async, False),
                "reader": (rwlock.reader.acquire_async, False),
                "writer": (rwlock.writer.acquire_async, False),
                "Condition": (wait_for, False),
                "Condition.wait_for": (lambda t: wait_for(t, lambda: 0), 0),
                "Event": (memwait.Event(mmap.mmap(-1, 64), create=True).wait_async, False),
                "Semaphore": (memwait.Semaphore(mmap.mmap(-1, 64), value=0,
                                                create=True).acquire_async, False),
                "Barrier": (wait_at_barrier, threading.BrokenBarrierError),
                "WaitGroup": (memwait.WaitGroup(mmap.mmap(-1, 64), count=1,
                                                create=True).wait_async, False),
                "get": (jobs.get_async, queue.Empty),
                "put": (lambda t: full.put_async(bytes(8), t), queue.Full),
                "Word": (lambda t: word.wait_async(0, t), memwait.Outcome.TIMED_OUT),
            }
            for timeout in TIMEOUTS:
                expected = await theirs_for(timeout)
                for name, (wait, late) in waits.items():
                    with self.subTest(f"{name}, {timeout!r}"):
                        result = await ours_for(wait, timeout)
                        self.assertEqual(result, late if expected is TimeoutError else expected)
            for name, (wait, late) in waits.items():
                for timeout, error in ((NAN, ValueError), ("1", TypeError)):
                    with self.subTest(f"{name}, {timeout!r}"), self.assertRaises(error):
                        await wait(timeout)

        asyncio.run(main())


class Integers(unittest.TestCase):
    def setUp(self):
        self.memory = mmap.mmap(-1, 8192)

    def refuse(self, calls, numbers):
        for name, call in calls.items():
            for number in numbers:
                with self.subTest(f"{name}, {number!r}"):
                    self.assertIs(outcome(call, number), ValueError)
            for number in ("1", 1.5, None, b"1", []):
                if name not in ("Word.notify",) or number is not None:
                    with self.subTest(f"{name}, {number!r}"):
                        self.assertIs(outcome(call, number), TypeError)

    def test_values(self):
        memory = self.memory
        made = {
            "Semaphore": lambda n: memwait.Semaphore(memory, value=n, create=True),
            "existing Semaphore": lambda n: memwait.Semaphore(memory, value=n),
            "BoundedSemaphore": lambda n: memwait.BoundedSemaphore(memory, value=n, create=True),
            "WaitGroup": lambda n: memwait.WaitGroup(memory, count=n, create=True),
        }
        self.refuse(made, TOO_SMALL + TOO_LARGE)
        # The library's classes do the same.
        for number in TOO_SMALL:
            for theirs in (threading.Semaphore, threading.BoundedSemaphore, asyncio.Semaphore):
                self.assertIs(outcome(theirs, number), ValueError)
        made = {
            "Barrier": lambda n: memwait.Barrier(memory, parties=n, create=True),
            "Queue, item_size": lambda n: memwait.Queue(memory, item_size=n, maxsize=2, create=True),
            "Queue, maxsize": lambda n: memwait.Queue(memory, item_size=8, maxsize=n, create=True),
            "Queue.size, item_size": lambda n: memwait.Queue.size(n, 1 << 62),
            "Queue.size, maxsize": lambda n: memwait.Queue.size(8, n),
            "Layout": lambda n: memwait.Layout(jobs=(memwait.Queue, 8, n)),
            "Word": lambda n: memwait.Word(memory, size=n),
        }
        self.refuse(made, [0, *TOO_SMALL, *TOO_LARGE])
        self.assertIs(outcome(asyncio.Barrier, 0), ValueError)

    def test_offsets(self):
        calls = {
            kind.__name__: lambda n, kind=kind: kind(self.memory, n)
            for kind in (memwait.Lock, memwait.RLock, memwait.Semaphore, memwait.BoundedSemaphore,
                         memwait.RWLock, memwait.Barrier, memwait.WaitGroup, memwait.Queue,
                         memwait.Word, memwait.Event)
        }
        lock = memwait.Lock(self.memory, create=True)
        calls["Condition"] = lambda n: memwait.Condition(self.memory, n, lock=lock)
        self.refuse(calls, [8192, *TOO_SMALL, *TOO_LARGE])

    def test_notify_counts(self):
        """There are two waiters."""
        for number in (*TOO_SMALL, 0, 1, 2, 3, *TOO_LARGE):
            woken = max(0, min(number, 2))
            lock = memwait.Lock(self.memory, create=True)
            condition = memwait.Condition(self.memory, 64, lock=lock, create=True)
            word = memwait.Word(self.memory, 128)
            loop = _memwait.Loop()
            for _ in range(2):
                lock.acquire()
                condition._begin(loop, print, _memwait.WAIT)
                word._begin(loop, print, _memwait.COMPARE, None, 0)
            with self.subTest(number):
                with condition:
                    self.assertIsNone(condition.notify(number))
                self.assertEqual(waiters(self.memory, 64, condition.SIZE), 2 - woken)
                self.assertEqual(outcome(word.notify, number), woken if number >= 0 else ValueError)
            loop.close()

    def test_changes(self):
        semaphore = memwait.Semaphore(self.memory, value=1, create=True)
        bounded = memwait.BoundedSemaphore(self.memory, 64, value=2, create=True)
        bounded.acquire()
        group = memwait.WaitGroup(self.memory, 128, count=1, create=True)
        self.refuse({"Semaphore": semaphore.release, "BoundedSemaphore": bounded.release},
                    [0, *TOO_SMALL, *TOO_LARGE, (1 << 31) - 1])
        self.refuse({"WaitGroup": group.add}, [-2, *TOO_SMALL[1:], *TOO_LARGE, (1 << 31) - 1])
        for number in (0, *TOO_SMALL):
            self.assertIs(outcome(threading.Semaphore(1).release, number), ValueError)
        self.assertEqual((semaphore.get_value(), bounded.get_value()), (1, 1))
        self.assertIs(group.wait(0), False)
        group.done()
        self.assertIs(group.wait(0), True)

    def test_words(self):
        """A value that exceeds the size of the word is truncated, as in ctypes."""
        for size, theirs in ((1, ctypes.c_uint8), (2, ctypes.c_uint16), (4, ctypes.c_uint32),
                             (8, ctypes.c_uint64)):
            word = memwait.Word(self.memory, size=size)
            for number in (*TOO_SMALL, 0, 255, 256, *TOO_LARGE):
                with self.subTest(f"{size} bytes, {number}"):
                    expected = theirs(number).value
                    word.store(0)
                    self.assertEqual(word.exchange(number), 0)
                    self.assertEqual(word.load(), expected)
                    self.assertEqual(word.compare_exchange(number, 0), expected)
                    self.assertEqual(word.load(), 0)
                    word.add(number)
                    self.assertEqual(word.load(), expected)
                    self.assertIs(word.wait(number, 0), memwait.Outcome.TIMED_OUT)
