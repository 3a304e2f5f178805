# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Named shared memory, in which objects are found by name."""

from __future__ import annotations

import _posixshmem
import contextlib
import errno
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from types import TracebackType
from typing import Any, TypeVar, cast

import memwait

_Kind = TypeVar("_Kind")


def _path(name: str) -> str:
    return f"/dev/shm/{name}"


def _lock(file: int, command: int, kind: int) -> None:
    """Lock the first byte of the file until all processes have closed this open file."""
    fcntl.fcntl(file, command, struct.pack("hhqqiq", kind, os.SEEK_SET, 0, 1, 0, 0))


class _Memory(SharedMemory):
    """Shared memory without Python's resource tracker, which would unlink it when the first process
    ends. All processes that have the memory open share a lock, by which the last process is found.
    """

    def __init__(self, name: str, create: bool = False, size: int = 0) -> None:
        """SharedMemory's constructor would register the memory with the tracker. If the process is
        then killed before it can unregister the memory, or if another process does the same, the
        registration stays. That constructor also does not allocate the memory: if /dev/shm is full,
        access raises SIGBUS.
        """
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        file = _posixshmem.shm_open(f"/{name}", flags, mode=0o600)
        # close() closes these.
        vars(self).update(_name=f"/{name}", _fd=file)
        try:
            # The creator holds the lock until the memory is allocated: other processes wait for its
            # size.
            _lock(file, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK if create else fcntl.F_RDLCK)
            if create:
                os.posix_fallocate(file, 0, size)
                _lock(file, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK)
            elif not os.fstat(file).st_nlink:
                # The last process has unlinked it in the meantime.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            memory = mmap.mmap(file, 0)
            vars(self).update(_mmap=memory, _buf=memoryview(memory), _size=len(memory))
        except BaseException:
            self.close()
            if create:
                self.unlink()
            raise

    def unlink(self) -> None:
        # SharedMemory.unlink() would call the tracker.
        os.unlink(_path(self.name))


def _open(name: str, size: int) -> tuple[_Memory, bool]:
    """Return the memory, and whether this call created it."""
    for _ in range(1000):
        if size:
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                return _Memory(name, True, size), True
        try:
            return _Memory(name), False
        except FileNotFoundError:
            if not size:
                raise
        except ValueError:
            # The process that creates the memory has not locked it yet.
            time.sleep(0.001)
    raise TimeoutError(f"shared memory {name!r} was not initialised in time")


def _is_open(given: Any) -> bool:
    try:
        return given.nbytes > 0 if isinstance(given, memoryview) else not given.closed
    except ValueError:
        return False


def _end(given: Any) -> None:
    (given.release if isinstance(given, memoryview) else given.close)()


class Segment:
    """Named shared memory, and objects in it that are found by name.

        with memwait.Segment("name", 65536) as segment:
            lock = segment.get(memwait.Lock, "lock")
            jobs = segment.get(memwait.Queue, "jobs", item_size=64, maxsize=100)

    The first process creates the memory; without a size, the memory must exist. In the same way,
    get() finds an object, or creates it with the given options of its constructor. Further calls
    return the same Python object. At the end of the block all objects from get() are closed. If no
    other process has the memory open, not even a child process, its name is then unlinked, even
    a name that a killed process has left. Nothing else unlinks the name; multiprocessing's resource
    tracker does not. If a thread or a task is still waiting for an object, or bytes were not
    released, the end of the block raises BufferError, and the name stays.
    """

    # The entry before each object contains its size, its kind and its name. Size 0 marks the end of
    # the entries.
    _ENTRY = struct.Struct("<Q16s40s")

    def __init__(self, name: str, size: int = 0) -> None:
        if size < 0:
            raise ValueError("size must be >= 0")
        self._memory, made = _open(name, size)
        self._file = os.fstat(getattr(self._memory, "_fd"))
        self._maker = os.getpid() if made else 0
        self._given: dict[tuple[type, str], Any] = {}

    @property
    def created(self) -> bool:
        """True if this process created the memory."""
        return self._maker == os.getpid()

    @property
    def name(self) -> str:
        """The name of the memory."""
        return self._memory.name

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._memory.size

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude all other threads and processes. If this process dies, the kernel unlocks."""
        file = os.open(f"/proc/self/fd/{getattr(self._memory, '_fd')}", os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def _find(self, kind: bytes, name: bytes, needed: Any) -> tuple[int, int, bool]:
        """Return offset, size and whether the object exists. needed(): the size of a new object."""
        at = 0
        while at + self._ENTRY.size <= self.size:
            size, its_kind, its_name = self._ENTRY.unpack_from(self._memory.buf, at)
            found = at + self._ENTRY.size
            if not size:
                size = needed()
                if size > self.size - found:
                    break
                return found, size, False
            if its_name.rstrip(b"\0") == name:
                its_kind = its_kind.rstrip(b"\0")
                if its_kind != kind:
                    raise TypeError(f"{name.decode()!r} is a {its_kind.decode()}")
                return found, size, True
            at = found + -(-size // memwait.Layout.ALIGN) * memwait.Layout.ALIGN
        raise MemoryError(f"no room for {name.decode()!r} in {self.size} bytes")

    def _add(self, kind: str, name: str, needed: Any, make: Any) -> Any:
        key = name.encode()
        if not 0 < len(key) <= 40 or b"\0" in key:
            raise ValueError("a name must have 1 to 40 bytes, and no zero byte")
        with self._alone():
            at, size, there = self._find(kind.encode()[:16], key, needed)
            made = make(at, size, there)
            if not there:
                entry = self._ENTRY.pack(size, kind.encode(), key)
                # The size is written last: until then, there is no entry.
                self._memory.buf[at - self._ENTRY.size + 8:at] = entry[8:]
                self._memory.buf[at - self._ENTRY.size:at - self._ENTRY.size + 8] = entry[:8]
            known = self._given.get((type(made), name))
            if known is not None and _is_open(known):
                _end(made)
                return known
            self._given[type(made), name] = made
        return made

    def get(self, kind: type[_Kind], name: str, **options: Any) -> _Kind:
        """Return the object with that name. Raise TypeError if it has another kind, and MemoryError
        if there is no room for a new object.
        """
        def needed() -> int:
            if kind is memwait.Word:
                return int(options.get("size", 4))
            if issubclass(kind, memwait.Queue):
                return kind.size(options.get("item_size", 0), options.get("maxsize", 0))
            return int(getattr(kind, "SIZE"))

        def make(at: int, size: int, there: bool) -> Any:
            if there and kind is memwait.Word and size != needed():
                raise TypeError(f"{name!r} exists with {size} bytes")
            if not there and kind is not memwait.Word:
                return cast(Any, kind)(self._memory, at, create=True, **options)
            return cast(Any, kind)(self._memory, at, **options)

        return cast(_Kind, self._add(kind.__name__, name, needed, make))

    def bytes(self, name: str, size: int) -> memoryview:
        """Return named bytes, initially 0. Release all views of them before close()."""
        def make(at: int, its_size: int, there: bool) -> memoryview:
            if its_size != size:
                raise TypeError(f"{name!r} exists with {its_size} bytes")
            return self._memory.buf[at:at + size]

        if size <= 0:
            raise ValueError("size must be > 0")
        return cast(memoryview, self._add("bytes", name, lambda: size, make))

    def close(self) -> None:
        """Close all objects from get(), and the memory. Raise BufferError if an object has
        waiters."""
        while self._given:
            key = next(reversed(self._given))
            _end(self._given[key])
            del self._given[key]
        self._memory.close()

    def unlink(self) -> None:
        """Unlink the name. Processes that have the memory open can still use it."""
        self._memory.unlink()

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            file = os.open(_path(self.name), os.O_RDWR)
            try:
                _lock(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
                # Do not unlink the name if it now refers to newer memory.
                now = os.fstat(file)
                if now.st_nlink and os.path.samestat(now, self._file):
                    self.unlink()
            finally:
                os.close(file)

    def __repr__(self) -> str:
        return f"<memwait.Segment {self.name!r}: {self.size} bytes>"
