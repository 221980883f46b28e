# SPDX-License-Identifier: Apache-2.0
"""MapRunner: batches of a map-style dataset, its samples spread over worker processes."""

from __future__ import annotations

import os
import pickle
import time
from array import array
from collections import deque
from typing import Any, Callable, Iterator

from ..._penstock import atomic_add
from . import _codec, _costs, _lanes, _layout, _tasks
from ._arena import Arena, Region
from ._collate import is_default
from ._errors import traceback_note, unpacked
from ._layout import Layout
from ._map_worker import MapWorker
from ._pin import Pinner
from ._pool import Pool
from ._process import Descriptor, Setup

_WINDOW_BATCHES, _WINDOW_SAMPLES = 8, 512


class _Batch:
    """A batch under way: its number in the epoch and its task."""

    __slots__ = ("number", "offset", "serial", "count", "block", "layout", "done", "taken", "freed")

    def __init__(self, number: int, offset: int, serial: int, count: int) -> None:
        self.number, self.offset, self.serial, self.count = number, offset, serial, count
        self.block = 0  # memory we offered for it, if any
        self.layout: Layout | None = None
        self.done = False
        self.taken = False  # handed out, so nothing of it is ours any more
        self.freed = False  # its task's memory may be another's by now


class MapRunner:
    """Batches of a map-style dataset.

    dataset: anything with `__getitem__`. Workers see it as it is when `start_epoch` starts them (fork) or a pickled
    copy of it (spawn, forkserver). One with `__getitems__` gets whole batches, as in torch 2.
    num_workers: 0 runs everything in the calling thread when `next` is called, consuming random numbers as torch does.
    collate_fn: torch's default_collate is known and done by writing samples straight into the shared batch; any other
        callable runs in a worker, on the list of samples, in order.
    auto_collation: False where torch's batch_size is None: `batches` then yields single indices and collate_fn
        (default_convert) gets a single sample.
    context: None, a start method's name or a multiprocessing context. worker_init_fn(worker_id) as in torch.
    generator: not used for drawing; kept so that a runner can be made with DataLoader's own arguments.
    base_seed: worker i is seeded with base_seed + i when it starts. Each sample is seeded from (epoch_seed, its
        position in the epoch, its index), whatever the number of workers.
    timeout: seconds `next` waits at most; 0 is for ever. prefetch_factor: batches in flight are prefetch_factor *
        num_workers. persistent: workers live until `shutdown`; else they end with the epoch.
    in_order: True: batches in the order of `batches`. False: whichever is complete first.
    regroup: with in_order=False, samples go into batches in the order of their completion, at most `window` batches
        from where they belong; for batches of one size (the last may be shorter), not for a user's batch_sampler.
    lanes: with regroup, slow samples may be put aside between two transforms of a `Compose`.
    pin_memory: True or a device name: tensors come out in page-locked memory where there is CUDA.
    prepare: used instead of dataset.__getitem__: prepare(index) -> sample; with `read`, prepare(read(index)).
    """

    def __init__(
        self,
        dataset: Any,
        *,
        num_workers: int,
        collate_fn: Callable[[Any], Any],
        context: Any = None,
        worker_init_fn: Callable[[int], None] | None = None,
        generator: Any = None,
        base_seed: int = 0,
        timeout: float = 0,
        prefetch_factor: int | None = 2,
        persistent: bool = False,
        in_order: bool = True,
        pin_memory: bool | str = False,
        read: Callable[[Any], Any] | None = None,
        prepare: Callable[[Any], Any] | None = None,
        auto_collation: bool = True,
        regroup: bool = False,
        window: int | None = None,
        lanes: bool = True,
    ) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        self.persistent = persistent
        self._collate_fn = collate_fn
        self._context = context
        self._worker_init_fn = worker_init_fn
        self._base_seed = base_seed
        self._timeout = timeout
        self._depth = (prefetch_factor or 2) * num_workers
        self._in_order = in_order
        self._single = not auto_collation
        self._pinner = Pinner(pin_memory)
        self._get = _getter(read, prepare)
        self._has_items = auto_collation and self._get is None and bool(getattr(dataset, "__getitems__", None))
        self._regroup = regroup and not in_order and auto_collation and not self._has_items
        self._window = window
        self._lanes = self._regroup and lanes
        self._mode = _tasks.SPREAD if is_default(collate_fn) else _tasks.TOGETHER  # that workers begin with
        self._pool: Pool | None = None
        self._batches: Iterator[Any] | None = None
        self._flying: dict[int, _Batch] = {}
        self._queue: deque[_Batch] = deque()
        self._limbo: list[list[_Batch]] = []
        self._held: list[_Batch] = []  # regrouping: taken, but samples of theirs are still on their way
        self._inputs: deque[_Batch] = deque()  # regrouping: those whose own samples may be unfinished, oldest first
        self._epoch = 0
        self._serial = 0
        self._broken = ""
        self._delivered: int | list[int] = -1  # by the workers; where pinning stands between, it knows what was handed out
        self._clear_stats()

    # The epoch

    def start_epoch(self, batches: Iterator[Any], epoch_seed: int, *, position: int = 0) -> None:
        """Begins an epoch; what was left of another is dropped. Starts the workers where there are none.

        batches: lists of indices (single indices without auto_collation), asked for as far ahead as the look-ahead
        goes, always in the thread that calls. position: samples of this epoch that were delivered before (a resume):
        the first one here has that position.
        """
        self._abandon()
        self._epoch += 1
        self._broken = ""
        self._batches, self._seed, self._position = iter(batches), epoch_seed, position
        self._number, self._batch_size = 0, 0
        self._pinner.clear()
        self._clear_stats()
        if not self.num_workers:
            return
        if self._pool is None or self._pool.closed:
            self._start()
        assert self._pool is not None
        self._pool.words[_tasks.FILLED] = self._epoch << _tasks.FILLED_BITS
        self._pool.words[_tasks.EPOCH] = self._epoch
        self._pool.words[_tasks.TAKEN] = 0
        self._slow_before = self._slow()
        self._busy_before = self._busy()
        self._fill()

    def _start(self) -> None:
        self._limbo.clear()
        self._most = self._depth + (_lanes.LEVELS * self.num_workers if self._lanes else 0)  # batches under way
        self._ring = self._most + 1
        costs = _tasks.RING + self._ring + self.num_workers * _tasks.COUNTERS
        arena = Arena(self.num_workers + 1, (costs + (_costs.BUCKETS if self._lanes else 0)) * 8)
        setup = Setup(
            arena=arena, tasks=[], results=Descriptor(-1), num_workers=self.num_workers, dataset=self.dataset,
            collate_fn=self._collate_fn, worker_init_fn=self._worker_init_fn, base_seed=self._base_seed,
            ring=self._ring, get=self._get, has_items=self._has_items, regroup=self._regroup,
            lanes=self._lanes, costs=costs,
        )  # fmt: skip
        self._arena, self._region = arena, Region(arena, 0)
        self._layouts: dict[int, Layout] = {}
        self._hint: tuple[int, Layout] | None = None
        arena.words[_tasks.MODE] = self._mode
        self._pace = _lanes.Pace(arena.words)
        self._pool = Pool(MapWorker, setup, 1, self._context)

    def _abandon(self) -> None:
        """Batches under way are nobody's; their tasks are used again once the workers have left them."""
        pool, self._batches = self._pool, None
        left, self._flying, self._held = [*self._flying.values(), *self._held], {}, []
        self._queue.clear()
        self._inputs.clear()
        if pool is None or pool.closed or not left:
            return
        pool.words[_tasks.EPOCH] = self._epoch + 1
        pool.words[_tasks.FILLED] = (self._epoch + 1) << _tasks.FILLED_BITS
        for data in pool.forget_backlog():
            for (token,) in _tasks.TOKEN.iter_unpack(data):
                self._uncount(token >> 24 << 6, token & _tasks.WHOLE)
        self._limbo += [left] if self._regroup else [[batch] for batch in left]
        self._sweep_limbo()

    def _uncount(self, offset: int, number: int) -> None:
        """Does for a token that was never sent what a worker does with an outdated one."""
        words, w = self._arena.words, offset >> 3
        if self._regroup:
            atomic_add(words, w + _tasks.UNREAD, -words[w + _tasks.COUNT] if number == _tasks.WHOLE else -1)
        elif number == _tasks.WHOLE or atomic_add(words, w + _tasks.LEFT, -1) == 0:
            _tasks.discard(self._arena, offset)
            words[w + _tasks.CLOSED] = 1

    def _sweep_limbo(self) -> None:
        """Takes back the tasks of abandoned batches that no worker looks at any more. With regrouping a sample of one
        batch may be on its way into another: all of an epoch go together."""
        words, still = self._arena.words, []
        last_word = _tasks.UNREAD if self._regroup else _tasks.CLOSED
        for group in self._limbo:
            if any(bool(atomic_add(words, (batch.offset >> 3) + last_word, 0)) == self._regroup for batch in group):
                still.append(group)
                continue
            for batch in group:
                self._drop(batch)
                self._free(batch, block_used=batch.taken)
        self._limbo = still

    def _drop(self, batch: _Batch) -> None:
        """What an unwanted batch holds; a finisher that found it outdated has done it already (CLOSED, no RESULT)."""
        words, w = self._arena.words, batch.offset >> 3
        result, where = words[w + _tasks.RESULT], words[w + _tasks.RESULT_AT]
        if batch.taken:
            return
        if not words[w + _tasks.CLOSED]:
            _tasks.discard(self._arena, batch.offset)
            return
        if result == _tasks.OBJECT:
            _codec.discard(self._arena, where)
        elif where:
            self._arena.release(where)
        if result in (_tasks.DIRECT, _tasks.DIRECT_TEXT) and words[w + _tasks.STATE] == _tasks.OWN:
            self._arena.release(words[w + _tasks.BLOCK])

    def _free(self, batch: _Batch, *, block_used: bool) -> None:
        if batch.block and not block_used:
            self._arena.release(batch.block)
        batch.freed = True
        self._arena.release(batch.offset)

    # Handing out work

    def _fill(self) -> None:
        """Sends batches until the look-ahead is full or there are no more."""
        if self._limbo:
            self._sweep_limbo()
        words, may = self._arena.words, True
        words[_tasks.MORE] = words[_tasks.NUDGED] = 0
        while self._batches is not None and len(self._flying) < self._look_ahead() and (may := self._may_send()):
            try:
                indices = next(self._batches)
            except StopIteration:
                self._batches = None
                return
            self._send(indices)
        words[_tasks.MORE] = self._batches is not None and may

    def _look_ahead(self) -> int:
        """Batches that may be under way. Places that samples wait for which were put aside come on top: otherwise there
        would be nothing else to do."""
        if not self._lanes:
            return self._depth
        words = self._arena.words
        return min(self._depth + words[_tasks.ASIDE] // max(words[_tasks.BATCH_SIZE], 1), self._most)

    def _may_send(self) -> bool:
        """Regrouping: not so far that a slow sample falls behind by more than the window."""
        if not self._regroup:
            return True
        words, inputs = self._arena.words, self._inputs
        while inputs and (inputs[0].freed or not words[(inputs[0].offset >> 3) + _tasks.UNPLACED]):
            inputs.popleft()
        return not inputs or self._number - inputs[0].number < self._window_batches()

    def _window_batches(self) -> int:
        return self._window or max(_WINDOW_BATCHES, -(-_WINDOW_SAMPLES // max(self._batch_size, 1)))

    def _send(self, indices: Any) -> None:
        assert self._pool is not None
        if not self._single and not hasattr(indices, "__len__"):
            indices = list(indices)
        self._serial += 1
        offset, count = _tasks.write_task(
            self._region, self._serial, self._epoch, indices, self._single, self._position, self._seed
        )
        batch = _Batch(self._number, offset, self._serial, count)
        together = self._arena.words[_tasks.MODE] != _tasks.SPREAD
        if self._hint is not None and not together:
            self._offer(batch, *self._hint)
        if self._regroup:
            self._check_size(count)
            self._arena.words[_tasks.RING + self._number % self._ring] = offset
            self._inputs.append(batch)
        self._number += 1
        self._position += count
        self._flying[offset] = batch
        if self._in_order:
            self._queue.append(batch)
        if self._single or self._has_items or together or not count:
            tokens = array("q", [_tasks.token(offset, _tasks.WHOLE)])
        else:
            first = _tasks.token(offset, 0)
            tokens = array("q", range(first, first + count))
        self._pool.send(tokens.tobytes())

    def _offer(self, batch: _Batch, where: int, layout: Layout) -> None:
        """Memory for the batch if its samples look like the last ones."""
        batch.layout = layout
        batch.block = self._region.allocate(layout.starts(batch.count)[1])
        words, w = self._arena.words, batch.offset >> 3
        words[w + _tasks.HINT_BLOCK], words[w + _tasks.HINT_LAYOUT] = batch.block, where

    def _check_size(self, count: int) -> None:
        if not self._number:
            words = self._arena.words
            self._batch_size = words[_tasks.BATCH_SIZE] = count
            words[_tasks.ROOM], words[_tasks.WINDOW] = self._depth * count, self._window_batches() * count
            self._short = False
        if self._short or count > self._batch_size:
            raise ValueError("samples can only be regrouped into batches of one size (the last may be shorter)")
        self._short = count < self._batch_size

    # Taking batches

    def next(self) -> Any:
        """The next batch. StopIteration at the end; what a sample raised, at the place of its batch."""
        if not self._pinner.active:
            return self._next()
        return self._pinner.next(
            self._next, lambda: self._delivered, lambda: self.num_workers > 0 and self._first_done() is not None
        )

    def _next(self) -> Any:
        if not self.num_workers:
            return self._inline()
        if self._broken:
            raise RuntimeError(self._broken)
        if self._pool is None or (self._pool.closed and not self._flying):
            raise StopIteration
        if self._pool.pid != os.getpid():
            raise RuntimeError("this iterator belongs to the process that made it: call iter() again after a fork")
        began = time.perf_counter()
        batch = self._wait()
        self._waited += time.perf_counter() - began
        self._flying.pop(batch.offset)
        try:
            self._fill()
        except BaseException:  # the sampler's: as with torch, this batch is lost
            self._limbo.append([batch])
            raise
        return self._take(batch)

    def _first_done(self) -> _Batch | None:
        """The batch to hand out if it is there."""
        if not self._queue or (self._in_order and not self._queue[0].done):
            return None
        return self._queue[0]

    def _wait(self) -> _Batch:
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        assert self._pool is not None
        while self._first_done() is None:
            if not self._flying:
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
            for offset, serial in records:
                self._note_done(offset, serial)
            if self._arena.words[_tasks.NUDGED]:
                self._fill()
        return self._queue.popleft()

    def _note_done(self, offset: int, serial: int) -> None:
        batch = self._flying.get(offset)
        if batch is not None and batch.serial == serial:
            batch.done = True
            if not self._in_order:
                self._queue.append(batch)

    def _end(self) -> None:
        """The epoch is over."""
        self._batches = None
        self._busy_after = self._busy()
        self._slow_after, self._not_parked = self._slow(), self._why_not_parked()
        if not self.persistent:
            self._mode = self._arena.words[_tasks.MODE]
            self.shutdown()

    def _take(self, batch: _Batch) -> Any:
        words, w = self._arena.words, batch.offset >> 3
        result, where = words[w + _tasks.RESULT], words[w + _tasks.RESULT_AT]
        self._delivered = self._positions(batch) if self._regroup else batch.number
        self._batches_taken += 1
        self._samples_taken += batch.count
        if self._lanes:
            self._pace.taken(batch.count)
        hinted = words[w + _tasks.STATE] == _tasks.HINTED and result in (_tasks.DIRECT, _tasks.DIRECT_TEXT)
        try:
            if result == _tasks.ERROR:
                raise unpacked(_codec.take(self._arena, where))
            if result == _tasks.OBJECT:
                return _codec.load(self._arena, where)
            return self._direct(batch, hinted, where if result == _tasks.DIRECT_TEXT else 0)
        finally:
            self._done_with(batch, hinted)

    def _direct(self, batch: _Batch, hinted: bool, texts_at: int) -> Any:
        """The batch whose samples were written straight into its block."""
        if hinted:
            block, layout = batch.block, batch.layout
            assert layout is not None
        else:
            words, w = self._arena.words, batch.offset >> 3
            block, at = words[w + _tasks.BLOCK], words[w + _tasks.LAYOUT]
            layout = self._layout_at(at)
            self._hint = (at, layout)
        raw = self._arena.lease(block, layout.starts(batch.count)[1])
        texts = pickle.loads(_codec.take(self._arena, texts_at)) if texts_at else []
        return layout.batch(raw, batch.count, texts)

    def _done_with(self, batch: _Batch, block_used: bool) -> None:
        """Its task is used again; with regrouping not before its own samples are placed somewhere."""
        batch.taken = block_used or not batch.block
        if batch.block and not block_used:
            self._arena.release(batch.block)
            batch.block, batch.taken = 0, True
        if not self._regroup:
            self._free(batch, block_used=True)
            return
        self._held.append(batch)
        still = []
        for held in self._held:
            if self._arena.words[(held.offset >> 3) + _tasks.UNREAD]:
                still.append(held)
            else:
                self._free(held, block_used=True)
        self._held = still

    def _layout_at(self, where: int) -> Layout:
        layout = self._layouts.get(where)
        if layout is None:
            layout = self._layouts[where] = _layout.unpack(_codec.fetch(self._arena, where))
        return layout

    def _positions(self, batch: _Batch) -> list[int]:
        words, first = self._arena.words, (batch.offset >> 3) + _tasks.ROWS + 2
        return [words[row] for row in range(first, first + _tasks.ROW * batch.count, _tasks.ROW)]

    def _inline(self) -> Any:
        """num_workers=0: as torch does it, in this thread, with this thread's random numbers."""
        if self._batches is None:
            raise StopIteration
        indices = next(self._batches)
        if self._has_items:
            data = self.dataset.__getitems__(indices)
        else:
            data = self._get_noted(indices) if self._single else [self._get_noted(index) for index in indices]
        self._delivered = self._number
        self._number += 1
        self._batches_taken += 1
        self._samples_taken += 1 if self._single else len(indices)
        return self._collate_fn(data)

    def _get_noted(self, index: Any) -> Any:
        """A sample; what it raises goes on as it is, with a note which one it was."""
        try:
            return self.dataset[index] if self._get is None else self._get(index)
        except Exception as error:
            error.add_note(f"in sample index {traceback_note(index)}")
            raise

    def delivered(self) -> int | list[int]:
        """What the last `next` gave: its number in `batches` (from 0), or, regrouped, the samples' positions."""
        return self._pinner.handed if self._pinner.active else self._delivered

    def shutdown(self) -> None:
        """Ends the workers. Batches that were handed out stay valid. May be called again."""
        self._batches = None
        self._flying.clear()
        self._queue.clear()
        self._held.clear()
        self._inputs.clear()
        self._limbo.clear()
        self._pinner.clear()
        if self._pool is not None:
            self._pool.shutdown()

    # Figures

    def _clear_stats(self) -> None:
        self._waited, self._batches_taken, self._samples_taken = 0.0, 0, 0
        self._busy_before: list[int] = [0] * self.num_workers
        self._busy_after: list[int] | None = None
        self._slow_before, self._not_parked = [0, 0], ""
        self._slow_after: list[int] | None = None
        self._began = time.perf_counter()

    def _busy(self) -> list[int]:
        if self._pool is None:
            return [0] * self.num_workers
        return [self._pool.counter(number, _tasks.BUSY_NS) for number in range(self.num_workers)]

    def _slow(self) -> list[int]:
        """Samples that passed the cut-off, and how often one was put aside."""
        if self._pool is None:
            return [0, 0]
        which = (_tasks.SLOW, _tasks.PARKED)
        return [sum(self._pool.counter(number, each) for number in range(self.num_workers)) for each in which]

    def _why_not_parked(self) -> str:
        """What about the dataset keeps its samples from being put aside between transforms."""
        if self._pool is None or self._pool.closed:
            return self._not_parked
        places = [self._pool.counter(number, _tasks.WHY) for number in range(self.num_workers)]
        return next((_codec.fetch(self._arena, at).decode() for at in places if at), "")

    def stats(self) -> dict[str, Any]:
        """Of the running or last epoch: seconds waited, batches, samples, seconds a sample, each worker's busy share,
        slow samples, how often one was put aside, and what about the dataset forbids that."""
        busy = [
            (now - before) / 1e9 for now, before in zip(self._busy_after or self._busy(), self._busy_before)
        ]
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        slow = self._slow_after or self._slow()
        return {
            "wait_s": self._waited,
            "batches": self._batches_taken,
            "samples": self._samples_taken,
            "sample_s": sum(busy) / self._samples_taken if self._samples_taken else 0.0,
            "worker_busy": [min(1.0, seconds / elapsed) for seconds in busy],
            "slow_samples": max(0, slow[0] - self._slow_before[0]),
            "slow_parked": max(0, slow[1] - self._slow_before[1]),
            "not_parked": self._why_not_parked(),
        }


class _Chain:
    """prepare(read(index))."""

    def __init__(self, read: Callable[[Any], Any], prepare: Callable[[Any], Any] | None) -> None:
        self.read, self.prepare = read, prepare

    def __call__(self, index: Any) -> Any:
        data = self.read(index)
        return data if self.prepare is None else self.prepare(data)


def _getter(
    read: Callable[[Any], Any] | None, prepare: Callable[[Any], Any] | None
) -> Callable[[Any], Any] | None:
    """What makes a sample of an index; None: the dataset itself."""
    return _Chain(read, prepare) if read is not None else prepare
