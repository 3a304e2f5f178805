# SPDX-License-Identifier: GPL-2.0-only
"""Without the device: calls that need it fail immediately, without waiting or taking anything."""

import asyncio
import errno

import memwait

memory = bytearray(4096)
calls = [
    lambda: memwait.Lock(memory, create=True),
    lambda: memwait.Queue(bytearray(4096), create=True, item_size=8, maxsize=1),
    lambda: memwait.Barrier(bytearray(128), create=True, parties=2),
    lambda: memwait.Lock(memory).acquire(),
    lambda: memwait.Lock(memory).acquire(False),
    lambda: memwait.Lock(memory).__enter__(),
    lambda: memwait.RLock(memory, repair=print).acquire(timeout=1),
    lambda: memwait.RWLock(memory).writer.acquire(),
    lambda: memwait.Semaphore(memory).acquire(),
    lambda: memwait.Semaphore(memory).release(),
    lambda: memwait.WaitGroup(memory).wait(),
    lambda: memwait.Word(memory, 512).wait(0),
    lambda: memwait.Word(memory, 512).notify(),
    lambda: asyncio.run(memwait.Lock(memory).acquire_async()),
    lambda: asyncio.run(memwait.Word(memory, 512).wait_async(0)),
]
for number, call in enumerate(calls):
    try:
        call()
    except FileNotFoundError as error:
        assert error.errno == errno.ENOENT and "memwait" in str(error), error
    else:
        raise AssertionError(f"call {number} did not fail")
# An acquired permit remains acquired. It can be released when the device is
# available.
counted = bytearray(memwait.BoundedSemaphore.SIZE)
counted[memwait.Semaphore.SIZE] = 1
for n in (1, 1, 2):
    try:
        memwait.BoundedSemaphore(counted).release(n)
    except FileNotFoundError:
        pass
    else:
        raise AssertionError("released without a device")
assert sum(counted) == 1, counted
assert memwait.available() is False
assert not any(memory), "something was taken"
word = memwait.Word(memory, 520)
word.store(3)
assert word.add(1) == 3 and word.load() == 4
print(len(calls), "calls reported that there is no device")
