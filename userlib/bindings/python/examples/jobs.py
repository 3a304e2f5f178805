# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A queue between processes: tasks in one process send numbers, and a thread in another adds
them."""

import asyncio
import mmap
import multiprocessing
import os
import struct

import memwait

ITEMS = 300
SIZE = memwait.Queue.size(8, 16)


def receive(file):
    """Attach to the queue in the file. The queue itself records the size of its items."""
    with mmap.mmap(file, SIZE) as memory:
        queue = memwait.Queue(memory)
        total = 0
        try:
            while True:
                total += struct.unpack("=q", queue.get())[0]
        except memwait.ShutDown:
            pass
        queue.close()
    assert total == sum(range(ITEMS)), total
    print(f"{ITEMS} items, their sum is {total}", flush=True)


async def send(queue, numbers):
    for number in numbers:
        await queue.put_async(struct.pack("=q", number))


async def main(queue):
    await asyncio.gather(*(send(queue, range(first, ITEMS, 3)) for first in range(3)))


if __name__ == "__main__":
    file = os.memfd_create("queue")
    os.ftruncate(file, SIZE)
    with mmap.mmap(file, SIZE) as memory:
        queue = memwait.Queue(memory, item_size=8, maxsize=16, create=True)
        receiver = multiprocessing.get_context("fork").Process(target=receive, args=(file,))
        receiver.start()
        asyncio.run(main(queue))
        queue.shutdown()
        receiver.join()
        queue.close()
    assert receiver.exitcode == 0
