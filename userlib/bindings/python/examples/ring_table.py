# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Prints a table that compares the ring of ring.py with other ways to wait in the same ring.

    python3 ring_table.py           few messages
    python3 ring_table.py full      more messages

All programs use the same ring, including its bit WAITED, and lose nothing while they make progress.
They differ in the ways to wait and to wake. The other ways detect deaths with pidfd_open(2).

"paced" is 500 items per second. "burst" is the time of an item that is put without a pause. "calls"
are the system calls of all processes for an item at that pace, except the sleep between two items.
They are counted by tracefs, which only root can use. "files" are the descriptors that a reader has
for the ring and its loop.
"""

import asyncio
import multiprocessing
import os
import select
import signal
import socket
import statistics
import struct
import sys
import threading
import time

from ring import SHIFT, WRITER, Reader, Ring, Writer

context = multiprocessing.get_context("fork")


class Threads(Ring):
    name = "memwait, threads"

    def __init__(self, readers):
        super().__init__(readers)
        self.me = None
        self.pids, self.threads = [context.RawArray("i", 1 + readers) for _ in range(2)]

    def sit(self, number):
        self.me = number
        self.pids[number] = os.getpid()
        self.threads[number] = threading.get_native_id()
        return super().sit(number)


class Tasks(Threads):
    name = "memwait, asyncio"


class Spin(Threads):
    name = "sched_yield"

    def wait(self, number, seen, timeout=None):
        while self.words[number].load() == seen:
            os.sched_yield()

    def wake(self, number):
        pass

    def sleepers(self, number):
        return self.readers if number == WRITER else [WRITER]

    def bury(self, number):
        select.select([os.pidfd_open(self.pids[number])], [], [])
        self.mark(number)


class SpinThenSocket(Spin):
    name = "1 s, then a socket"

    def __init__(self, readers):
        super().__init__(readers)
        self.pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                      for _ in range(1 + readers)]

    def wait(self, number, seen, timeout=None):
        end = time.monotonic() + 1
        while self.words[number].load() == seen:
            if time.monotonic() < end:
                os.sched_yield()
            else:
                self.pairs[self.me][0].recv(1)

    def wake(self, number):
        for sleeper in self.sleepers(number):
            try:
                self.pairs[sleeper][1].send(b".", socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass                    # enough datagrams are queued to wake it


class Eventfd(Spin):
    name = "an eventfd each"

    def __init__(self, readers):
        super().__init__(readers)
        self.files = [os.eventfd(0) for _ in range(1 + readers)]

    def close(self):
        super().close()
        for file in self.files:
            os.close(file)

    def wait(self, number, seen, timeout=None):
        while self.words[number].load() == seen:
            os.eventfd_read(self.files[self.me])

    def wake(self, number):
        for sleeper in self.sleepers(number):
            os.eventfd_write(self.files[sleeper], 1)


class Condition(Spin):
    name = "multiprocessing"

    def __init__(self, readers):
        super().__init__(readers)
        self.condition = context.Condition()

    def wait(self, number, seen, timeout=None):
        with self.condition:
            self.condition.wait_for(lambda: self.words[number].load() != seen)

    def wake(self, number):
        with self.condition:
            self.condition.notify_all()


class Calls:
    """Counts the system calls of some threads."""

    tracefs = "/sys/kernel/tracing"

    def __init__(self, threads):
        self.threads = " ".join(str(thread) for thread in threads)

    def set(self, file, text):
        with open(f"{self.tracefs}/{file}", "w") as opened:
            opened.write(text)

    def begin(self):
        self.set("set_event_pid", self.threads)
        self.set("trace", "")
        self.set("events/raw_syscalls/sys_enter/enable", "1")

    def end(self):
        """Return the number of calls since begin()."""
        self.set("events/raw_syscalls/sys_enter/enable", "0")
        count = 0
        for processor in range(os.cpu_count()):
            with open(f"{self.tracefs}/per_cpu/cpu{processor}/stats") as stats:
                for line in stats:
                    key, _, value = line.partition(":")
                    if key in ("entries", "overrun"):
                        count += int(value)
        return count


# The phases: items at a steady pace; no items; then items as fast as they are read, while a reader
# is dead. Finally, the writer kills itself.
PACED, IDLE, BURST = range(3)
HEAD = struct.Struct("=BIq")


class Account:
    """The items that a process received, their latencies, and its processor time."""

    def __init__(self):
        self.received, self.latencies, self.marks, self.calls, self.files = 0, [], [], None, 0

    def mark(self):
        self.marks.append((time.monotonic(), time.process_time()))

    def load(self, phase):
        """Return the processor time of a phase, in per cent of one processor."""
        (begin, used), (end, used_then) = self.marks[phase:phase + 2]
        return 100 * (used_then - used) / (end - begin)

    def count_files(self, ring):
        """Count the descriptors except standard files, shared memory and pipes for the results. The
        other ways use memwait's descriptors only to start.
        """
        kinds = ("anon_inode:", "socket:") + (() if isinstance(ring, Spin) else ("/dev/memwait",))
        for file in os.listdir("/proc/self/fd"):
            try:
                link = os.readlink(f"/proc/self/fd/{file}")
            except FileNotFoundError:
                continue                # the directory that was listed
            self.files += link.startswith(kinds)


def write(ring, counts, idle, victim, counts_calls, result):
    ring.sit(WRITER)
    ring.watch(*ring.readers)
    writer, account, number = Writer(ring), Account(), 0

    def put(phase):
        nonlocal number
        if number == 0 or phase == IDLE:
            account.mark()
        writer.put(HEAD.pack(phase, number, time.monotonic_ns()) + bytes(number % 200))
        number += 1

    calls = Calls(ring.threads)
    if counts_calls:
        calls.begin()
    for _ in range(counts[PACED]):
        put(PACED)
        time.sleep(0.002)
    if counts_calls:
        account.calls = calls.end() / counts[PACED] - 1
    put(IDLE)
    time.sleep(idle)
    put(IDLE)
    result.send(account)
    # Until all readers have sent their accounts and found the ring empty, and probably wait again.
    while any(ring.words[number].load() >> SHIFT != writer.at for number in ring.readers):
        time.sleep(0.01)
    time.sleep(0.1)
    if victim:
        os.kill(victim, signal.SIGKILL)
    begin = time.monotonic()
    for _ in range(counts[BURST]):
        put(BURST)
    result.send((time.monotonic() - begin) / counts[BURST] * 1e6)
    os.kill(os.getpid(), signal.SIGKILL)


def read(ring, seat, result):
    """Send the account before the kills, and at the end the number of items received."""
    ring.sit(seat)
    reader, account = Reader(ring, seat), Account()

    def add(item):
        phase, number, sent = HEAD.unpack_from(item)
        assert number == account.received and len(item) == HEAD.size + number % 200
        if phase == PACED:
            account.latencies.append((time.monotonic_ns() - sent) / 1000)
        if number == 0 or phase == IDLE:
            account.mark()
        account.received += 1
        if len(account.marks) == 3 and phase == IDLE:
            account.count_files(ring)
            result.send(account)

    async def main():
        burying = asyncio.create_task(ring.bury_async(WRITER))
        while (item := await reader.get_async()) is not None:
            add(item)
        await burying

    if isinstance(ring, Tasks):
        asyncio.run(main())
    else:
        ring.watch(WRITER)
        while (item := reader.get()) is not None:
            add(item)
    result.send(account.received)


def in_thread(function, *args):
    """In the main thread a wait must also end for ^C, which costs memwait four more calls."""
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def run(ring, counts, idle, patience, counts_calls=False):
    """Return the accounts; for each reader that reached the end, its number of items; and the time
    per item in the burst, or None.
    """
    pipes = [context.Pipe(duplex=False) for _ in range(1 + len(ring.readers))]
    processes = [context.Process(target=in_thread, args=(read, ring, seat, pipes[seat][1]))
                 for seat in ring.readers]
    for process in processes:
        process.start()
    survivors = max(1, len(processes) - 1)
    victim = processes[survivors].pid if survivors < len(processes) else None
    processes.append(context.Process(target=in_thread, args=(write, ring, counts, idle, victim,
                                                             counts_calls, pipes[WRITER][1])))
    processes[-1].start()
    accounts = [pipe.recv() for pipe, _ in pipes]
    end = time.monotonic() + patience
    received = [pipe.recv() for pipe, _ in pipes[1:1 + survivors]
                if pipe.poll(max(0, end - time.monotonic()))]
    burst = pipes[WRITER][0].recv() if pipes[WRITER][0].poll() else None
    for process in processes:
        process.kill()
        process.join()
    ring.close()
    return accounts, received, burst


def row(kind, readers, counts, idle, patience):
    # A process killed in a wait for a multiprocessing.Condition blocks its notifier forever.
    stuck = kind is Condition and readers > 1
    patience = patience // 10 if stuck else patience
    accounts, received, burst = run(kind(readers), counts, idle, patience)
    lost = sum(counts[PACED] + 2 + counts[BURST] - count for count in received)
    if not stuck:
        assert len(received) == max(1, readers - 1) and lost == 0, (kind.name, received)
    cuts = statistics.quantiles((us for account in accounts for us in account.latencies), n=100)
    loads = [sum(account.load(phase) for account in accounts) for phase in (PACED, IDLE)]
    calls = "-"
    if os.access(Calls.tracefs + "/set_event_pid", os.W_OK):
        # Counting takes time, so it has a run of its own. The kills end it early.
        accounts, _, _ = run(kind(readers), (counts[PACED] // 5, 0, 1), 0, 1, True)
        calls = f"{accounts[WRITER].calls:.1f}"
    print(f"{readers:7}  {kind.name:20}{cuts[49]:8.0f}{cuts[98]:8.0f}{loads[0]:8.1f}{loads[1]:7.1f}"
          f"{'-' if burst is None else round(burst):>7}{calls:>8}{accounts[1].files:6}  "
          f"{lost if received else 'the writer is stuck'}", flush=True)


def main(full):
    counts, idle, patience = ((1500, 0, 3000), 4, 120) if full else ((10, 0, 50), 0.1, 30)
    print(f"{os.cpu_count()} processors. Times in µs, load of all processes in % of one\n"
          "readers  way                      p50     p99   paced   idle  burst   calls files"
          "  lost after kills")
    for readers in (1, 3) if full else (3,):
        for kind in (Threads, Tasks, Spin, SpinThenSocket, Eventfd, Condition):
            row(kind, readers, counts, idle, patience)


if __name__ == "__main__":
    main(sys.argv[1:] == ["full"])
