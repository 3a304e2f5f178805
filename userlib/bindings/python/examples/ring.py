# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A broadcast ring in shared memory: one writer, readers in other processes, items of any length.

Each process has a seat: a word with the number of bytes that it has put or got, and a robust lock
that it holds for as long as it lives. A reader waits for the writer's word, as a thread or as a
task. If the ring is full, the writer waits for the word of the slowest reader.

Order. The bytes of items are copied without atomic operations. The words order the copies; their
loads and stores are atomic and sequentially consistent on every machine:
- The writer copies an item in, then stores its word. A reader that loads the word copies the item
  out.
- A reader copies an item out, then stores its word. The writer that loads the word overwrites the
  item.
Stores with struct or ctypes would be ordered on x86 only, and would not be guaranteed to be atomic.

Wake-ups. Each store is followed by a notify. A wait returns immediately if the word differs from
the value that was loaded, so no notify is missed between the load and the wait.

Deaths. If a process dies, even between its store and its notify, its lock passes to the other
processes, which set the bit GONE in the word of the dead process, and notify. Items that the writer
has put can still be read. An item that it was putting does not exist, because its word has not
moved. The writer does not wait for a dead reader.

A slow reader holds up the writer until put() times out. The writer may then try again, or kill the
reader.

Positions have 63 bits and never wrap. A seat is taken only once.
"""

import asyncio
import multiprocessing
import os
import signal
import struct
import threading
import time
from multiprocessing.shared_memory import SharedMemory

import memwait

GONE = 1            # in a word; the bits above are the position
WRITER = 0          # the seat of the writer; those of readers follow
DATA = 4096         # bytes for items
START = 64          # bytes for the barrier
seat = memwait.Layout(word=memwait.Word, life=memwait.Lock)


class Ring:
    """The shared ring. It is made before the processes start."""

    def __init__(self, readers):
        data = START + (1 + readers) * seat.size
        self.memory = SharedMemory(create=True, size=data + DATA)
        self.data = self.memory.buf[data:data + DATA]
        self.start = memwait.Barrier(self.memory, parties=1 + readers, create=True)
        seats = range(START, data, seat.size)
        self.words = [memwait.Word(self.memory, at + seat["word"], size=8) for at in seats]
        # Nothing needs repair: the word of a dead process is the position of its last whole item.
        self.lives = [memwait.Lock(self.memory, at + seat["life"], create=True, repair=lambda: None)
                      for at in seats]
        self.readers = range(1, 1 + readers)

    def close(self):
        self.data.release()
        for part in (self.start, *self.words, *self.lives):
            part.close()
        self.memory.close()
        self.memory.unlink()

    def sit(self, number):
        """Take a seat, and wait for all others. The end of this thread counts as a death."""
        self.lives[number].acquire()
        self.start.wait()

    def wait(self, number, seen, timeout=None):
        """Wait until the word of a seat differs from seen. May return earlier."""
        self.words[number].wait(seen, timeout)

    def wake(self, number):
        self.words[number].notify()

    def advance(self, number, position):
        self.words[number].store(position << 1)
        self.wake(number)

    def mark(self, number):
        """Mark a dead process, which no longer stores. All other processes store the same value."""
        self.words[number].store(self.words[number].load() | GONE)
        self.wake(number)

    def bury(self, number):
        """Wait until a process dies. Then mark its word, and wake the waiters of that word."""
        with self.lives[number]:
            self.mark(number)

    async def bury_async(self, number):
        """bury() for tasks."""
        async with self.lives[number]:
            self.mark(number)

    def watch(self, *numbers):
        """Run bury() in threads."""
        for number in numbers:
            threading.Thread(target=self.bury, args=(number,), daemon=True).start()

    def copy_in(self, at, record):
        first = min(len(record), DATA - at % DATA)
        self.data[at % DATA:at % DATA + first] = record[:first]
        self.data[:len(record) - first] = record[first:]

    def copy_out(self, at, length):
        record = bytes(self.data[at % DATA:at % DATA + length])
        return record + bytes(self.data[:length - len(record)])


class Writer:
    def __init__(self, ring):
        self.ring, self.at = ring, 0

    def await_room(self, length, timeout=None):
        """Wait for room. False: timed out, because a live reader has left no room."""
        end = None if timeout is None else time.monotonic() + timeout
        for number in self.ring.readers:
            word = self.ring.words[number]
            while not (seen := word.load()) & GONE and self.at + length - (seen >> 1) > DATA:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.ring.wait(number, seen, left)
        return True

    def put(self, item, timeout=None):
        """Put an item. False: timed out, because a live reader has left no room."""
        record = struct.pack("=I", len(item)) + item
        if len(record) > DATA:
            raise ValueError("longer than the ring")
        if not self.await_room(len(record), timeout):
            return False
        self.ring.copy_in(self.at, record)
        self.at += len(record)
        self.ring.advance(WRITER, self.at)
        return True


class Reader:
    def __init__(self, ring, number):
        self.ring, self.number, self.at = ring, number, 0
        self.word = ring.words[WRITER]

    def is_empty(self, seen):
        return seen >> 1 == self.at and not seen & GONE

    def get(self):
        """Return the next item, or None after the last item of a writer that has died."""
        while self.is_empty(seen := self.word.load()):
            self.ring.wait(WRITER, seen)
        return self.take(seen)

    async def get_async(self):
        """get() for tasks."""
        while self.is_empty(seen := self.word.load()):
            await self.word.wait_async(seen)
        return self.take(seen)

    def take(self, seen):
        if seen >> 1 == self.at:
            return None
        length, = struct.unpack("=I", self.ring.copy_out(self.at, 4))
        item = self.ring.copy_out(self.at + 4, length)
        self.at += 4 + length
        self.ring.advance(self.number, self.at)
        return item


# One reader is a thread, one is a task. The third reader stops; when the ring is full, the writer
# kills this reader. Finally, the writer dies within a put.

ITEMS = 400


def item(number):
    return struct.pack("=I", number) + bytes(number % 200)


def read(ring):
    ring.sit(1)
    ring.watch(WRITER)
    reader, count = Reader(ring, 1), 0
    while (got := reader.get()) is not None:
        assert got == item(count)
        count += 1
    assert count == ITEMS


async def read_async(ring):
    ring.sit(2)
    watching = asyncio.create_task(ring.bury_async(WRITER))
    reader, count = Reader(ring, 2), 0
    while (got := await reader.get_async()) is not None:
        assert got == item(count)
        count += 1
    await watching
    assert count == ITEMS


def read_in_task(ring):
    asyncio.run(read_async(ring))


def read_some(ring):
    ring.sit(3)
    reader = Reader(ring, 3)
    for _ in range(ITEMS // 2):
        reader.get()
    os.kill(os.getpid(), signal.SIGSTOP)


def write(ring, slow):
    ring.sit(WRITER)
    ring.watch(*ring.readers)
    writer, refused = Writer(ring), 0
    for number in range(ITEMS):
        while not writer.put(item(number), timeout=1):
            if not refused:
                os.kill(slow, signal.SIGKILL)
            refused += 1
    print(f"{ITEMS} items; the slow reader was killed", flush=True)
    assert refused
    writer.await_room(100)
    ring.copy_in(writer.at, item(ITEMS)[:100])
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    context = multiprocessing.get_context("fork")
    ring = Ring(3)
    processes = [context.Process(target=target, args=(ring,))
                 for target in (read, read_in_task, read_some)]
    for process in processes:
        process.start()
    processes.append(context.Process(target=write, args=(ring, processes[2].pid)))
    processes[-1].start()
    for process in processes:
        process.join()
    ring.close()
    assert [process.exitcode for process in processes] == [0, 0, -signal.SIGKILL, -signal.SIGKILL]
    print("the other two got all, and learned that the writer had died")


if __name__ == "__main__":
    main()
