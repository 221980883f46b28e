# SPDX-License-Identifier: Apache-2.0
"""Workers stopped between two steps of the protocol, while the trainer and the other workers go on.

A patch in this process stops a worker that is forked from it at a chosen step: each order of events is made to happen.
"""

import fcntl
import os
import random
import signal
import struct
import termios

import pytest
import torch
from torch.utils.data import default_collate

from penstock.torch._workers import MapRunner, _map_worker, _tasks
from penstock.torch._workers._arena import Region
from penstock.torch._workers._map_worker import MapWorker
from penstock.torch._workers._spread import Balance
from tools import rest, same


class Pause:
    """A step before which one worker waits until the test lets it go on."""

    def __init__(self):
        self._reached, self._go = os.pipe(), os.pipe()

    def here(self):
        os.write(self._reached[1], b"x")
        os.read(self._go[0], 1)

    def wait(self):
        os.read(self._reached[0], 1)

    def end(self):
        os.write(self._go[1], b"x")


def numbered(index):
    return torch.full((3,), float(index)), index


def through_default(batch):
    return default_collate(batch)


def batches(length, size=2, first=0):
    return iter([list(range(i, i + size)) for i in range(first, first + length, size)])


def regrouping(collate, workers=2, **options):
    return MapRunner(
        None, prepare=numbered, num_workers=workers, collate_fn=collate, in_order=False, regroup=True, persistent=True,
        timeout=60, **options,
    )  # fmt: skip


@pytest.fixture(params=["spread", "whole"])
def whole(request, monkeypatch):
    """Whether batches go to one worker each; it is not decided anew."""
    is_whole = request.param == "whole"
    monkeypatch.setattr(Balance, "spread", lambda self, size: not is_whole)
    start = MapRunner._start

    def in_mode(self):
        self._mode = _tasks.TOGETHER if is_whole else _tasks.SPREAD
        start(self)

    monkeypatch.setattr(MapRunner, "_start", in_mode)
    return is_whole


def labels(got):
    for x, y in got:
        assert torch.equal(x[:, 0], y.float())
    return [label for _, y in got for label in y.tolist()]


def pause_after_claim(monkeypatch, *claims):
    """For each (epoch, place): the worker that claims that place stops before it does anything with it."""
    pauses = {(epoch << _tasks.FILLED_BITS) + place: Pause() for epoch, place in claims}
    swap_if = _map_worker.atomic_swap_if

    def swap(words, index, expected, wanted):
        done = swap_if(words, index, expected, wanted)
        if done and index == _tasks.FILLED and expected in pauses:
            pauses[expected].here()
        return done

    monkeypatch.setattr(_map_worker, "atomic_swap_if", swap)
    return list(pauses.values())


@pytest.mark.parametrize("collate", [default_collate, through_default])
def test_a_claimed_place_stays_in_its_batch_however_long_it_takes(collate, whole, monkeypatch):
    (pause,) = pause_after_claim(monkeypatch, (1, 2 if whole else 1))
    runner = regrouping(collate)
    runner.start_epoch(batches(60), 5)
    pause.wait()
    got = [runner.next() for _ in range(12)]  # more than are ever under way at once
    pause.end()
    got += rest(runner)
    runner.shutdown()
    assert sorted(labels(got)) == list(range(60))


@pytest.mark.parametrize("collate", [default_collate, through_default])
def test_a_place_claimed_in_an_abandoned_epoch_is_not_one_of_the_next(collate, whole, monkeypatch):
    old, new = pause_after_claim(monkeypatch, (1, 2 if whole else 1), (2, 0))
    runner = regrouping(collate)
    runner.start_epoch(batches(60), 5)
    old.wait()
    runner.start_epoch(batches(60, first=100), 5)
    new.wait()
    old.end()
    got = [runner.next()]  # cannot be the first batch: its first place is claimed and empty
    new.end()
    got += rest(runner)
    runner.shutdown()
    assert sorted(labels(got)) == list(range(100, 160))


def test_a_worker_killed_with_a_claimed_place_is_an_error_and_the_next_epoch_is_whole(whole, monkeypatch):
    (pause,) = pause_after_claim(monkeypatch, (1, 6 if whole else 5))
    pause.here = lambda: os.kill(os.getpid(), signal.SIGKILL)
    runner = regrouping(through_default)
    runner.start_epoch(batches(60), 5)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        rest(runner)
    runner.start_epoch(batches(60), 5)
    assert sorted(labels(rest(runner))) == list(range(60))
    runner.shutdown()


def test_an_epoch_does_not_end_while_a_worker_has_yet_to_say_that_it_left_a_batch(whole, monkeypatch):
    pause, regrouped = Pause(), MapWorker._regrouped

    def slow_to_leave(self, task, number):
        regrouped(self, task, number)
        if task.serial == 1 and number in (1, _tasks.WHOLE):
            pause.here()

    monkeypatch.setattr(MapWorker, "_regrouped", slow_to_leave)
    runner = regrouping(default_collate, workers=1, window=1)
    runner.start_epoch(batches(6), 5)
    got = [runner.next()]
    pause.end()
    got += rest(runner)
    runner.shutdown()
    assert labels(got) == list(range(6))


def test_a_finisher_that_is_slow_to_leave_its_task_does_not_touch_the_next_one(whole, monkeypatch):
    """The task's memory is in use again when the finisher goes on; the batches kept must not change."""
    pause, close = Pause(), MapWorker._close

    def slow_close(self, task, result, where=0):
        close(self, task, result, where)
        if task.serial == 1:
            pause.here()

    def make(index):  # the first batch has no common layout; of the others none looks like the one before
        return (0, 0.5)[index] if index < 2 else torch.full((index // 2 % 3 + 1,), index)

    monkeypatch.setattr(MapWorker, "_close", slow_close)
    runner = MapRunner(None, prepare=make, num_workers=2, collate_fn=default_collate, persistent=True)
    runner.start_epoch(batches(200), 5)
    got = [runner.next() for _ in range(50)]
    pause.wait()
    words = runner._arena.words
    while not all(words[(offset >> 3) + _tasks.CLOSED] for offset in runner._flying):
        os.sched_yield()
    pause.end()
    got += rest(runner)
    runner.shutdown()
    for number, batch in enumerate(got[1:], 1):
        same(batch, default_collate([make(2 * number), make(2 * number + 1)]))


@pytest.mark.parametrize("fails", [False, True])
def test_a_whole_batch_that_finds_places_taken_is_placed_sample_by_sample(fails):
    """The first batch is spread and its first sample slow; the second goes to one worker, and ends when one place of the
    first is taken."""
    go = os.pipe()

    def make(index):
        if index == 0:
            os.read(go[0], 1)
        if index == 3 and fails:
            raise ValueError("three")
        return numbered(index)

    def given():
        yield [0, 1]
        runner._arena.words[_tasks.MODE] = _tasks.TOGETHER
        yield [2, 3]

    runner = MapRunner(
        None, prepare=make, num_workers=2, collate_fn=default_collate, in_order=False, regroup=True, timeout=60,
        prefetch_factor=1,
    )  # fmt: skip
    runner.start_epoch(given(), 5)
    assert runner.next()[1].tolist() == [1, 2] and runner.delivered() == [1, 2]
    os.write(go[1], b"x")
    if fails:
        with pytest.raises(ValueError, match="three"):
            runner.next()
    else:
        assert sorted(runner.next()[1].tolist()) == [0, 3]
    assert rest(runner) == []
    runner.shutdown()


def test_a_worker_that_meets_a_slow_sample_keeps_no_other_back(monkeypatch):
    """One sample waits until five others that were sent with it are made: whoever has it must have taken it alone."""
    monkeypatch.setattr(Balance, "spread", lambda self, size: True)
    made = os.pipe()

    def make(index):
        if index == 20:
            os.read(made[0], 1)
        elif index == 25:
            os.write(made[1], b"x")
        return numbered(index)

    for options in ({}, {"in_order": False, "regroup": True}):
        runner = MapRunner(None, prepare=make, num_workers=2, collate_fn=default_collate, timeout=60, **options)
        runner.start_epoch(batches(40), 5)
        assert sorted(labels(rest(runner))) == list(range(40))
        runner.shutdown()


def test_a_late_record_is_not_taken_for_a_later_batch_in_the_same_memory():
    go = os.pipe()

    def make(index):
        if index >= 100:
            os.read(go[0], 1)
        return index

    runner = MapRunner(None, prepare=make, num_workers=2, collate_fn=default_collate, persistent=True, timeout=0.1)
    runner.start_epoch(batches(8), 5)
    offsets, records = set(runner._flying), runner._pool._result.fd
    while struct.unpack("i", fcntl.ioctl(records, termios.FIONREAD, bytes(4)))[0] < 4 * _tasks.RECORD.size:
        os.sched_yield()
    runner.start_epoch(batches(8, first=100), 5)
    assert offsets & set(runner._flying)  # or the test shows nothing
    with pytest.raises(RuntimeError, match="timed out"):
        runner.next()
    os.write(go[1], bytes(8))
    runner._timeout = 0
    assert torch.cat(rest(runner)).tolist() == list(range(100, 108))
    runner.shutdown()


# Many orders of events: workers that give up the processor at random before and after every step


class Dice:
    """How often to give up the processor; each worker's throws are its own."""

    def __init__(self):
        self._pid = self._random = None

    def throw(self):
        if self._pid != os.getpid():
            self._pid, self._random = os.getpid(), random.Random(os.getpid())
        for _ in range(self._random.choice((0, 0, 0, 0, 1, 2, 30))):
            os.sched_yield()


def hesitant(function, dice):
    def called(*arguments, **options):
        dice.throw()
        result = function(*arguments, **options)
        dice.throw()
        return result

    return called


@pytest.fixture
def hesitation(monkeypatch):
    dice = Dice()
    for where, name in (
        (_map_worker, "atomic_add"), (_map_worker, "atomic_swap_if"), (Region, "allocate"), (MapWorker, "_task"),
        (MapWorker, "_mark"), (MapWorker, "_close"), (MapWorker, "_one"), (MapWorker, "_place_all"),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, hesitant(getattr(where, name), dice))


def mixed(index):
    return {"i": index, "x": torch.full((index % 7 + 1,), index), "t": str(index)}


def collate_mixed(batch):
    return [(s["i"], s["x"], s["t"]) for s in batch]


CASES = {
    "regrouped, default": (numbered, default_collate, {"in_order": False, "regroup": True}),
    "regrouped, own": (numbered, through_default, {"in_order": False, "regroup": True, "window": 3}),
    "ready, own": (numbered, through_default, {"in_order": False}),
    "strict, default": (lambda i: (str(i), i) if i % 5 else (str(i), i / 2), default_collate, {}),
    "strict, own": (mixed, collate_mixed, {}),
}
LENGTH, SIZE = 120, 3


def taken(runner, count):
    """Batches and the positions of their samples."""
    for _ in range(count):
        try:
            batch = runner.next()
        except StopIteration:
            return
        at = runner.delivered()
        yield batch, at if isinstance(at, list) else range(at * SIZE, (at + 1) * SIZE)


def check(make, collate, epoch, got):
    """Each batch is what its own samples give, and each sample is in one batch."""
    seen = []
    for batch, positions in got:
        same(batch, collate([make(epoch * 1000 + position) for position in positions]))
        seen += positions
    assert len(set(seen)) == len(seen) and (epoch % 2 or len(seen) == LENGTH)


@pytest.mark.parametrize("name", CASES)
def test_any_order_of_events(name, hesitation):
    """Epochs read to their end and epochs broken off, batches kept over several of them."""
    make, collate, options = CASES[name]
    runner = MapRunner(None, prepare=make, num_workers=4, collate_fn=collate, persistent=True, timeout=60, **options)
    kept = []
    for epoch in range(300 if os.environ.get("PENSTOCK_LONG") else 6):
        runner.start_epoch(batches(LENGTH, SIZE, first=epoch * 1000), 5)
        runner._arena.words[_tasks.MODE] = _tasks.SPREAD if epoch % 3 else _tasks.TOGETHER
        got = list(taken(runner, epoch % 7 if epoch % 2 else LENGTH))
        kept = kept[-5:] + [(epoch, got)]
        for number, batches_of in kept:
            check(make, collate, number, batches_of)
    runner.shutdown()
