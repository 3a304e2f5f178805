# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The Python program, which uses an asyncio task: third.py FILE"""

import asyncio
import mmap
import sys

import memwait

MUTEX, HOLDER, TURNS, LOG, CHANNEL, SIZE = 0, 128, 132, 256, 1024, 4096
ITEM, ROUNDS, HOLD_MS = 8, 10, 2
LETTER = ord("P")


async def take_turns(memory):
    lock = memwait.Lock(memory, MUTEX)
    queue = memwait.Queue(memory, CHANNEL)
    name = b"Python".ljust(ITEM, b"\0")
    turns = memoryview(memory)[TURNS:TURNS + 4].cast("I")
    await queue.put_async(name)
    for _ in range(ROUNDS):
        async with lock:
            assert memory[HOLDER] == 0
            memory[HOLDER] = LETTER
            memory[LOG + turns[0]] = LETTER
            turns[0] += 1
            await asyncio.sleep(HOLD_MS / 1000)
            assert memory[HOLDER] == LETTER
            memory[HOLDER] = 0
    await queue.put_async(name)


with open(sys.argv[1], "r+b") as file:
    asyncio.run(take_turns(mmap.mmap(file.fileno(), SIZE)))
