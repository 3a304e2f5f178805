# SPDX-License-Identifier: GPL-2.0-only
"""An interpreter that exits in any way while objects of each kind exist prints nothing."""

import asyncio
import atexit
import contextlib
import mmap
import multiprocessing
import os
import signal
import sys
import threading
import types
from multiprocessing.shared_memory import SharedMemory

import memwait
from common import limit, until, waiters

LAYOUT = memwait.Layout(
    lock=memwait.Lock, rlock=memwait.RLock, condition=memwait.Condition,
    semaphore=memwait.Semaphore, bounded=memwait.BoundedSemaphore, rwlock=memwait.RWLock,
    barrier=memwait.Barrier, group=memwait.WaitGroup, jobs=(memwait.Queue, 8, 2),
    word=memwait.Word, event=memwait.Event)


class Objects:
    """One object of each kind."""

    def __init__(self, memory):
        at = LAYOUT.offsets
        self.lock = memwait.Lock(memory, at["lock"], create=True, repair=self.repair)
        self.rlock = memwait.RLock(memory, at["rlock"], create=True)
        self.condition = memwait.Condition(memory, at["condition"], lock=self.rlock, create=True)
        self.semaphore = memwait.Semaphore(memory, at["semaphore"], value=0, create=True)
        self.bounded = memwait.BoundedSemaphore(memory, at["bounded"], create=True)
        self.rwlock = memwait.RWLock(memory, at["rwlock"], create=True)
        self.sides = self.rwlock.reader, self.rwlock.writer
        self.barrier = memwait.Barrier(memory, at["barrier"], parties=2, create=True)
        self.group = memwait.WaitGroup(memory, at["group"], count=1, create=True)
        self.jobs = memwait.Queue(memory, at["jobs"], item_size=8, maxsize=2, create=True)
        self.word = memwait.Word(memory, at["word"])
        self.event = memwait.Event(memory, at["event"], create=True)

    def repair(self):
        """A bound method as repair= makes a reference cycle through all these objects."""

    def all(self):
        return list(vars(self).values())

    def waits(self):
        return (self.lock.acquire_async(), self.semaphore.acquire_async(),
                self.barrier.wait_async(), self.group.wait_async(), self.jobs.get_async(),
                self.word.wait_async(0), self.event.wait_async())


def shared():
    # A tracked segment would start the resource tracker, another process.
    untracked = {"track": False} if sys.version_info >= (3, 13) else {}
    memory = SharedMemory(create=True, size=LAYOUT.size, **untracked)
    memory.unlink()
    return memory


class Holder:
    """Has a buffer as attribute buf, like SharedMemory, and references its own objects."""

    def __init__(self):
        self.buf = memoryview(mmap.mmap(-1, LAYOUT.size))
        self.objects = Objects(self)


class Every:
    """Objects in each kind of memory."""

    def __init__(self):
        self.sets = [Objects(shared()), Objects(mmap.mmap(-1, LAYOUT.size)),
                     Objects(memoryview(bytearray(LAYOUT.size))), Holder().objects]

    def all(self):
        return [kept for objects in self.sets for kept in objects.all()]


def as_global(objects):
    globals()["kept"] = objects.all()
    sys.exit(7)


def in_a_frame(objects):
    def exits(kept):
        sys.exit(7)
    exits(objects.all())


def as_default(objects):
    def function(kept=objects.all()):
        pass
    globals()["kept"] = function
    sys.exit(7)


def in_a_class(objects):
    class Kept:
        kept = objects.all()
    sys.exit(7)


def in_a_module(objects):
    module = types.ModuleType("kept")
    module.kept = objects.all()
    sys.modules["kept"] = module
    sys.exit(7)


def in_a_cycle(objects):
    kept = objects.all()
    kept.append(kept)
    sys.exit(7)


def for_a_finalizer(objects):
    class Used:
        def __init__(self):
            self.kept = [self, objects]

        def __del__(self):
            for used in self.kept[1].sets:
                with used.lock, used.condition, used.bounded:
                    used.event.set()

    Used()
    sys.exit(7)


def in_a_generator(objects):
    def generator(kept):
        yield kept
    kept = generator(objects.all())
    next(kept)
    globals()["kept"] = kept
    sys.exit(7)


def at_exit(objects):
    for used in objects.sets:
        atexit.register(used.event.set)
    sys.exit(7)


def taken(objects):
    for used in objects.sets:
        for kept in (used.lock, used.rlock, used.bounded, used.rwlock.writer):
            kept.acquire()
    sys.exit(7)


def awaited(objects):
    async def main():
        globals()["kept"] = [asyncio.ensure_future(wait) for used in objects.sets
                             for wait in used.waits()]
        await asyncio.sleep(0)

    for used in objects.sets:
        used.lock.acquire()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)     # asyncio reports pending tasks
    loop.run_until_complete(main())
    globals()["loop"] = loop
    sys.exit(7)


def waited_for(objects):
    for used in objects.sets:
        waits = used.semaphore.acquire, used.group.wait, used.barrier.wait, used.event.wait
        for wait in waits:
            threading.Thread(target=wait, daemon=True).start()
        until(lambda: waiters(used.lock.buffer, 0, LAYOUT.size) == len(waits))
    sys.exit(7)


def raises(objects):
    sys.excepthook = lambda *_: None

    def fails(kept):
        raise ZeroDivisionError
    fails(objects.all())


WAYS = [as_global, in_a_frame, as_default, in_a_class, in_a_module, in_a_cycle, for_a_finalizer,
        in_a_generator, at_exit, taken, awaited, waited_for, raises]


def run_in_child(function, *args):
    """Calls the function in a child; returns the child's exit status and its output."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(reader)
        os.close(writer)
        # Without os._exit(): the interpreter must exit like that of any program.
        function(*args)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def ends(way):
    way(Every())


def use(lock, *others):
    with lock:
        pass


def use_and_close(lock, *others):
    use(lock)
    for other in (lock, *others):
        with contextlib.suppress(AttributeError):   # a side of a lock has no close()
            other.close()


def child_of(method, function):
    """Passes objects as arguments to a Process, which retains them."""
    memory = SharedMemory(create=True, size=LAYOUT.size)
    objects = Objects(memory)
    # Without repair=, because a bound method of Objects cannot be passed to the process
    objects.lock = memwait.Lock(memory, LAYOUT["lock"], create=True)
    process = multiprocessing.get_context(method).Process(target=function, args=objects.all())
    process.start()
    process.join()
    memory.unlink()
    sys.exit(1 if process.exitcode else 7)


# A spawned process imports this file.
if __name__ == "__main__":
    signal.alarm(limit(300))
    cases = [(ends, way) for way in WAYS]
    cases += [(child_of, "fork", use), (child_of, "spawn", use), (child_of, "spawn", use_and_close),
              (child_of, "forkserver", use)]
    bad = 0
    for case in cases:
        status, text = run_in_child(*case)
        if status != (1 if raises in case else 7) or text:
            bad += 1
            print(*(getattr(part, "__name__", part) for part in case), status)
            print(text)
    assert not bad, f"{bad} of {len(cases)} ways to exit failed"
