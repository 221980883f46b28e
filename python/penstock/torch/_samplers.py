# SPDX-License-Identifier: Apache-2.0
"""The order of one epoch: which index comes when, in which batches, drawn exactly as torch draws it.

torch makes an iterator over the batch sampler, draws `base_seed`, and reads indices afterwards; with workers it makes
that iterator once more after the draw. The same is done here in the same sequence, so that the same seeds give the
same order and leave the generators in the same state. The one difference: an epoch's indices are read at its start,
not as it goes.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Iterable, Iterator

import numpy
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

# More indices than this are not read ahead: torch's way, a few batches at a time, is kept.
LONGEST = 1 << 27

# Their order follows from their attributes and the state of a generator.
_FROM_GENERATOR = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_FROM_ATTRIBUTES = (SequentialSampler, DistributedSampler)


@dataclasses.dataclass
class Order:
    """Batches of indices: `batches[k]` as the sampler gave it. `ids` are all of them, when they are whole numbers."""

    batches: list[list[Any]] | None
    ids: numpy.ndarray | None
    size: int | None  # of every batch but the last; None when they differ

    def __post_init__(self) -> None:
        if self.ids is not None:
            self.ids = narrow(self.ids)

    def __len__(self) -> int:
        if self.batches is not None:
            return len(self.batches)
        assert self.ids is not None and self.size is not None
        return -(-len(self.ids) // self.size)

    def batch(self, step: int) -> list[Any]:
        if self.batches is not None:
            return self.batches[step]
        assert self.ids is not None and self.size is not None
        return self.ids[step * self.size : (step + 1) * self.size].tolist()

    def sizes(self) -> list[int]:
        if self.batches is not None:
            return [len(batch) for batch in self.batches]
        return [len(self.batch(step)) for step in range(len(self))]


def narrow(indices: numpy.ndarray) -> numpy.ndarray:
    """As int32 where they fit: an order is kept for as long as its epoch."""
    fits = indices.size and -(2**31) <= indices.min() and indices.max() < 2**31
    return indices.astype(numpy.int32, copy=False) if fits else indices


def length_of(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except TypeError:
        return None


def is_endless(loader: Any) -> bool:
    """Whether the sampler does not say how long it is, or too long a time to read it ahead."""
    length = length_of(loader._index_sampler)
    batch = loader.batch_size or 1
    return length is None or length * batch > LONGEST


def draw_base_seed(loader: Any) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())


def read(iterator: Iterator[Any], loader: Any) -> Order:
    """All that is left of an iterator over the loader's batch sampler."""
    sampler = loader.batch_sampler
    if type(sampler) is BatchSampler and loader.batch_size is not None and sampler.sampler is loader.sampler:
        return _read_plain(loader)
    batches = [list(batch) for batch in iterator]
    return from_batches(batches)


def from_batches(batches: list[list[Any]]) -> Order:
    flat = _whole_numbers(itertools.chain.from_iterable(batches))
    sizes = {len(batch) for batch in batches[:-1]} or {len(batch) for batch in batches}
    even = len(sizes) == 1 and len(batches[-1]) <= max(sizes) and min(sizes) > 0
    return Order(batches, flat, sizes.pop() if even else None)


def _read_plain(loader: Any) -> Order:
    """A BatchSampler only cuts: its sampler's indices are enough, and cheaper to keep as one array."""
    sampler, size = loader.sampler, loader.batch_size
    if type(sampler) is SequentialSampler:
        indices: Any = numpy.arange(len(sampler.data_source), dtype=numpy.int64)
    else:
        given = list(sampler)
        indices = _whole_numbers(given)
        if indices is None:
            batches = [given[at : at + size] for at in range(0, len(given), size)]
            if loader.drop_last and batches and len(batches[-1]) < size:
                batches.pop()
            return Order(batches, None, size)
    if loader.drop_last:
        indices = indices[: len(indices) // size * size]
    return Order(None, indices, size)


def _whole_numbers(values: Iterable[Any]) -> numpy.ndarray | None:
    """int64 values, or None if any is something else (a key, a tuple, a float, a bool)."""
    values = values if isinstance(values, list) else list(values)
    if any(type(value) is not int for value in values):
        if not all(_is_index(value) for value in values):
            return None
        values = [int(value) for value in values]
    try:
        return numpy.array(values, dtype=numpy.int64)
    except OverflowError:
        return None


def _is_index(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, numpy.integer)) or (
        isinstance(value, torch.Tensor) and value.dim() == 0 and not value.is_floating_point()
    )


# ---- what regenerates an order --------------------------------------------------------------------------------------


def generators(loader: Any) -> list[torch.Generator]:
    """The user's own generators that drawing an epoch may advance."""
    found = []
    for owner in (loader, loader.sampler, loader.batch_sampler):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not each for each in found):
            found.append(generator)
    return found


def is_regenerable(loader: Any) -> bool:
    """Whether the order follows from the sampler's attributes and torch's generators alone."""
    plain = type(loader.batch_sampler) is BatchSampler and loader.batch_sampler.sampler is loader.sampler
    return plain and type(loader.sampler) in (*_FROM_GENERATOR, *_FROM_ATTRIBUTES)


def draws_from_global(loader: Any) -> bool:
    """Whether the order comes from torch's default generator."""
    return type(loader.sampler) in _FROM_GENERATOR and getattr(loader.sampler, "generator", None) is None


def rng_snapshot(loader: Any) -> list[torch.Tensor]:
    """States of all generators the order may come from; the default one is last where it counts."""
    states = [generator.get_state() for generator in generators(loader)]
    return [*states, torch.get_rng_state()] if draws_from_global(loader) else states


def replay(loader: Any, states: list[torch.Tensor]) -> Order:
    """The order that was drawn when the generators stood at `states`.

    The user's generators go on behind it, as they did then; torch's default one is left as it is now.
    """
    own = generators(loader)
    expected = len(own) + (1 if draws_from_global(loader) else 0)
    if len(states) != expected:
        raise ValueError(f"the state has {len(states)} generators, this loader has {expected}")
    for generator, state in zip(own, states):
        generator.set_state(state)
    if not draws_from_global(loader):
        return read(iter(loader._index_sampler), loader)
    now = torch.get_rng_state()
    torch.set_rng_state(states[-1])
    try:
        return read(iter(loader._index_sampler), loader)
    finally:
        torch.set_rng_state(now)


# ---- ranks without a DistributedSampler -----------------------------------------------------------------------------


def share(order: Order, rank: int, world: int, drop: bool, dealt: int = 0) -> Order:
    """Batches from number `dealt` on are dealt in turn. With drop, steps that not every rank has are left out; else the
    epoch begins anew."""
    count = len(order)
    left = max(0, count - dealt)
    steps = left // world if drop else -(-left // world)
    return from_batches([order.batch((dealt + step * world + rank) % count) for step in range(steps)])
