# SPDX-License-Identifier: Apache-2.0
"""The parts that can be looked at without a process: memory, seeds, the choice to spread."""

import gc
import random

import numpy
import pytest
import torch

from penstock.torch._workers._arena import Arena, Region
from penstock.torch._workers._codec import dump, load
from penstock.torch._workers._pin import Pinner
from penstock.torch._workers._seed import OwnFunctions, in_memory, sample_seed, seeds
from penstock.torch._workers._spread import SLOT_NS, Balance


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


@pytest.mark.parametrize(
    "times, batch, wanted",
    [
        ([2000] * 50, 64, False),  # near-free: a batch at a time
        ([50_000] * 50, 64, False),  # cheap and even
        ([500_000] * 50, 64, True),
        (random.Random(1).sample([20_000, 20_000, 20_000, 20_000, 200_000] * 40, 200), 4, True),  # uneven
        ([1000] * 10, 64, True),  # too early to say
        ([2000] * 500 + [500_000] * 300, 64, True),  # become dear
    ],
)
@pytest.mark.parametrize("together", [1, 4, 16])
def test_samples_written_straight_into_their_batch_are_spread_unless_they_are_cheap(times, batch, wanted, together):
    figures = Balance(SLOT_NS, lambda: 0)
    for begin in range(0, len(times), together):
        figures.add(sum(times[begin : begin + together]), len(times[begin : begin + together]))
    assert figures.spread(batch) is wanted


def test_a_turn_of_another_process_is_not_the_samples_unevenness():
    turns = 0
    counted, blind = Balance(SLOT_NS, lambda: turns), Balance(SLOT_NS, lambda: 0)
    for number in range(1000):
        turns += number % 100 == 0
        for figures in (counted, blind):
            figures.add(5_000_000 if number % 100 == 0 else 20_000)
    assert blind.spread(64) and not counted.spread(64)
    for _ in range(1000):  # each of them interrupted, but they are slow all the same
        turns += 1
        counted.add(5_000_000)
    assert counted.spread(64)


def test_sample_seeds_differ():
    seeds = {sample_seed(seed, position, index) for seed in (0, 1) for position in range(50) for index in range(50)}
    assert len(seeds) == 2 * 50 * 50
    assert all(0 <= seed < 1 << 64 for seed in seeds)


def generators():
    """All that the generators know."""
    kind, words, *place = numpy.random.get_state()
    ours = torch.default_generator
    return random.getstate(), kind, words.tolist(), place, ours.get_state().tolist(), ours.initial_seed()


def draw():
    random.gauss(0, 1), numpy.random.randn(), torch.randn(3), torch.randn(1, dtype=torch.float64)


@pytest.fixture
def generators_kept():
    python, numbers, tensors = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(python), numpy.random.set_state(numbers), torch.set_rng_state(tensors)


def unmixed(seed):
    """The epoch's seed from which a sample at position 0 with index 0 gets this seed."""
    mask = (1 << 64) - 1
    x = seed ^ (seed >> 31) ^ (seed >> 62)
    x = (x * pow(0x94D049BB133111EB, -1, 1 << 64)) & mask
    x = x ^ (x >> 27) ^ (x >> 54)
    x = (x * pow(0xBF58476D1CE4E5B9, -1, 1 << 64)) & mask
    x = x ^ (x >> 30) ^ (x >> 60)
    return (x - 0x9E3779B97F4A7C15) & mask


SEEDED = {
    "one": (5, 3, [7]),
    "a group and a bit": (2**63 - 1, 10**9, list(range(-3, 20))),
    "odd indices": (-5, 0, [True, "a", 1 << 80, -(1 << 64) - 1, numpy.int64(3), (1, 2)]),
    "below 2**32": (unmixed(0x89ABCDEF), 0, [0]),
    "nothing above": (unmixed(1 << 32), 0, [0]),
    "zero": (unmixed(0), 0, [0]),
}


@pytest.mark.parametrize("name", SEEDED)
def test_seeding_in_memory_leaves_what_the_generators_own_functions_leave(name, generators_kept):
    seed, position, indices = SEEDED[name]
    fast, own, done = in_memory(), OwnFunctions(), 0
    assert fast is not None  # or the test shows nothing
    while done < len(indices):
        ready = fast.prepare(seed, position, indices, done)
        assert ready == own.prepare(seed, position, indices, done)
        for number in range(ready):
            own.seed(number)
            wanted = generators()
            assert torch.initial_seed() == sample_seed(seed, position + done + number, indices[done + number])
            for _ in range(2):  # after a draw of everything, and then as it was left
                draw()
                fast.seed(number)
                assert generators() == wanted
            fast.seed((number + 1) % ready)
            fast.seed(number)
            assert generators() == wanted
        done += ready


def test_another_generator_of_numpy_is_noticed(generators_kept):
    swap = getattr(numpy.random, "set_bit_generator", None)
    if swap is None:
        pytest.skip("this NumPy cannot change its generator")
    before = numpy.random.get_bit_generator()
    try:
        for bits in (before, numpy.random.MT19937(3)):
            swap(bits)
            seeds().prepare(5, 0, [1, 2], 0)
            for number in (0, 1):
                seeds().seed(number)
                assert numpy.random.rand() == numpy.random.RandomState(sample_seed(5, number, number + 1) % 2**32).rand()
            seeds().seed(0)  # and nobody draws: a seeder that goes on with its memory has no reason to look elsewhere
    finally:
        swap(before)


def test_batches_are_pinned_ahead_in_order_and_an_error_comes_at_its_place():
    pinner, taken = Pinner(False), []

    def take():
        taken.append(len(taken))
        if taken[-1] == 2:
            raise ValueError("two")
        return f"batch {taken[-1]}"  # text is left as it is: no accelerator is needed

    def step():
        return pinner.next(take, lambda: taken[-1], lambda: len(taken) < 5)

    assert (step(), pinner.handed, taken) == ("batch 0", 0, [0, 1, 2])
    assert (step(), pinner.handed, taken) == ("batch 1", 1, [0, 1, 2, 3])
    with pytest.raises(ValueError, match="two"):
        step()
    assert pinner.handed == 2
    assert [step() for _ in range(3)] == ["batch 3", "batch 4", "batch 5"] and pinner.handed == 5
    pinner.clear()


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
