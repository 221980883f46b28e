# SPDX-License-Identifier: Apache-2.0
"""The worker of a map-style dataset: takes sample after sample, puts it into its batch, finishes full batches."""

from __future__ import annotations

import functools
import operator
import os
import pickle
import time
from typing import Any

import numpy

from ..._penstock import atomic_add, atomic_swap_if
from . import _codec, _layout, _tasks
from ._collate import is_default
from ._errors import packed, traceback_note
from ._lanes import Dropped, Lane, Sample, open_lane
from ._layout import Layout, Unfit
from ._process import Setup, Worker
from ._seed import seed_sample, seeds
from ._spread import SLOT_NS, Balance
from ._tasks import (
    AGAIN, BLOCK, CHOOSING, CLOSED, DIRECT, DIRECT_TEXT, EPOCH, ERROR, FAILED, FILLED, FILLED_BITS, HINT_BLOCK,
    HINT_LAYOUT, HINTED, IN_SLOT, IN_SLOT_TEXT, LAYOUT, LEFT, LOOSE, LOOSE_LAYOUT, MODE, NEVER_SPREAD, OBJECT, ODD, OWN,
    RESULT, RESULT_AT, RING, ROW,
    ROWS, SPREAD, STATE, STOP, TOKEN, TOGETHER, UNCHOSEN, UNPLACED, UNREAD, WHOLE, Task,
)  # fmt: skip

_SPINS = 64
_PROBE = 256  # samples between looks at what travelling costs
_ANY = Layout(int)


class MapWorker(Worker):
    def __init__(self, setup: Setup, worker_id: int) -> None:
        super().__init__(setup, worker_id)
        self.direct = is_default(setup.collate_fn) and not setup.has_items
        self.get = setup.get or functools.partial(operator.getitem, setup.dataset)
        self.balance = Balance(SLOT_NS if self.direct else 0.0)
        self.tasks: dict[int, Task] = {}
        self.layouts: dict[Any, Layout] = {}
        self.layouts_at: dict[int, Layout] = {}
        self.lane: Lane | None = None

    def run(self) -> None:
        """Until the trainer says stop or the pipe ends. One token at a time: what a worker has taken nobody else can
        do, and it may meet a slow sample first."""
        words, busy = self.words, self.counters + _tasks.BUSY_NS
        self.lane = lane = open_lane(self)
        while True:
            token = lane.token() if lane is not None else None
            if token is None:
                data = os.read(self.input, TOKEN.size)
                if not data:
                    return
                (token,) = TOKEN.unpack(data)
            if words[STOP]:
                return
            began = time.perf_counter_ns()
            self.do(token)
            words[busy] += time.perf_counter_ns() - began

    def do(self, token: int) -> None:
        self._do(token >> 24 << 6, token & WHOLE)

    def _do(self, offset: int, number: int) -> None:
        words = self.words
        task = self._task(offset)
        outdated = words[EPOCH] != task.epoch
        if self.setup.regroup:
            if not outdated:
                self._regrouped(task, number)
            atomic_add(words, task.w + UNREAD, -task.count if number == WHOLE else -1)
        elif number == WHOLE:
            if outdated:
                atomic_add(words, task.w + CLOSED, 1)
            else:
                self._finish_whole(task)
        elif outdated:
            self._count_down(task)
        else:
            self._one(task, number)

    def _task(self, offset: int) -> Task:
        task = self.tasks.get(offset)
        if task is None or task.serial != self.words[offset >> 3]:
            task = self.tasks[offset] = Task(self.arena, offset)
        return task

    def _one(self, task: Task, number: int) -> None:
        """Prepares a sample and puts it where it belongs."""
        self.words[self.counters + _tasks.SAMPLES] += 1
        index, position = task.indices[number], task.position + number
        sample, error = None, None
        mode = self.words[MODE]
        if mode == NEVER_SPREAD or (mode == TOGETHER and not self.direct):
            how = AGAIN
        else:
            if self.lane is not None:
                self._one_in_lane(self.lane, task, number)
                return
            how = 0
            try:
                sample = self._made(task, position, index)
            except _Failed as failed:
                how, error = FAILED, failed.args[0]
        self._settle(task, number, how, sample, error)

    def _one_in_lane(self, lane: Lane, task: Task, number: int) -> None:
        """The same for a sample that may be put aside, which makes this worker do other tokens meanwhile."""
        how, made, error = 0, None, None
        sample = lane.begin(task, task.position + number)
        try:
            made = self._made(task, task.position + number, task.indices[number], sample)
        except _Failed as failed:
            how, error = FAILED, failed.args[0]
        except Dropped:
            lane.placed(sample)
            return
        finally:
            lane.made(sample)
        self._settle(task, number, how, made, error)
        lane.placed(sample)

    def _settle(self, task: Task, number: int, how: int, sample: Any, error: bytes | None) -> None:
        """Puts a sample, or what it raised, where it belongs. how: 0, FAILED or AGAIN."""
        index, position, source = task.indices[number], task.position + number, task
        if self.setup.regroup:
            place = self._place(task)
            if place is None:
                return
            task, number = place
        if not how:
            how, error = self._put(task, number, sample, position)
        if how == FAILED:
            self._mark(task, number, FAILED, _codec.store(self.region, error or b""), position)
        elif how == AGAIN:
            where = _codec.store(self.region, pickle.dumps(index)) if self.setup.regroup else 0
            self._mark(task, number, AGAIN, where, position)
        if self.setup.regroup:
            atomic_add(self.words, source.w + UNPLACED, -1)
        self._count_down(task)

    def _made(self, task: Task, position: int, index: Any, in_lane: Sample | None = None) -> Any:
        """The sample, from the dataset. _Failed where it raised."""
        seed_sample(task.seed, position, index)
        began = time.perf_counter_ns()
        lane, away = self.lane, self.lane.away_ns if self.lane is not None else 0
        try:
            sample = self.get(index)
        except Exception as error:
            raise _Failed(self._packed(error, f"sample index {traceback_note(index, position)}")) from None
        spent = time.perf_counter_ns() - began
        if lane is not None and in_lane is not None:
            lane.learn(in_lane)
            spent -= lane.away_ns - away
        self.balance.add(spent)
        return sample

    def _packed(self, error: BaseException, what: str) -> bytes:
        return packed(error, f"in DataLoader worker process {self.id}, {what}")

    def _place(self, task: Task) -> tuple[Task, int] | None:
        """Regrouping: the next free place of the epoch; None if the epoch is over.

        Its batch is looked up before the place is claimed. While nobody has the place, all batches from its own on are
        under way, fewer than the ring has words; a moment after the claim the others may have filled so many that the
        trainer uses the word again, for this epoch or the next."""
        words = self.words
        while True:
            filled = atomic_add(words, FILLED, 0)
            if filled >> FILLED_BITS != task.epoch:
                return None
            batch, number = divmod(filled & ((1 << FILLED_BITS) - 1), words[_tasks.BATCH_SIZE])
            offset = words[RING + batch % self.setup.ring]
            if atomic_swap_if(words, FILLED, filled, filled + 1):
                return self._task(offset), number

    def _place_all(self, task: Task) -> Task | None:
        """Regrouping: the batch whose places are all free and as many as the task has samples, if the next one is such."""
        words = self.words
        while True:
            filled = atomic_add(words, FILLED, 0)
            batch, number = divmod(filled & ((1 << FILLED_BITS) - 1), words[_tasks.BATCH_SIZE])
            offset = words[RING + batch % self.setup.ring]
            if filled >> FILLED_BITS != task.epoch or number or words[(offset >> 3) + _tasks.COUNT] != task.count:
                return None
            if atomic_swap_if(words, FILLED, filled, filled + task.count):
                return self._task(offset)

    def _mark(self, task: Task, number: int, how: int, where: int, position: int, layout: int = 0) -> None:
        words, row = self.words, task.w + ROWS + ROW * number
        words[row], words[row + 1], words[row + 2], words[row + 3] = how, where, position, layout
        if how != IN_SLOT:
            words[task.w + ODD] = 1

    # Placing a sample

    def _put(self, task: Task, number: int, sample: Any, position: int) -> tuple[int, bytes | None]:
        """How it came: IN_SLOT and the like if it is placed and marked; FAILED or AGAIN are left to the caller."""
        values: list[Any] = []
        texts: list[Any] = []
        try:
            key = _layout.flatten(sample, values, texts)
            layout = self.layouts.get(key)
        except (Unfit, TypeError):  # TypeError: a dictionary's key that cannot be compared
            return self._put_object(task, number, sample, position)
        if layout is None:
            layout = self.layouts[key] = Layout(key)
        try:
            if self.direct and self._write_slot(task, number, layout, values):
                self._mark_slot(task, number, texts, position)
                return IN_SLOT, None
            if texts:
                return self._put_object(task, number, sample, position)
            return self._put_loose(task, number, layout, values, position)
        except (OverflowError, ValueError, TypeError):  # a number that int64 cannot hold: torch says what that is
            return self._put_object(task, number, sample, position)

    def _mark_slot(self, task: Task, number: int, texts: list[Any], position: int) -> None:
        if texts:
            self._mark(task, number, IN_SLOT_TEXT, _codec.store(self.region, pickle.dumps(texts)), position)
        elif self.setup.regroup:
            self._mark(task, number, IN_SLOT, 0, position)
        else:
            self.words[task.w + ROWS + ROW * number] = IN_SLOT

    def _write_slot(self, task: Task, number: int, layout: Layout, values: list[Any]) -> bool:
        if task.layout is None and not self._choose(task, layout):
            return False
        if task.layout is not layout:
            return False
        for row, value in zip(task.rows, values):
            row[number] = value
        return True

    def _choose(self, task: Task, layout: Layout) -> bool:
        """Finds out the layout of the task's block, or decides it if this is its first sample."""
        words, w = self.words, task.w
        for _ in range(_SPINS):
            state = words[w + STATE]
            if state == UNCHOSEN:
                if words[w + HINT_LAYOUT] and self._layout_at(words[w + HINT_LAYOUT]) is layout:
                    atomic_swap_if(words, w + STATE, UNCHOSEN, HINTED)
                elif atomic_swap_if(words, w + STATE, UNCHOSEN, CHOOSING):
                    words[w + BLOCK] = self.region.allocate(layout.starts(task.count)[1])
                    words[w + LAYOUT] = self._published(layout)
                    atomic_add(words, w + STATE, OWN - CHOOSING)
            elif state != CHOOSING:
                atomic_add(words, w + STATE, 0)
                hinted = state == HINTED
                task.layout = self._layout_at(words[w + (HINT_LAYOUT if hinted else LAYOUT)])
                block = words[w + (HINT_BLOCK if hinted else BLOCK)]
                task.rows = task.layout.rows(self.arena.map, block, task.count)
                return True
            else:
                os.sched_yield()
        return False

    def _published(self, layout: Layout) -> int:
        if not layout.where:
            layout.where = _codec.store(self.region, layout.pack())
            self.layouts_at[layout.where] = layout
        return layout.where

    def _layout_at(self, where: int) -> Layout:
        layout = self.layouts_at.get(where)
        if layout is None:
            layout = _layout.unpack(_codec.fetch(self.arena, where))
            layout = self.layouts_at[where] = self.layouts.setdefault(layout.key, layout)
            layout.where = layout.where or where
        return layout

    def _put_loose(
        self, task: Task, number: int, layout: Layout, values: list[Any], position: int
    ) -> tuple[int, bytes | None]:
        """The sample by itself, to be found by whoever collates."""
        block = self.region.allocate(layout.starts(1)[1])
        try:
            for row, value in zip(layout.rows(self.arena.map, block, 1), values):
                row[0] = value
        except BaseException:
            self.arena.release(block)
            raise
        self._mark(task, number, LOOSE_LAYOUT, block, position, self._published(layout))
        return LOOSE_LAYOUT, None

    def _put_object(self, task: Task, number: int, sample: Any, position: int) -> tuple[int, bytes | None]:
        """Any object. One that cannot be pickled has to be made again by the worker that collates its batch, and from
        now on each batch is made by one worker, as torch does it."""
        try:
            self._mark(task, number, LOOSE, _codec.dump(self.region, sample), position)
        except MemoryError as error:
            return FAILED, self._packed(error, "out of memory")
        except Exception:
            self.words[MODE] = NEVER_SPREAD
            return AGAIN, None
        return LOOSE, None

    # Finishing a batch

    def _count_down(self, task: Task) -> None:
        if atomic_add(self.words, task.w + LEFT, -1) == 0:
            self._finish(task)

    def _close(self, task: Task, result: int, where: int = 0) -> None:
        """The trainer may use the task again from here on: nothing of it is looked at any more."""
        words, w = self.words, task.w
        words[w + RESULT], words[w + RESULT_AT] = result, where
        atomic_add(words, w + CLOSED, 1)
        self.send(task.offset, task.serial)

    def _finish(self, task: Task) -> None:
        words, w = self.words, task.w
        if self.direct:
            self._decide(task)
        if words[EPOCH] != task.epoch:
            _tasks.discard(self.arena, task.offset)
            atomic_add(words, w + CLOSED, 1)
        elif not words[w + ODD]:
            self._close(task, DIRECT)
        elif columns := self._columns(task):
            self._close(task, DIRECT_TEXT, _codec.store(self.region, pickle.dumps(columns)))
        else:
            result, where = self._collated(task)
            if words[w + STATE] == OWN:
                self.arena.release(words[w + BLOCK])
            self._close(task, result, where)

    def _columns(self, task: Task) -> list[tuple[Any, ...]] | None:
        """The text of a batch whose samples all lie in their slots, leaf by leaf."""
        words, first = self.words, task.w + ROWS
        rows = range(first, first + ROW * task.count, ROW)
        if any(words[row] != IN_SLOT_TEXT for row in rows):
            return None
        return list(zip(*[pickle.loads(_codec.take(self.arena, words[row + 1])) for row in rows]))

    def _collated(self, task: Task) -> tuple[int, int]:
        """RESULT and RESULT_AT of a batch that collate_fn makes."""
        samples: list[Any] = []
        try:
            for number in range(task.count):
                samples.append(self._sample(task, number))
        except Exception as error:  # not _Failed: a sample that could be pickled and cannot be unpickled
            _tasks.discard_samples(self.arena, task.offset, len(samples) + 1)
            text = error.args[0] if isinstance(error, _Failed) else self._packed(error, self._names(task))
            return ERROR, _codec.store(self.region, text)
        if not self.direct:
            self._decide(task)
        return self._called(lambda: samples, task)

    def _called(self, data: Any, task: Task) -> tuple[int, int]:
        try:
            return OBJECT, self.collate(data())
        except Exception as error:
            return ERROR, _codec.store(self.region, self._packed(error, self._names(task)))

    def _names(self, task: Task) -> str:
        if not self.setup.regroup:
            return f"with the samples {traceback_note(task.indices)}"
        first = task.w + ROWS + 2
        positions = [self.words[row] for row in range(first, first + ROW * task.count, ROW)]
        return f"with the samples at the positions {traceback_note(positions)} of the epoch"

    def _sample(self, task: Task, number: int) -> Any:
        """A sample as its dataset gave it, from wherever it lies."""
        words, row = self.words, task.w + ROWS + ROW * number
        how, where, position, at = words[row], words[row + 1], words[row + 2], words[row + 3]
        if how == LOOSE_LAYOUT:
            layout = self._layout_at(at)
            return layout.sample(self.arena.lease(where, layout.starts(1)[1]), 1, 0, [])
        if how == LOOSE:
            return _codec.load(self.arena, where)
        if how == FAILED:
            raise _Failed(_codec.take(self.arena, where))
        if how == AGAIN:
            return self._again(task, number, where, position)
        if how not in (IN_SLOT, IN_SLOT_TEXT):
            raise RuntimeError(f"sample {number} of a batch was counted and never placed: an error of penstock's own")
        texts = pickle.loads(_codec.take(self.arena, where)) if how == IN_SLOT_TEXT else []
        if task.layout is None:
            self._choose(task, _ANY)
        size = task.layout.starts(task.count)[1]
        hinted = words[task.w + STATE] == HINTED
        block = words[task.w + (HINT_BLOCK if hinted else BLOCK)]
        raw = self.arena.view(block, size).copy()  # rare: a batch whose samples differ
        return task.layout.sample(raw, task.count, number, texts)

    def _again(self, task: Task, number: int, where: int, position: int) -> Any:
        """A sample that was left to the worker that collates."""
        index = pickle.loads(_codec.take(self.arena, where)) if where else task.indices[number]
        sample = self._made(task, position, index)
        self._probe(sample, 1)
        return sample

    def _probe(self, sample: Any, samples: int) -> None:
        """Now and then a look at what travelling would cost. samples: that were made since the last call."""
        if self.direct or self.words[MODE] != TOGETHER or (self.balance.count - 8) % _PROBE >= samples:
            return
        began = time.perf_counter_ns()
        try:
            _codec.load(self.arena, _codec.dump(self.region, sample))
        except Exception:
            self.words[MODE] = NEVER_SPREAD
        self.balance.add_travel(time.perf_counter_ns() - began)

    def _decide(self, task: Task) -> None:
        """Spread or together, for the batches to come."""
        mode = SPREAD if self.balance.spread(max(task.count, 1)) else TOGETHER
        if self.words[MODE] not in (mode, NEVER_SPREAD):
            self.words[MODE] = mode

    def _finish_whole(self, task: Task) -> None:
        """A batch that this worker makes alone."""
        self.words[self.counters + _tasks.SAMPLES] += task.count
        if self.setup.has_items:
            seed_sample(task.seed, task.position, 0)
            self._close(task, *self._called(lambda: self.setup.dataset.__getitems__(task.indices), task))
        elif self.words[task.w + _tasks.KIND] == _tasks.SINGLE:
            seed_sample(task.seed, task.position, task.indices)
            self._close(task, *self._called(lambda: self.get(task.indices), task))
        else:
            self._close(task, *self._together(task))

    def _together(self, task: Task) -> tuple[int, int]:
        """RESULT and RESULT_AT of a batch whose samples were not spread."""
        samples: list[Any] = []
        error = self._make_all(task, samples)
        return self._collate_made(task, samples) if error is None else (ERROR, _codec.store(self.region, error))

    def _collate_made(self, task: Task, samples: list[Any]) -> tuple[int, int]:
        if samples:
            self._probe(samples[-1], len(samples))
            self._decide(task)
        return self._called(lambda: samples, task)

    def _regrouped(self, task: Task, number: int) -> None:
        """A sample, or all samples of a batch, into whichever places of the epoch are next."""
        if number != WHOLE:
            self._one(task, number)
            return
        samples: list[Any] = []
        words = self.words
        words[self.counters + _tasks.SAMPLES] += task.count
        error = self._make_all(task, samples)
        target = self._place_all(task) if error is None else None
        if target is None:
            self._settle_all(task, samples, error)
            return
        rows = numpy.zeros((task.count, ROW), numpy.int64)
        rows[:, 2] = range(task.position, task.position + task.count)
        start = target.offset + ROWS * 8
        self.arena.map[start : start + rows.nbytes] = rows.tobytes()
        result = self._collate_made(target, samples)
        atomic_add(words, task.w + UNPLACED, -task.count)
        if atomic_add(words, target.w + LEFT, -task.count) == 0:
            self._close(target, *result)

    def _settle_all(self, task: Task, samples: list[Any], error: bytes | None) -> None:
        """One by one, where no batch is free for them, or one of them raised: those after it are still to be made."""
        for number, sample in enumerate(samples):
            self._settle(task, number, 0, sample, None)
        if error is not None:
            self._settle(task, len(samples), FAILED, None, error)
            for number in range(len(samples) + 1, task.count):
                self._one(task, number)

    def _make_all(self, task: Task, samples: list[Any]) -> bytes | None:
        """Appends the batch's samples, with as little around them as can be: they are cheap. What one raised, packed."""
        indices = task.indices if type(task.indices) is list else list(task.indices)
        chosen = seeds()
        seed, get, add = chosen.seed, self.get, samples.append
        began = time.perf_counter_ns()
        try:
            while len(samples) < len(indices):
                first = len(samples)
                ready = chosen.prepare(task.seed, task.position, indices, first)
                for number, index in enumerate(indices[first : first + ready]):
                    seed(number)
                    add(get(index))
                now = time.perf_counter_ns()
                self.balance.add(now - began, ready)
                began = now
        except Exception as error:
            number = len(samples)
            return self._packed(error, f"sample index {traceback_note(indices[number], task.position + number)}")
        return None


class _Failed(Exception):
    """A sample that raised; carries the packed error."""
