# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A broadcast ring in shared memory: one writer, readers in other processes, items of any length.
A reader may be a thread or a task. Readers may join and die at any time.

Each process has a seat: a word with the position up to which it has put or got bytes, and a robust
lock that it holds for as long as it lives. A reader waits for the writer's word. If the ring is
full, the writer waits for the word of the slowest reader.

Order. The bytes of items are copied without atomic operations. The words order the copies; their
loads and stores are atomic and sequentially consistent on every machine:
- The writer copies an item in, then stores its word. A reader that loads the word copies the item
  out.
- A reader copies an item out, then stores its word. The writer that loads the word overwrites the
  item.
Stores with struct or ctypes would be ordered on x86 only, and would not be guaranteed to be atomic.

Wake-ups. A waiter sets the bit WAITED in the word by compare_exchange(), and then waits while the
word has that value. The owner of the seat stores its word by exchange(), and notifies only if the
old value has the bit. If the exchange is first, the compare_exchange() fails, and the waiter looks
again. Otherwise the owner sees the bit; its notify finds the waiter, or the wait returns
immediately because the word has changed. The bit of a waiter that has died or timed out causes one
superfluous notify.

A reader stores its word when it has got a quarter of the ring or finds the ring empty. The writer
therefore sleeps at most once for each quarter and reader, and may see up to a quarter less room
than there is.

Joining. A reader stores its position, and then loads the writer's word again. The writer stores its
word, and then loads the positions of the readers. If the reader finds its position in the writer's
word, the writer sees the reader before it puts another item. Otherwise the reader tries again.

Deaths. If a process dies, even between its store and its notify, its lock passes to another
process, which sets the bit GONE in the word of the dead process, and notifies even if WAITED is not
set. So does a process that takes the seat again. Items that the writer has put can still be read.
An item that it was putting does not exist, because its word has not moved. The writer does not wait
for a dead reader.

A slow reader holds up the writer until put() times out. The writer may then try again, or kill the
reader.

Positions have 62 bits and never wrap, so no value of a word comes back.
"""

import asyncio
import multiprocessing
import os
import random
import signal
import struct
import threading
import time
from multiprocessing.shared_memory import SharedMemory

import memwait

GONE = 1            # in a word: the seat is free, or its process is dead
WAITED = 2          # in a word: the word may have waiters
SHIFT = 2           # a word is position << SHIFT | bits
WRITER = 0          # the seat of the writer; those of readers follow
DATA = 4096         # bytes for items
START = 64          # bytes for the barrier
seat = memwait.Layout(word=memwait.Word, life=memwait.Lock)


class Ring:
    """The shared ring. It is made before the processes start."""

    def __init__(self, readers, late=0):
        """The last readers, as many as late, do not take part in the start."""
        data = START + (1 + readers) * seat.size
        self.memory = SharedMemory(create=True, size=data + DATA)
        self.data = self.memory.buf[data:data + DATA]
        self.start = memwait.Barrier(self.memory, parties=1 + readers - late, create=True)
        seats = range(START, data, seat.size)
        self.words = [memwait.Word(self.memory, at + seat["word"], size=8) for at in seats]
        for word in self.words:
            word.store(GONE)
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

    def sit(self, number, late=False):
        """Take a seat, and return its position. The end of this thread counts as a death."""
        self.lives[number].acquire()
        position, looked = None, self.words[WRITER].load() >> SHIFT
        while position != looked:
            position = looked
            self.words[number].store(position << SHIFT)
            looked = self.words[WRITER].load() >> SHIFT
        self.wake(number)
        if not late:
            self.start.wait()
        return position

    def expect(self, number, seen):
        """Set WAITED in a word. Return the value to wait for, or None if the word has changed."""
        if seen & WAITED or self.words[number].compare_exchange(seen, seen | WAITED) == seen:
            return seen | WAITED
        return None

    def wait(self, number, seen, timeout=None):
        """Wait until the word of a seat differs from seen. May return earlier."""
        self.words[number].wait(seen, timeout)

    def wake(self, number):
        self.words[number].notify()

    def advance(self, number, position):
        if self.words[number].exchange(position << SHIFT) & WAITED:
            self.wake(number)

    def mark(self, number):
        """Mark a dead process, which no longer stores. If this store clears WAITED, the notify is
        for the process that has set the bit."""
        self.words[number].store(self.words[number].load() | GONE)
        self.wake(number)

    def bury(self, number):
        """Wait for the deaths of the processes in a seat, and wake those that wait for them."""
        while True:
            while (seen := self.words[number].load()) & GONE:
                if (seen := self.expect(number, seen)) is not None:
                    self.wait(number, seen)
            with self.lives[number]:
                self.mark(number)

    async def bury_async(self, number):
        """Wait for the death of a process, for tasks."""
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
        self.limit = 0                  # no reader needs the bytes before limit - DATA

    def await_room(self, length, timeout=None):
        """Wait for room. False: timed out, because a live reader has left no room."""
        end = None if timeout is None else time.monotonic() + timeout
        limit = self.at + DATA
        for number in self.ring.readers:
            while not (seen := self.ring.words[number].load()) & GONE:
                free = (seen >> SHIFT) + DATA
                if self.at + length <= free:
                    limit = min(limit, free)
                    break
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if (seen := self.ring.expect(number, seen)) is not None:
                    self.ring.wait(number, seen, left)
        self.limit = limit
        return True

    def put(self, item, timeout=None):
        """Put an item. False: timed out, because a live reader has left no room."""
        record = struct.pack("=I", len(item)) + item
        if len(record) > DATA:
            raise ValueError("longer than the ring")
        if self.at + len(record) > self.limit and not self.await_room(len(record), timeout):
            return False
        self.ring.copy_in(self.at, record)
        self.at += len(record)
        self.ring.advance(WRITER, self.at)
        return True


class Reader:
    def __init__(self, ring, number, at=0):
        self.ring, self.number, self.word = ring, number, ring.words[WRITER]
        self.at = self.stored = self.end = at     # got; stored in the word; put by the writer
        self.seen = None

    def is_empty(self):
        """True: no item is there while the writer's word is self.seen."""
        while self.at == self.end:
            seen = self.word.load()
            self.end = seen >> SHIFT
            if self.at == self.end:
                if seen & GONE:
                    break
                self.publish()
                self.seen = self.ring.expect(WRITER, seen)
                if self.seen is not None:
                    return True
        return False

    def publish(self):
        if self.stored != self.at:
            self.stored = self.at
            self.ring.advance(self.number, self.at)

    def get(self):
        """Return the next item, or None after the last item of a writer that has died."""
        while self.is_empty():
            self.ring.wait(WRITER, self.seen)
        return self.take()

    async def get_async(self):
        """get() for tasks."""
        while self.is_empty():
            await self.word.wait_async(self.seen)
        return self.take()

    def take(self):
        if self.at == self.end:
            return None
        length, = struct.unpack("=I", self.ring.copy_out(self.at, 4))
        item = self.ring.copy_out(self.at + 4, length)
        self.at += 4 + length
        if self.at - self.stored >= DATA // 4:
            self.publish()
        return item


# One reader is a thread, one is a task. The third stops; when the ring is full, the writer kills
# it. Readers that join late are killed at any time. Finally, the writer dies within a put.

ITEMS = 4000


def item(number):
    """Some items fill the ring."""
    length = number % 200 if number % 500 else DATA - 8
    return struct.pack("=I", number) + bytes([number % 256]) * length


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


def read_late(ring):
    reader, count = Reader(ring, 4, ring.sit(4, late=True)), None
    ring.watch(WRITER)
    while (got := reader.get()) is not None:
        if count is None:
            count, = struct.unpack_from("=I", got)
        assert got == item(count)
        count += 1
    assert count in (None, ITEMS)


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
    ring = Ring(4, late=1)
    processes = [context.Process(target=target, args=(ring,))
                 for target in (read, read_in_task, read_some)]
    for process in processes:
        process.start()
    processes.append(context.Process(target=write, args=(ring, processes[2].pid)))
    processes[-1].start()
    killed = 0
    while processes[-1].is_alive():
        late = context.Process(target=read_late, args=(ring,))
        late.start()
        time.sleep(random.random() / 10)
        late.kill()
        late.join()
        assert late.exitcode in (0, -signal.SIGKILL)
        killed += late.exitcode != 0
    for process in processes:
        process.join()
    ring.close()
    assert killed
    assert [process.exitcode for process in processes] == [0, 0, -signal.SIGKILL, -signal.SIGKILL]
    print("two readers got all, and learned that the writer had died; late readers were killed")


if __name__ == "__main__":
    main()
