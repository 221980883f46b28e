# SPDX-License-Identifier: Apache-2.0
"""Lanes in a worker: a slow sample is put aside between two of its transforms while the worker makes others.

Used with regrouping alone, where batches hold what is finished first. A sample that has passed the cut-off (`_costs`)
may be put aside when the consumer would otherwise wait for workers that are all busy with slow ones: never while enough
is ready, nor where the consumer takes whatever comes, as in the engine's lanes.

Putting aside is a call: from the place where its loop goes on to the next transform (`_parts`) the worker takes tokens
and makes those samples, then returns into the loop. So any dataset code may stand around that loop, nothing of it runs
twice, and no thread is needed; a sample that is put aside later goes on earlier. The generators of random numbers are
put back before it goes on.
"""

from __future__ import annotations

import math
import os
import select
import sys
import time
from threading import get_ident
from typing import Any, Iterator

import torch

from ..._penstock import atomic_add, atomic_swap_if
from . import _codec, _tasks
from ._costs import Costs
from ._parts import Parts, Watch, find, held_around
from ._seed import kept, put_back
from ._tasks import (
    ASIDE, CUTOFF, EPOCH, FAST_NS, FILLED, FILLED_BITS, FULL_NS, MORE, NEWEST, NUDGE, NUDGED, PACE, ROOM, SLICE_NS,
    SLOW_RUNNING, STOP, TAKEN, TOKEN, WINDOW,
)  # fmt: skip

LEVELS = 16  # samples that a worker may have aside at once
_WATCHED = 8  # samples of a worker, before any is put aside
_LITTLE_LEFT = 0.25  # of the cut-off: not worth being put aside for
_SLACK_NS = 2_000_000_000
_PACE_NS = 100_000_000
_LONGEST_WAIT_MS = 20
_NEVER = 1 << 62
_SHORT_NS = 1_000_000  # samples for which a microsecond counts

worked_ns = time.perf_counter_ns  # what samples take is measured by; tests put another clock here


class Dropped(BaseException):
    """Raised between two transforms of a sample that was aside and that nobody wants any more."""


class Sample:
    """A sample under way."""

    __slots__ = ("epoch", "position", "worked", "since", "late", "late_at", "slow", "aside")

    def __init__(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        self.worked = 0  # ns, before `since`
        self.since = worked_ns()
        self.late = 0  # what it had taken when it was first seen to have passed the cut-off
        self.late_at: Any = None  # and where
        self.slow = False
        self.aside = False  # it was put aside, and is not in a batch yet


def open_lane(worker: Any) -> Lane | None:
    """None where there is nothing to put aside or tokens cannot be taken without waiting for them."""
    setup = worker.setup
    if not setup.lanes:
        return None
    lane = Lane(worker)
    things = find(lane, setup.dataset, setup.get)
    if not things:
        return None
    try:
        # Another description of the same pipe: O_NONBLOCK on the one there is would be for all workers.
        lane.input = os.open(f"/proc/self/fd/{worker.input}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    lane.poll.register(lane.input, select.POLLIN)
    lane.watch = Watch(things, _WATCHED)
    return lane


class Lane:
    """A worker's slow lane. `listens`: loops over transforms tell it when they go on."""

    input: int
    watch: Watch

    def __init__(self, worker: Any) -> None:
        self.worker, self.words, self.counters = worker, worker.words, worker.counters
        self.workers = worker.setup.num_workers
        self.costs = Costs(worker.arena, worker.setup.costs, worker.setup.num_workers)
        self.poll = select.poll()
        self.listens = False
        self.may_park, self.ended = True, False
        self.now: Sample | None = None
        self.due = 0  # by worked_ns, when that sample is to be looked at
        self.stack: list[Sample] = []  # put aside, the oldest first
        self.left: dict[Any, float] = {}  # ns that late samples had before them, by the place where they were late
        self.away_ns = 0  # time in which samples that were aside waited for others
        self.fatal: BaseException | None = None
        self.thread = get_ident()
        self.grad, self.recursion = torch.is_grad_enabled(), sys.getrecursionlimit()

    # A sample's way

    def begin(self, task: Any, position: int) -> Sample:
        self.words[NEWEST] = position
        self.now = sample = Sample(task.epoch, position)
        if self.watch.left and self.may_park:
            self.watch.begin()
            self.due, self.listens = 0, True
        else:
            cutoff = self.words[CUTOFF]
            self.due, self.listens = sample.since + cutoff, self.may_park and cutoff > 0
        return sample

    def made(self, sample: Sample) -> None:
        """It is made, or raised something. What happens to it from here on is ours."""
        self.now, self.listens = None, False
        if sample.slow:
            atomic_add(self.words, SLOW_RUNNING, -1)
        if self.watch.left and self.may_park:
            self.watch.end()
            if self.watch.why:
                self._give_up(self.watch.why)
        if self.fatal is not None:  # the dataset caught what was to end this process
            raise self.fatal

    def learn(self, sample: Sample) -> None:
        """What it took. Of short ones every fourth is enough, chosen by a mixed number so that no rhythm matters."""
        if self.words[FAST_NS] < _SHORT_NS and self.words[CUTOFF] and (sample.position * 0x9E3779B1 >> 16) & 3:
            return
        took_ns = self.took(sample)
        self.costs.add(took_ns)
        self._mean(FAST_NS, sample.late or took_ns)
        if sample.late:
            left = max(took_ns - sample.late, 1)
            self.left[sample.late_at] = left + 63 / 64 * (self.left.get(sample.late_at, left) - left)

    def placed(self, sample: Sample) -> None:
        if sample.aside:
            atomic_add(self.words, ASIDE, -1)

    def took(self, sample: Sample) -> int:
        return sample.worked + worked_ns() - sample.since

    def steps(self, parts: Parts) -> Iterator[Any]:
        """The items of a list of transforms."""
        number = 0
        for part in list.__iter__(parts):
            if number and self.due <= worked_ns() and self.now is not None:
                self._between(self.now, parts, number)
            number += 1
            yield part

    def _between(self, sample: Sample, parts: Parts, number: int) -> None:
        """The sample has taken as long as is looked at."""
        if get_ident() != self.thread:  # the dataset runs its transforms in threads of its own
            return
        if self.watch.left:
            self.watch.look()
        elif sample.slow or self._turns_slow(sample, (id(parts), number)):
            self._at_step(sample)

    def _turns_slow(self, sample: Sample, place: Any) -> bool:
        """Passing the cut-off with much of its work to come makes a sample slow; how much is left as a rule shows from
        those before it."""
        sample.late, sample.late_at = self.took(sample), place
        if 0 < self.left.get(place, 0) < _LITTLE_LEFT * self.words[CUTOFF]:
            self.due = _NEVER
            return False
        sample.slow, self.due = True, 0
        self.words[self.counters + _tasks.SLOW] += 1
        atomic_add(self.words, SLOW_RUNNING, 1)
        return True

    def _at_step(self, sample: Sample) -> None:
        now = worked_ns()
        self._mean(SLICE_NS, now - sample.since)
        sample.worked += now - sample.since
        sample.since = now
        if sample.aside and self._is_over(sample):
            raise Dropped
        if not self._may_leave(sample) or self._holds_lock():
            return
        token = self._token()
        if token is not None:
            self._leave(sample, token)

    def _holds_lock(self) -> bool:
        """Asked each time: a lock may be a variable of any function or module on the way here."""
        name = held_around(__package__ + "._map_worker")
        if name:
            self._give_up(f"{name} is a lock that is held between transforms")
        return name is not None

    def _give_up(self, why: str) -> None:
        self.may_park = False
        self.words[self.counters + _tasks.WHY] = _codec.store(self.worker.region, why.encode())

    def _leave(self, sample: Sample, token: int | None) -> None:
        """Makes other samples until this one is to go on."""
        words, away, began = self.words, self.away_ns, time.perf_counter_ns()
        state = kept()
        words[self.counters + _tasks.PARKED] += 1
        atomic_add(words, SLOW_RUNNING, -1)
        if not sample.aside:
            sample.aside = True
            atomic_add(words, ASIDE, 1)
        self.stack.append(sample)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(self.recursion + _frames())
        try:
            with torch.set_grad_enabled(self.grad):
                while token is not None:
                    self.worker.do(token)
                    token = self._another(sample)
        except BaseException as error:
            self.fatal = error
            raise
        sys.setrecursionlimit(limit)
        self.stack.pop()
        atomic_add(words, SLOW_RUNNING, 1)
        put_back(state)
        self.now, self.due, self.listens = sample, 0, True
        self.away_ns = away + time.perf_counter_ns() - began
        sample.since = worked_ns()
        if self._is_over(sample):
            raise Dropped

    # Tokens

    def token(self) -> int | None:
        """One that waits. None where none does: then as much is ready as may be."""
        try:
            data = os.read(self.input, TOKEN.size)
        except BlockingIOError:
            words = self.words
            if words[MORE] and 2 * self._ready() >= words[ROOM]:
                words[FULL_NS] = time.perf_counter_ns()
            return None
        if not data:  # the trainer is gone
            self.ended = True
            return None
        return TOKEN.unpack(data)[0]

    def _token(self) -> int | None:
        """... The trainer sends more where slow samples keep places in the batches that are under way."""
        token, words = self.token(), self.words
        if token is None and words[ASIDE] >= words[_tasks.BATCH_SIZE] and atomic_swap_if(words, NUDGED, 0, 1):
            self.worker.send(NUDGE, 0)
        return token

    def _another(self, sample: Sample) -> int | None:
        """The next token, as long as others come before this sample."""
        while not self._is_over(sample) and self._others_first():
            token = self._token()
            if token is not None or not self._keeps_ready():
                return token
            self.poll.poll(min(max(self.words[SLICE_NS] // 1_000_000, 1), _LONGEST_WAIT_MS))
        return None

    # How things stand

    def _is_over(self, sample: Sample) -> bool:
        return self.ended or bool(self.words[STOP]) or self.words[EPOCH] != sample.epoch

    def _ready(self) -> int:
        """Samples in batches, not handed over."""
        words = self.words
        return max((words[FILLED] & ((1 << FILLED_BITS) - 1)) - words[TAKEN], 0)

    def _has_slack(self) -> bool:
        """Whether as much as may be was ready of late: then work can be put off. Where the consumer takes whatever
        comes there is nothing to gain."""
        words = self.words
        full = words[FULL_NS]
        return full > 0 and time.perf_counter_ns() - full < _SLACK_NS + 4 * words[SLICE_NS]

    def _is_short(self) -> bool:
        """There is slack, and little is ready. As long as slow samples leave enough ready there is slack."""
        if not self._has_slack():
            return False
        if self._is_low():
            return True
        self.words[FULL_NS] = time.perf_counter_ns()
        return False

    def _cover_ns(self) -> float:
        """How long what is ready will last."""
        pace = self.words[PACE]
        return self._ready() / pace * 1e12 if pace else math.inf

    def _is_low(self) -> bool:
        """So little is ready that it may run out before a worker that takes a slow sample is back."""
        words = self.words
        return self._cover_ns() < 1.5 * words[SLICE_NS] or 4 * self._ready() < words[ROOM]

    def _slow_workers(self) -> int:
        """Workers that slow samples may have. Those that fast ones need to keep up with the consumer stay with them,
        unless what is ready lasts until one is back."""
        words = self.words
        if not self._has_slack() or self._cover_ns() > 1.25 * words[SLICE_NS]:
            return self.workers
        return max(self.workers - math.ceil(words[PACE] * words[FAST_NS] * 1e-12), 1)

    def _aged(self, sample: Sample, part: float) -> bool:
        """It has been overtaken by such a part of what may overtake it."""
        return self.words[NEWEST] - sample.position > part * self.words[WINDOW]

    def _may_leave(self, sample: Sample) -> bool:
        oldest = self.stack[0] if self.stack else sample
        return (
            len(self.stack) < LEVELS
            and not self._is_over(sample)
            and self._is_short()
            and not self._aged(oldest, 0.75)
            and not torch.is_inference_mode_enabled()
            and not _is_in_event_loop()
        )

    def _others_first(self) -> bool:
        if self._aged(self.stack[0], 0.75):
            return False
        return self.words[SLOW_RUNNING] >= self._slow_workers() or self._is_short()

    def _keeps_ready(self) -> bool:
        """Nothing else is to be done. While as much as may be is ready, slow samples keep to their workers: the others
        will be needed."""
        words = self.words
        return (
            bool(words[MORE])
            and 2 * self._ready() >= words[ROOM]
            and words[SLOW_RUNNING] >= self._slow_workers()
            and not self._aged(self.stack[0], 0.5)
        )

    def _mean(self, word: int, value: int) -> None:
        before = self.words[word]
        self.words[word] = before + (value - before) // 64 if before else value


def _is_in_event_loop() -> bool:
    """A loop that runs cannot be run again by another sample."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _frames() -> int:
    """How deep the interpreter's stack is: samples made while others are aside may still go as deep as any."""
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


class Pace:
    """The trainer's side: how fast the consumer takes samples, which workers compare with what is ready."""

    def __init__(self, words: Any) -> None:
        self._words, self._since, self._taken, self._total = words, 0, 0, 0

    def taken(self, samples: int) -> None:
        words, now = self._words, time.perf_counter_ns()
        words[TAKEN] += samples
        self._total += samples
        if now - self._since < _PACE_NS:
            return
        if self._since:
            pace = int(1e12 * (self._total - self._taken) / (now - self._since))  # a thousandth of a sample a second
            words[PACE] = pace if pace > words[PACE] else (9 * words[PACE] + pace) // 10
        self._since, self._taken = now, self._total
