# SPDX-License-Identifier: Apache-2.0
"""The parts that can be looked at without a process: memory, seeds, the choice to spread."""

import gc

import numpy
import pytest
import torch

from penstock.torch._workers._arena import Arena, Region
from penstock.torch._workers._codec import dump, load
from penstock.torch._workers._seed import sample_seed
from penstock.torch._workers._spread import Balance


def balance(times, travel):
    figures = Balance()
    for time in times:
        figures.add(time)
    figures.add_travel(travel)
    return figures


@pytest.mark.parametrize(
    "times, travel, batch, wanted",
    [
        ([1000] * 50, 10, 64, True),  # travelling is nothing
        ([1000] * 50, 200, 64, False),  # even work: nothing to win
        ([1000, 1000, 1000, 1000, 10000] * 20, 500, 4, True),  # uneven: batches would come late
        ([1000, 1000, 1000, 1000, 10000] * 20, 500, 1024, False),  # uneven, but not over such a batch
        ([1000, 1000, 1000, 1000, 10000] * 20, 5000, 4, False),  # travelling costs more than the work
        ([1000] * 5, 10, 64, False),  # too early to say
    ],
)
def test_samples_are_spread_where_it_pays(times, travel, batch, wanted):
    assert balance(times, travel).spread(batch) is wanted


def test_sample_seeds_differ():
    seeds = {sample_seed(seed, position, index) for seed in (0, 1) for position in range(50) for index in range(50)}
    assert len(seeds) == 2 * 50 * 50
    assert all(0 <= seed < 1 << 64 for seed in seeds)


@pytest.fixture
def region():
    arena = Arena(1, 4096)
    yield Region(arena, 0)
    arena.close_fd()


def test_memory_is_taken_back_only_when_every_holder_is_gone(region):
    arena = region.arena
    start = region.allocate(1000)
    arena.hold(start)
    first, second = arena.lease(start, 1000), arena.lease(start, 1000)
    tensor = torch.from_numpy(first)
    del first
    assert region.allocate(1000) != start
    del tensor
    assert region.allocate(1000) != start
    del second
    assert region.allocate(1000) == start


OBJECTS = {
    "tensor": torch.arange(2000.0).view(40, 50),
    "channels last": torch.arange(120.0).view(1, 3, 8, 5).to(memory_format=torch.channels_last),
    "view of a part": torch.arange(2000.0).view(40, 50)[:, 10:20],
    "empty": torch.empty(0, 3),
    "bfloat16": torch.ones(300, dtype=torch.bfloat16),
    "parameter": torch.nn.Parameter(torch.ones(300)),
    "sparse": torch.eye(3).to_sparse(),
    "array": numpy.arange(1000).reshape(10, 100),
    "fortran": numpy.asfortranarray(numpy.arange(1000).reshape(10, 100)),
    "objects": numpy.array([{}, []], dtype=object),
    "nested": {"a": [torch.zeros(100), (numpy.ones(500), "x", None)]},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_come_back_as_they_were(region, name):
    given = OBJECTS[name]
    got = load(region.arena, dump(region, given))
    assert type(got) is type(given)
    if isinstance(given, torch.Tensor):
        assert torch.equal(got.to_dense(), given.to_dense()) and got.dtype == given.dtype
        assert got.requires_grad == given.requires_grad
        if name == "channels last":
            assert got.stride() == given.stride()
    elif isinstance(given, numpy.ndarray):
        numpy.testing.assert_array_equal(got, given)
        assert got.flags.f_contiguous == given.flags.f_contiguous
    else:
        assert torch.equal(got["a"][0], given["a"][0]) and got["a"][1][1:] == ("x", None)
    del got
    gc.collect()
    region.arena.settle()
    assert not region.arena.leases


def test_one_tensor_twice_stays_one(region):
    tensor = torch.zeros(500)
    first, second = load(region.arena, dump(region, [tensor, tensor]))
    assert first is second
