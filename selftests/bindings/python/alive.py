# SPDX-License-Identifier: GPL-2.0-only
"""An interpreter ends, in each way, while there are objects of each kind: it has nothing to say."""

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
from common import until, waiters

LAYOUT = memwait.Layout(
    lock=memwait.Lock, rlock=memwait.RLock, condition=memwait.Condition,
    semaphore=memwait.Semaphore, bounded=memwait.BoundedSemaphore, rwlock=memwait.RWLock,
    barrier=memwait.Barrier, group=memwait.WaitGroup, jobs=(memwait.Queue, 8, 2),
    word=memwait.Word, event=memwait.Event)


class Objects:
    """One of each."""

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
        """A cycle through each of them."""

    def all(self):
        return list(vars(self).values())

    def waits(self):
        return (self.lock.acquire_async(), self.semaphore.acquire_async(),
                self.barrier.wait_async(), self.group.wait_async(), self.jobs.get_async(),
                self.word.wait_async(0), self.event.wait_async())


def shared():
    memory = SharedMemory(create=True, size=LAYOUT.size)
    memory.unlink()
    return memory


class Holder:
    """What has a buffer as SharedMemory has one, and knows its objects."""

    def __init__(self):
        self.buf = memoryview(mmap.mmap(-1, LAYOUT.size))
        self.objects = Objects(self)


MEMORIES = {
    "a SharedMemory": shared,
    "an mmap": lambda: mmap.mmap(-1, LAYOUT.size),
    "a memoryview": lambda: memoryview(bytearray(LAYOUT.size)),
    "a holder of its own": Holder,
}


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
            with self.kept[1].lock, self.kept[1].condition, self.kept[1].bounded:
                self.kept[1].event.set()

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
    atexit.register(objects.event.set)
    atexit.register(objects.all)
    sys.exit(7)


def taken(objects):
    for kept in (objects.lock, objects.rlock, objects.bounded, objects.rwlock.writer):
        kept.acquire()
    sys.exit(7)


def awaited(objects):
    async def main():
        globals()["kept"] = [asyncio.ensure_future(wait) for wait in objects.waits()]
        await asyncio.sleep(0)

    objects.lock.acquire()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)     # asyncio says that tasks are pending
    loop.run_until_complete(main())
    globals()["loop"] = loop
    sys.exit(7)


def waited_for(objects):
    waits = objects.semaphore.acquire, objects.group.wait, objects.barrier.wait, objects.event.wait
    for wait in waits:
        threading.Thread(target=wait, daemon=True).start()
    until(lambda: waiters(objects.lock.buffer, 0, LAYOUT.size) == len(waits))
    sys.exit(7)


def raises(objects):
    sys.excepthook = lambda *_: None

    def fails(kept):
        raise ZeroDivisionError
    fails(objects.all())


WAYS = [as_global, in_a_frame, as_default, in_a_class, in_a_module, in_a_cycle, for_a_finalizer,
        in_a_generator, at_exit, taken, awaited, waited_for, raises]


def told(function, *args):
    """The status of a child that calls it, and what that says."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(reader)
        os.close(writer)
        # The interpreter ends as that of any program.
        function(*args)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def ends(way, memory):
    source = memory()
    way(source.objects if isinstance(source, Holder) else Objects(source))


def use(lock, *others):
    with lock:
        pass


def use_and_close(lock, *others):
    use(lock)
    for other in (lock, *others):
        with contextlib.suppress(AttributeError):   # a side of a lock
            other.close()


def child_of(method, function):
    """With objects as arguments, which its Process keeps."""
    memory = SharedMemory(create=True, size=LAYOUT.size)
    objects = Objects(memory)
    objects.lock = memwait.Lock(memory, LAYOUT["lock"], create=True)    # its repair is no function
    process = multiprocessing.get_context(method).Process(target=function, args=objects.all())
    process.start()
    process.join()
    memory.unlink()
    sys.exit(1 if process.exitcode else 7)


# A process that is spawned imports this.
if __name__ == "__main__":
    signal.alarm(300)
    shared()    # Children need not start what tracks them.
    cases = [(ends, way, memory, f"{way.__name__} {name}")
             for way in WAYS for name, memory in MEMORIES.items()]
    cases += [(child_of, method, function, f"{method} {function.__name__}")
              for method, function in (("fork", use), ("spawn", use), ("spawn", use_and_close),
                                       ("forkserver", use))]
    bad = 0
    for function, first, second, name in cases:
        result = told(function, first, second)
        if result != (1 if first is raises else 7, ""):
            bad += 1
            print(f"{name}: {result[0]}", result[1], sep="\n")
    assert not bad, f"{bad} of {len(cases)} ways to end"
