# SPDX-License-Identifier: GPL-2.0-only
"""The interfaces: results, bad input, use after close, and leaks."""

import _thread
import ast
import copy
import ctypes
import functools
import gc
import inspect
import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import unittest
from multiprocessing.shared_memory import SharedMemory

import memwait
from common import Child, until, waiters
from memwait import _memwait

ITEM = bytes(range(8))
PLAIN = [memwait.Lock, memwait.RLock, memwait.Semaphore, memwait.BoundedSemaphore, memwait.RWLock,
         memwait.WaitGroup]


class Results(unittest.TestCase):
    def setUp(self):
        self.memory = mmap.mmap(-1, 8192)

    def test_lock(self):
        for options in ({}, {"fair": True}, {"repair": print}, {"private": True}):
            with self.subTest(options):
                lock = memwait.Lock(self.memory, create=True, **options)
                self.assertIs(lock.acquire(), True)
                self.assertTrue(lock.locked())
                self.assertIs(lock.acquire(False), False)
                self.assertIs(lock.acquire(blocking=False), False)
                self.assertIs(lock.acquire(timeout=0), False)
                self.assertIs(lock.acquire(True, 0.001), False)
                self.assertIsNone(lock.release())
                self.assertFalse(lock.locked())
                self.assertIs(lock.acquire(True, -1), True)
                lock.release()
                with lock as entered:
                    self.assertIs(entered, True)
                with self.assertRaises(RuntimeError):
                    lock.release()
                with self.assertRaises(ValueError):
                    lock.acquire(False, 1)
                with self.assertRaises(ValueError):
                    lock.acquire(True, -2)
                with self.assertRaises(ValueError):
                    lock.acquire(timeout=float("nan"))
                with self.assertRaises(TypeError):
                    lock.acquire(timeout="1")
                with self.assertRaises(TypeError):
                    lock.acquire(True, 1, 1)
                with self.assertRaises(TypeError):
                    lock.acquire(until=1)
                with self.assertRaises(TypeError):
                    lock.acquire(True, blocking=True)
                lock.close()

    def test_acquire_like_multiprocessing(self):
        """Arguments of acquire(), by name and positional, work like those of multiprocessing."""
        locks = [(memwait.Lock(self.memory, create=True), multiprocessing.Lock()),
                 (memwait.Semaphore(self.memory, 64, create=True), multiprocessing.Semaphore(1)),
                 (memwait.RWLock(self.memory, 128, create=True).writer, multiprocessing.Lock()),
                 (memwait.RLock(self.memory, 192, create=True), multiprocessing.RLock())]
        for pair in locks:
            for arguments in ({}, {"block": False}, {"block": True, "timeout": 0.001},
                              {"block": False, "timeout": 3}, {"block": True, "timeout": -1},
                              {"block": False, "timeout": None}):
                with self.subTest(f"{pair[0]}, {arguments}"):
                    ours, theirs = ([lock.acquire(**arguments), lock.acquire(**arguments)
                                     if arguments else None] for lock in pair)
                    self.assertEqual(ours, theirs)
                    for lock in pair:
                        for _ in range(sum(map(bool, ours))):
                            lock.release()
            for arguments in ((True,), (True, None), (False, None), (False,), (True, 0.001)):
                with self.subTest(f"{pair[0]}, {arguments}"):
                    self.assertEqual(*(lock.acquire(*arguments) for lock in pair))
                    for lock in pair:
                        lock.release()
        lock = locks[0][0]
        for arguments in ({"block": True, "blocking": True}, {"block": True, "timeout": "1"}):
            with self.assertRaises(TypeError):
                lock.acquire(**arguments)
        with self.assertRaises(TypeError):
            lock.acquire(True, block=True)
        self.assertIs(lock.acquire(block=True, timeout=None), True)
        lock.release()

    def test_rlock(self):
        lock = memwait.RLock(self.memory, create=True)
        with lock, lock:
            taken = []
            thread = threading.Thread(target=lambda: taken.append(lock.acquire(False)))
            thread.start()
            thread.join()
            self.assertEqual(taken, [False])
        with self.assertRaises(RuntimeError):
            lock.release()
        lock.acquire()
        errors = []

        def release():
            try:
                lock.release()
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=release)
        thread.start()
        thread.join()
        self.assertEqual(len(errors), 1)
        lock.release()

    def test_an_rlock_overflows(self):
        """acquire() raises, because a with block ignores False and would run without the lock."""
        memory = bytearray(64)
        lock = memwait.RLock(memory, create=True)
        lock.acquire()
        before = bytes(memory)
        lock.acquire()
        count, = (at for at in range(0, 64, 4) if before[at:at + 4] != memory[at:at + 4])
        twice = memory[count:count + 4]
        memory[count:count + 4] = b"\xff" * 4
        for arguments in ((), (False,), (True, 1)):
            with self.assertRaises(OverflowError):
                lock.acquire(*arguments)
        memory[count:count + 4] = twice
        lock.release()
        lock.release()
        with self.assertRaises(RuntimeError):
            lock.release()

    def test_condition(self):
        lock = memwait.Lock(self.memory, create=True)
        condition = memwait.Condition(self.memory, 64, lock=lock, create=True)
        self.assertIs(condition.lock, lock)
        with self.assertRaises(RuntimeError):
            condition.wait()
        with condition:
            self.assertTrue(lock.locked())
            self.assertIs(condition.wait(0.001), False)
            self.assertIs(condition.wait(timeout=-1), False)
            self.assertTrue(lock.locked())
            self.assertEqual(condition.wait_for(lambda: 7), 7)
            self.assertFalse(condition.wait_for(lambda: 0, 0.001))
            condition.notify(3)
            condition.notify(n=0)
            condition.notify_all()
        self.assertFalse(lock.locked())
        own = memwait.RLock(self.memory, 128, create=True)
        robust = memwait.Lock(self.memory, 192, create=True, repair=print)
        for lock in (own, robust):
            # Another thread holds the lock, and a lock that records its owner detects that.
            thread = threading.Thread(target=lock.acquire)
            thread.start()
            thread.join()
        for owned in (condition, *(memwait.Condition(self.memory, 256, lock=lock, create=True)
                                   for lock in (own, robust))):
            for use in (condition.wait, owned.notify, lambda: owned.notify(0), owned.notify_all):
                with self.assertRaises(RuntimeError):
                    use()
        lock = condition.lock
        for bad in (None, 1, self.memory, condition, _memwait.Loop()):
            with self.assertRaises(TypeError):
                memwait.Condition(self.memory, 64, lock=bad)
        with self.assertRaises(TypeError):
            memwait.Condition(self.memory, 64)
        lock.close()
        for use in (condition.acquire, condition.release, condition.wait, condition.__enter__):
            with self.assertRaises(ValueError):
                use()

    def test_semaphore(self):
        semaphore = memwait.Semaphore(self.memory, value=2, create=True)
        self.assertIs(semaphore.acquire(), True)
        with semaphore:
            self.assertEqual(semaphore.get_value(), 0)
            self.assertIs(semaphore.acquire(timeout=-5), False)
            self.assertIs(semaphore.acquire(timeout=0.001), False)
        semaphore.release(3)
        self.assertEqual(semaphore.get_value(), 4)
        for bad in (0, -1):
            with self.assertRaises(ValueError):
                semaphore.release(bad)
        with self.assertRaises(ValueError):
            memwait.Semaphore(self.memory, value=-1, create=True)
        semaphore = memwait.Semaphore(self.memory, value=0x7fffffff, create=True)
        with self.assertRaises(ValueError):
            semaphore.release()
        semaphore = memwait.Semaphore(self.memory, value=1, create=True)
        for bad in (0x7fffffff, 1 << 40, 1 << 80, -1 << 80):
            with self.assertRaises(ValueError):
                semaphore.release(bad)
        self.assertEqual(semaphore.get_value(), 1)

    def test_bounded_semaphore(self):
        semaphore = memwait.BoundedSemaphore(self.memory, value=2, create=True)
        self.assertIsInstance(semaphore, memwait.Semaphore)
        other = memwait.BoundedSemaphore(self.memory)
        for used in (semaphore, other):
            with self.assertRaises(ValueError):
                used.release()
        with semaphore:
            self.assertIs(other.acquire(False), True)
            self.assertIs(other.acquire(False), False)
            self.assertIs(other.acquire(timeout=0.001), False)
            for bad in (3, 0x7fffffff, 1 << 32, (1 << 32) + 1, 1 << 80, 0, -1):
                with self.assertRaises(ValueError):
                    other.release(bad)
            self.assertEqual(semaphore.get_value(), 0)
            semaphore.release()
        self.assertEqual(other.get_value(), 2)
        with self.assertRaises(ValueError):
            semaphore.__exit__(None, None, None)
        self.assertIs(semaphore.acquire(), True)
        self.assertIs(semaphore.acquire(timeout=1), True)
        other.release(2)
        self.assertEqual(other.get_value(), 2)
        # If a release fails because the value would overflow, the permit remains acquired.
        most = memwait.BoundedSemaphore(self.memory, 64, value=0x7fffffff, create=True)
        bare = memwait.Semaphore(self.memory, 64)
        for n in (1, 2):
            self.assertIs(most.acquire() and (n == 1 or most.acquire()), True)
            bare.release(n)
            for _ in range(2):
                with self.assertRaises(ValueError):
                    most.release(n)
            for _ in range(n):
                bare.acquire()
            most.release(n)
            self.assertEqual(most.get_value(), 0x7fffffff)
            with self.assertRaises(ValueError):
                most.release()
        # A Semaphore has no count of acquired permits, and needs less memory.
        memwait.Semaphore(bytearray(memwait.Semaphore.SIZE), create=True)
        with self.assertRaises(ValueError):
            memwait.BoundedSemaphore(bytearray(memwait.Semaphore.SIZE), create=True)
        with self.assertRaises(ValueError):
            memwait.BoundedSemaphore(self.memory, value=-1, create=True)

    def test_repr(self):
        for kind in (memwait.Lock, memwait.RLock):
            for options in ({}, {"repair": print}):
                lock = kind(self.memory, create=True, **options)
                name = f"memwait.{kind.__name__} object at 0x0>"
                for _ in range(2):
                    knows = options or kind is memwait.RLock
                    self.assertEqual(repr(lock), f"<{name}" if knows else f"<unlocked {name}")
                with lock:
                    other = []
                    thread = threading.Thread(target=lambda: other.append(repr(lock)))
                    thread.start()
                    thread.join()
                    self.assertEqual(repr(lock), f"<locked {name}")
                    self.assertEqual(other[0], f"<{name}" if knows else f"<locked {name}")
        lock.close()
        self.assertIn("closed>", repr(lock))
        semaphore = memwait.Semaphore(self.memory, value=3, create=True)
        self.assertIn(": value=3>", repr(semaphore))
        semaphore = memwait.BoundedSemaphore(self.memory, value=3, create=True)
        with semaphore:
            self.assertIn(": value=2/3>", repr(semaphore))
        event = memwait.Event(self.memory, 64, create=True)
        self.assertIn(": unset>", repr(event))
        event.set()
        self.assertIn(": set>", repr(event))
        queue = memwait.Queue(self.memory, 128, item_size=4, maxsize=2, create=True)
        queue.put(b"1234")
        self.assertIn(": 1 of 2>", repr(queue))
        queue.close()
        self.assertIn("closed>", repr(queue))
        self.assertEqual([bool(outcome) for outcome in memwait.Outcome], [True, True, False])

    def test_locked(self):
        for kind, options in ((memwait.Lock, {}), (memwait.Lock, {"repair": print}),
                              (memwait.RLock, {}), (memwait.RLock, {"repair": print})):
            with self.subTest(kind=kind, options=options):
                lock = kind(self.memory, create=True, **options)
                condition = memwait.Condition(self.memory, 64, lock=lock, create=True)

                def look():
                    seen = []
                    thread = threading.Thread(
                        target=lambda: seen.extend((lock.locked(), condition.locked())))
                    thread.start()
                    thread.join()
                    return [*seen, lock.locked(), condition.locked()]

                for _ in range(2):
                    self.assertEqual(look(), [False] * 4)
                    with condition:
                        self.assertEqual(look(), [True] * 4)
                # locked() has not left the lock held, however often it was called.
                with self.assertRaises(RuntimeError):
                    lock.release()
                condition.close()
                lock.close()
                with self.assertRaises(ValueError):
                    lock.locked()
        for kind in (memwait.Semaphore, memwait.BoundedSemaphore):
            semaphore = kind(self.memory, create=True)
            self.assertIs(semaphore.locked(), False)
            with semaphore:
                self.assertIs(semaphore.locked(), True)
            self.assertIs(semaphore.locked(), False)

    def test_repr_and_locked_do_not_write(self):
        lock = memwait.Lock(self.memory, create=True)
        rlock = memwait.RLock(self.memory, 64, create=True)

        def look():
            first = ctypes.c_char.from_buffer(self.memory)
            assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(ctypes.addressof(first)),
                                                  ctypes.c_size_t(4096), mmap.PROT_READ)
            assert not lock.locked()
            repr(lock), repr(rlock)

        self.assertEqual(Child(look).join(), 0)
        with lock:
            self.assertTrue(lock.locked())

    def test_available(self):
        self.assertIs(memwait.available(), True)

    def test_rwlock(self):
        for options in ({}, {"fair": True}, {"prefer_writer": True}, {"repair": print}):
            lock = memwait.RWLock(self.memory, create=True, **options)
            with lock.reader:
                self.assertTrue(lock.reader.acquire(False))
                self.assertIs(lock.writer.acquire(False), False)
                lock.reader.release()
            with lock.writer:
                self.assertIs(lock.reader.acquire(timeout=0.001), False)
            with self.assertRaises(RuntimeError):
                lock.writer.release()
        with self.assertRaises(ValueError):
            memwait.RWLock(self.memory, create=True, fair=True, prefer_writer=True)

    def test_barrier(self):
        barrier = memwait.Barrier(self.memory, parties=1, create=True)
        self.assertEqual(barrier.wait(), 0)
        barrier = memwait.Barrier(self.memory, parties=2, create=True)
        with self.assertRaises(threading.BrokenBarrierError):
            barrier.wait(0.001)
        self.assertTrue(barrier.broken)
        self.assertIn(": broken>", repr(barrier))
        barrier.reset()
        self.assertFalse(barrier.broken)
        self.assertIn(": waiters=0/2>", repr(barrier))
        results = []
        thread = threading.Thread(target=lambda: results.append(barrier.wait()))
        thread.start()
        results.append(barrier.wait())
        thread.join()
        self.assertEqual(sorted(results), [0, 1])
        with self.assertRaises(ValueError):
            memwait.Barrier(self.memory, create=True)
        with self.assertRaises(ValueError):
            memwait.Barrier(self.memory, 4096).wait()
        with self.assertRaises(ValueError):
            memwait.Barrier(self.memory, 4096).abort()

    def together(self, *functions):
        """Calls each function in its own thread. Returns their results, or types of exceptions."""
        results = [None] * len(functions)

        def run(number):
            try:
                results[number] = functions[number]()
            except Exception as error:
                results[number] = type(error)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(len(functions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def test_a_barrier_is_broken(self):
        broken = threading.BrokenBarrierError
        barrier = memwait.Barrier(self.memory, parties=3, create=True)
        other = memwait.Barrier(self.memory)
        self.assertEqual((other.parties, other.n_waiting, other.broken), (3, 0, False))
        for end in (barrier.abort, barrier.reset):
            def last():
                until(lambda: barrier.n_waiting == 2)
                end()

            self.assertEqual(self.together(barrier.wait, other.wait, last), [broken, broken, None])
            self.assertEqual(other.broken, end == barrier.abort)
            other.reset()
        barrier.abort()
        barrier.abort()
        for wait in (barrier.wait, other.wait):
            self.assertRaises(broken, wait)
        other.reset()
        self.assertEqual(sorted(self.together(*[barrier.wait] * 3)), [0, 1, 1])
        # The short timeout is the default of the object, or an argument.
        hasty = memwait.Barrier(self.memory, timeout=0.01)
        self.assertEqual(self.together(barrier.wait, hasty.wait), [broken, broken])
        barrier.reset()
        self.assertEqual(self.together(barrier.wait, lambda: other.wait(0.01)), [broken, broken])

    def test_the_action_of_a_barrier(self):
        broken = threading.BrokenBarrierError
        order = []

        def act():
            order.append("acts")
            if len(order) > 20:
                raise ZeroDivisionError

        barrier = memwait.Barrier(self.memory, parties=3, create=True, action=act)

        def wait():
            result = barrier.wait()
            order.append("continues")
            return result

        for _ in range(5):
            self.assertEqual(sorted(self.together(wait, wait, wait)), [0, 1, 1])
        self.assertEqual(order, ["acts", "continues", "continues", "continues"] * 5)
        order.append("the last")
        self.assertCountEqual(self.together(wait, wait, wait), [broken, broken, ZeroDivisionError])
        self.assertTrue(barrier.broken)
        # The timeout also limits the wait for a participant that runs the action. It is doubled
        # until it is long enough for all to arrive.
        acted = False
        timeout = 0.01

        def stay():
            nonlocal acted
            acted = True
            until(lambda: barrier.broken)

        while not acted:
            timeout *= 2
            barrier = memwait.Barrier(self.memory, parties=2, create=True, timeout=timeout,
                                      action=stay)
            self.assertEqual(self.together(barrier.wait, barrier.wait), [broken, broken])
        # An invalid timeout does not break the barrier.
        barrier = memwait.Barrier(self.memory, parties=2, create=True, action=stay)
        for timeout in "1", float("nan"):
            with self.assertRaises((TypeError, ValueError)):
                barrier.wait(timeout)
        self.assertFalse(barrier.broken)

    def test_waitgroup(self):
        group = memwait.WaitGroup(self.memory, create=True)
        self.assertIs(group.wait(), True)
        group.add()
        group.add(n=2)
        group.add(-1)
        self.assertIs(group.wait(0.001), False)
        group.done()
        group.done()
        self.assertIs(group.wait(), True)
        with self.assertRaises(ValueError):
            group.done()
        with self.assertRaises(ValueError):
            group.add(1 << 40)
        for bad in (-1, 1 << 31, (1 << 32) + 1):
            with self.assertRaises(ValueError):
                memwait.WaitGroup(self.memory, count=bad, create=True)

    def test_queue(self):
        one = memwait.Queue(self.memory, item_size=8, maxsize=2, create=True)
        other = memwait.Queue(self.memory)
        self.assertEqual((other.item_size, other.maxsize), (8, 2))
        one.put(ITEM)
        one.put_nowait(bytearray(8))
        self.assertTrue(one.full())
        for block in ({"block": False}, {"timeout": 0.001}, {"block": False, "timeout": 5}):
            with self.assertRaises(queue.Full):
                one.put(ITEM, **block)
        self.assertEqual(other.qsize(), 2)
        self.assertEqual(other.get(), ITEM)
        self.assertEqual(other.get_nowait(), bytes(8))
        self.assertTrue(other.empty())
        with self.assertRaises(queue.Empty):
            other.get(False)
        with self.assertRaises(queue.Empty):
            other.get(timeout=0.001)
        for bad in (b"", bytes(7), bytes(9)):
            with self.assertRaises(ValueError):
                one.put(bad)
        for bad in (8, "12345678", None):
            with self.assertRaises(TypeError):
                one.put(bad)
        with self.assertRaises(TypeError):
            one.put()
        one.put(ITEM)
        other.shutdown()
        other.shutdown()
        with self.assertRaises(memwait.ShutDown):
            one.put(ITEM)
        self.assertEqual(one.get(), ITEM)
        with self.assertRaises(memwait.ShutDown):
            one.get()

    def test_shutdown_immediate(self):
        memory = bytearray(memwait.Queue.size(8, 2))
        one = memwait.Queue(memory, item_size=8, maxsize=2, create=True)
        other = memwait.Queue(memory)
        one.put(ITEM)
        one.put(ITEM)
        other.shutdown(immediate=False)
        self.assertEqual(one.get(), ITEM)
        self.assertEqual(one.qsize(), 1)
        other.shutdown(True)
        self.assertEqual(one.qsize(), 0)
        with self.assertRaises(memwait.ShutDown):
            one.get()
        memory = bytearray(memwait.JoinableQueue.size(80, 3))
        one = memwait.JoinableQueue(memory, item_size=80, maxsize=3, create=True)
        other = memwait.JoinableQueue(memory)
        for item in range(3):
            one.put(item)
        self.assertEqual(one.get(), 0)
        joined = threading.Thread(target=one.join)
        joined.start()
        other.shutdown(immediate=True)
        self.assertTrue(joined.is_alive())      # for the item that was received
        one.task_done()
        joined.join()
        with self.assertRaises(ValueError):
            one.task_done()

    def test_joinable_queue(self):
        size = memwait.JoinableQueue.size(200, 2)
        memory = bytearray(size)
        one = memwait.JoinableQueue(memory, item_size=200, maxsize=2, create=True)
        other = memwait.JoinableQueue(memory)
        with self.assertRaises(ValueError):
            memwait.JoinableQueue(bytearray(size - 1), item_size=200, maxsize=2, create=True)
        for item in (None, b"", 7, {"a": [1, 2.5, "x"]}, ["x" * 100]):
            one.put(item)
            self.assertEqual(other.get(timeout=1), item)
            other.task_done()
        one.join()
        with self.assertRaises(ValueError):
            one.put("x" * 200)
        with self.assertRaises((pickle.PicklingError, AttributeError)):
            one.put(lambda: 0)
        one.join()
        with self.assertRaises(ValueError):
            one.task_done()
        one.put(1)
        one.put_nowait(2)
        with self.assertRaises(queue.Full):
            one.put(3, False)
        joined = threading.Thread(target=one.join)
        joined.start()
        self.assertEqual([other.get_nowait(), other.get()], [1, 2])
        with self.assertRaises(queue.Empty):
            other.get_nowait()
        other.task_done()
        self.assertTrue(joined.is_alive())
        other.task_done()
        joined.join()
        one.shutdown()
        with self.assertRaises(memwait.ShutDown):
            one.put(1)
        one.join()
        one.close()
        other.close()
        memory.append(0)        # fails if an object still holds the buffer

    def test_a_joinable_queue_is_closed_as_a_whole(self):
        jobs = memwait.JoinableQueue(self.memory, item_size=32, maxsize=2, create=True)
        jobs.put(1)

        def refused(function):
            thread = threading.Thread(target=function, daemon=True)
            thread.start()
            until(lambda: waiters(self.memory) == 1)
            with self.assertRaises(BufferError):
                jobs.close()
            self.assertFalse(jobs.closed)
            return thread

        thread = refused(jobs.join)
        self.assertEqual(jobs.get(), 1)
        jobs.task_done()
        thread.join()
        thread = refused(jobs.get)
        jobs.put(2)
        thread.join()
        jobs.task_done()
        jobs.join()
        for _ in range(2):
            jobs.close()
        with self.assertRaises(ValueError):
            jobs.join()

    def test_a_handler_that_raises_when_an_item_has_been_put(self):
        class Alarm(Exception):
            pass

        def alarm(number, frame):
            raise Alarm

        # Sends the signal within put(), so that the handler runs when put() returns
        class Later:
            __bool__ = staticmethod(functools.partial(
                any, map(_thread.interrupt_main, [signal.SIGALRM])))

        jobs = memwait.JoinableQueue(self.memory, item_size=32, maxsize=1, create=True)
        before = signal.signal(signal.SIGALRM, alarm)
        with self.assertRaises(Alarm):
            jobs.put(1, Later())
        signal.signal(signal.SIGALRM, before)
        self.assertEqual(jobs.get_nowait(), 1)
        jobs.task_done()
        jobs.put(2)
        for _ in range(2):
            with self.assertRaises(queue.Full):
                jobs.put(3, False)
        jobs.get()
        jobs.task_done()
        jobs.join()
        with self.assertRaises(ValueError):
            jobs.task_done()
        jobs.close()

    def test_word(self):
        for size in (1, 2, 4, 8):
            word = memwait.Word(self.memory, 64, size=size)
            most = (1 << 8 * size) - 1
            word.store(-1)
            self.assertEqual(word.load(), most)
            self.assertEqual(word.add(2), most)
            self.assertEqual(word.exchange(5), 1)
            self.assertEqual(word.compare_exchange(4, 6), 5)
            self.assertEqual(word.compare_exchange(5, 0), 5)
            self.assertIs(word.wait(1), memwait.Outcome.NOT_EQUAL)
            self.assertIs(word.wait(0, 0.001), memwait.Outcome.TIMED_OUT)
            self.assertEqual(word.notify(), 0)
            self.assertEqual(word.notify(count=2), 0)
            self.assertEqual(self.memory[64 + size], 0)
            for bad in (lambda: word.notify(-1), lambda: word.notify(1.5), word.wait,
                        lambda: word.store("x"), lambda: word.compare_exchange(1)):
                with self.assertRaises((TypeError, ValueError)):
                    bad()
        for bad in (0, 3, 16):
            with self.assertRaises(ValueError):
                memwait.Word(self.memory, size=bad)

    def test_layout(self):
        layout = memwait.Layout(lock=memwait.Lock, jobs=(memwait.Queue, 8, 3), table=100,
                                word=memwait.Word, end=0)
        self.assertEqual(layout["lock"], 0)
        self.assertEqual(layout["jobs"], 64)
        self.assertGreaterEqual(layout["table"], 64 + memwait.Queue.size(8, 3))
        self.assertEqual(layout["word"] - layout["table"], 128)
        self.assertEqual(layout.size, layout["end"])
        self.assertTrue(all(offset % 64 == 0 for offset in layout.offsets.values()))
        memory = bytearray(layout.size + 8)
        for bad in (-1, "x", (memwait.Queue, 0, 1)):
            with self.assertRaises((ValueError, TypeError, AttributeError)):
                memwait.Layout(bad=bad)
        del memory


class BadInput(unittest.TestCase):
    def test_buffers(self):
        for kind in PLAIN:
            with self.subTest(kind.__name__):
                size = kind.SIZE
                with mmap.mmap(-1, 4096) as memory:
                    whole = kind(memory, 4096 - size)
                    for bad in (4096 - size + 8, 4096, 5000, -8, -4096, 1 << 62):
                        with self.assertRaises(ValueError):
                            kind(memory, bad)
                    for bad in (1, 2, 4):
                        with self.assertRaises(ValueError):
                            kind(memory, bad)
                    with self.assertRaises(BufferError):
                        memory.close()
                    whole.close()
                with self.assertRaises(ValueError):
                    kind(memory)
                with self.assertRaises(BufferError):
                    kind(bytes(64))
                for bad in (None, 5, "text", object()):
                    with self.assertRaises((TypeError, AttributeError)):
                        kind(bad)
                view = memoryview(bytearray(64))
                view.release()
                with self.assertRaises(ValueError):
                    kind(view)
                with self.assertRaises((ValueError, BufferError)):
                    kind(memoryview(bytearray(128))[::2])
                with self.assertRaises(TypeError):
                    kind()
                with self.assertRaises(TypeError):
                    kind(bytearray(64), 0, 1)
        with self.assertRaises(BufferError):
            with open("/dev/zero", "rb") as zero:
                memwait.Lock(mmap.mmap(zero.fileno(), 4096, prot=mmap.PROT_READ))
        with self.assertRaises(ValueError):
            memwait.Lock(bytearray(64), fair=True, repair=print)
        with self.assertRaises(TypeError):
            memwait.Lock(bytearray(64), repair=1)

    def test_queues(self):
        memory = bytearray(4096)
        for options in ({}, {"item_size": 8}, {"item_size": 0, "maxsize": 1},
                        {"item_size": -1, "maxsize": 1}, {"item_size": 8, "maxsize": 1 << 40},
                        {"item_size": 8, "maxsize": 1000}):
            with self.assertRaises(ValueError):
                memwait.Queue(memory, create=True, **options)
        with self.assertRaises(ValueError):
            memwait.Queue(memory)
        memwait.Queue(memory, item_size=8, maxsize=100, create=True).close()
        # The buffer is shorter than the queue.
        with self.assertRaises(ValueError):
            memwait.Queue(memoryview(memory)[:512])

    def test_used_after_close(self):
        memory = bytearray(4096)
        lock = memwait.Lock(memory, 2048, create=True)
        made = [
            (lock, ["acquire", "release", "locked", "__enter__", "__exit__"]),
            (memwait.RLock(memory, create=True), ["acquire", "release"]),
            (memwait.Condition(memory, lock=lock, create=True), ["notify", "notify_all", "wait"]),
            (memwait.Semaphore(memory, create=True), ["acquire", "release", "get_value"]),
            (memwait.BoundedSemaphore(memory, create=True), ["acquire", "release", "get_value"]),
            (memwait.RWLock(memory, create=True), []),
            (memwait.Barrier(memory, parties=2, create=True), ["wait", "abort", "reset"]),
            (memwait.WaitGroup(memory, create=True), ["wait", "add", "done"]),
            (memwait.Event(memory, create=True), ["is_set", "set", "clear", "wait"]),
            (memwait.Queue(memory, item_size=8, maxsize=2, create=True),
             ["get", "get_nowait", "qsize", "shutdown", "empty", "full"]),
            (memwait.Word(memory), ["load", "notify", "waiters"]),
        ]
        for used, names in made:
            side = used.reader if isinstance(used, memwait.RWLock) else None
            self.assertFalse(used.closed)
            used.close()
            used.close()
            self.assertTrue(used.closed)
            self.assertIn("closed", repr(used))
            for name in names:
                with self.subTest(f"{used} {name}"), self.assertRaises(ValueError):
                    getattr(used, name)()
            if side:
                for name in ("acquire", "release", "__enter__"):
                    with self.assertRaises(ValueError):
                        getattr(side, name)()
        for use in (lambda: made[-1][0].wait(0), lambda: made[-1][0].store(0),
                    lambda: made[-2][0].put(ITEM)):
            with self.assertRaises(ValueError):
                use()
        memory.append(0)        # fails if an object still holds the buffer

    def test_close_while_a_thread_waits(self):
        memory = bytearray(64)
        semaphore = memwait.Semaphore(memory, value=0, create=True)
        word = memwait.Word(memory)
        thread = threading.Thread(target=semaphore.acquire)
        thread.start()
        while not sum(memwait.Word(memory, at).waiters() for at in range(0, 16, 4)):
            pass
        with self.assertRaises(BufferError):
            semaphore.close()
        semaphore.release()
        thread.join()
        semaphore.close()
        word.close()

    def test_pickling(self):
        lock = memwait.Lock(bytearray(64), create=True)
        with self.assertRaises(TypeError):
            pickle.dumps(lock)
        memory = SharedMemory(create=True, size=64)
        self.addCleanup(memory.unlink)
        self.addCleanup(memory.close)
        for size in (1, 2, 4, 8):
            for private in (False, True):
                word = memwait.Word(memory, 64 - size, size=size, private=private)
                for other in (pickle.loads(pickle.dumps(word)), copy.deepcopy(word)):
                    self.assertEqual((other.size, other.private, other.offset),
                                     (size, private, 64 - size))
                    other.store(-1)
                    self.assertEqual(word.load(), (1 << 8 * size) - 1)
                    opened = other.buffer
                    other.close()
                    opened.close()
                word.close()

        lock = memwait.RWLock(memory, create=True)
        for side, other in ((lock.writer, lock.reader), (lock.reader, lock.writer)):
            copied = copy.copy(side)
            self.assertEqual(repr(copied), repr(side))
            with copied:
                self.assertFalse(other.acquire(False))
        self.assertIn("reader", repr(side))
        copied = side = other = None
        lock.close()
        with self.assertRaises(ValueError):
            pickle.dumps(lock)

        event = memwait.Event(memory, create=True)
        event.set()
        other = pickle.loads(pickle.dumps(event))
        self.assertTrue(other.is_set())
        other.clear()
        self.assertFalse(event.is_set())
        opened = other.buffer
        other.close()
        opened.close()
        event.close()

    def test_arguments_that_close(self):
        """An object that is closed by the conversion of an argument is not used afterwards."""
        class Close:
            def __init__(self, *used):
                self.used = used

            def __index__(self):
                for used in self.used:
                    used.close()
                return 0

            def __float__(self):
                return float(self.__index__())

        for use in (lambda word, n: word.exchange(n), lambda word, n: word.store(n),
                    lambda word, n: word.add(n), lambda word, n: word.compare_exchange(n, 0),
                    lambda word, n: word.compare_exchange(0, n), lambda word, n: word.wait(n),
                    lambda word, n: word.wait(0, n), lambda word, n: word.notify(n)):
            word = memwait.Word(mmap.mmap(-1, 64))
            with self.assertRaises(ValueError):
                use(word, Close(word))
        for kind, name in ((memwait.WaitGroup, "wait"), (memwait.WaitGroup, "add"),
                           (memwait.Event, "wait"),
                           (memwait.Semaphore, "acquire"), (memwait.Semaphore, "release")):
            used = kind(mmap.mmap(-1, 64), create=True)
            with self.assertRaises(ValueError):
                keyword = "n" if name in ("add", "release") else "timeout"
                getattr(used, name)(**{keyword: Close(used)})
        lock = memwait.Lock(mmap.mmap(-1, 64), create=True)
        condition = memwait.Condition(mmap.mmap(-1, 64), lock=lock, create=True)
        with self.assertRaises(ValueError):
            condition.wait(Close(lock))
        for end in (0, 1):
            semaphore = memwait.Semaphore(mmap.mmap(-1, 64), value=0, create=True)
            loop = _memwait.Loop()
            with self.assertRaises(ValueError):
                semaphore._begin(loop, print, _memwait.WAIT, Close((semaphore, loop)[end]))

    def test_types(self):
        for kind in (_memwait.Object, _memwait.Operation):
            with self.assertRaises(TypeError):
                kind()
        with self.assertRaises(TypeError):
            _memwait.Loop(1)
        with self.assertRaises(TypeError):
            _memwait.Side(1, True)
        loop = _memwait.Loop()
        semaphore = memwait.Semaphore(bytearray(64), create=True)
        for bad in (_memwait.LOCK, _memwait.SEND, 99, -1):
            with self.assertRaises(ValueError):
                semaphore._begin(loop, print, bad)
        with self.assertRaises(TypeError):
            semaphore._begin(None, print, _memwait.WAIT)
        loop.close()
        loop.close()
        for use in (loop.dispatch, loop.fileno, lambda: semaphore._begin(loop, print, 1)):
            with self.assertRaises(ValueError):
                use()

    def test_a_loop_is_closed_in_a_callback(self):
        loop = _memwait.Loop()
        semaphore = memwait.Semaphore(bytearray(64), value=0, create=True)
        ended = []

        def close(operation):
            operation.finish()
            ended.extend(loop.close())

        for _ in range(3):
            semaphore._begin(loop, close, _memwait.WAIT)
        semaphore.release(3)
        loop.dispatch()
        self.assertEqual(len(ended), 2)
        self.assertEqual(semaphore.get_value(), 2)
        semaphore.close()

    def test_callbacks_that_fail(self):
        loop = _memwait.Loop()
        semaphore = memwait.Semaphore(bytearray(64), value=0, create=True)
        called = []

        def fail(error):
            def callback(operation):
                operation.finish()
                called.append(error)
                raise error
            return callback

        reported = []
        hook, sys.unraisablehook = sys.unraisablehook, lambda what: reported.append(what.exc_type)
        try:
            # A callback that raises is called a second time, because a signal handler may have
            # raised. After all callbacks have run, dispatch() raises the first exception.
            for errors in ((ZeroDivisionError, KeyboardInterrupt, TimeoutError),
                           (KeyboardInterrupt, ZeroDivisionError, SystemExit)):
                for error in errors:
                    semaphore._begin(loop, fail(error), _memwait.WAIT)
                semaphore.release(3)
                with self.assertRaises(errors[0]):
                    loop.dispatch()
                self.assertEqual(called, [error for error in errors for _ in range(2)])
                self.assertEqual(reported, called[1:])
                self.assertEqual(loop.dispatch(), 0)
                del called[:], reported[:]
        finally:
            sys.unraisablehook = hook
        loop.close()
        semaphore.close()

    def test_signatures_and_types(self):
        parameters = inspect.signature(memwait.Lock).parameters
        self.assertEqual(list(parameters),
                         ["buffer", "offset", "create", "fair", "repair", "private"])
        for value in vars(memwait).values():
            if not isinstance(value, type) or value.__module__ != "memwait":
                continue
            if issubclass(value, _memwait.Object):
                self.assertIn("buffer", inspect.signature(value).parameters)
                self.assertIn("offset", inspect.signature(value).parameters)
            for name, function in vars(value).items():
                if not inspect.isfunction(function) or issubclass(value, memwait.Outcome):
                    continue
                signature = inspect.signature(function)
                with self.subTest(f"{value.__name__}.{name}"):
                    self.assertIsNot(signature.return_annotation, inspect.Signature.empty)
                    for parameter in list(signature.parameters.values())[1:]:
                        self.assertIsNot(parameter.annotation, inspect.Parameter.empty)
        # The types of the extension are in _memwait.pyi.
        with open(os.path.join(os.path.dirname(memwait.__file__), "_memwait.pyi")) as file:
            stub = ast.parse(file.read())
        typed = {}
        for node in stub.body:
            if getattr(node, "name", "").startswith("_") or "_Buffer" in ast.unparse(node)[:7]:
                continue        # helpers of the .pyi file
            if isinstance(node, ast.ClassDef):
                typed[node.name] = {inner.name for inner in node.body
                                    if isinstance(inner, ast.FunctionDef)}
            elif isinstance(node, ast.FunctionDef):
                typed[node.name] = None
            elif isinstance(node, ast.AnnAssign):
                typed[node.target.id] = None
        there = {name for name in vars(_memwait) if not name.startswith("_")}
        self.assertEqual(there, set(typed))
        for name in there:
            value = getattr(_memwait, name)
            if isinstance(value, type) and value.__module__ == "memwait._memwait":
                names = {inner for inner in vars(value)
                         if not inner.startswith("__") or inner in ("__enter__", "__exit__")}
                with self.subTest(name):
                    self.assertEqual(names, typed[name] - {"__new__"})

    def test_help(self):
        for name in memwait.__all__:
            value = getattr(memwait, name)
            # threading.BrokenBarrierError has no doc string.
            if not isinstance(value, str) and value is not memwait.BrokenBarrierError:
                self.assertTrue(value.__doc__, name)
            if isinstance(value, type) and issubclass(value, _memwait.Object):
                for method in dir(value):
                    if not method.startswith("_") and callable(getattr(value, method)):
                        self.assertTrue(getattr(value, method).__doc__, f"{name}.{method}")


class Leaks(unittest.TestCase):
    def rounds(self, n):
        for _ in range(n):
            memory = bytearray(4096)
            lock = memwait.Lock(memory, create=True, repair=lambda: None)
            condition = memwait.Condition(memory, 64, lock=lock, create=True)
            semaphore = memwait.Semaphore(memory, 128, value=0, create=True)
            rwlock = memwait.RWLock(memory, 192, create=True)
            jobs = memwait.Queue(memory, 1024, item_size=8, maxsize=1, create=True)
            word = memwait.Word(memory, 256)
            with lock, rwlock.writer:
                condition.wait(0.0001)
                lock.acquire(timeout=0.0001)
                rwlock.reader.acquire(timeout=0.0001)
            semaphore.acquire(timeout=0.0001)
            jobs.put(ITEM)
            for call in (lambda: jobs.put(ITEM, timeout=0.0001), lambda: jobs.put(bytes(5)),
                         lambda: memwait.Lock(memory, 4), lambda: memwait.Lock(bytes(64)),
                         lambda: memwait.Queue(memory, 2048), lock.release,
                         lambda: lock.acquire(x=1)):
                try:
                    call()
                except Exception:
                    pass
            jobs.get()
            word.wait(0, 0.0001)
            loop = _memwait.Loop()
            ended = []
            waiting = semaphore._begin(loop, ended.append, _memwait.WAIT)
            jobs._begin(loop, ended.append, _memwait.RECV)
            waiting.cancel()
            if _ % 2:
                loop.close()
            # A reference cycle of the loop, its operations and their callbacks.
            cycle = [loop]
            cycle.append(semaphore)
            if not _ % 2:
                semaphore._begin(loop, cycle.append, _memwait.WAIT)

    def test_blocks_and_descriptors(self):
        self.rounds(10)
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        blocks = sys.getallocatedblocks()
        self.rounds(60)
        gc.collect()
        self.assertEqual(len(os.listdir("/proc/self/fd")), files)
        self.assertLess(sys.getallocatedblocks() - blocks, 40)
