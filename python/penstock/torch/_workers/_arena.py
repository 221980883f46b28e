# SPDX-License-Identifier: Apache-2.0
"""The memory that the trainer and its workers share, and who may write where in it.

One anonymous memfd, far larger than it will ever be filled, is mapped whole before the workers start: a page costs
nothing until it is touched, so samples may grow without anything being mapped, named or sent again, and nothing is left
behind by any death. It is cut into regions, one for each process. Only the owner of a region allocates in it; anybody
may hold a chunk, whose first word counts its holders. An owner takes a chunk back when it finds the count at 0.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from typing import Any

import numpy

from ..._penstock import atomic_add

HEADER = 64  # bytes before a chunk's data: the holders' count in the first word
_PAGE = 4096
_SMALLEST = 256
_ADDRESS_SPACE = 1 << 46  # a quarter of what x86-64 and arm64 give a process
_TRIM_BYTES = 1 << 20  # free memory that a region keeps warm, at least: every worker has one
_SWEEP = 32

_pid = os.getpid()


def _note_fork() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_note_fork)


class _Lease(weakref.ref):  # type: ignore[type-arg]
    """One hold, for as long as the array that stands for it lives."""

    __slots__ = ("start", "size", "pid")
    start: int
    size: int
    pid: int


class Arena:
    """The mapping. `words` is all of it as 64-bit numbers; offsets are bytes from its start."""

    def __init__(self, regions: int, control_bytes: int) -> None:
        self.regions = regions
        self.control_bytes = -(-control_bytes // _PAGE) * _PAGE
        self.fd = os.memfd_create("penstock", os.MFD_CLOEXEC)
        try:
            self._map(_wanted_bytes())
        except BaseException:
            self.close_fd()
            raise

    def _map(self, size: int) -> None:
        """As much address space as is given: a limit (ulimit -v) makes it smaller."""
        smallest = 256 << 20
        while True:
            try:
                os.ftruncate(self.fd, size)
                self._attach(size)
                return
            except (OSError, ValueError, MemoryError) as error:
                if size <= smallest:
                    raise MemoryError(
                        f"the address space has no room for {smallest >> 20} MiB of shared batches: raise `ulimit -v`"
                    ) from error
                size = max(size // 2, smallest)

    def _attach(self, size: int) -> None:
        self.map = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED)
        self.size = size
        self.words = memoryview(self.map).cast("q")
        self.address = numpy.frombuffer(self.map, numpy.uint8, 1).ctypes.data
        self.leases: dict[int, _Lease] = {}  # by id: a weak reference hashes as what it refers to
        self.over: deque[_Lease] = deque()  # those whose array is gone

    def __reduce__(self) -> tuple[Any, ...]:
        """For a spawned worker: the descriptor goes along, the mapping is made anew."""
        from multiprocessing import reduction

        return _attached, (reduction.DupFd(self.fd), self.size, self.regions, self.control_bytes)

    def close_fd(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def release(self, start: int) -> None:
        """One holder less for the chunk whose data begins at `start`."""
        atomic_add(self.words, (start - HEADER) >> 3, -1)

    def hold(self, start: int) -> None:
        atomic_add(self.words, (start - HEADER) >> 3, 1)

    def view(self, start: int, size: int) -> numpy.ndarray:
        return numpy.frombuffer(self.map, numpy.uint8, size, start)

    def lease(self, start: int, size: int) -> numpy.ndarray:
        """The bytes as an array that takes over one hold: it is given back with the last array or tensor over them.

        Its end is noted by a method written in C: in one of ours a Ctrl-C would be raised, and dropped by the interpreter.
        """
        self.settle()
        raw = numpy.frombuffer(self.map, numpy.uint8, size, start)
        lease = _Lease(raw, self.over.append)
        lease.start, lease.size, lease.pid = start, size, _pid
        self.leases[id(lease)] = lease
        return raw

    def settle(self) -> None:
        """Gives back the holds of arrays that are gone; a fork's copy of an array gives nothing back."""
        while self.over:
            lease = self.over.popleft()
            if self.leases.pop(id(lease), None) is not None and lease.pid == _pid:
                self.release(lease.start)

    def drop_unleased(self) -> None:
        """Gives the kernel back every page that no array of this process stands on. The workers must be gone."""
        self.settle()
        kept = sorted((lease.start - HEADER, lease.start + lease.size) for lease in list(self.leases.values()))
        begin = 0
        for start, end in [*kept, (self.size, self.size)]:
            first, last = -(-begin // _PAGE) * _PAGE, start // _PAGE * _PAGE
            if last > first:
                self.map.madvise(mmap.MADV_REMOVE, first, last - first)
            begin = max(begin, end)


def _attached(fd: Any, size: int, regions: int, control_bytes: int) -> Arena:
    arena = Arena.__new__(Arena)
    arena.regions, arena.control_bytes = regions, control_bytes
    arena.fd = fd.detach()
    arena._attach(size)
    arena.close_fd()
    return arena


def _wanted_bytes() -> int:
    """Four times the machine's memory: batches that are kept cannot need more."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(4 * memory, 64 << 30), _ADDRESS_SPACE) // _PAGE * _PAGE


def _rounded(size: int) -> int:
    """A chunk's whole size: eight steps to the power of two, so that chunks fit again for slightly other samples."""
    size += HEADER
    if size <= _PAGE:
        return max(_SMALLEST, 1 << (size - 1).bit_length())
    step = max(_PAGE, 1 << ((size - 1).bit_length() - 3))
    return -(-size // step) * step


class Region:
    """Allocates in one region of the arena; for its owner's thread only."""

    def __init__(self, arena: Arena, number: int) -> None:
        self.arena = arena
        share = (arena.size - arena.control_bytes) // arena.regions // _PAGE * _PAGE
        self._next = arena.control_bytes + number * share
        self._end = self._next + share
        self._warm: dict[int, list[int]] = {}
        self._cold: dict[int, list[int]] = {}
        self._out: deque[tuple[int, int]] = deque()
        self._warm_bytes = 0
        self._out_bytes = 0
        self.collated: dict[int, int] = {}  # start and size of tensors that a collation made here

    def allocate(self, size: int) -> int:
        """Offset of `size` bytes with one holder; what is in them is undefined."""
        self.arena.settle()
        whole = _rounded(size)
        free = self._warm.get(whole)
        if not free and self._out:
            self._sweep()
            free = self._warm.get(whole)
        if free:
            start = free.pop()
            self._warm_bytes -= whole
        elif cold := self._cold.get(whole):
            start = cold.pop()
        else:
            start = self._grow(whole)
        self.arena.words[(start - HEADER) >> 3] = 1
        self._out.append((start, whole))
        self._out_bytes += whole
        return start

    def _grow(self, whole: int) -> int:
        start = self._next + HEADER
        if whole > _PAGE:  # whole pages, so that they can be given back
            start = -(-self._next // _PAGE) * _PAGE + HEADER
        if start - HEADER + whole > self._end:
            raise MemoryError(
                f"no room for {whole} bytes more in the {self.arena.size >> 20} MiB that the workers share: "
                "keep fewer batches, use fewer workers, or raise `ulimit -v` if it is set"
            )
        self._next = start - HEADER + whole
        return start

    def _sweep(self) -> None:
        """Looks at the chunks longest out; those nobody holds are free."""
        words, out = self.arena.words, self._out
        for _ in range(min(_SWEEP, len(out))):
            start, whole = out.popleft()
            if words[(start - HEADER) >> 3] > 0:
                out.append((start, whole))
                continue
            self._warm.setdefault(whole, []).append(start)
            self._warm_bytes += whole
            self._out_bytes -= whole
        if self._warm_bytes > _TRIM_BYTES and self._warm_bytes > 2 * self._out_bytes:
            self._trim()

    def _trim(self) -> None:
        for whole in sorted(self._warm, reverse=True):
            free = self._warm[whole]
            while free and whole > _PAGE and self._warm_bytes > _TRIM_BYTES:
                start = free.pop(0)
                self.arena.map.madvise(mmap.MADV_REMOVE, start - HEADER, whole)
                self._cold.setdefault(whole, []).append(start)
                self._warm_bytes -= whole
