# SPDX-License-Identifier: GPL-2.0-only
"""Measures lock and unlock, and an awaited wake-up, in Python: see selftests/bench/bindings.
Without MEMWAIT_BENCH_ROUNDS it only checks that each contender counts right.
"""

import asyncio
import mmap
import os
import threading
import time

import memwait


def lock(lock, times):
    count = 0
    for _ in range(times):
        with lock:
            count += 1
    return count


def lock_in_task(lock, times):
    async def run():
        count = 0
        for _ in range(times):
            async with lock:
                count += 1
        return count

    return run()


def wake(word, times):
    async def run():
        call_soon = asyncio.get_running_loop().call_soon
        count = 0
        for _ in range(times):
            call_soon(word.notify, 1)
            count += await word.wait_async(0) is memwait.Outcome.OK
        return count

    return run()


def wake_by_asyncio(times):
    """Uses call_soon_threadsafe(), as a wake-up by another thread would."""
    async def run():
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        event = asyncio.Event()
        count = 0
        for _ in range(times):
            call_soon(event.set)
            count += await event.wait()
            event.clear()
        return count

    return run()


def work(runner, name, rounds, times, contenders):
    print(f"#  RUN           bench.{name}", flush=True)
    figures = {contender: [] for contender in contenders}
    # The first round warms up.
    for _ in range(rounds + 1):
        for contender, function in contenders.items():
            start = time.perf_counter_ns()
            count = function(times)
            if asyncio.iscoroutine(count):
                count = runner.run(count)
            figures[contender].append((time.perf_counter_ns() - start) / times)
            if count != times:
                raise AssertionError(f"{name}: {contender} has counted {count} of {times}")
    for contender, ns in figures.items():
        if rounds:
            print(f"# bench\t{contender}\tns", *(f"{one:.4g}" for one in ns[1:]), sep="\t", flush=True)


def main(rounds):
    with mmap.mmap(-1, 4096) as memory, asyncio.Runner() as runner:
        ours = memwait.Lock(memory, create=True)
        word = memwait.Word(memory, 64)
        threads, tasks = threading.Lock(), asyncio.Lock()
        work(runner, "binding_lock", rounds, 5000 if rounds else 100, {
            "threading.Lock": lambda times: lock(threads, times),
            "Python": lambda times: lock(ours, times),
            "asyncio.Lock": lambda times: lock_in_task(tasks, times),
            "Python await": lambda times: lock_in_task(ours, times),
        })
        work(runner, "binding_wake", rounds, 1000 if rounds else 50, {
            "asyncio": wake_by_asyncio,
            "Python await": lambda times: wake(word, times),
        })
        ours.close()
        word.close()


if __name__ == "__main__":
    main(int(os.environ.get("MEMWAIT_BENCH_ROUNDS", 0)))
