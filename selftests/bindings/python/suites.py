# SPDX-License-Identifier: GPL-2.0-only
"""CPython's own tests of threading, asyncio, queue and multiprocessing, with memwait's objects.

suites.txt lists the tests that fail, with the reasons; a test that would wait forever is not run.
Prints TAP with a point for each suite. A suite passes if only listed tests fail and all listed
tests fail (except tests that are listed as failing now and then). The tests have time limits for an
idle machine, so a test that fails is repeated up to twice.
"""

import asyncio
import faulthandler
import logging
import mmap
import multiprocessing
import os
import queue
import signal
import sys
import threading
import types
import unittest
import warnings

import memwait
from common import limit, waiters

try:
    from test import _test_multiprocessing, lock_tests, test_queue
    from test.test_asyncio import test_locks
except ImportError as error:
    print(f"1..0 # SKIP CPython's tests are not installed: {error}")
    sys.exit(4)

ITEM_SIZE = 80
BOUNDLESS = 1 << 17
INDEX = 1024            # offset of a barrier's counter


def memory(size=4096):
    return mmap.mmap(-1, size)


# Each object has its own memory, which is shared with forked children.

def Lock():
    return memwait.Lock(memory(), create=True)


def RLock():
    return memwait.RLock(memory(), create=True)


def Condition(lock=None):
    return memwait.Condition(memory(), create=True, lock=lock or RLock())


def Event():
    return memwait.Event(memory(), create=True)


def Semaphore(value=1):
    return memwait.Semaphore(memory(), create=True, value=value)


def BoundedSemaphore(value=1):
    return memwait.BoundedSemaphore(memory(), create=True, value=value)


class Barrier(memwait.Barrier):
    """A barrier of memwait returns 0 to one participant and 1 to the others. A program that needs
    an index for each participant counts them as they leave.
    """

    def __new__(cls, parties, action=None, timeout=None):
        self = super().__new__(cls, memory(), parties=parties, action=action, timeout=timeout,
                               create=True)
        self.left = memwait.Word(self.buffer, INDEX)
        return self

    def wait(self, timeout=None):
        super().wait(timeout)
        return self.left.add(1) % self.parties

    async def wait_async(self, timeout=None):
        await super().wait_async(timeout)
        return self.left.add(1) % self.parties


class Queue(memwait.JoinableQueue):
    """A queue of memwait is always bounded, but the tests do not reach this bound."""

    def __new__(cls, maxsize=0):
        size = memwait.JoinableQueue.size(ITEM_SIZE, maxsize or BOUNDLESS)
        return super().__new__(cls, memory(size), item_size=ITEM_SIZE, create=True,
                               maxsize=maxsize or BOUNDLESS)

    def __init__(self, maxsize=0):
        super().__init__(self.buffer, item_size=ITEM_SIZE, create=True,
                         maxsize=maxsize or BOUNDLESS)


class ForTasks:
    """An object of memwait with asyncio's names: NAME is memwait's NAME_async."""

    ours = None

    def __repr__(self):
        return repr(self.ours)

    def __getattr__(self, name):
        if self.ours is None or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.ours, name + "_async", None) or getattr(self.ours, name)

    async def __aenter__(self):
        return await self.ours.__aenter__()

    async def __aexit__(self, *error):
        await self.ours.__aexit__(*error)

    # The private attributes of asyncio's classes that the tests use
    @property
    def _waiters(self):
        return [None] * waiters(self.ours.buffer, 0, self.ours.SIZE)

    @property
    def _value(self):
        return self.ours.get_value()


class Tasks:
    class Lock(ForTasks):
        def __init__(self):
            self.ours = memwait.Lock(memory(), create=True, fair=True)

    class Event(ForTasks):
        def __init__(self):
            self.ours = Event()

    class Condition(ForTasks):
        def __init__(self, lock=None):
            self._lock = lock or Tasks.Lock()
            self.ours = Condition(self._lock.ours)

    class Semaphore(ForTasks):
        def __init__(self, value=1):
            self.ours = memwait.Semaphore(memory(), create=True, value=value, fair=True)

    class BoundedSemaphore(ForTasks):
        def __init__(self, value=1):
            self.ours = BoundedSemaphore(value)

    class Barrier(ForTasks):
        def __init__(self, parties):
            self.ours = Barrier(parties)

        async def __aenter__(self):
            return await self.wait()

        async def __aexit__(self, *error):
            pass

        async def reset(self):
            self.ours.reset()

        async def abort(self):
            self.ours.abort()

    BrokenBarrierError = memwait.BrokenBarrierError

    @staticmethod
    async def sleep(delay):
        """asyncio's tests call sleep(0) once for each iteration of asyncio's loop that a wake-up
        takes. A wake-up by memwait takes more iterations.
        """
        for _ in range(1 if delay else 8):
            await asyncio.sleep(delay)


class Over:
    """A module of which some names are replaced."""

    def __init__(self, module, names):
        self.module, self.names = module, names

    def __getattr__(self, name):
        return getattr(self.names if hasattr(self.names, name) else self.module, name)


lock_tests.threading = Over(threading, types.SimpleNamespace(Lock=Lock))
test_locks.asyncio = Over(asyncio, Tasks)
QUEUES = types.SimpleNamespace(Queue=Queue, Empty=queue.Empty, Full=queue.Full,
                               ShutDown=memwait.ShutDown)


class Processes(_test_multiprocessing.ProcessesMixin):
    Lock, RLock, Condition, Event = map(staticmethod, (Lock, RLock, Condition, Event))
    Semaphore, BoundedSemaphore = map(staticmethod, (Semaphore, BoundedSemaphore))
    Barrier, Queue, JoinableQueue = map(staticmethod, (Barrier, Queue, Queue))


# These tests use multiprocessing's own queue, not the one that they are given.
THEIRS = dict.fromkeys(
    ["test_no_import_lock_contention", "test_timeout", "test_queue_feeder_on_queue_feeder_error",
     "test_closed_queue_empty_exceptions", "test_closed_queue_put_get_exceptions"])


def case(name, *bases, **names):
    return type(name, (*bases, unittest.TestCase), names)


def threads(name, base, **names):
    return case(name, base, **{what: staticmethod(kind) for what, kind in names.items()})


SUITES = {
    "lock_tests": [
        threads("Lock", lock_tests.LockTests, locktype=Lock),
        threads("RLock", lock_tests.RLockTests, locktype=RLock),
        threads("Event", lock_tests.EventTests, eventtype=Event),
        threads("Condition", lock_tests.ConditionTests, condtype=Condition),
        threads("Semaphore", lock_tests.SemaphoreTests, semtype=Semaphore),
        threads("BoundedSemaphore", lock_tests.BoundedSemaphoreTests, semtype=BoundedSemaphore),
        threads("Barrier", lock_tests.BarrierTests, barriertype=Barrier),
    ],
    "test_asyncio.test_locks": [
        type(name, (getattr(test_locks, name + "Tests"),), {})
        for name in ("Lock", "Event", "Condition", "Semaphore", "Barrier")
    ],
    "test_queue": [
        case("Queue", test_queue.QueueTest, queue=QUEUES),
        case("SimpleQueue", test_queue.BaseSimpleQueueTest, queue=QUEUES,
             type2test=staticmethod(Queue)),
    ],
    "test_multiprocessing": [
        case(name, Processes, getattr(_test_multiprocessing, "_Test" + name),
             **THEIRS if name == "Queue" else {})
        for name in ("Lock", "Semaphore", "Condition", "Event", "Barrier", "Queue")
    ],
}


def hangs(*_):
    raise TimeoutError("the test hangs")


def attempt(kind, method):
    """Runs a test; returns its messages if it fails, an empty text if it passes, None if it is
    skipped.
    """
    result = unittest.TestResult()
    faulthandler.dump_traceback_later(limit(150), exit=True)
    signal.alarm(limit(60))
    unittest.TestSuite([kind(method)]).run(result)
    signal.alarm(0)
    faulthandler.cancel_dump_traceback_later()
    if result.skipped:
        return None
    return "".join(text for _, text in result.errors + result.failures)


def run(suite, kinds, listed):
    """Returns the number of tests, and whether all have the results that the list states;
    prints the tests that do not.
    """
    total, passed, wrong = 0, 0, 0
    for kind in kinds:
        for method in unittest.defaultTestLoader.getTestCaseNames(kind):
            name = f"{suite} {kind.__name__}.{method}"
            reason = listed.pop(name, None)
            if reason and reason.startswith("not run"):
                total += 1
                continue
            for _ in range(1 if reason else 3):
                said = attempt(kind, method)
                if not said:
                    break
            if said is None:
                print(f"# {name}: skipped")
                continue
            total += 1
            passed += not said
            if bool(said) != bool(reason) and not (reason or "").startswith("now and then"):
                wrong += 1
                print(f"# {name}:", *(said or "passes, but is listed").splitlines(), sep="\n# ")
            sys.stdout.flush()
    print(f"# {suite}: {passed} of {total}")
    return total, not wrong and total > 0


def main(wanted):
    # Warnings about fork() in a process with threads, and about coroutines and
    # tasks that a test has left.
    warnings.simplefilter("ignore")
    logging.disable()
    signal.signal(signal.SIGALRM, hangs)
    with open(os.path.join(os.path.dirname(__file__), "suites.txt"), encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and line[0] != "#"]
    counted = int(lines.pop(0).split()[1])
    listed = dict(line.split(": ", 1) for line in lines)
    print("TAP version 13")
    bad = total = 0
    suites = {suite: kinds for suite, kinds in SUITES.items() if suite in wanted or not wanted}
    for number, (suite, kinds) in enumerate(suites.items(), 1):
        ran, good = run(suite, kinds, listed)
        total += ran
        bad += not good
        print("ok" if good else "not ok", number, suite, flush=True)
    unknown = [] if wanted else list(listed)
    print("# no such test: ", *unknown, sep="\n# ") if unknown else None
    if not wanted and total != counted:
        print(f"# {total} tests, and the list says {counted}")
    unlike = bool(unknown) or (not wanted and total != counted)
    print("not ok" if unlike else "ok", len(suites) + 1, "the list of tests is complete")
    print(f"1..{len(suites) + 1}", flush=True)
    return bad > 0 or unlike


if __name__ == "__main__":
    failed = main(sys.argv[1:])
    # Threads and processes of failed tests may wait forever, and a normal exit would wait for them.
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(failed)
