# SPDX-License-Identifier: Apache-2.0
"""IterableRunner: batches of an IterableDataset, each worker going through its own copy.

Every worker has a pipe of its own; a token in it (the number of the epoch) asks for one batch. Its record names the
chunk with the result and says which worker, which epoch and which kind: a batch, an error or the end.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from typing import Any, Callable

from . import _codec, _tasks
from ._arena import Arena
from ._errors import packed, unpacked
from ._pin import Pinner
from ._pool import Pool
from ._process import Descriptor, Setup, Worker
from ._tasks import EPOCH, ERROR, OBJECT, SHARED_SEED, STOP, TOKEN

_END = 99
_NOTHING = 8  # an offset where no chunk can be


class Fetcher:
    """Takes batches from an iterator as torch does."""

    def __init__(self, dataset: Any, batch_size: int | None, drop_last: bool) -> None:
        self._iterator = iter(dataset)
        self._batch_size, self._drop_last = batch_size, drop_last
        self._ended = False

    def fetch(self) -> Any:
        """A list of samples, or one sample without a batch size. StopIteration at the end."""
        if self._ended:
            raise StopIteration
        if self._batch_size is None:
            return next(self._iterator)
        data = []
        for _ in range(self._batch_size):
            try:
                data.append(next(self._iterator))
            except StopIteration:
                self._ended = True
                break
        if not data or (self._drop_last and len(data) < self._batch_size):
            raise StopIteration
        return data


def is_pipe(dataset: Any) -> bool:
    """Whether torch seeds and shards it in ways of its own."""
    try:
        from torch.utils.data import IterDataPipe
    except ImportError:
        return False
    return isinstance(dataset, IterDataPipe)


def seeded(dataset: Any, shared_seed: int) -> Any:
    """A torch IterDataPipe whose shuffles follow the seed."""
    import torch
    from torch.utils.data.graph_settings import apply_random_seed

    generator = torch.Generator()
    generator.manual_seed(shared_seed)
    return apply_random_seed(dataset, generator)


class IterableWorker(Worker):
    def __init__(self, setup: Setup, worker_id: int) -> None:
        super().__init__(setup, worker_id)
        self.epoch = 0
        self.fetcher: Fetcher | None = None

    def run(self) -> None:
        words = self.words
        while True:
            data = os.read(self.input, TOKEN.size)
            if not data or words[STOP]:
                return
            (epoch,) = TOKEN.unpack(data)
            began = time.perf_counter_ns()
            if epoch == words[EPOCH] and (epoch != self.epoch or self.fetcher is not None):
                where, kind = self._fetch(epoch)
                self.send(where, (epoch << 32) | (self.id << 8) | kind)
            words[self.counters + _tasks.BUSY_NS] += time.perf_counter_ns() - began

    def _fetch(self, epoch: int) -> tuple[int, int]:
        setup = self.setup
        try:
            if epoch != self.epoch:
                self.epoch, self.fetcher = epoch, None
                if setup.is_pipe:
                    setup.dataset = seeded(setup.dataset, self.words[SHARED_SEED])
                self.fetcher = Fetcher(setup.dataset, setup.batch_size, setup.drop_last)
            assert self.fetcher is not None
            try:
                data = self.fetcher.fetch()
            except StopIteration:
                self.fetcher = None
                return _NOTHING, _END
            return self.collate(data), OBJECT
        except Exception as error:
            return _codec.store(self.region, packed(error, f"in DataLoader worker process {self.id}")), ERROR


class IterableRunner:
    """Batches of an IterableDataset; arguments as MapRunner's where they have the same name.

    Batches are made by one worker each and come in turn from those that are not at their end, as in torch.
    batch_size: None is no collation: collate_fn (default_convert) gets single samples. drop_last: each worker's last,
    short batch is left out. Workers keep torch's seeds (base_seed + worker's number), drawn once for their life.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        num_workers: int,
        collate_fn: Callable[[Any], Any],
        batch_size: int | None,
        drop_last: bool = False,
        context: Any = None,
        worker_init_fn: Callable[[int], None] | None = None,
        generator: Any = None,
        base_seed: int = 0,
        timeout: float = 0,
        prefetch_factor: int | None = 2,
        persistent: bool = False,
        in_order: bool = True,
        pin_memory: bool | str = False,
        shared_seed: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        self.persistent = persistent
        self._collate_fn = collate_fn
        self._batch_size, self._drop_last = batch_size, drop_last
        self._context = context
        self._worker_init_fn = _sharding(dataset, worker_init_fn) if num_workers else worker_init_fn
        self._base_seed, self._shared_seed = base_seed, shared_seed
        self._timeout = timeout
        self._credit = prefetch_factor or 2
        self._in_order = in_order
        self._pinner = Pinner(pin_memory)
        self._pool: Pool | None = None
        self._fetcher: Fetcher | None = None
        self._epoch = 0
        self._broken = ""
        self._turns: deque[int] = deque()
        self._ready: list[deque[tuple[int, int]]] = []
        self._arrived: deque[int] = deque()
        self._clear_stats()

    def start_epoch(self, shared_seed: int | None = None) -> None:
        """Begins an epoch: each worker takes a new iterator. shared_seed: for an IterDataPipe, drawn by the caller."""
        self._drop_ready()
        self._epoch += 1
        self._broken = ""
        self._pinner.clear()
        self._clear_stats()
        self._shared_seed = shared_seed if shared_seed is not None else self._shared_seed
        if not self.num_workers:
            if is_pipe(self.dataset) and self._shared_seed is not None:
                self.dataset = seeded(self.dataset, self._shared_seed)
            self._fetcher = Fetcher(self.dataset, self._batch_size, self._drop_last)
            return
        if self._pool is None or self._pool.closed:
            self._start()
        assert self._pool is not None
        self._pool.forget_backlog()
        self._pool.words[SHARED_SEED] = self._shared_seed or 0
        self._pool.words[EPOCH] = self._epoch
        self._busy_before = self._busy()
        self._turns = deque(range(self.num_workers))
        self._ready = [deque() for _ in range(self.num_workers)]
        self._ended = [False] * self.num_workers
        for worker in range(self.num_workers):
            self._pool.send(TOKEN.pack(self._epoch) * self._credit, worker)

    def _start(self) -> None:
        words = _tasks.RING + self.num_workers * _tasks.COUNTERS
        self._arena = Arena(self.num_workers + 1, words * 8)
        setup = Setup(
            arena=self._arena, tasks=[], results=Descriptor(-1), num_workers=self.num_workers, dataset=self.dataset,
            collate_fn=self._collate_fn, worker_init_fn=self._worker_init_fn, base_seed=self._base_seed,
            batch_size=self._batch_size, drop_last=self._drop_last,
            is_pipe=is_pipe(self.dataset) and self._shared_seed is not None,
        )  # fmt: skip
        self._pool = Pool(IterableWorker, setup, self.num_workers, self._context)

    def _drop_ready(self) -> None:
        """Results that came and were not asked for."""
        if self._pool is not None and not self._pool.closed:
            for results in self._ready:
                for where, kind in results:
                    self._drop(where, kind)
        self._ready = []
        self._arrived.clear()
        self._turns.clear()

    def _drop(self, where: int, kind: int) -> None:
        if kind == OBJECT:
            _codec.discard(self._arena, where)
        elif kind == ERROR:
            self._arena.release(where)

    def next(self) -> Any:
        """The next batch. StopIteration when every worker is at its end."""
        if not self._pinner.active:
            return self._next()
        return self._pinner.next(
            self._next, lambda: self._delivered, lambda: self.num_workers > 0 and self._first_ready() is not None
        )

    def _next(self) -> Any:
        if not self.num_workers:
            if self._fetcher is None:
                raise StopIteration
            data = self._collate_fn(self._fetcher.fetch())
            self._delivered += 1
            return data
        if self._broken:
            raise RuntimeError(self._broken)
        if self._pool is None or self._pool.closed:
            raise StopIteration
        if self._pool.pid != os.getpid():
            raise RuntimeError("this iterator belongs to the process that made it: call iter() again after a fork")
        began = time.perf_counter()
        worker = self._wait()
        self._waited += time.perf_counter() - began
        where, kind = self._ready[worker].popleft()
        self._pool.send(TOKEN.pack(self._epoch), worker)
        self._delivered += 1
        if kind == ERROR:
            raise unpacked(_codec.take(self._arena, where))
        return _codec.load(self._arena, where)

    def _first_ready(self) -> int | None:
        """The worker whose batch is to be handed out, if it is there. Workers at their end leave the round."""
        if not self._in_order:
            return self._arrived[0] if self._arrived else None
        while self._turns:
            worker = self._turns[0]
            if self._ready[worker]:
                return worker
            if not self._ended[worker]:
                return None
            self._turns.popleft()
        return None

    def _wait(self) -> int:
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        assert self._pool is not None
        while (worker := self._first_ready()) is None:
            if all(self._ended):
                self._end()
                raise StopIteration
            try:
                records = self._pool.receive(None if deadline is None else deadline - time.monotonic())
            except Exception as error:
                if self._pool.closed:
                    self._broken = str(error)
                raise
            if not records:
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
            for record in records:
                self._note(*record)
        if self._in_order:
            self._turns.rotate(-1)
        else:
            self._arrived.popleft()
        return worker

    def _note(self, where: int, tag: int) -> None:
        epoch, worker, kind = tag >> 32, (tag >> 8) & 0xFFFFFF, tag & 0xFF
        if epoch != self._epoch:
            self._drop(where, kind)
        elif kind == _END:
            self._ended[worker] = True
        else:
            self._ready[worker].append((where, kind))
            self._arrived.append(worker)

    def _end(self) -> None:
        self._busy_after = self._busy()
        if not self.persistent:
            self.shutdown()

    def delivered(self) -> int:
        """The number, from 0, of the batch that the last `next` gave."""
        return self._pinner.handed if self._pinner.active else self._delivered

    def shutdown(self) -> None:
        """Ends the workers. Batches that were handed out stay valid. May be called again."""
        self._drop_ready()
        self._fetcher = None
        self._pinner.clear()
        if self._pool is not None:
            self._pool.shutdown()

    def _clear_stats(self) -> None:
        self._waited, self._delivered, self._pinner.handed = 0.0, -1, -1
        self._busy_before: list[int] = [0] * self.num_workers
        self._busy_after: list[int] | None = None
        self._began = time.perf_counter()

    def _busy(self) -> list[int]:
        if self._pool is None:
            return [0] * self.num_workers
        return [self._pool.counter(number, _tasks.BUSY_NS) for number in range(self.num_workers)]

    def stats(self) -> dict[str, Any]:
        """Of the running or last epoch: seconds waited, batches, busy share of each worker."""
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        busy = zip(self._busy_after or self._busy(), self._busy_before)
        return {
            "wait_s": self._waited,
            "batches": self._delivered + 1,
            "worker_busy": [min(1.0, (now - before) / 1e9 / elapsed) for now, before in busy],
        }


def _sharding(dataset: Any, worker_init_fn: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """For torch's DataPipes: the initialiser that deals their shards to the workers and ranks."""
    from torch.utils.data import dataloader

    wrap = getattr(dataloader, "_sharding_worker_init_fn", None)
    settings = getattr(dataloader, "_get_distributed_settings", None)
    if wrap is None or settings is None or not is_pipe(dataset):
        return worker_init_fn
    return functools.partial(wrap, worker_init_fn, *settings())
