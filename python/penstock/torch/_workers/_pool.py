# SPDX-License-Identifier: Apache-2.0
"""The worker processes of one loader, seen from the trainer: starting, waiting, noticing deaths, ending.

No thread runs here. The trainer waits in poll(2) for a record in the result pipe or the end of a worker; a worker waits
in read(2) for a token. Everything else is memory.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import select
import threading
import time
import weakref
from collections import deque
from fcntl import fcntl
from typing import Any

import torch.multiprocessing  # noqa: F401  teaches multiprocessing how tensors go to a spawned process

from . import _codec, _tasks
from ._arena import Arena
from ._errors import death_text, unpacked
from ._interrupt import LaterInterrupt
from ._process import Descriptor, Setup, Worker, main

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
_PATIENCE_S = 5.0  # as long as torch waits for a worker that is in user code before it is terminated

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_is_over = False  # the interpreter is about to end


class Pool:
    """Worker processes around one arena. lanes: 1 (all read the same pipe) or num_workers (each has its own)."""

    def __init__(self, kind: type[Worker], setup: Setup, lanes: int, context: Any) -> None:
        self.arena: Arena = setup.arena
        self.words = setup.arena.words
        self.pid = os.getpid()
        self.closed = False
        self.starting = True
        self.counters = _tasks.RING + setup.ring
        self.num_workers = setup.num_workers
        self.processes: list[Any] = []
        self._poll = select.poll()
        self._by_fd: dict[int, int] = {}
        self._backlog: list[deque[bytes]] = [deque() for _ in range(lanes)]
        self._writers: list[Descriptor] = []
        self._result = Descriptor(-1)
        self._setup: Setup | None = setup
        _pools.add(self)
        try:
            self._start(kind, setup, lanes, context)
        except BaseException:
            self.shutdown(patience=0)
            raise

    # Starting

    def _start(self, kind: type[Worker], setup: Setup, lanes: int, context: Any) -> None:
        for _ in range(lanes):
            reader, writer = os.pipe()
            setup.tasks.append(Descriptor(reader))
            self._writers.append(Descriptor(writer))
            os.set_blocking(writer, False)
            _enlarge(writer)
        reader, setup.results.fd = os.pipe()
        self._result.fd = reader
        os.set_blocking(reader, False)
        _enlarge(reader)
        ctx = _context(context)
        setup.dies_with_parent = _start_method(ctx) != "forkserver" and _is_main_thread()
        self._spawn(kind, setup, ctx)
        self.starting = False
        self._close_childrens_ends()
        self._poll.register(self._result.fd, select.POLLIN)
        for number, process in enumerate(self.processes):
            self._by_fd[process.sentinel] = number
            self._poll.register(process.sentinel, select.POLLIN)

    def _spawn(self, kind: type[Worker], setup: Setup, ctx: Any) -> None:
        """Objects that exist now are taken out of the collector's sight, so that it does not touch (and thereby copy)
        their pages in every worker."""
        freeze = _start_method(ctx) == "fork" and gc.get_freeze_count() == 0
        if freeze:
            gc.freeze()
        try:
            with LaterInterrupt():
                for number in range(setup.num_workers):
                    process = ctx.Process(target=main, args=(kind, setup, number), daemon=True)
                    process.start()
                    self.processes.append(process)
        finally:
            if freeze:
                gc.unfreeze()

    def _close_childrens_ends(self) -> None:
        setup, self._setup = self._setup, None
        if setup is not None:
            for end in (*setup.tasks, setup.results):
                end.close()
            setup.arena.close_fd()

    def in_child(self) -> None:
        """After fork: this process neither owns the workers nor may keep their pipes from ending. multiprocessing would
        terminate them when this process ends, since its list of children was copied too."""
        getattr(multiprocessing.process, "_children", set()).difference_update(self.processes)
        for end in (*self._writers, self._result):
            end.close()
        if not self.starting:
            self._close_childrens_ends()
        self.closed = True

    # Sending and receiving

    def send(self, data: bytes, lane: int = 0) -> None:
        """Tokens to the workers, never blocking: what the pipe does not take goes when it does."""
        if self.closed:
            self._leave()
        self._backlog[lane].append(data)
        self._flush(lane)

    def _flush(self, lane: int) -> bool:
        backlog, fd = self._backlog[lane], self._writers[lane].fd
        while backlog:
            data = backlog.popleft()
            try:
                sent = os.write(fd, data)
            except BlockingIOError:
                sent = 0
            except BrokenPipeError:
                return True  # they are all dead: noticed while waiting
            except OSError:
                if self.closed:
                    self._leave()
                raise
            if sent < len(data):
                backlog.appendleft(data[sent:])
                return False
        return True

    def forget_backlog(self) -> list[bytes]:
        """Tokens not sent yet, which now never will be."""
        unsent = [data for lane in self._backlog for data in lane]
        for lane in self._backlog:
            lane.clear()
        return unsent

    def receive(self, timeout: float | None) -> list[tuple[int, int]]:
        """Records that have come, waiting for at least one; an empty list when the time is over.

        Raises RuntimeError if a worker died, and what a worker raised when it started."""
        if self.closed:
            self._leave()
        records = self._records()
        if records:
            return records
        full = [lane for lane in range(len(self._backlog)) if not self._flush(lane)]
        for lane in full:
            self._poll.register(self._writers[lane].fd, select.POLLOUT)
        try:
            events = self._poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        finally:
            for lane in full:
                self._poll.unregister(self._writers[lane].fd)
        if self.closed:
            self._leave()
        records = self._records()
        if not records:
            self._check_deaths([self._by_fd[fd] for fd, _ in events if fd in self._by_fd])
            if full and events:
                return self.receive(timeout)
        return records

    def _records(self) -> list[tuple[int, int]]:
        try:
            data = os.read(self._result.fd, 1 << 16)
        except BlockingIOError:
            return []
        records = list(_tasks.RECORD.iter_unpack(data))
        for offset, number in records:
            if not offset:
                self._raise_start(number)
        return records

    def _raise_start(self, number: int) -> None:
        where = self.words[self.counters + number * _tasks.COUNTERS + _tasks.INIT_ERROR]
        error = unpacked(_codec.take(self.arena, where))
        self.shutdown(patience=0)
        raise error

    def _check_deaths(self, numbers: list[int]) -> None:
        for number in numbers:
            process = self.processes[number]
            process.join()
            text = death_text(number, process.pid, process.exitcode)
            self.shutdown(patience=0)
            raise RuntimeError(text)

    def _leave(self) -> None:
        """Another thread ended the workers meanwhile. At the interpreter's end that is no news to a daemon thread."""
        if _is_over:
            raise SystemExit
        raise RuntimeError("the workers were shut down while this thread waited for a batch")

    # Ending

    def shutdown(self, patience: float = _PATIENCE_S) -> None:
        """Ends the workers: those idle at once, those in user code when it returns or patience ends."""
        if self.closed:
            return
        self.closed = True
        if self.pid != os.getpid():
            return
        self.words[_tasks.STOP] = 1
        for writer in self._writers:
            writer.close()
        try:
            self._join(patience)
        except BaseException:  # Ctrl-C while they were waited for: no more of that
            self._join(0)
            raise
        finally:
            self._result.close()
            self._close_childrens_ends()
        self.arena.drop_unleased()

    def _join(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        for action in ("wait", "terminate", "kill"):
            for process in self.processes:
                if process.exitcode is None:
                    if action != "wait":
                        getattr(process, action)()
                    process.join(max(0.0, deadline - time.monotonic()))
            if all(process.exitcode is not None for process in self.processes):
                break
            deadline = time.monotonic() + 1.0
        for process in self.processes:
            if process.exitcode is not None:
                process.close()
        self.processes.clear()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.shutdown(patience=_PATIENCE_S)

    def counter(self, worker: int, which: int) -> int:
        return self.words[self.counters + worker * _tasks.COUNTERS + which]


def _forget_pools() -> None:
    for pool in list(_pools):
        pool.in_child()


def _end_pools() -> None:
    """Before the interpreter takes itself apart. Nobody waits for user code then, as in torch."""
    global _is_over
    _is_over = True
    for pool in list(_pools):
        pool.shutdown(patience=0)


os.register_at_fork(after_in_child=_forget_pools)
atexit.register(_end_pools)


def _enlarge(fd: int) -> None:
    try:
        fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        pass  # the user's share of pipe memory is spent: less look-ahead in the pipe, the rest waits in the backlog


def _context(context: Any) -> Any:
    return multiprocessing.get_context(context) if context is None or isinstance(context, str) else context


def _start_method(context: Any) -> str:
    try:
        return context.get_start_method()
    except AttributeError:
        return "fork"


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
