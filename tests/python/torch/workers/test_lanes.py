# SPDX-License-Identifier: Apache-2.0
"""Lanes: slow samples are put aside between transforms, and nothing else about any sample changes.

Slow samples sleep in several steps. What is compared is bytes and the order of delivery, never time.
"""

import contextlib
import copy
import os
import random
import re
import signal
import threading
import time
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate
from tools import same, until_full

from penstock.torch._workers import MapRunner, _lanes, _tasks
from penstock.torch._workers._arena import Arena
from penstock.torch._workers._costs import BUCKETS, bucket_of, cut_off
from penstock.torch._workers._parts import Parts, find

FIRST, SLOW, LENGTH = 96, 20, 220  # fast ones, then a run of slow ones, then fast ones
LAST = FIRST + SLOW


class Compose:
    """As torchvision's, which not every machine has."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


class Step:
    """Draws from all generators, so that a draw in the wrong place shows; slow ones sleep."""

    def __init__(self, slow_s, fast_s=0.0005):
        self.slow_s, self.fast_s = slow_s, fast_s

    def __call__(self, x):
        time.sleep(self.slow_s if FIRST <= x[0] < LAST else self.fast_s)
        drawn = [random.random(), random.gauss(0, 1), numpy.random.rand(), numpy.random.randn(), torch.randn(1).item()]
        return x + [*drawn, torch.rand(1).item()]


class Uneven(Dataset):
    """A run of slow samples; what comes after the transforms shows that the generators went on."""

    def __init__(self, slow_s=0.01, length=LENGTH):
        self.transform, self.length = Compose([Step(slow_s) for _ in range(5)]), length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        x = self.transform([float(index)])
        return torch.tensor([*x, random.random()], dtype=torch.float64), index


def runner_of(dataset, lanes=True, workers=2, **options):
    return MapRunner(
        dataset, num_workers=workers, collate_fn=default_collate, in_order=False, regroup=True, timeout=60, lanes=lanes,
        **options,
    )  # fmt: skip


def taken(runner, step_s=0.01, start=0, length=LENGTH, size=4):
    """Rows of the epoch in the order of delivery, by a consumer whose steps take a while."""
    runner.start_epoch(iter([list(range(i, min(i + size, length))) for i in range(start, length, size)]), 5)
    rows = []
    with contextlib.suppress(StopIteration):
        while True:
            rows += zip(*runner.next())
            if len(rows) == FIRST - 16 and runner._arena.words[_tasks.MORE]:
                until_full(runner)
            time.sleep(step_s)
    return rows


def epoch_of(dataset, step_s=0.01, **options):
    runner = runner_of(dataset, **options)
    try:
        rows = taken(runner, step_s, length=len(dataset))
        return rows, runner.stats()
    finally:
        runner.shutdown()


@pytest.fixture(scope="module")
def with_lanes():
    """Two workers, batches of 4, at most 4 of them under way: fewer samples than the run has."""
    return epoch_of(Uneven(slow_s=0.03), step_s=0.02)


def labels(rows):
    return [int(row[1]) for row in rows]


def test_fast_samples_overtake_a_run_of_slow_ones(with_lanes):
    rows, stats = with_lanes
    order = labels(rows)
    last_slow = max(order.index(index) for index in range(FIRST, LAST))
    overtaking = [index for index in order[:last_slow] if index >= LAST]
    assert stats["slow_parked"] >= SLOW / 2 and stats["not_parked"] == ""
    assert len(overtaking) >= 32, f"{len(overtaking)} overtook"
    ninth = sorted(order.index(index) for index in range(FIRST, LAST))[8]
    assert ninth >= FIRST + 8 + 32, "samples aside keep the others from being sent"


def test_samples_are_the_same_bytes_and_come_once(with_lanes):
    rows, _ = with_lanes
    plain, stats = epoch_of(Uneven(slow_s=0.001), lanes=False)
    assert stats["slow_parked"] == stats["slow_samples"] == 0
    assert sorted(labels(rows)) == list(range(LENGTH))
    for ours, theirs in zip(sorted(rows, key=lambda row: int(row[1])), sorted(plain, key=lambda row: int(row[1]))):
        same(list(ours), list(theirs), f"sample {int(ours[1])}")


def test_a_sample_is_overtaken_by_no_more_than_the_window():
    rows, stats = epoch_of(Uneven(), window=8)
    order = labels(rows)
    assert stats["slow_parked"] > 0 and sorted(order) == list(range(LENGTH))
    newest = -1
    for index in order:
        assert newest - index < (8 + 1) * 4
        newest = max(newest, index)


class Clocked(Dataset):
    """Takes time by a clock of its own, so that nothing but the samples decides what is slow."""

    now = 0

    def __init__(self, costs):
        self.costs, self.transform = costs, Compose([self.step] * 4)

    def step(self, index):
        Clocked.now += self.costs(index)
        time.sleep(0.0002)
        return index

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return self.transform(index), index


@pytest.mark.parametrize("slow", [False, True])
def test_uniform_work_has_no_slow_samples(slow, monkeypatch):
    monkeypatch.setattr(_lanes, "worked_ns", lambda: Clocked.now)
    rows, stats = epoch_of(Clocked(lambda i: 1_000_000 + (i * 37 % 100) * 1000 + slow * (i % 5 == 4) * 9_000_000))
    assert sorted(labels(rows)) == list(range(LENGTH))
    assert stats["slow_samples"] > 0 if slow else stats["slow_samples"] == stats["slow_parked"] == 0


class Bad(Exception):
    pass


class Raising(Uneven):
    """The last transform of one slow sample raises."""

    def __init__(self):
        super().__init__(length=160)
        self.transform.transforms.append(self.check)

    @staticmethod
    def check(x):
        if x[0] == FIRST + 3:
            raise Bad(f"no more of {x[0]}")
        return x


def test_what_a_sample_raises_after_it_was_aside_is_raised_as_ever():
    said = []
    for lanes in (True, False):
        runner = runner_of(Raising(), lanes=lanes)
        order, step_s = [], 0.01
        runner.start_epoch(iter([list(range(i, i + 4)) for i in range(0, 160, 4)]), 5)
        while True:
            try:
                order += labels(zip(*runner.next()))
                if lanes and len(order) == FIRST - 16:
                    until_full(runner)
            except StopIteration:
                break
            except Bad as error:
                said.append(re.sub(r"worker process \d+", "", str(error)))
            time.sleep(step_s)
        assert len(order) == 156 and len(set(order)) == 156 and (runner.stats()["slow_parked"] > 0) == lanes
        runner.shutdown()
    assert len(said) == 2 and said[0] == said[1] and "no more of 99.0" in said[0] and "in check" in said[0]


class Ending(Uneven):
    """A fast sample ends its worker while slow ones are aside, whose own code catches everything."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def __getitem__(self, index):
        if index == LAST + 20:
            self.how()
        try:
            return super().__getitem__(index)
        except BaseException:
            return torch.zeros(32, dtype=torch.float64), index


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def exiting():
    raise SystemExit(3)


@pytest.mark.parametrize("how, text", [(killed, "SIGKILL"), (exiting, "code 3")])
def test_a_worker_that_dies_with_samples_aside_is_an_error(how, text):
    runner = runner_of(Ending(how))
    with pytest.raises(RuntimeError, match=text):
        taken(runner)
    assert sorted(labels(taken(runner, 0, start=LAST + 24))) == list(range(LAST + 24, LENGTH))
    runner.shutdown()


class Counting(Uneven):
    """How many slow samples began and ended."""

    def __init__(self):
        super().__init__(slow_s=0.02)
        self.began, self.ended = torch.zeros(1).share_memory_(), torch.zeros(1).share_memory_()

    def __getitem__(self, index):
        self.began += FIRST <= index < LAST
        made = super().__getitem__(index)
        self.ended += FIRST <= index < LAST
        return made


def test_an_epoch_broken_off_with_samples_aside_is_followed_by_whole_ones():
    """Those that were aside are dropped: no transform of theirs runs any more."""
    dataset = Counting()
    runner = runner_of(dataset, persistent=True)
    for _ in range(2):
        runner.start_epoch(iter([list(range(i, i + 4)) for i in range(0, LENGTH, 4)]), 5)
        while runner._arena.words[_tasks.ASIDE] < 4:
            runner.next()
            time.sleep(0.01)
        rows = taken(runner, 0.001, length=FIRST)
        assert sorted(labels(rows)) == list(range(FIRST))
    runner.shutdown()
    assert dataset.ended < dataset.began - 2


class Noting(Uneven):
    """Leaves a note about the sample on itself: another one in between would change it."""

    def __getitem__(self, index):
        self.current = index
        row, _ = super().__getitem__(index)
        return row, self.current


class Locking(Uneven):
    """Holds a lock while its transforms run: another one in between would wait for ever."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def __getitem__(self, index):
        with self.lock:
            return super().__getitem__(index)


ITS_FILE = threading.Lock()


class LockingOutside(Uneven):
    """The same with a lock of the module."""

    def __getitem__(self, index):
        with ITS_FILE:
            return super().__getitem__(index)


@pytest.mark.parametrize("kind, why", [(Noting, "Noting.current changes"), (Locking, "Locking.lock is a lock"),
                                       (LockingOutside, "ITS_FILE is a lock")])
def test_a_dataset_that_cannot_be_entered_again_is_left_alone(kind, why):
    rows, stats = epoch_of(kind())
    assert sorted(labels(rows)) == list(range(LENGTH))
    assert stats["slow_parked"] == 0 and why in stats["not_parked"]


class Copying(Uneven):
    """Copies its transforms for every sample; the copies are plain lists."""

    def __getitem__(self, index):
        transform = copy.deepcopy(self.transform)
        assert type(transform.transforms) is list
        return torch.tensor(transform([float(index)]), dtype=torch.float64), index


def test_transforms_may_be_copied():
    assert sorted(labels(epoch_of(Copying(slow_s=0.001))[0])) == list(range(LENGTH))


class Listener:
    listens = False


def test_lists_of_transforms_are_found_wherever_they_are():
    inner, outer = Uneven(), Uneven()
    outer.transform = Compose([inner.transform, Step(0), Step(0)])
    outer.myself = outer
    things = find(Listener(), Subset(ConcatDataset([outer]), [1, 2]))
    assert type(outer.transform.transforms) is type(inner.transform.transforms) is Parts
    assert [type(each) for each in outer.transform.transforms] == [Compose, Step, Step]
    assert outer in things and outer.transform in things
    assert find(Listener(), Clocked(int).step, None, len) == []


def counts_of(values):
    counts = numpy.zeros(BUCKETS, numpy.int64)
    for value in values:
        counts[bucket_of(value)] += 1
    return counts


CUTS = {
    "uniform: thrice the median": ([1600] * 100, 4800),
    "one in five is slow: one and a half times the median": ([1600] * 80 + [16000] * 20, 2400),
    "one in three: P75 lies among the slow ones": ([1600] * 67 + [16000] * 33, 2400),
    "broad, much above P75: P75": ([1600] * 60 + [3200] * 20 + [16384] * 20, 3200),
    "broad, little above P75: P90": ([1600] * 60 + [2048] * 25 + [3200] * 8 + [3584] * 7, 3200),
    "interrupted once": ([1600] * 1000 + [8000], 4800),
}


@pytest.mark.parametrize("name", CUTS)
def test_cut_off(name):
    values, wanted = CUTS[name]
    assert cut_off(counts_of(values)) == pytest.approx(wanted, rel=1 / 16)


class Desk:
    """The shared words, and what else a lane asks of its worker."""

    def __init__(self, workers=4):
        self.arena = Arena(1, (64 + BUCKETS) * 8)
        self.words, self.counters = self.arena.words, _tasks.RING
        self.setup = SimpleNamespace(num_workers=workers, costs=64)


def lane_with(**words):
    lane = _lanes.Lane(Desk())
    now = time.perf_counter_ns()
    values = {"EPOCH": 1, "FULL_NS": now, "SLICE_NS": 10**7, "PACE": 10**5, "ROOM": 32, "WINDOW": 512, "MORE": 1,
              "BATCH_SIZE": 4, "FAST_NS": 10**7, "FILLED": (1 << _tasks.FILLED_BITS) + 104, "TAKEN": 100}  # fmt: skip
    for name, value in {**values, **words}.items():
        lane.words[getattr(_tasks, name)] = value
    return lane


def sample_at(position=100):
    return _lanes.Sample(1, position)


def test_nothing_is_put_aside_unless_it_helps():
    assert lane_with()._may_leave(sample_at())
    enough = lane_with(FILLED=(1 << _tasks.FILLED_BITS) + 132)
    assert not enough._may_leave(sample_at())
    a_minute = 60_000_000_000
    assert not lane_with(FULL_NS=time.perf_counter_ns() - a_minute)._may_leave(sample_at())  # whatever comes is taken
    assert not lane_with(NEWEST=100 + 400)._may_leave(sample_at())  # overtaken by most of the window
    assert not lane_with(EPOCH=2)._may_leave(sample_at())
    full = lane_with()
    full.stack = [sample_at()] * _lanes.LEVELS
    assert not full._may_leave(sample_at())


def test_fast_samples_keep_the_workers_they_need():
    long = 10**8
    assert lane_with(SLICE_NS=long, PACE=250_000)._slow_workers() == 1  # 250 a second of 10 ms each: three workers
    assert lane_with(SLICE_NS=long, PACE=100_000)._slow_workers() == 3
    ready = (1 << _tasks.FILLED_BITS) + 132
    assert lane_with(SLICE_NS=long, PACE=100_000, FILLED=ready)._slow_workers() == 4  # lasts until they are back
    lane = lane_with(FILLED=(1 << _tasks.FILLED_BITS) + 118, PACE=2_000_000, SLOW_RUNNING=1)
    lane.stack = [sample_at()]
    assert lane._keeps_ready()
    lane.words[_tasks.MORE] = 0  # nothing comes any more
    assert not lane._keeps_ready()


def test_nobody_waits_for_tokens_of_a_trainer_that_is_gone():
    lane, sample = lane_with(), sample_at()
    lane.input, writer = os.pipe()
    os.close(writer)
    assert not lane._is_over(sample)
    assert lane.token() is None and lane._is_over(sample)
    os.close(lane.input)
