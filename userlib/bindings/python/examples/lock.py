# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Two processes and two tasks take turns with one lock. The event loop runs while the tasks
wait."""

import asyncio
import multiprocessing
from multiprocessing.shared_memory import SharedMemory

import memwait

TIMES = 200
layout = memwait.Layout(lock=memwait.Lock, account=8)


def deposit(memory):
    """Add 1, not atomically: without the lock, some deposits would be lost."""
    account = memory.buf[layout["account"]:layout.size]
    account[:8] = (int.from_bytes(account[:8], "little") + 1).to_bytes(8, "little")


def work(memory, lock):
    for _ in range(TIMES):
        with lock:
            deposit(memory)


async def work_async(memory, lock):
    for _ in range(TIMES):
        async with lock:
            deposit(memory)


async def tick(ticks):
    while True:
        ticks.append(1)
        await asyncio.sleep(0)


async def main(memory, lock):
    ticks = []
    ticking = asyncio.ensure_future(tick(ticks))
    await asyncio.gather(work_async(memory, lock), work_async(memory, lock))
    ticking.cancel()
    return len(ticks)


if __name__ == "__main__":
    memory = SharedMemory(create=True, size=layout.size)
    lock = memwait.Lock(memory, layout["lock"], create=True, fair=True)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(memory, lock)) for _ in range(2)]
    for worker in workers:
        worker.start()
    ticks = asyncio.run(main(memory, lock))
    for worker in workers:
        worker.join()
    account = int.from_bytes(memory.buf[layout["account"]:layout["account"] + 8], "little")
    lock.close()
    memory.close()
    memory.unlink()
    print(f"two processes, two tasks: {account} deposits")
    assert account == 4 * TIMES and ticks
