# SPDX-License-Identifier: GPL-2.0-only
"""The interpreter exits while threads and tasks are waiting, and no wait takes anything."""

import asyncio
import mmap
import os
import signal
import sys
import threading
import time

import memwait
from common import limit

signal.alarm(limit(300))
memory = mmap.mmap(-1, 4096)
semaphore = memwait.Semaphore(memory, value=0, create=True)
ready = memwait.Semaphore(memory, 64, value=0, create=True)


def waiters():
    return sum(memwait.Word(memory, at, size=1).waiters() for at in range(16))


child = os.fork()
if child == 0:
    for _ in range(2):
        threading.Thread(target=semaphore.acquire, daemon=True).start()
    while waiters() != 2:
        time.sleep(0.001)

    async def main():
        task = asyncio.ensure_future(semaphore.acquire_async())
        await asyncio.sleep(0)
        return task

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(main())
    assert waiters() == 3
    sys.exit(7)     # with the loop open, the task pending and the threads asleep
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 7, status
assert waiters() == 0
semaphore.release()
assert semaphore.get_value() == 1
