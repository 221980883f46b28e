# SPDX-License-Identifier: Apache-2.0
"""state_dict and load_state_dict: what the loop received counts, and the rest of the run is the same."""

import io

import pytest
import torch
import torch.utils.data
from dropin_tools import assert_same, evaluation, folder, seed_all, training
from torch.utils.data import WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import penstock
from penstock.torch import DataLoader


class Shuffled(torch.utils.data.Sampler):
    """A sampler of the user's own, from Python's generator; indices come more than once."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        order = torch.randperm(self.count).tolist()
        return iter([order[at // 2] for at in range(self.count)])


class Numbers(torch.utils.data.Dataset):
    """A Python dataset without randomness."""

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return torch.full((3,), float(index)), index


MAKERS = {
    "sequential": lambda data, **more: DataLoader(data, 7, **more),
    "shuffled": lambda data, **more: DataLoader(data, 7, True, **more),
    "generator": lambda data, **more: DataLoader(data, 7, True, generator=torch.Generator().manual_seed(3), **more),
    "seed": lambda data, **more: DataLoader(data, 7, True, seed=8, **more),
    "weighted": lambda data, **more: DataLoader(data, 7, sampler=WeightedRandomSampler([1, 2, 3] * 20, 44), **more),
    "distributed": lambda data, **more: DataLoader(data, 7, sampler=DistributedSampler(data, 2, 1), **more),
    "own sampler": lambda data, **more: DataLoader(data, 7, sampler=Shuffled(60), **more),
    "own batches": lambda data, **more: DataLoader(data, batch_sampler=[[1, 2], [3] * 9, [4], [5, 6, 7]] * 2, **more),
    "drop": lambda data, **more: DataLoader(data, 7, True, drop_last=True, **more),
}


def saved(state):
    """Through a file, read back in the way that runs no code."""
    file = io.BytesIO()
    torch.save({"loader": state}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["loader"]


@pytest.fixture(params=["native", "python"])
def data(request, photos):
    return folder(photos, training()) if request.param == "native" else Numbers()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_resume_in_the_middle_is_exact(data, name, after):
    make = MAKERS[name]
    seed_all(1)
    loader = make(data)
    list(loader)  # a first epoch, so that the second is resumed
    whole, state, rng = [], None, None
    for batch in loader:
        torch.rand(1)  # what a training step draws
        if len(whole) == after:
            state, rng = saved(loader.state_dict()), torch.get_rng_state()
        whole.append(batch)
    following = list(loader)
    seed_all(77)
    again = make(data, num_workers=1)
    again.load_state_dict(state)
    torch.set_rng_state(rng)
    rest = []
    for batch in again:
        torch.rand(1)
        rest.append(batch)
    assert_same(rest, whole[after + 1 :])
    assert_same(list(again), following)


@pytest.mark.parametrize("name", ["shuffled", "own sampler"])
def test_resume_after_break(data, name):
    make = MAKERS[name]
    seed_all(1)
    loader = make(data)
    got = []
    for batch in loader:
        got.append(batch)
        if len(got) == 2:
            break
    state = saved(loader.state_dict())
    again = make(data)
    again.load_state_dict(state)
    rest = list(again)
    seed_all(1)
    assert_same(got + rest, list(make(data)))


def test_state_before_and_between_epochs(data):
    loader = MAKERS["generator"](data)
    fresh = saved(loader.state_dict())
    first = list(loader)
    between = saved(loader.state_dict())
    second = list(loader)
    for state, expected in ((fresh, first), (between, second)):
        again = MAKERS["generator"](data)
        again.generator.manual_seed(1234)
        again.load_state_dict(state)
        assert_same(list(again), expected)


def test_state_after_the_last_batch_ends_the_epoch(data):
    loader = MAKERS["seed"](data)
    for _, _ in loader:
        state = loader.state_dict()
    following = list(loader)
    again = MAKERS["seed"](data)
    again.load_state_dict(saved(state))
    assert list(again) == []
    assert_same(list(again), following)


def test_state_of_a_loader_that_was_just_loaded(data):
    loader = MAKERS["seed"](data)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    again = MAKERS["seed"](data)
    again.load_state_dict(state)
    third = MAKERS["seed"](data)
    third.load_state_dict(again.state_dict())
    assert_same(list(third), list(batches))


def test_prefetched_batches_do_not_count(photos):
    loader = DataLoader(folder(photos), 4, num_workers=2)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    assert loader.state_dict()["delivered"] == 3


def test_ready_order_resumes_by_what_was_delivered(photos):
    dataset = folder(photos)
    dataset.samples = [(path, at) for at, (path, _) in enumerate(dataset.samples)]
    loader = DataLoader(dataset, 5, True, num_workers=2, in_order=False, seed=2)
    seen = []
    for _, y in loader:
        seen += y.tolist()
        if len(seen) == 20:
            break
    state = saved(loader.state_dict())
    again = DataLoader(dataset, 5, True, num_workers=1, in_order=False, seed=2)
    again.load_state_dict(state)
    rest = [index for _, y in again for index in y.tolist()]
    assert len(rest) == 40 and sorted(seen + rest) == list(range(60))


@pytest.mark.parametrize(
    "other, words",
    [
        (lambda d: DataLoader(d, 8, True), ("batch_size", "7", "8")),
        (lambda d: DataLoader(d, 7), ("sampler", "RandomSampler", "SequentialSampler")),
        (lambda d: DataLoader(d, 7, True, drop_last=True), ("drop_last", "False", "True")),
        (lambda d: DataLoader(torch.utils.data.Subset(d, range(9)), 7, True), ("samples", "60", "9")),
        (lambda d: DataLoader(d, 7, True, generator=torch.Generator()), ("generators", "0", "1")),
    ],
)
def test_a_state_of_another_loader_is_refused(photos, other, words):
    dataset = folder(photos)
    loader = DataLoader(dataset, 7, True)
    next(iter(loader))
    with pytest.raises(penstock.StateError) as refused:
        other(dataset).load_state_dict(loader.state_dict())
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize("wrong", [{}, {"penstock": b""}, {"penstock_torch": 99}, [], None])
def test_what_is_no_state_is_refused(photos, wrong):
    with pytest.raises(penstock.StateError):
        DataLoader(folder(photos), 7).load_state_dict(wrong)


def test_transform_may_differ(photos):
    loader = DataLoader(folder(photos), 7, True)
    batches = iter(loader)
    next(batches)
    again = DataLoader(folder(photos, evaluation(8)), 7, True)
    again.load_state_dict(loader.state_dict())
    assert [y.tolist() for _, y in again] == [y.tolist() for _, y in batches]
