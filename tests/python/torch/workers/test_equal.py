# SPDX-License-Identifier: Apache-2.0
"""Batches of Python datasets equal torch's, element by element and type by type."""

import collections
import random

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from penstock.torch._workers import _tasks
from penstock.torch._workers._spread import Balance
from tools import epoch, rest, runner_for, same, start

Point = collections.namedtuple("Point", "x y name")


class Made(Dataset):
    """Samples made by a function of the index."""

    def __init__(self, make, length=37):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.make(index)


def array(index, shape=(3, 4), dtype=numpy.float32):
    return numpy.random.default_rng(index).integers(0, 100, shape).astype(dtype)


SAMPLES = {
    "tensor and int": lambda i: (torch.from_numpy(array(i)), i),
    "array and float": lambda i: (array(i), i / 3),
    "scalar int": lambda i: i,
    "scalar bool": lambda i: i % 2 == 0,
    "scalar float": lambda i: i / 7,
    "float32 number": lambda i: numpy.float32(i / 7),
    "int16 number": lambda i: numpy.int16(i),
    "bool number": lambda i: numpy.bool_(i % 3),
    "text": lambda i: f"number {i} é",
    "bytes": lambda i: bytes([i]) * i,
    "text in a tuple": lambda i: (f"n{i}", i, str(i)),
    "dict": lambda i: {"image": array(i), "label": i, "name": f"n{i}", 5: i / 2},
    "nested": lambda i: {"a": [array(i), (i, {"b": torch.tensor(i)})], "c": (str(i), [i])},
    "namedtuple": lambda i: Point(torch.tensor([i]), array(i), str(i)),
    "ordered dict": lambda i: collections.OrderedDict(a=i, b=torch.zeros(2) + i),
    "0-d tensor": lambda i: torch.tensor(i / 2),
    "0-d array": lambda i: numpy.array(i / 2),
    "half": lambda i: torch.full((2, 2), i / 2, dtype=torch.float16),
    "bfloat16": lambda i: torch.full((2, 2), i / 2, dtype=torch.bfloat16),
    "complex": lambda i: torch.full((2,), complex(i, 1)),
    "bool tensor": lambda i: torch.tensor([i % 2 == 0, True]),
    "transposed": lambda i: torch.from_numpy(array(i)).t(),
    "reversed": lambda i: array(i)[:, ::-1].copy(order="F"),
    "empty": lambda i: torch.empty(0, 3),
    "memmap view": lambda i: numpy.broadcast_to(numpy.float64(i), (2, 3)).copy(),
    "int and float by turns": lambda i: i if i % 2 else i / 2,
    "dicts in other orders": lambda i: {"a": i, "b": -i} if i % 3 else {"b": -i, "a": i},
    "dict with extra keys": lambda i: {"a": i} if i % 5 == 0 else {"a": i, "z": 1},
    "another Mapping": lambda i: collections.UserDict(a=i),
    "shape that changes between batches": lambda i: torch.full((i // 5 + 1, 2), float(i)),
}
KEPT = {"tensor", "array", "scalar", "float32", "text", "dict", "nested", "namedtuple", "0-d", "bfloat16", "bool"}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_default_collate(name, workers):
    loader = DataLoader(Made(SAMPLES[name], 12), batch_size=5, num_workers=workers)
    same(epoch(loader), list(DataLoader(loader.dataset, batch_size=5)))


def test_default_collate_of_all_kinds_by_the_same_workers():
    """An epoch for each kind, so that workers and layouts change from one to the next."""
    makes = list(SAMPLES.values())
    made = Made(lambda i: makes[i // 100](i % 100), 100 * len(makes))
    runner = runner_for(DataLoader(made, batch_size=5, num_workers=2, persistent_workers=True))
    for number, name in enumerate(SAMPLES):
        indices = [[100 * number + i for i in range(start, min(start + 5, 12))] for start in range(0, 12, 5)]
        runner.start_epoch(iter(indices), 99)
        same(rest(runner), list(DataLoader(made, batch_sampler=indices)), name)
    runner.shutdown()


def test_default_collate_as_torchs_own_workers_give_it():
    """All kinds at once, so that torch's workers need to be started but once."""
    made = Made(lambda i: [make(i) for name, make in SAMPLES.items() if name.split()[0] in KEPT], 12)
    loader = DataLoader(made, batch_size=5, num_workers=2)
    same(epoch(loader), list(loader))


CASES = {
    "shuffle": dict(batch_size=4, shuffle=True),
    "drop_last": dict(batch_size=8, drop_last=True),
    "one": dict(batch_size=1),
    "no batches": dict(batch_size=None),
    "more than there are": dict(batch_size=100),
    "batch sampler": dict(batch_sampler=[[3, 1], [5], [2, 2, 2, 9]]),
    "sampler of tensors": dict(sampler=list(torch.arange(9)), batch_size=4),
    "prefetch": dict(batch_size=2, prefetch_factor=5),
}


def pair(index):
    return torch.full((3, 2), float(index)), index


@pytest.mark.parametrize("name", CASES)
def test_arguments(name):
    torch.manual_seed(3)
    torch.empty((), dtype=torch.int64).random_()  # the iterator's own draw
    ours = epoch(DataLoader(Made(pair), num_workers=2, **CASES[name]))
    torch.manual_seed(3)
    options = {key: value for key, value in CASES[name].items() if key != "prefetch_factor"}  # which needs workers
    same(ours, list(DataLoader(Made(pair), **options)))


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.long)])
def test_start_methods(method):
    loader = DataLoader(Made(pair, 12), batch_size=4, num_workers=1, multiprocessing_context=method)
    same(epoch(loader), list(DataLoader(loader.dataset, batch_size=4)))


def ragged(batch):
    longest = max(len(x) for x, _ in batch)
    padded = torch.zeros(len(batch), longest)
    for row, (x, _) in zip(padded, batch):
        row[: len(x)] = x
    return padded, [label for _, label in batch], torch.tensor([len(x) for x, _ in batch])


def channels_last(batch):
    return batch.to(memory_format=torch.channels_last)


def with_worker(batch):
    return torch.utils.data.default_collate(batch), get_worker_info() is not None


COLLATES = {
    "ragged": ragged,
    "list": list,
    "transposed": lambda batch: tuple(zip(*batch)),
    "default inside": lambda batch: [part * 2 for part in torch.utils.data.default_collate([b[1] for b in batch])],
    "channels last": lambda b: channels_last(torch.stack([x[1] * torch.ones(3, 4, 5) for x in b])),
    "knows its worker": with_worker,
    "shifted views": lambda b: (lambda x: (x[:-1], x[1:]))(torch.tensor([x[1] for x in b])),
    "numbers": lambda batch: sum(label for _, label in batch),
    "expanded": lambda b: torch.utils.data.default_collate([torch.ones(1) * x[1] for x in b])[:1].expand(len(b), 1),
}


@pytest.mark.parametrize("name", COLLATES)
def test_own_collate(name):
    collate = COLLATES[name]
    make = pair if collate is with_worker else lambda i: (torch.arange(float(i % 5 + 1)), i)
    loader = DataLoader(Made(make), batch_size=4, num_workers=2, collate_fn=collate)
    ours = epoch(loader)
    theirs = list(loader if collate is with_worker else DataLoader(loader.dataset, batch_size=4, collate_fn=collate))
    same(ours, theirs)
    if name == "channels last":
        assert ours[0].stride() == theirs[0].stride()


def test_samples_that_cannot_be_pickled_are_collated_where_they_were_made():
    made = Made(lambda i: (lambda: i))
    loader = DataLoader(made, batch_size=4, num_workers=2, collate_fn=lambda b: [f() for f in b])
    same(epoch(loader), [list(range(i, min(i + 4, 37))) for i in range(0, 37, 4)])


class Items(Made):
    def __getitems__(self, indices):
        return [(index, len(indices)) for index in indices]


def test_getitems_gets_whole_batches():
    loader = DataLoader(Items(None), batch_size=8, num_workers=2)
    theirs = [loader.collate_fn(loader.dataset.__getitems__(list(batch))) for batch in loader.batch_sampler]
    same(epoch(loader), theirs)


def test_prepare_and_read_replace_the_dataset():
    loader = DataLoader(Made(None), batch_size=8, num_workers=2)
    ours = epoch(loader, prepare=lambda i: i * i)
    assert torch.cat(ours).tolist() == [i * i for i in range(37)]
    ours = epoch(loader, read=lambda i: i + 1, prepare=lambda i: i * i)
    assert torch.cat(ours).tolist() == [(i + 1) ** 2 for i in range(37)]


def test_a_thousand_batches_kept_alive():
    loader = DataLoader(Made(lambda i: (torch.full((32,), float(i)), i), 8000), batch_size=8, num_workers=2)
    ours = epoch(loader)
    same(ours, list(DataLoader(loader.dataset, batch_size=8)))


def test_persistent_workers_and_broken_off_epochs():
    loader = DataLoader(Made(pair, 200), batch_size=4, num_workers=2, persistent_workers=True)
    theirs = list(DataLoader(loader.dataset, batch_size=4))
    runner = runner_for(loader)
    pids = set()
    for read in (3, 0, 50, 1, 50):
        start(runner, loader)
        pids.add(tuple(process.pid for process in runner._pool.processes))
        kept = [runner.next() for _ in range(min(read, 50))]
        same(kept, theirs[:read])
    assert len(pids) == 1
    assert rest(runner) == []
    runner.shutdown()


def test_two_loaders_at_once():
    loaders = [DataLoader(Made(make, 60), batch_size=4, num_workers=2) for make in (pair, lambda i: (array(i), str(i)))]
    runners = [runner_for(loader) for loader in loaders]
    for runner, loader in zip(runners, loaders):
        start(runner, loader)
    got = [[runner.next() for runner in runners] for _ in range(15)]
    for number, loader in enumerate(loaders):
        same([batches[number] for batches in got], list(DataLoader(loader.dataset, batch_size=4)))
        runners[number].shutdown()


def test_batches_outlive_their_loader():
    loader = DataLoader(Made(pair, 40), batch_size=4, num_workers=2)
    runner = runner_for(loader)
    start(runner, loader)
    first = runner.next()
    copy = first[0].clone()
    for _ in range(9):
        runner.next()
    runner.shutdown()
    del runner
    assert torch.equal(first[0], copy)
    first[0].add_(1)  # and may be written


def drawn(index):
    return random.random(), numpy.random.rand(), torch.rand(2), index


def test_random_numbers_do_not_depend_on_the_number_of_workers():
    runs = [epoch(DataLoader(Made(drawn), batch_size=4, num_workers=workers)) for workers in (1, 2, 4)]
    same(runs[1], runs[0])
    same(runs[2], runs[0])
    values = torch.cat([batch[0] for batch in runs[0]]).tolist()
    assert len(set(values)) == 37
    assert not set(values) & set(torch.cat([batch[1] for batch in runs[0]]).tolist())


@pytest.mark.parametrize("options", [{}, {"in_order": False, "regroup": True}])
def test_batches_made_whole_equal_those_of_spread_samples(options, monkeypatch):
    """Samples that draw and samples that do not, by turns; the mode is given, not decided."""
    made = Made(lambda i: (*drawn(i), numpy.random.randn()) if i % 3 else (0.5, 0.5, torch.ones(2), i, 1.0), 203)
    loader = DataLoader(made, batch_size=20, num_workers=2)
    runs = []
    for mode in (_tasks.SPREAD, _tasks.TOGETHER):
        monkeypatch.setattr(Balance, "spread", lambda self, size, mode=mode: mode == _tasks.SPREAD)
        runner = runner_for(loader, **options)
        runner._mode = mode
        start(runner, loader)
        rows = [row for batch in rest(runner) for row in zip(*batch)]
        runner.shutdown()
        runs.append([(*row[:2], *row[2], *row[3:]) for row in sorted(rows, key=lambda row: int(row[3]))])
    assert runs[0] == runs[1] and len(runs[0]) == 203


def test_without_workers_random_numbers_are_the_callers():
    loader = DataLoader(Made(drawn), batch_size=4)
    runs = []
    for run in (list, epoch):
        for seed in (random.seed, numpy.random.seed, torch.manual_seed):
            seed(7)
        if run is epoch:
            torch.empty((), dtype=torch.int64).random_()
        runs.append(run(loader))
        runs.append(torch.rand(1))
    same(runs[2:], runs[:2])


def test_ready_order_gives_the_same_batches():
    loader = DataLoader(Made(pair, 64), batch_size=4, num_workers=3)
    ours = epoch(loader, in_order=False)
    same(sorted(ours, key=lambda batch: batch[1][0]), list(DataLoader(loader.dataset, batch_size=4)))


@pytest.mark.parametrize("collate", [torch.utils.data.default_collate, lambda b: torch.utils.data.default_collate(b)])
def test_regrouped_samples_come_once_each(collate):
    loader = DataLoader(Made(pair, 203), batch_size=4, num_workers=3, persistent_workers=True)
    runner = runner_for(loader, in_order=False, regroup=True, collate_fn=collate)
    for begun in (51, 5, 51):
        start(runner, loader)
        labels, positions = [], []
        for _ in range(begun):
            x, y = runner.next()
            assert torch.equal(x[:, 0, 0], y.float())
            assert runner.delivered() == y.tolist()
            labels += y.tolist()
        if begun == 51:
            assert sorted(labels) == list(range(203))
            assert rest(runner) == []
    runner.shutdown()


class Stream(IterableDataset):
    def __init__(self, length=29, shard=True):
        self.length, self.shard = length, shard

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info and self.shard else (0, 1)
        if info:
            assert info.dataset is self or info.dataset.length == self.length
        for i in range(first, self.length, step):
            yield {"i": i, "x": torch.full((2,), float(i)), "seed": torch.initial_seed() if info is None else info.id}


STREAMS = [{}, {"drop_last": True}, {"batch_size": None}, {"persistent_workers": True}]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("options", STREAMS, ids=str)
def test_iterable(workers, options):
    if not workers and "persistent_workers" in options:
        pytest.skip("no workers")
    torch.manual_seed(5)
    loader = DataLoader(Stream(), num_workers=workers, **{"batch_size": 4, **options})
    theirs = list(DataLoader(Stream(), num_workers=workers, **{"batch_size": 4, **options}))
    runner = runner_for(loader)
    for _ in range(2):
        torch.manual_seed(5)
        start(runner, loader)
        same(rest(runner), theirs)
    runner.shutdown()


def test_iterable_broken_off_and_started_again():
    loader = DataLoader(Stream(400), batch_size=4, num_workers=2, persistent_workers=True)
    theirs = list(DataLoader(Stream(400), batch_size=4, num_workers=2))
    runner = runner_for(loader)
    for read in (3, 0, 100, 7, 100):
        start(runner, loader)
        same([runner.next() for _ in range(read)], theirs[:read])
    runner.shutdown()


def test_iterable_seeds_are_torchs():
    class Random(IterableDataset):
        def __iter__(self):
            for _ in range(4):
                yield random.random(), numpy.random.rand(), torch.rand(1), get_worker_info().seed

    torch.manual_seed(11)
    theirs = list(DataLoader(Random(), batch_size=2, num_workers=2))
    torch.manual_seed(11)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    loader = DataLoader(Random(), batch_size=2, num_workers=2)
    same(epoch(loader, base_seed=seed), theirs)
