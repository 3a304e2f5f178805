# SPDX-License-Identifier: GPL-2.0-only
"""Waits of tasks, and their cancellation at each point."""

import _thread
import asyncio
import contextlib
import errno
import functools
import gc
import mmap
import operator
import os
import queue
import select
import signal
import sys
import threading
import unittest

import memwait
from memwait import _Hub, _memwait
from common import Child, ITEM, each_case, limit, until, waiters, waits_fail


def hub():
    return _Hub.running()


async def begun(case):
    """Returns a task that waits for the object of the case."""
    task = asyncio.ensure_future(case.wait_async())
    while not case.waits(1):
        await asyncio.sleep(0)
    return task


async def waiting_for_a_condition(memory):
    """Returns a lock, a condition that uses the lock, and a task that waits for the condition."""
    lock = memwait.Lock(memory, create=True)
    condition = memwait.Condition(memory, 64, lock=lock, create=True)

    async def wait():
        async with condition:
            await condition.wait_async()

    task = asyncio.ensure_future(wait())
    while waiters(memory, 64, 48) != 1:
        await asyncio.sleep(0)
    return lock, condition, task


async def ended(task):
    with contextlib.suppress(asyncio.CancelledError):
        await task
        return False
    return True


class Tasks(unittest.TestCase):
    @each_case
    def test_a_task_waits_and_is_woken(self, case, hold):
        async def main():
            task = await begun(case)
            ticks = 0
            for ticks in range(10):
                await asyncio.sleep(0)
            self.assertFalse(task.done())
            hold(case.wake)
            self.assertTrue(await task in (True, memwait.Outcome.OK))

        asyncio.run(main())

    @each_case
    def test_cancel_before_its_first_step(self, case, hold):
        async def main():
            task = asyncio.ensure_future(case.wait_async())
            task.cancel()
            self.assertTrue(await ended(task))
            self.assertTrue(case.waits(0))
            hold(case.wake)
            hold(case.again)

        asyncio.run(main())

    @each_case
    def test_cancel_while_it_waits(self, case, hold):
        async def main():
            task = await begun(case)
            task.cancel()
            self.assertTrue(await ended(task))
            self.assertTrue(case.waits(0))
            hold(case.wake)
            hold(case.again)

        asyncio.run(main())

    def woken_and_cancelled(self, case, hold, dispatch):
        async def main():
            task = await begun(case)
            if isinstance(case.object, memwait.Barrier):
                # A barrier cannot open before the task has arrived, and an open one cannot close.
                thread = threading.Thread(target=case.object.wait)
                thread.start()
                await task
                thread.join()
                return
            hold(case.wake)
            if dispatch:
                until(lambda: hub().loop.dispatch())
            task.cancel()
            self.assertTrue(await ended(task))
            hold(case.again)

        asyncio.run(main())

    @each_case
    def test_cancel_before_dispatch(self, case, hold):
        self.woken_and_cancelled(case, hold, False)

    @each_case
    def test_cancel_after_dispatch(self, case, hold):
        self.woken_and_cancelled(case, hold, True)

    @each_case
    def test_a_loop_closes_with_waits(self, case, hold):
        loop = asyncio.new_event_loop()
        task = loop.run_until_complete(begun(case))
        loop.close()
        self.assertTrue(case.waits(0))
        hold(case.wake)
        hold(case.again)
        task._log_destroy_pending = False
        task.get_coro().close()

    @each_case
    def test_a_loop_is_not_closed(self, case, hold):
        """If a loop is not closed, the garbage collector ends its waits."""
        loop = asyncio.new_event_loop()
        if type(loop).__module__ == "uvloop":
            loop.close()
            self.skipTest("uvloop never frees a loop that has run and was not closed")
        task = loop.run_until_complete(begun(case))
        task._log_destroy_pending = False
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            del loop, task
            gc.collect()
        self.assertTrue(case.waits(0))
        hold(case.wake)
        hold(case.again)

    def test_order(self):
        """Tasks, a thread and a process wait in one queue. A cancelled wait does not change its
        order.
        """
        with mmap.mmap(-1, 4096) as memory:
            lock = memwait.Lock(memory, create=True, fair=True)
            order = memwait.Word(memory, 64)

            def take(name):
                with lock:
                    memory[256 + order.add(1)] = name

            async def take_async(name):
                async with lock:
                    memory[256 + order.add(1)] = name

            async def main():
                lock.acquire()
                waiting = []
                for n in range(1, 7):
                    if n == 3:
                        waiting.append(threading.Thread(target=take, args=(n,)))
                        waiting[-1].start()
                    elif n == 4:
                        waiting.append(Child(take, n))
                    else:
                        waiting.append(asyncio.ensure_future(take_async(n)))
                    while waiters(memory, 0, 32) != n:
                        await asyncio.sleep(0)
                waiting[1].cancel()
                lock.release()
                for n in (0, 4, 5):
                    await waiting[n]
                self.assertTrue(await ended(waiting[1]))
                waiting[2].join()
                self.assertEqual(waiting[3].join(), 0)

            asyncio.run(main())
            self.assertEqual(memory[256:262], bytes([1, 3, 4, 5, 6, 0]))
            lock.close()
            order.close()

    def test_many_tasks_are_woken_together(self):
        """All waits end before the event loop polls; then all tasks are completed."""
        memory = mmap.mmap(-1, 4096)
        semaphore = memwait.Semaphore(memory, value=0, create=True)

        async def main():
            tasks = [asyncio.ensure_future(semaphore.acquire_async()) for _ in range(300)]
            while waiters(memory) < len(tasks):
                await asyncio.sleep(0)
            semaphore.release(len(tasks))
            self.assertEqual(await asyncio.gather(*tasks), [True] * len(tasks))

        asyncio.run(main())
        self.assertEqual(semaphore.get_value(), 0)

    def test_a_fair_semaphore_goes_to_the_longest_waiter(self):
        """A thread, or a task that asks before the woken task has run, cannot overtake that task.
        """
        memory = mmap.mmap(-1, 4096)
        semaphore = memwait.Semaphore(memory, value=1, create=True, fair=True)
        order = []

        async def use(name):
            await semaphore.acquire_async()
            order.append(name)

        async def main():
            await use(0)
            tasks = []
            for name in (1, 2, 3):
                tasks.append(asyncio.ensure_future(use(name)))
                while waiters(memory, 2) < name:
                    await asyncio.sleep(0)
            semaphore.release()
            self.assertFalse(semaphore.acquire(blocking=False))
            tasks.append(asyncio.ensure_future(use(4)))
            tasks[1].cancel()
            for _ in range(3):
                await asyncio.sleep(0.01)
                semaphore.release()
            await asyncio.wait(tasks)

        asyncio.run(main())
        self.assertEqual(order, [0, 1, 3, 4])
        self.assertEqual(semaphore.get_value(), 1)
        with self.assertRaises(ValueError):
            memwait.Semaphore(memory, value=32768, create=True, fair=True)

    def test_tasks_take_turns_at_a_fair_semaphore(self):
        """A task that releases the semaphore and acquires it again is queued last, as with
        asyncio.Semaphore.
        """
        semaphore = memwait.Semaphore(mmap.mmap(-1, 4096), value=1, create=True, fair=True)
        order = []

        async def use(name):
            for turn in (1, 2):
                async with semaphore:
                    order.append((turn, name))
                    await asyncio.sleep(0.01)

        async def main():
            await asyncio.gather(use("a"), use("b"), use("c"))

        asyncio.run(main())
        self.assertEqual(order, [(turn, name) for turn in (1, 2) for name in "abc"])
        self.assertEqual(semaphore.get_value(), 1)

    def test_many_operations_end_at_one_edge(self):
        """An event loop that polls for edges (EPOLLET) dispatches once for each edge."""
        semaphore = memwait.Semaphore(mmap.mmap(-1, 4096), value=0, create=True)
        loop = _memwait.Loop()
        ended = []
        with select.epoll() as epoll:
            epoll.register(loop.fileno(), select.EPOLLIN | select.EPOLLET)
            for _ in range(300):
                semaphore._begin(loop, ended.append, _memwait.WAIT)
            semaphore.release(300)
            while epoll.poll(0):    # Without an edge now, there would never be another edge.
                loop.dispatch()
        self.assertEqual([operation.finish() for operation in ended], [True] * 300)
        loop.close()

    def test_timeouts(self):
        async def main(memory):
            lock = memwait.Lock(memory, create=True)
            lock.acquire()
            self.assertIs(await lock.acquire_async(0.001), False)
            self.assertIs(await lock.acquire_async(timeout=0), False)
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(lock.acquire_async(), 0.001)
            lock.release()
            condition = memwait.Condition(memory, 64, lock=lock, create=True)
            async with condition:
                self.assertIs(await condition.wait_async(0.001), False)
                self.assertFalse(await condition.wait_for_async(lambda: False, 0.001))
                self.assertTrue(lock.locked())
            with self.assertRaises(RuntimeError):
                await condition.wait_async()
            queue = memwait.Queue(memory, 1024, item_size=8, maxsize=1, create=True)
            with self.assertRaises(__import__("queue").Empty):
                await queue.get_async(0.001)
            await queue.put_async(ITEM)
            with self.assertRaises(__import__("queue").Full):
                await queue.put_async(ITEM, 0.001)
            queue.shutdown()
            self.assertEqual(await queue.get_async(), ITEM)
            with self.assertRaises(memwait.ShutDown):
                await queue.get_async()
            barrier = memwait.Barrier(memory, 128, parties=2, create=True)
            with self.assertRaises(memwait.BrokenBarrierError):
                await barrier.wait_async(0.001)
            with self.assertRaises(memwait.BrokenBarrierError):
                await barrier.wait_async()
            barrier.reset()
            self.assertEqual(sorted(await asyncio.gather(barrier.wait_async(),
                                                         barrier.wait_async())), [0, 1])

        asyncio.run(main(bytearray(4096)))

    def test_a_barrier_for_tasks(self):
        async def main(memory):
            acted = []
            barrier = memwait.Barrier(memory, parties=2, create=True,
                                      action=lambda: acted.append(barrier.n_waiting))
            for _ in range(3):
                self.assertEqual(sorted(await asyncio.gather(barrier.wait_async(),
                                                             barrier.wait_async())), [0, 1])
            self.assertEqual(len(acted), 3)

            async def wait():
                with self.assertRaises(memwait.BrokenBarrierError):
                    await barrier.wait_async()

            for end in (barrier.abort, barrier.reset):
                task = asyncio.ensure_future(wait())
                while barrier.n_waiting != 1:
                    await asyncio.sleep(0)
                end()
                await task
                self.assertEqual(barrier.broken, end == barrier.abort)
                barrier.reset()
            # A task that is cancelled while the action runs breaks the barrier.
            other = memwait.Barrier(memory, action=lambda: None)
            first = asyncio.ensure_future(barrier.wait_async())
            while barrier.n_waiting != 1:
                await asyncio.sleep(0)
            acted.clear()
            other._action = first.cancel
            with self.assertRaises(memwait.BrokenBarrierError):
                await other.wait_async()
            with self.assertRaises(asyncio.CancelledError):
                await first
            self.assertTrue(barrier.broken)

        asyncio.run(main(bytearray(4096)))

    def test_a_cancelled_condition_wait_holds_the_lock(self):
        async def main(memory):
            lock = memwait.Lock(memory, create=True)
            condition = memwait.Condition(memory, 64, lock=lock, create=True)
            held = []

            async def wait():
                async with condition:
                    try:
                        await condition.wait_async()
                    finally:
                        held.append(lock.locked())

            task = asyncio.ensure_future(wait())
            while waiters(memory, 64, 48) != 1:
                await asyncio.sleep(0)
            lock.acquire()
            task.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
            self.assertEqual(held, [])
            lock.release()
            self.assertTrue(await ended(task))
            self.assertEqual(held, [True])
            self.assertFalse(lock.locked())

        asyncio.run(main(bytearray(4096)))

    def test_a_condition_that_is_polled(self):
        """Even a wait with timeout 0 releases the lock, so that another task can notify."""
        async def main(memory):
            lock = memwait.Lock(memory, create=True)
            condition = memwait.Condition(memory, 64, lock=lock, create=True)
            notified = []

            async def notify():
                async with condition:
                    notified.append(True)
                    condition.notify()

            async with condition:
                task = asyncio.ensure_future(notify())
                while not notified:
                    await condition.wait_async(0)
                self.assertFalse(await condition.wait_async(0))
            await task

        asyncio.run(main(bytearray(4096)))

    def test_a_closed_coroutine_does_not_release_a_lock_of_others(self):
        async def main(memory):
            lock = memwait.Lock(memory, create=True)
            condition = memwait.Condition(memory, 64, lock=lock, create=True)

            async def wait():
                async with condition:
                    await condition.wait_async()

            coroutine = wait()
            coroutine.send(None)
            lock.acquire()
            coroutine.close()
            self.assertTrue(lock.locked())
            self.assertEqual(waiters(memory), 0)

        asyncio.run(main(bytearray(4096)))

    def test_a_closed_coroutine_cannot_release(self):
        """After the failed release(), the lock does not count the closed coroutine as a holder."""
        async def main(memory):
            lock = memwait.Lock(memory, create=True)
            condition = memwait.Condition(memory, 64, lock=lock, create=True)

            async def wait():
                await lock.acquire_async()
                try:
                    await condition.wait_async()
                finally:
                    lock.release()

            coroutine = wait()
            coroutine.send(None)
            lock.acquire()
            with self.assertRaises(RuntimeError):
                coroutine.close()
            self.assertTrue(lock.locked())
            lock.release()
            async with lock:
                pass
            self.assertFalse(lock.locked())

        asyncio.run(main(bytearray(4096)))

    def waits_for_its_lock(self, memory):
        """Returns a lock that is held, an event loop, and a task of the loop. The task was
        cancelled in a wait for a condition, and now waits to reacquire the lock.
        """
        lock = memwait.Lock(memory, create=True)
        condition = memwait.Condition(memory, 64, lock=lock, create=True)

        async def wait():
            async with condition:
                await condition.wait_async()

        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)
        task = loop.create_task(wait())
        task._log_destroy_pending = False

        async def step():
            for _ in range(3):
                await asyncio.sleep(0)

        loop.run_until_complete(step())
        self.assertTrue(lock.acquire(False))
        task.cancel()
        loop.run_until_complete(step())
        self.assertEqual(waiters(memory, 0, 64), 1)
        return lock, loop, task

    def test_a_coroutine_is_closed_while_it_reacquires_its_lock(self):
        lock, loop, task = self.waits_for_its_lock(bytearray(4096))
        loop.close()
        task.get_coro().close()
        self.assertTrue(lock.locked())
        lock.release()

    def test_the_lock_of_a_condition_cannot_be_reacquired(self):
        lock, loop, task = self.waits_for_its_lock(bytearray(4096))

        async def lose():
            lost = hub()
            os.dup2(os.open("/dev/null", os.O_RDONLY), lost.loop.fileno())
            with contextlib.suppress(OSError):
                lost.dispatch()
            with self.assertRaises(OSError):
                await task

        loop.run_until_complete(lose())
        self.assertTrue(lock.locked())
        lock.release()
        loop.close()

    def test_a_task_is_cancelled_when_the_descriptor_is_lost(self):
        async def main(memory):
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            lock, _, task = await waiting_for_a_condition(memory)
            lock.acquire()
            lost = hub()
            fd, null = lost.loop.fileno(), os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, fd)
            with contextlib.suppress(OSError):
                lost.dispatch()
            while waiters(memory, 0, 64) != 1:
                await asyncio.sleep(0)
            for _ in range(2):
                task.cancel()
                for _ in range(3):
                    await asyncio.sleep(0)
            os.close(fd)
            os.close(null)
            lock.release()
            self.assertTrue(await ended(task))
            self.assertFalse(lock.locked())

        asyncio.run(main(bytearray(4096)))

    def test_the_device_fails_before_the_lock_is_reacquired(self):
        """The wait for a condition has ended, but the wait for its lock cannot begin."""
        def run(memory):
            async def main():
                lock, condition, task = await waiting_for_a_condition(memory)
                lock.acquire()
                condition.notify()
                waits_fail(errno.ENOSPC)
                with self.assertRaises(OSError):
                    await task
                self.assertTrue(lock.locked())
                lock.release()

            asyncio.run(main())

        with mmap.mmap(-1, 4096) as memory:
            self.assertEqual(Child(run, memory).join(), 0)

    def test_close_before_a_woken_task_runs(self):
        async def main(memory):
            lock = memwait.Lock(memory, create=True)
            lock.acquire()
            for cancel in (False, True):
                task = asyncio.ensure_future(lock.acquire_async())
                while waiters(memory) != 1:
                    await asyncio.sleep(0)
                lock.release()
                until(lambda: hub().loop.dispatch())
                with self.assertRaises(BufferError):
                    lock.close()
                if cancel:
                    task.cancel()
                self.assertEqual(await ended(task), cancel)
            self.assertFalse(lock.locked())
            lock.close()

        asyncio.run(main(bytearray(4096)))

    def test_items_of_cancelled_tasks(self):
        """While a cancelled task's item is in the queue, no waiter stays asleep."""
        async def main(memory):
            queue = memwait.Queue(memory, item_size=1, maxsize=4, create=True)
            task = asyncio.ensure_future(queue.get_async())
            await asyncio.sleep(0)
            queue.put(b"1")
            queue.put(b"2")
            until(lambda: hub().loop.dispatch())
            task.cancel()
            self.assertTrue(await ended(task))
            self.assertEqual(queue.qsize(), 2)
            self.assertEqual([await queue.get_async(), queue.get()], [b"2", b"1"])
            task = asyncio.ensure_future(queue.get_async())
            await asyncio.sleep(0)
            got = []
            thread = threading.Thread(target=lambda: got.append(queue.get()), daemon=True)
            thread.start()
            while waiters(memory) != 2:
                await asyncio.sleep(0)
            queue.put(b"3")
            until(lambda: hub().loop.dispatch())
            task.cancel()
            self.assertTrue(await ended(task))
            thread.join(limit(10))
            self.assertEqual(got, [b"3"])

        asyncio.run(main(bytearray(4096)))

    def test_a_queue_is_iterated(self):
        async def main(memory):
            queue = memwait.JoinableQueue(memory, item_size=32, maxsize=2, create=True)
            got = []

            async def work():
                async for item in queue:
                    got.append(item)
                    queue.task_done()

            task = asyncio.ensure_future(work())
            for number in range(10):
                await queue.put_async([number])
            await queue.join_async()
            self.assertEqual(got, [[number] for number in range(10)])
            queue.shutdown()
            await task

        asyncio.run(main(bytearray(4096)))

    async def put_that_waits(self, memory, sent):
        """Returns a queue with maxsize=1 that contains 1, and a task that waits to put 2. If sent,
        the queue contains only 2, and the task has not run since.
        """
        queue = memwait.JoinableQueue(memory, item_size=32, maxsize=1, create=True)
        queue.put(1)
        task = asyncio.ensure_future(queue.put_async(2))
        while not waiters(memory):
            await asyncio.sleep(0)
        if sent:
            self.assertEqual(queue.get(), 1)
            until(lambda: hub().loop.dispatch())
        return queue, task

    def test_an_item_put_by_a_cancelled_task_is_unfinished(self):
        async def main(memory, sent):
            queue, task = await self.put_that_waits(memory, sent)
            task.cancel()
            self.assertTrue(await ended(task))
            self.assertEqual(queue.get(), 1 + sent)
            for _ in range(1 + sent):
                queue.task_done()
            with self.assertRaises(ValueError):
                queue.task_done()
            await queue.join_async()

        for sent in (False, True):
            asyncio.run(main(bytearray(4096), sent))

    def test_a_child_leaves_a_put_to_its_parent(self):
        async def main(memory, sent):
            jobs, task = await self.put_that_waits(memory, sent)
            self.assertEqual(Child(task.get_coro().close).join(), 0)
            if not sent:
                self.assertEqual(jobs.get(), 1)
            await task
            self.assertEqual(jobs.get(), 2)
            for _ in range(2):
                jobs.task_done()
            with self.assertRaises(ValueError):
                jobs.task_done()
            jobs.close()

        for sent in (False, True):
            with mmap.mmap(-1, 4096) as memory:
                asyncio.run(main(memory, sent))

    def test_a_child_leaves_a_barrier_to_its_parent(self):
        async def main(memory):
            barrier = memwait.Barrier(memory, parties=2, create=True, action=bool)
            task = asyncio.ensure_future(barrier.wait_async())
            while barrier.n_waiting != 1:
                await asyncio.sleep(0)
            self.assertEqual(Child(task.get_coro().close).join(), 0)
            self.assertFalse(barrier.broken)
            self.assertEqual(sorted(await asyncio.gather(barrier.wait_async(), task)), [0, 1])
            barrier.close()

        with mmap.mmap(-1, 4096) as memory:
            asyncio.run(main(memory))

    def test_a_child_leaves_a_watch_to_its_parent(self):
        async def main(memory):
            word = memwait.Word(memory)
            watch = word.watch(0)

            async def step():
                return await anext(watch)

            task = asyncio.ensure_future(step())
            await asyncio.sleep(0)
            other = asyncio.ensure_future(word.wait_async(0))
            await asyncio.sleep(0)
            self.assertEqual(word.notify(1), 1)
            until(lambda: hub().loop.dispatch())
            self.assertEqual(Child(task.get_coro().close).join(), 0)
            self.assertEqual(await task, 1)
            self.assertEqual(word.waiters(), 2)
            await watch.aclose()
            self.assertEqual(word.notify(), 1)
            self.assertIs(await other, memwait.Outcome.OK)
            word.close()

        with mmap.mmap(-1, 4096) as memory:
            asyncio.run(main(memory))

    def test_a_get_is_cancelled_after_its_timeout(self):
        async def main(memory):
            jobs = memwait.JoinableQueue(memory, item_size=32, maxsize=1, create=True)
            timeout = 0.05
            while True:
                task = asyncio.ensure_future(jobs.get_async(timeout))
                await asyncio.sleep(0)
                if not task.done():
                    break
                # The timeout had passed before the task could wait.
                self.assertIsInstance(task.exception(), queue.Empty)
                timeout *= 2
            until(lambda: hub().loop.dispatch())
            task.cancel()
            self.assertTrue(await ended(task))
            jobs.join()

        asyncio.run(main(bytearray(4096)))

    def with_a_kept_item(self, check, later=False):
        """Calls check(queue), where the queue is full with item 2 and keeps item 1, which a
        cancelled task had received. If later, calls it after the event loop has ended.
        """
        async def main(memory):
            queue = memwait.Queue(memory, item_size=1, maxsize=1, create=True)
            task = asyncio.ensure_future(queue.get_async())
            await asyncio.sleep(0)
            queue.put(b"1")
            until(lambda: hub().loop.dispatch())
            queue.put(b"2")
            task.cancel()
            self.assertTrue(await ended(task))
            if not later:
                check(queue)
            return queue

        with mmap.mmap(-1, 4096) as memory:
            queue = asyncio.run(main(memory))
            if later:
                check(queue)

    def test_a_kept_item_is_not_inherited_by_a_child(self):
        def check(queue):
            def run():
                self.assertEqual(queue.qsize(), 1)
                self.assertEqual(queue.get_nowait(), b"2")
                self.assertTrue(queue.empty())

            self.assertEqual(Child(run).join(), 0)
            self.assertEqual(queue.get_nowait(), b"1")
            self.assertTrue(queue.empty())
            queue.close()

        self.with_a_kept_item(check)

    def test_close_returns_a_kept_item_to_the_queue(self):
        def check(queue):
            memory = queue.buffer
            other = memwait.Queue(memory)
            self.assertEqual(other.get_nowait(), b"2")
            queue.close()
            with self.assertRaises(ValueError):
                queue.get_nowait()
            queue.close()
            self.assertEqual(other.get_nowait(), b"1")
            self.assertTrue(other.empty())
            other.close()

        self.with_a_kept_item(check)

    def test_a_kept_item_of_a_loop_that_has_ended(self):
        def check(queue):
            self.assertEqual([queue.get(), queue.get()], [b"1", b"2"])
            queue.close()

        self.with_a_kept_item(check, later=True)

    def taken_back(self, queue, items, loop=None):
        """Returns completed operations that have received the items, like those of tasks that will
        be cancelled.
        """
        loop = loop or _memwait.Loop()
        operations = [queue._begin(loop, bool, _memwait.RECV) for _ in items]
        for item in items:
            queue.put(item)
        while any(operation.pending for operation in operations):
            loop.dispatch()
        self.assertEqual([operation.item for operation in operations], items)
        return operations

    def test_an_item_is_returned_while_threads_get(self):
        with mmap.mmap(-1, 4096) as memory:
            queue = memwait.Queue(memory, item_size=1, maxsize=1, create=True)
            operation, = self.taken_back(queue, [b"1"])
            got = []
            threads = [threading.Thread(target=lambda: got.append(queue.get()), daemon=True)
                       for _ in range(2)]
            for thread in threads:
                thread.start()
            until(lambda: waiters(memory) == 2)
            queue.put(b"2")
            queue._give_back(operation)
            until(lambda: operation.loop.dispatch() < 0 or len(got) == 2)
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(got), [b"1", b"2"])
            queue.close()

    def test_an_item_is_returned_while_a_task_gets(self):
        """Before the item is sent again, another process gets the item that was in the queue."""
        async def main(memory, maxsize, shut_down):
            queue = memwait.Queue(memory, item_size=1, maxsize=maxsize, create=True)
            operation, = self.taken_back(queue, [b"1"], hub().loop)
            task = asyncio.ensure_future(queue.get_async())
            while not waiters(memory):
                await asyncio.sleep(0)
            queue.put(b"2")
            if shut_down:
                queue.shutdown()
            queue._give_back(operation)
            self.assertEqual(queue.qsize(), 2)
            self.assertEqual(memwait.Queue(memory).get_nowait(), b"2")
            self.assertEqual(await asyncio.wait_for(task, limit(10)), b"1")
            self.assertTrue(queue.empty())
            queue.close()

        for maxsize, shut_down in ((4, False), (1, False), (1, True), (4, True)):
            with self.subTest(maxsize=maxsize, shut_down=shut_down):
                asyncio.run(main(bytearray(4096), maxsize, shut_down))

    def test_a_kept_item_holds_its_queue(self):
        """While the queue keeps an item, another thread cannot close its buffer."""
        def check(queue):
            with self.assertRaises(BufferError):
                _memwait.Queue.close(queue)
            self.assertEqual(queue.get_nowait(), b"1")
            _memwait.Queue.close(queue)

        self.with_a_kept_item(check)

    def test_a_kept_item_of_a_queue_that_is_not_closed(self):
        """A queue that is freed without close() also releases its buffer."""
        memory = mmap.mmap(-1, 4096)
        queue = memwait.Queue(memory, item_size=1, maxsize=1, create=True)
        operation, = self.taken_back(queue, [b"1"])
        queue.put(b"2")
        queue._give_back(operation)
        del queue, operation
        gc.collect()
        memory.close()

    def test_a_kept_item_of_a_queue_that_is_shut_down(self):
        def check(queue):
            queue.shutdown()
            with self.assertRaisesRegex(BufferError, "shut down"):
                queue.close()
            self.assertEqual([queue.get_nowait(), queue.get_nowait()], [b"1", b"2"])
            with self.assertRaises(memwait.ShutDown):
                queue.get()
            queue.close()

        self.with_a_kept_item(check)

    def test_a_kept_item_that_has_no_room(self):
        def check(queue):
            with self.assertRaisesRegex(BufferError, "full"):
                queue.close()
            self.assertEqual([queue.get_nowait(), queue.get_nowait()], [b"1", b"2"])
            queue.close()

        self.with_a_kept_item(check)

    def test_an_owner_dies(self):
        with mmap.mmap(-1, 4096) as memory:
            repaired = []
            lock = memwait.Lock(memory, create=True, repair=lambda: repaired.append(1))

            def die():
                lock.acquire()
                os.kill(os.getpid(), signal.SIGKILL)

            async def main():
                for n in range(2):
                    child = Child(lambda: lock.acquire() and signal.pause())
                    while not lock.locked():
                        await asyncio.sleep(0)
                    task = asyncio.ensure_future(lock.acquire_async())
                    while waiters(memory) != 1:
                        await asyncio.sleep(0)
                    child.kill(signal.SIGKILL)
                    child.join()
                    if n:
                        until(lambda: hub().loop.dispatch())
                        task.cancel()
                        self.assertTrue(await ended(task))
                        # The next owner repairs the data.
                        self.assertEqual(len(repaired), n)
                        self.assertTrue(lock.acquire(False))
                    else:
                        self.assertIs(await task, True)
                    lock.release()
                    self.assertEqual(len(repaired), n + 1)
                    self.assertFalse(lock.locked())

            asyncio.run(main())
            lock.close()

    def test_readers_after_a_writer(self):
        async def main(lock, repaired):
            child = Child(lambda: lock.writer.acquire() and signal.pause())
            while lock.reader.acquire(False):
                lock.reader.release()
                await asyncio.sleep(0)
            tasks = [asyncio.ensure_future(lock.reader.acquire_async(timeout))
                     for timeout in (limit(60), None, limit(60))]
            while waiters(lock.buffer) != len(tasks):
                await asyncio.sleep(0)
            child.kill(signal.SIGKILL)
            child.join()
            self.assertEqual(await asyncio.wait_for(asyncio.gather(*tasks), limit(10)), [True] * 3)
            async with lock.reader:
                self.assertFalse(lock.writer.acquire(False))
            for _ in tasks:
                lock.reader.release()
            self.assertEqual(repaired, [1])

        with mmap.mmap(-1, 4096) as memory:
            repaired = []
            lock = memwait.RWLock(memory, create=True, repair=lambda: repaired.append(1))
            asyncio.run(main(lock, repaired))
            self.assertTrue(lock.writer.acquire(False))
            lock.writer.release()
            lock.close()

    def test_watch(self):
        async def main(memory):
            word = memwait.Word(memory)
            seen = 0
            async with contextlib.aclosing(word.watch(0)) as watch:
                step = asyncio.ensure_future(anext(watch))
                while not word.waiters():
                    await asyncio.sleep(0)
                # The notifies are added up, because the task has not run
                # between them.
                for _ in range(2):
                    self.assertEqual(word.notify(), 1)
                    until(lambda: hub().loop.dispatch())
                self.assertEqual(await step, 2)
                step = asyncio.ensure_future(anext(watch))
                for n in (1, 3):
                    for _ in range(n):
                        self.assertEqual(word.notify(), 1)
                    while seen < n if n == 1 else seen < 4:
                        seen += await step
                        step = asyncio.ensure_future(anext(watch))
                self.assertEqual(seen, 4)
                step.cancel()
                await ended(step)
            self.assertEqual(word.waiters(), 0)
            word.store(1)
            self.assertEqual([n async for n in word.watch(0)], [])

        asyncio.run(main(bytearray(64)))

    def test_a_watch_that_ends_passes_its_notifies_on(self):
        async def main(memory):
            word = memwait.Word(memory)
            watch = word.watch(0)
            step = asyncio.ensure_future(anext(watch))
            while word.waiters() != 1:
                await asyncio.sleep(0)
            other = asyncio.ensure_future(word.wait_async(0))
            while word.waiters() != 2:
                await asyncio.sleep(0)
            self.assertEqual(word.notify(1), 1)
            until(lambda: hub().loop.dispatch())
            step.cancel()
            self.assertTrue(await ended(step))
            self.assertIs(await other, memwait.Outcome.OK)

        asyncio.run(main(bytearray(64)))

    def test_interrupt_of_a_callback(self):
        """dispatch() raises the exception of a signal handler, and the task still gets its permit.
        """
        def late(*_):
            raise TimeoutError(errno.EBADF, "a handler's own")

        for number, handler in ((signal.SIGINT, signal.default_int_handler),
                                (signal.SIGALRM, late)):
            before = signal.signal(number, handler)
            self.addCleanup(signal.signal, number, before)
        for numbers, error in (((signal.SIGINT,), KeyboardInterrupt),
                               ((signal.SIGALRM,), TimeoutError),
                               ((signal.SIGINT, signal.SIGALRM), KeyboardInterrupt)):
            with self.subTest(numbers):
                self.interrupt_a_callback(numbers, error)

    def interrupt_a_callback(self, numbers, error):
        semaphore = memwait.Semaphore(bytearray(64), value=0, create=True)
        loop = asyncio.new_event_loop()

        async def begin():
            task = asyncio.ensure_future(semaphore.acquire_async())
            await asyncio.sleep(0)
            return task, hub()

        task, waiting = loop.run_until_complete(begin())
        semaphore.release()
        select.select([waiting.loop.fileno()], [], [])
        reported = []
        hook, sys.unraisablehook = sys.unraisablehook, lambda what: reported.append(what.exc_type)
        try:
            # No bytecode runs between these calls, so the handlers run in the callback.
            calls = [functools.partial(_thread.interrupt_main, number) for number in numbers]
            with self.assertRaises(error):
                list(map(operator.call, [*calls, waiting.loop.dispatch]))
        finally:
            sys.unraisablehook = hook
        self.assertEqual(len(reported), len(numbers) - 1)
        self.assertIs(loop.run_until_complete(task), True)
        loop.close()
        semaphore.close()

    def test_an_error_of_a_handler_is_not_one_of_the_device(self):
        """An OSError that a handler raises in dispatch() does not invalidate the hub."""
        async def main(memory):
            semaphore = memwait.Semaphore(memory, value=0, create=True)
            task = asyncio.ensure_future(semaphore.acquire_async())
            while not waiters(memory, 0, 16):
                await asyncio.sleep(0)
            used = hub()
            errors = [TimeoutError(errno.EBADF, "a handler's")]

            def interrupted(operation):
                if errors:
                    raise errors.pop()

            word = memwait.Word(memory, 32)
            word._begin(used.loop, interrupted, _memwait.COMPARE, None, 0)
            word.notify()
            select.select([used.loop.fileno()], [], [])
            with self.assertRaises(TimeoutError):
                used.dispatch()
            semaphore.release()
            self.assertIs(await task, True)
            self.assertIs(hub(), used)

        asyncio.run(main(bytearray(64)))

    def test_interrupt_of_a_watch(self):
        memory = bytearray(64)
        word = memwait.Word(memory)
        loop = asyncio.new_event_loop()
        watch = word.watch(0)

        async def begin():
            step = asyncio.ensure_future(anext(watch))
            while not word.waiters():
                await asyncio.sleep(0)
            return step, hub()

        step, waiting = loop.run_until_complete(begin())
        self.assertEqual(word.notify(), 1)
        select.select([waiting.loop.fileno()], [], [])
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with self.assertRaises(KeyboardInterrupt):
            list(map(operator.call, [_thread.interrupt_main, waiting.loop.dispatch]))
        self.assertEqual(loop.run_until_complete(step), 1)
        loop.run_until_complete(watch.aclose())
        loop.close()
        word.close()

    def test_close_while_a_task_waits(self):
        async def main(memory):
            semaphore = memwait.Semaphore(memory, value=0, create=True)
            task = asyncio.ensure_future(semaphore.acquire_async())
            await asyncio.sleep(0)
            with self.assertRaises(BufferError):
                semaphore.close()
            task.cancel()
            self.assertTrue(await ended(task))
            semaphore.close()
            with self.assertRaises(ValueError):
                await semaphore.acquire_async()

        asyncio.run(main(bytearray(64)))

    def test_no_loop(self):
        semaphore = memwait.Semaphore(bytearray(64), create=True)
        coroutine = semaphore.acquire_async()
        with self.assertRaises(RuntimeError):
            coroutine.send(None)

    def test_the_descriptor_is_lost(self):
        """If the program closes the descriptor, pending waits fail, and the next wait opens
        another.
        """
        async def main(memory):
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            lock = memwait.Semaphore(memory, value=0, create=True)
            task = asyncio.ensure_future(lock.acquire_async())
            await asyncio.sleep(0)
            fd = hub().loop.fileno()
            os.dup2(os.open("/dev/null", os.O_RDONLY), fd)
            hub_before = hub()
            with contextlib.suppress(OSError):
                hub_before.dispatch()
            with self.assertRaises(OSError):
                await task
            os.close(fd)
            lock.release()
            self.assertTrue(await lock.acquire_async())

        asyncio.run(main(bytearray(64)))

    def test_threads_with_loops(self):
        """Each event loop has its own hub; tasks of several threads take turns."""
        memory = mmap.mmap(-1, 4096)
        lock = memwait.Lock(memory, create=True)
        count = [0]

        async def add():
            for _ in range(20):
                async with lock:
                    was = count[0]
                    await asyncio.sleep(0)
                    count[0] = was + 1

        async def main():
            await asyncio.gather(*(add() for _ in range(3)))

        threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(count, [120])
        self.assertEqual(waiters(memory), 0)
