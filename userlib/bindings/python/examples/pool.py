# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""An asyncio service and its worker processes take turns with a robust lock.

The service awaits the lock, with a timeout, and may be cancelled. If a worker dies while it holds
the lock, the next owner repairs its work, and the worker is started again.

    python3 pool.py             the service; then 100 waits, compared with one thread for each wait
    python3 pool.py full        1,000 waits

The owner of a robust lock is a thread: a task acquires and releases it in the thread of its loop.
"""

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.shared_memory import SharedMemory

import memwait

context = multiprocessing.get_context("fork")
WORKERS, TURNS = 3, 50
layout = memwait.Layout(lock=memwait.Lock, balance=4)


class Account:
    """The balance is odd while an owner of the lock is in the middle of a change."""

    def __init__(self, memory):
        self.balance = memwait.Word(memory, layout["balance"])
        self.lock = memwait.Lock(memory, layout["lock"], create=True, repair=self.repair)

    def repair(self):
        """The last owner has died: undo the change that it had begun."""
        self.balance.store(self.balance.load() & ~1)

    def change(self, die=False):
        self.balance.add(1)
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        self.balance.add(1)

    def close(self):
        self.lock.close()
        self.balance.close()


def work(account, die):
    for turn in range(TURNS):
        with account.lock:
            account.change(die and turn == TURNS // 2)


async def keep(account, die):
    """Run a worker, and another worker if it dies. Return the number of restarts."""
    worker = context.Process(target=work, args=(account, die))
    worker.start()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(worker.sentinel, ended.set)
    await ended.wait()
    loop.remove_reader(worker.sentinel)
    worker.join()
    if worker.exitcode:
        return 1 + await keep(account, False)
    return 0


def hold(acquired, release, lock):
    with lock:
        acquired.set()
        release.wait()


@contextlib.contextmanager
def held(lock):
    """Let another process hold the lock until the block ends or the yielded function is called."""
    acquired, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(acquired, release, lock))
    holder.start()
    acquired.wait()
    try:
        yield release.set
    finally:
        release.set()
        holder.join()


async def serve(account):
    """Make changes in this process and in workers. One worker dies after half of its changes."""
    keeping = asyncio.gather(*(keep(account, die=number == 0) for number in range(WORKERS)))
    for _ in range(TURNS):
        async with account.lock:
            account.change()
    restarts = sum(await keeping)

    # A timeout and a cancelled task take nothing.
    with held(account.lock):
        in_time = await account.lock.acquire_async(timeout=0.05)
        waiting = asyncio.create_task(account.lock.acquire_async())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert not in_time and waiting.cancelled() and not account.lock.locked()
    changes = (WORKERS + 1) * TURNS + TURNS // 2
    assert restarts == 1 and account.balance.load() == 2 * changes
    print(f"{changes} changes, {restarts} worker died and was started again")


def used():
    """Return the number of threads, and the resident memory in KiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["Threads"]), int(fields["VmRSS"].split()[0])


async def wait_many(lock, turn, count):
    """Measure the threads and the memory that waits take while another process holds the lock, then
    the time until half and all of them have had their turn."""
    with held(lock) as release:
        before = used()
        turns = [asyncio.create_task(turn()) for _ in range(count)]
        await asyncio.sleep(2)          # all of them wait by then
        after = used()
        now = time.monotonic()
        release()
        ends = sorted(await asyncio.gather(*turns))
    return (after[0] - before[0], after[1] - before[1],
            1000 * (ends[count // 2] - now), 1000 * (ends[-1] - now))


async def compare(account, count):
    async def turn():
        async with account.lock:
            return time.monotonic()

    lock = context.Lock()
    executor = concurrent.futures.ThreadPoolExecutor(count)

    async def turn_of_thread():
        await asyncio.get_running_loop().run_in_executor(executor, lock.acquire)
        lock.release()
        return time.monotonic()

    print(f"{count} waits          threads   KiB   ms to half   ms to all")
    ours = await wait_many(account.lock, turn, count)
    theirs = await wait_many(lock, turn_of_thread, count)
    executor.shutdown()
    for name, row in ("memwait", ours), ("a thread for each", theirs):
        print("{:18}{:8}{:8}{:10.1f}{:12.1f}".format(name, *row))
    assert ours[0] == 0 and theirs[0] >= count


def main(count):
    memory = SharedMemory(create=True, size=layout.size)
    account = Account(memory)
    try:
        asyncio.run(serve(account))
        asyncio.run(compare(account, count))
    finally:
        account.close()
        memory.close()
        memory.unlink()


if __name__ == "__main__":
    main(1000 if sys.argv[1:] == ["full"] else 100)
