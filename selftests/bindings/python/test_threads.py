# SPDX-License-Identifier: GPL-2.0-only
"""Waits of threads and processes, and how they end."""

import errno
import mmap
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

import memwait
from common import (Child, ConditionCase, GetCase, ITEM, SemaphoreCase, WordCase, each_case, interrupted,
                    limit, until, waiters, waits_fail)


class Thread(threading.Thread):
    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.function, self.args = function, args
        self.start()

    def run(self):
        try:
            self.result = self.function(*self.args)
        except Exception as error:
            self.result = error

    def end(self):
        self.join()
        return self.result


class Waits(unittest.TestCase):
    @each_case
    def test_a_thread_waits_and_is_woken(self, case, hold):
        def wait():
            result = case.wait()
            case.finish()
            return result

        for _ in range(3):
            thread = Thread(wait)
            until(lambda: case.waits(1))
            self.assertTrue(thread.is_alive())
            self.assertRegex(repr(case.object), "waiters=1[/>]")
            hold(case.wake)
            self.assertTrue(thread.end() in (True, memwait.Outcome.OK), thread.result)
            hold(case.block_again)

    @each_case
    def test_timeout(self, case, hold):
        for timeout in (0, 1e-9, 0.002):
            try:
                result = case.wait(timeout)
            except Exception as error:
                result = error
            self.assertTrue(case.timed_out(result), result)
            hold(case.wake)
            hold(case.again)

    @each_case
    def test_interrupt(self, case, hold):
        child = Child(interrupted, case.wait)
        until(lambda: case.waits(1))
        child.kill(signal.SIGINT)
        self.assertEqual(child.join(), 0)
        self.assertTrue(case.waits(0))
        hold(case.wake)
        hold(case.again)

    @each_case
    def test_killed_while_it_waits(self, case, hold):
        child = Child(case.wait)
        until(lambda: case.waits(1))
        child.kill(signal.SIGKILL)
        self.assertEqual(child.join(), -signal.SIGKILL)
        until(lambda: case.waits(0))
        hold(case.wake)
        hold(case.again)

    def test_interrupts_at_any_moment(self):
        """^C that arrives before the thread sleeps also ends the wait."""
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, create=True)
            rounds = memwait.Word(memory, 64)

            def run():
                def never():
                    rounds.add(1)
                    lock.acquire()

                for _ in range(60):
                    interrupted(never)

            lock.acquire()
            child = Child(run)
            for n in range(1, 61):
                until(lambda: rounds.load() == n)
                child.kill(signal.SIGINT)
            self.assertEqual(child.join(), 0)
            self.assertEqual(waiters(memory), 0)
            lock.release()
            self.assertTrue(lock.acquire(False))
            rounds.close()
            lock.close()

    def test_interrupt_that_another_thread_gets(self):
        with mmap.mmap(-1, 4096) as memory:
            semaphore = memwait.Semaphore(memory, value=0, create=True)

            def interrupt():
                until(lambda: waiters(memory) == 1)
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)

            def run():
                signal.alarm(limit(300))
                Thread(interrupt)
                interrupted(semaphore.acquire)

            self.assertEqual(Child(run).join(), 0)
            semaphore.close()

    def test_a_condition_that_is_polled(self):
        """Even a wait with timeout 0 releases the lock, so that another thread can notify."""
        with mmap.mmap(-1, 4096) as memory:
            condition = memwait.Condition(memory, 64, lock=memwait.RLock(memory, create=True), create=True)
            word = memwait.Word(memory, 128)

            def notify():
                with condition:
                    word.add(1)
                    condition.notify()

            for n, kind in enumerate((Thread, Child)):
                with condition:
                    other = kind(notify)
                    while word.load() == n:
                        condition.wait(0)
                    self.assertFalse(condition.wait(0))
                other.join()
            for used in (condition, condition.lock, word):
                used.close()

    @unittest.skipIf(os.environ.get("LD_PRELOAD"), "sanitizers are preloaded")
    def test_interrupt_where_python_is_embedded(self):
        """Python's main thread is not the first thread of the process, which receives the signal.
        """
        file = os.memfd_create("memwait")
        os.ftruncate(file, 4096)
        with mmap.mmap(file, 4096) as memory:
            semaphore = memwait.Semaphore(memory, value=0, create=True)
            code = f"""if True:
                import mmap, os, signal, threading, memwait
                assert threading.get_native_id() != os.getpid()
                signal.alarm({limit(300)})
                try:
                    memwait.Semaphore(mmap.mmap({file}, 4096)).acquire()
                except KeyboardInterrupt:
                    os._exit(7)
                """
            here = os.path.dirname(os.path.abspath(__file__))
            with subprocess.Popen([sys.executable, "-c", code], pass_fds=[file],
                                  env={**os.environ, "LD_PRELOAD": f"{here}/embedded.so"}) as process:
                until(lambda: waiters(memory) == 1 or process.poll() is not None)
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(), 7)
            semaphore.close()
        os.close(file)

    def test_descriptors_that_the_program_closes(self):
        """A thread opens a new loop after the program has closed its descriptors."""
        def run():
            for kind in (SemaphoreCase, ConditionCase, GetCase, WordCase):
                with mmap.mmap(-1, 4096) as memory:
                    case = kind(memory)
                    for _ in range(2):
                        try:
                            result = case.wait(0.002)
                        except queue.Empty as error:
                            result = error
                        assert case.timed_out(result), (kind, result)
                        os.closerange(3, 1024)
                    thread = Thread(case.wait)
                    until(lambda: case.waits(1))
                    case.wake()
                    assert thread.end() in (True, memwait.Outcome.OK), (kind, thread.result)
                    for held in (case.object, getattr(case, "lock", case.object)):
                        held.close()
                    del case, held

        self.assertEqual(Child(run).join(), 0)

    def test_an_event_that_is_set_and_cleared(self):
        """A thread that waits when the event is set continues, even if it is cleared before the
        thread runs. A notify while the event is clear does not end a wait.
        """
        with mmap.mmap(-1, 4096) as memory:
            event = memwait.Event(memory, create=True)
            word = memwait.Word(memory)
            thread = Thread(event.wait)
            until(lambda: word.waiters() == 1)
            event.set()
            event.clear()
            self.assertIs(thread.end(), True)
            notified = 0
            while not notified:         # before the timeout of the wait
                thread = Thread(event.wait, 0.3)
                until(lambda: word.waiters() == 1 or not thread.is_alive())
                notified = word.notify()
                self.assertIs(thread.end(), False)
            # This is the state after a process has set the event and died before it could wake the
            # waiter.
            thread = Thread(event.wait)
            until(lambda: word.waiters() == 1)
            word.add(1)
            event.set()
            self.assertIs(thread.end(), True)
            self.assertIs(event.is_set(), True)
            event.close()
            word.close()

    def test_order_under_signals(self):
        """A handler that returns does not change its thread's queue position; ^C removes only its
        own thread from the queue.
        """
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, create=True, fair=True)
            next_place = memwait.Word(memory, 64)
            handled = memwait.Word(memory, 128)

            def take(n):
                signal.signal(signal.SIGUSR1, lambda *_: handled.add(1))
                try:
                    with lock:
                        memory[256 + next_place.add(1)] = n
                except KeyboardInterrupt:
                    pass

            lock.acquire()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            children = []
            for n in range(1, 5):
                children.append(Child(take, n))
                until(lambda: waiters(memory, 0, 32) == n)
            for n in range(10):
                children[0].kill(signal.SIGUSR1)
                until(lambda: handled.load() == n + 1)
            children[1].kill(signal.SIGINT)
            self.assertEqual(children[1].join(), 0)
            lock.release()
            for child in children[:1] + children[2:]:
                self.assertEqual(child.join(), 0)
            self.assertEqual(memory[256:260], b"\1\3\4\0")
            for used in (lock, next_place, handled):
                used.close()

    def test_signals_that_a_thread_without_handlers_gets(self):
        """If Python runs no signal handlers in a thread, a signal neither ends the thread's wait
        for a word nor changes its queue position. Timeouts and values work as in the main thread.
        """
        handled = []
        self.addCleanup(signal.signal, signal.SIGUSR1,
                        signal.signal(signal.SIGUSR1, lambda *_: handled.append(1)))
        for size in (1, 2, 4, 8):
            with mmap.mmap(-1, 4096) as memory:
                word = memwait.Word(memory, 8, size=size)
                word.store(size)
                first = Thread(word.wait, size)
                until(lambda: word.waiters() == 1)
                second = Thread(word.wait, size, limit(300))
                until(lambda: word.waiters() == 2)
                for thread in (first, first, second):
                    handled.clear()
                    signal.pthread_kill(thread.ident, signal.SIGUSR1)
                    until(lambda: handled and word.waiters() == 2)
                for thread in (first, second):
                    self.assertEqual(word.notify(1), 1)
                    self.assertIs(thread.end(), memwait.Outcome.OK)
                for timeout in (0, 1e-9, 0.002):
                    self.assertIs(Thread(word.wait, size, timeout).end(), memwait.Outcome.TIMED_OUT)
                self.assertIs(Thread(word.wait, size + 1).end(), memwait.Outcome.NOT_EQUAL)
                self.assertIsInstance(Thread(word.wait, size, 1e10).end(), OverflowError)
                word.close()

    def test_a_handler_may_wait_itself(self):
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, create=True)
            other = memwait.Semaphore(memory, 64, value=0, create=True)
            lock.acquire()

            def run():
                signal.signal(signal.SIGUSR1, lambda *_: other.acquire())
                lock.acquire()

            child = Child(run)
            until(lambda: waiters(memory, 0, 32) == 1)
            child.kill(signal.SIGUSR1)
            until(lambda: waiters(memory, 64, 16) == 1)
            lock.release()
            until(lambda: waiters(memory, 0, 32) == 0)
            other.release()
            self.assertEqual(child.join(), 0)
            self.assertTrue(lock.locked())
            lock.close()
            other.close()

    def test_a_handler_raises_from_any_signal(self):
        with mmap.mmap(-1, 4096) as memory:
            semaphore = memwait.Semaphore(memory, value=0, create=True)

            def run():
                def leave(*_):
                    raise ZeroDivisionError

                signal.signal(signal.SIGTERM, leave)
                with self.assertRaises(ZeroDivisionError):
                    semaphore.acquire()

            child = Child(run)
            until(lambda: waiters(memory) == 1)
            child.kill(signal.SIGTERM)
            self.assertEqual(child.join(), 0)
            semaphore.release()
            self.assertEqual(semaphore.get_value(), 1)
            semaphore.close()

    def test_an_interrupted_condition_wait_holds_the_lock(self):
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.RLock(memory, 64, create=True)
            condition = memwait.Condition(memory, lock=lock, create=True)

            def run():
                lock.acquire()
                with condition:
                    interrupted(condition.wait)
                    memory[1024] = 1
                lock.release()
                with self.assertRaises(RuntimeError):
                    lock.release()

            child = Child(run)
            until(lambda: waiters(memory, 0, 48) == 1)
            lock.acquire()
            child.kill(signal.SIGINT)
            until(lambda: waiters(memory, 0, 48) == 0 and waiters(memory, 64, 32) == 1)
            self.assertEqual(memory[1024], 0)
            lock.release()
            self.assertEqual(child.join(), 0)
            condition.close()
            lock.close()

    def test_a_device_that_fails_leaves_a_condition_with_its_lock(self):
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, 64, create=True)
            condition = memwait.Condition(memory, lock=lock, create=True)

            def run():
                def fail(*_):
                    waits_fail(errno.ENOSPC)
                    memory[1025] = 1

                signal.signal(signal.SIGUSR1, fail)
                with self.assertRaises(OSError) as raised:
                    with condition:
                        try:
                            condition.wait()
                        finally:
                            memory[1024] = 1
                self.assertEqual(raised.exception.errno, errno.ENOSPC)

            child = Child(run)
            until(lambda: waiters(memory, 0, 48) == 1)
            lock.acquire()
            child.kill(signal.SIGUSR1)
            until(lambda: memory[1025])
            condition.notify()
            until(lambda: waiters(memory, 0, 48) == 0 and waiters(memory, 64, 32) == 1)
            self.assertEqual(memory[1024], 0)
            lock.release()
            self.assertEqual(child.join(), 0)
            self.assertTrue(lock.acquire(False))
            condition.close()
            lock.close()

    def test_a_device_that_fails_with_eperm(self):
        """EPERM means that the caller is not the owner only in a wait for a condition and in
        release().
        """
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, create=True)
            lock.acquire()

            def run():
                waits_fail(errno.EPERM)
                with self.assertRaises(PermissionError):
                    lock.acquire()

            self.assertEqual(Child(run).join(), 0)
            lock.close()

    def test_a_bounded_semaphore_of_processes(self):
        """Processes that race cannot release more permits than were acquired."""
        with mmap.mmap(-1, 4096) as memory:
            semaphore = memwait.BoundedSemaphore(memory, value=50, create=True)
            released = memwait.Word(memory, 64)
            ready = memwait.Barrier(memory, 128, parties=2, create=True)

            def run():
                ready.wait()
                for _ in range(50):
                    try:
                        semaphore.release()
                    except ValueError:
                        continue
                    released.add(1)

            for _ in range(50):
                semaphore.acquire()
            children = [Child(run) for _ in range(2)]
            for child in children:
                self.assertEqual(child.join(), 0)
            self.assertEqual((released.load(), semaphore.get_value()), (50, 50))
            for used in (semaphore, released, ready):
                used.close()


class Deaths(unittest.TestCase):
    def die_with(self, take):
        def run():
            take()
            os.kill(os.getpid(), signal.SIGKILL)

        self.assertEqual(Child(run).join(), -signal.SIGKILL)

    def test_a_lock_is_repaired(self):
        for kind in (memwait.Lock, memwait.RLock):
            with mmap.mmap(-1, 4096) as memory:
                repaired = []
                lock = kind(memory, create=True, repair=lambda: repaired.append(1))
                with lock:
                    pass
                self.die_with(lock.acquire)
                with lock:
                    self.assertEqual(repaired, [1])
                with lock:
                    self.assertEqual(repaired, [1])
                # A thread that waits for the lock also repairs the lock.
                child = Child(lambda: lock.acquire() and signal.pause())
                until(lambda: not lock.acquire(False) or lock.release())
                thread = Thread(lock.acquire)
                until(lambda: waiters(memory) == 1)
                child.kill(signal.SIGKILL)
                child.join()
                self.assertIs(thread.end(), True)
                self.assertEqual(repaired, [1, 1])
                lock.close()

    def test_a_repair_fails(self):
        with mmap.mmap(-1, 4096) as memory:
            def fail():
                raise ZeroDivisionError

            lock = memwait.Lock(memory, create=True, repair=fail)
            self.die_with(lock.acquire)
            with self.assertRaises(ZeroDivisionError):
                lock.acquire()
            for _ in range(2):
                with self.assertRaises(memwait.NotRecoverable):
                    lock.acquire()
            lock.close()

    def test_a_repair_fails_in_a_condition(self):
        """The with block ends with the exception of the repair function."""
        for kind in (memwait.Lock, memwait.RLock):
            with mmap.mmap(-1, 4096) as memory:
                def fail():
                    raise ZeroDivisionError

                lock = kind(memory, 64, create=True, repair=fail)
                condition = memwait.Condition(memory, lock=lock, create=True)

                def wait():
                    with condition:
                        condition.wait()

                thread = Thread(wait)
                until(lambda: waiters(memory, 0, 48) == 1)
                child = Child(lambda: lock.acquire() and condition.notify() is None and
                              memory.__setitem__(1024, 1) is None and signal.pause())
                until(lambda: memory[1024])
                child.kill(signal.SIGKILL)
                child.join()
                self.assertIsInstance(thread.end(), ZeroDivisionError)
                condition.close()
                lock.close()

    def test_no_repair(self):
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, create=True, repair=print)
            self.die_with(lock.acquire)
            careless = memwait.Lock(memory)
            with self.assertRaises(memwait.OwnerDied):
                careless.acquire()
            with self.assertRaises(memwait.NotRecoverable):
                lock.acquire()
            careless.close()
            lock.close()

    def test_a_writer_dies(self):
        with mmap.mmap(-1, 4096) as memory:
            repaired = []
            lock = memwait.RWLock(memory, create=True, repair=lambda: repaired.append(1))
            self.die_with(lock.writer.acquire)
            with lock.reader:
                self.assertEqual(repaired, [1])
            self.die_with(lock.writer.acquire)
            with lock.writer:
                self.assertEqual(repaired, [1, 1])
            self.assertTrue(lock.reader.acquire(False))
            lock.reader.release()
            lock.close()

    def test_readers_after_a_writer(self):
        """After the repair, the reader that repaired the lock shares it with other readers."""
        with mmap.mmap(-1, 4096) as memory:
            repaired = []
            lock = memwait.RWLock(memory, create=True, repair=lambda: repaired.append(1))

            def read(n):
                self.assertEqual(len(repaired), n)
                self.assertTrue(lock.reader.acquire(False))
                self.assertFalse(lock.writer.acquire(False))
                lock.reader.release()
                lock.reader.release()
                self.assertTrue(lock.writer.acquire(False))
                lock.writer.release()

            for n, how in enumerate(({}, {"blocking": False}, {"timeout": limit(60)})):
                self.die_with(lock.writer.acquire)
                self.assertTrue(lock.reader.acquire(**how))
                read(n + 1)
            # This reader had to wait.
            child = Child(lambda: lock.writer.acquire() and signal.pause())
            until(lambda: not lock.reader.acquire(False) or lock.reader.release())
            thread = Thread(lock.reader.acquire)
            until(lambda: waiters(memory) == 1)
            child.kill(signal.SIGKILL)
            child.join()
            self.assertIs(thread.end(), True)
            read(4)
            lock.close()

    def test_other_objects_remain_usable(self):
        with mmap.mmap(-1, 4096) as memory:
            queue = memwait.Queue(memory, item_size=8, maxsize=4, create=True)
            semaphore = memwait.Semaphore(memory, 1024, value=2, create=True)
            self.die_with(lambda: queue.put(ITEM))
            self.die_with(semaphore.acquire)
            self.assertEqual(queue.get(), ITEM)
            self.assertTrue(semaphore.acquire(False))
            self.assertFalse(semaphore.acquire(False))
            queue.close()
            semaphore.close()


def work(lock, queue, condition, word_of):
    """Runs in a spawned process: the objects that it received work, and are those of the parent."""
    memory, offset = word_of
    word = memwait.Word(memory, offset)
    with lock:
        word.add(1)
    queue.put(ITEM)
    with condition:
        while not word.load() == 5:
            condition.wait()
    word.close()
    condition.close()
    lock.close()
    queue.close()


class Processes(unittest.TestCase):
    def test_start_methods(self):
        layout = memwait.Layout(lock=memwait.RLock, condition=memwait.Condition,
                                queue=(memwait.Queue, 8, 4), word=memwait.Word)
        memory = SharedMemory(create=True, size=layout.size)
        self.addCleanup(memory.unlink)
        self.addCleanup(memory.close)
        lock = memwait.RLock(memory, layout["lock"], create=True)
        condition = memwait.Condition(memory, layout["condition"], lock=lock, create=True)
        queue = memwait.Queue(memory, layout["queue"], item_size=8, maxsize=4, create=True)
        word = memwait.Word(memory, layout["word"])
        processes = []
        for way in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(way)
            processes.append(context.Process(target=work, args=(
                lock, queue, condition, (memory, layout["word"]))))
            processes[-1].start()
        for _ in processes:
            self.assertEqual(queue.get(), ITEM)
        with condition:
            self.assertEqual(word.load(), 3)
            word.store(5)
            condition.notify_all()
        for process in processes:
            process.join()
            self.assertEqual(process.exitcode, 0)
        for used in (word, queue, condition, lock):
            used.close()

    def test_a_segment(self):
        name = f"memwait-{os.getpid()}"
        with self.assertRaises(FileNotFoundError):
            memwait.Segment(name)
        with memwait.Segment(name, 8192) as segment:
            self.assertTrue(segment.created)
            self.assertEqual((segment.name, segment.size), (name, 8192))
            lock = segment.get(memwait.Lock, "lock", repair=print)
            jobs = segment.get(memwait.JoinableQueue, "jobs", item_size=64, maxsize=4)
            word = segment.get(memwait.Word, "word", size=8)
            table = segment.bytes("table", 100)
            self.assertEqual(bytes(table), bytes(100))
            table[0] = 7

            def use():
                with memwait.Segment(name, 8192) as other:
                    assert not other.created
                    with other.get(memwait.Lock, "lock", repair=print):
                        other.get(memwait.JoinableQueue, "jobs").put("from the child")
                    other.get(memwait.Word, "word", size=8).store(5)
                    assert other.bytes("table", 100)[0] == 7

            # Neither a process that exits nor its resource tracker removes the name.
            for way in (use, lambda: subprocess.run([sys.executable, "-c", f"""if True:
                    import memwait
                    with memwait.Segment({name!r}) as segment:
                        segment.get(memwait.JoinableQueue, "jobs").put("from another")
                    """], check=True)):
                self.assertEqual(Child(way).join(), 0)
            self.assertEqual([jobs.get(), jobs.get(), word.load()],
                             ["from the child", "from another", 5])
            inherited = Child(lambda: segment.__exit__(None, None, None))
            self.assertEqual(inherited.join(), 0)
            memwait.Segment(name).close()
            for kind, bad, options, error in (
                    (memwait.Event, "lock", {}, TypeError),
                    (memwait.Word, "word", {"size": 4}, TypeError),
                    (memwait.Queue, "many", {"item_size": 64, "maxsize": 1000}, MemoryError),
                    (memwait.Queue, "none", {}, ValueError),
                    (memwait.Lock, "", {}, ValueError),
                    (memwait.Lock, "x" * 41, {}, ValueError)):
                with self.subTest(bad), self.assertRaises(error):
                    segment.get(kind, bad, **options)
            for size in (99, 0, -1):
                with self.assertRaises((TypeError, ValueError)):
                    segment.bytes("table", size)
            lock.close()
        for used in (lock, jobs, word):
            self.assertTrue(used.closed)
        with self.assertRaises(FileNotFoundError):
            memwait.Segment(name)
        with self.assertRaises(ValueError):
            memwait.Segment(name, -1)

    def test_the_last_user_unlinks_a_segment(self):
        """The creator does not unlink it while other processes use it. Otherwise the next process
        would create another segment.
        """
        name = f"memwait-last-{os.getpid()}"
        memory = mmap.mmap(-1, 64)
        begun, came, go = (memwait.Event(memory, at, create=True) for at in (0, 16, 32))

        def use():
            begun.wait()
            with memwait.Segment(name, 4096) as segment, segment.get(memwait.Lock, "lock"):
                came.set()
                go.wait()

        # Fork before the parent opens the segment, so that the child does not inherit it.
        child = Child(use)
        with memwait.Segment(name, 4096) as segment:
            lock = segment.get(memwait.Lock, "lock")
            with lock:
                begun.set()
                until(lambda: waiters(lock.buffer, lock.offset, 40) == 1)
        came.wait()
        with memwait.Segment(name, 4096) as segment:
            self.assertFalse(segment.created)
            self.assertFalse(segment.get(memwait.Lock, "lock").acquire(False))
        go.set()
        self.assertEqual(child.join(), 0)
        with self.assertRaises(FileNotFoundError):
            memwait.Segment(name)
        for event in (begun, came, go):
            event.close()

    def test_a_segment_whose_maker_was_killed(self):
        name = f"memwait-killed-{os.getpid()}"

        def die():
            with memwait.Segment(name, 4096):
                os.kill(os.getpid(), signal.SIGKILL)

        self.assertEqual(Child(die).join(), -signal.SIGKILL)
        with memwait.Segment(name, 4096) as segment:
            self.assertFalse(segment.created)
        with self.assertRaises(FileNotFoundError):
            memwait.Segment(name)

    def test_a_segment_that_is_unlinked_in_its_block(self):
        name = f"memwait-unlinked-{os.getpid()}"
        with memwait.Segment(name, 4096) as segment:
            segment.unlink()
            other = memwait.Segment(name, 4096)
            self.assertTrue(other.created)
        memwait.Segment(name).close()
        other.close()
        other.unlink()
        code = f"import memwait\nwith memwait.Segment({name!r}, 4096) as s: s.unlink()"
        run = subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE)
        self.assertEqual(run.stderr, b"")

    def test_a_segment_is_not_tracked(self):
        """The resource tracker would unlink the segment, or complain, if two processes open it at
        the same time or one of them is killed.
        """
        name = f"memwait-untracked-{os.getpid()}"
        messages = []
        with unittest.mock.patch.object(resource_tracker.ResourceTracker, "_send",
                                        lambda self, *message: messages.append(message)):
            with memwait.Segment(name, 5000) as segment:
                self.assertTrue(segment.created)
                self.assertEqual((segment.name, segment.size), (name, 5000))
                self.assertEqual(os.stat(f"/dev/shm/{name}").st_mode & 0o777, 0o600)
                segment.bytes("table", 8)[0] = 7
                with memwait.Segment(name, 4096) as other:
                    self.assertEqual((other.created, other.size), (False, 5000))
                    self.assertEqual(other.bytes("table", 8)[0], 7)
            with self.assertRaises(FileNotFoundError):
                memwait.Segment(name)
            # The file is empty, as if another process were creating the
            # segment.
            with open(f"/dev/shm/{name}", "xb"), self.assertRaises(TimeoutError):
                memwait.Segment(name, 4096)
            os.unlink(f"/dev/shm/{name}")
        self.assertEqual(messages, [])

    def test_a_segment_without_room_in_its_file_system(self):
        name = f"memwait-full-{os.getpid()}"
        room = os.statvfs("/dev/shm")
        with self.assertRaises(OSError) as raised:
            memwait.Segment(name, (room.f_blocks + 1) * room.f_frsize)
        self.assertEqual(raised.exception.errno, errno.ENOSPC)
        self.assertFalse(os.path.exists(f"/dev/shm/{name}"))
        with memwait.Segment(name, 4096) as segment:
            self.assertGreaterEqual(os.stat(f"/dev/shm/{name}").st_blocks * 512, segment.size)

    def test_a_segment_is_opened_while_it_is_made(self):
        """A process that opens a segment that has no size yet waits, and does not fail."""
        name = f"memwait-made-{os.getpid()}"
        memory = mmap.mmap(-1, 32)
        begun, go = (memwait.Event(memory, at, create=True) for at in (0, 16))

        def make():
            allocate = os.posix_fallocate

            def wait_and_allocate(*arguments):
                begun.set()
                go.wait()
                allocate(*arguments)

            with unittest.mock.patch.object(os, "posix_fallocate", wait_and_allocate):
                memwait.Segment(name, 4096)

        def use():
            begun.wait()
            memwait.Segment(name)

        maker, user = Child(make), Child(use)
        begun.wait()
        # Longer than a process waits for the size of a segment that no process is creating
        time.sleep(2)
        self.assertEqual(os.waitpid(user.pid, os.WNOHANG)[0], 0)
        go.set()
        self.assertEqual((maker.join(), user.join()), (0, 0))
        os.unlink(f"/dev/shm/{name}")
        for event in (begun, go):
            event.close()

    def test_an_object_of_a_segment_is_made_once(self):
        with memwait.Segment(f"memwait-once-{os.getpid()}", 4096) as segment:
            lock = segment.get(memwait.Lock, "lock")
            self.assertIs(segment.get(memwait.Lock, "lock"), lock)
            table = segment.bytes("table", 64)
            self.assertIs(segment.bytes("table", 64), table)
            lock.close()
            table.release()
            self.assertFalse(segment.get(memwait.Lock, "lock").closed)
            self.assertEqual(segment.bytes("table", 64)[0], 0)

    def test_processes_open_a_segment_simultaneously(self):
        """One process creates the segment, and one process creates each object in it."""
        name = f"memwait-{os.getpid()}"
        with mmap.mmap(-1, 64) as memory:
            begun = memwait.Event(memory, create=True)

            def use():
                begun.wait()
                segment = memwait.Segment(name, 4096)
                segment.get(memwait.RLock, "lock")
                with segment.get(memwait.RLock, "lock"):
                    segment.get(memwait.Word, "word").add(1)
                segment.get(memwait.Barrier, "barrier", parties=4).wait()
                segment.close()

            children = [Child(use) for _ in range(4)]
            begun.set()
            for child in children:
                self.assertEqual(child.join(), 0)
            begun.close()
        segment = memwait.Segment(name)
        self.assertEqual(segment.get(memwait.Word, "word").load(), 4)
        segment.close()
        segment.unlink()

    def test_an_interpreter_with_its_own_gil(self):
        """An interpreter of the same process, with its own modules and objects."""
        try:
            import _interpreters as interpreters
        except ImportError:
            self.skipTest("needs Python 3.13")
        file = os.memfd_create("memwait")
        os.ftruncate(file, 4096)
        memory = mmap.mmap(file, 4096)
        semaphore = memwait.Semaphore(memory, value=0, create=True)
        other = interpreters.create("isolated")
        thread = Thread(interpreters.exec, other, f"""if True:
            import asyncio, mmap, memwait
            memory = mmap.mmap({file}, 4096)
            semaphore = memwait.Semaphore(memory)
            semaphore.acquire()
            memory[1024] = 1
            asyncio.run(semaphore.acquire_async())
            memory[1024] = 2
            semaphore.close()
        """)
        for n in (1, 2):
            until(lambda: waiters(memory) == 1 or not thread.is_alive())
            semaphore.release()
            until(lambda: memory[1024] == n or not thread.is_alive())
        self.assertIsNone(thread.end())
        self.assertEqual(memory[1024], 2)
        interpreters.destroy(other)
        os.close(file)
        semaphore.close()

    def test_a_child_of_a_thread_that_has_waited(self):
        """The child does not use the parent's loop."""
        with mmap.mmap(-1, 4096) as memory:
            semaphore = memwait.Semaphore(memory, value=0, create=True)
            self.assertFalse(semaphore.acquire(timeout=0.001))
            child = Child(semaphore.acquire)
            until(lambda: waiters(memory) == 1)
            self.assertFalse(semaphore.acquire(timeout=0.001))
            semaphore.release()
            self.assertEqual(child.join(), 0)
            semaphore.close()

    def test_a_child_closes_what_its_parent_waits_for(self):
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, create=True)
            lock.acquire()
            thread = Thread(lock.acquire)
            until(lambda: waiters(memory) == 1)
            self.assertEqual(Child(lock.close).join(), 0)
            with self.assertRaises(BufferError):
                lock.close()
            lock.release()
            self.assertIs(thread.end(), True)
            lock.close()

    def test_a_child_leaves_a_put_to_its_parent(self):
        class InChild(Exception):
            pass

        def fork(*_):
            children.append(os.fork())
            if not children[0]:
                raise InChild

        with mmap.mmap(-1, 4096) as memory:
            children = []
            jobs = memwait.JoinableQueue(memory, item_size=32, maxsize=1, create=True)
            jobs.put(1)

            def receive():
                until(lambda: waiters(memory) == 1)
                os.kill(os.getpid(), signal.SIGUSR1)
                until(lambda: children)
                status = os.waitpid(children[0], 0)[1]
                return status, jobs.get(), jobs.get()

            before = signal.signal(signal.SIGUSR1, fork)
            thread = Thread(receive)
            try:
                jobs.put(2)
            except InChild:
                os._exit(0)
            signal.signal(signal.SIGUSR1, before)
            self.assertEqual(thread.end(), (0, 1, 2))
            for _ in range(2):
                jobs.task_done()
            with self.assertRaises(ValueError):
                jobs.task_done()
            jobs.close()

    def test_a_mapping_that_is_not_shared(self):
        """An object in private memory works. An object in two mappings of one file is one object.
        """
        lock = memwait.Lock(bytearray(64), create=True, private=True)
        with lock:
            self.assertTrue(lock.locked())
        file = os.memfd_create("memwait")
        os.ftruncate(file, 4096)
        one, other = mmap.mmap(file, 4096), mmap.mmap(file, 4096)
        os.close(file)
        semaphore = memwait.Semaphore(one, 64, value=0, create=True)
        thread = Thread(memwait.Semaphore(other, 64).acquire)
        until(lambda: waiters(one) == 1)
        semaphore.release()
        self.assertIs(thread.end(), True)
