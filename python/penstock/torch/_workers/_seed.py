# SPDX-License-Identifier: Apache-2.0
"""Random numbers in workers: torch's seeds when a worker starts, then a seed of its own for every sample.

A sample's seed is made from the epoch's seed, its position in the epoch and its index, so what a dataset draws for it
does not depend on the number of workers or on which of them took it.

The generators' own seed functions take some 15 microseconds together, more than many a sample. `Seeder` (in C) writes
the same states straight into the generators' memory; a worker tries at its start whether that gives exactly what their
own functions give, and takes those where it does not.
"""

from __future__ import annotations

import ctypes
import random
from typing import Any, Protocol

import numpy
import torch

from ..._penstock import Seeder

_MASK = (1 << 64) - 1


def seed_worker(base_seed: int, worker_id: int) -> int:
    """Seeds Python, torch and NumPy as torch's workers do; the worker's seed."""
    from torch.utils.data._utils import worker

    seed = base_seed + worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    generate = getattr(worker, "_generate_state", None)
    numpy.random.seed(generate(base_seed, worker_id) if generate else seed & 0xFFFFFFFF)
    return seed


def sample_seed(epoch_seed: int, position: int, index: Any) -> int:
    """64 well-mixed bits (the finaliser of splitmix64)."""
    number = index if type(index) is int else 0
    x = (epoch_seed + (position + 1) * 0x9E3779B97F4A7C15 + number * 0xD1342543DE82EF95) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


_seed_torch = torch.default_generator.manual_seed
_seed_python = random.seed
_seed_numpy = numpy.random.seed
_WORDS = 624
_GROUP = 16


class Seeds(Protocol):
    """Seeds for the samples of a batch, some at a time."""

    def prepare(self, epoch_seed: int, position: int, indices: list[Any], first: int, /) -> int:
        """Gets ready for indices[first:], of which indices[0] is at `position`; for how many of them."""

    def seed(self, n: int, /) -> None:
        """Seeds the generators for the n-th of those."""


class OwnFunctions:
    """By the generators' own seed functions. torch: only the CPU generator; torch.manual_seed would queue a call for
    CUDA every time."""

    def prepare(self, epoch_seed: int, position: int, indices: list[Any], first: int, /) -> int:
        self._seeds = [
            sample_seed(epoch_seed, position + number, index)
            for number, index in enumerate(indices[first : first + _GROUP], first)
        ]
        return len(self._seeds)

    def seed(self, n: int, /) -> None:
        seed = self._seeds[n]
        _seed_torch(seed)
        _seed_python(seed)
        _seed_numpy(seed & 0xFFFFFFFF)


_current: Seeds | None = None
_bits: Any = None  # NumPy's bit generator that _current is for


def seeds() -> Seeds:
    """What this process seeds with."""
    global _current, _bits
    bits = _numpy_bits()
    if _current is None or bits is not _bits:
        _current, _bits = in_memory() or OwnFunctions(), bits
    return _current


def seed_sample(epoch_seed: int, position: int, index: Any) -> None:
    """Before a sample that comes alone."""
    chosen = seeds()
    chosen.prepare(epoch_seed, position, [index], 0)
    chosen.seed(0)


def kept() -> tuple[Any, ...]:
    """The generators as they stand, for `put_back`."""
    return random.getstate(), numpy.random.get_state(legacy=False), torch.default_generator.get_state()


def put_back(state: tuple[Any, ...]) -> None:
    random.setstate(state[0])
    numpy.random.set_state(state[1])
    torch.default_generator.set_state(state[2])


def _numpy_bits() -> Any:
    return getattr(getattr(numpy.random.mtrand, "_rand", None), "_bit_generator", None)


def in_memory() -> Seeder | None:
    """A Seeder, if on trial it leaves the generators exactly as their own functions do. Leaves them seeded anyhow."""
    try:
        python, bits, where = _python_memory(), _numpy_memory(), _torch_memory()
        if python is None or bits is None or where is None:
            return None
        seeder = Seeder(python, bits, where, random._inst, _seed_numpy, _seed_torch)  # type: ignore[attr-defined]
        return seeder if _is_exact(seeder) else None
    except Exception:  # other versions may have anything elsewhere; there is always the other way
        return None


def _at(address: int, size: int) -> Any:
    return (ctypes.c_ubyte * size).from_address(address)


def _python_memory() -> Any:
    """Where random's generator keeps its place and its words."""
    generator = getattr(random, "_inst", None)
    size = 4 + 4 * _WORDS
    if type(generator) is not random.Random or random.seed.__self__ is not generator:  # type: ignore[attr-defined]
        return None
    header = object.__basicsize__
    if random.Random.__base__.__basicsize__ < header + size:
        return None
    memory = _at(id(generator) + header, size)
    *words, place = random.getstate()[1]
    return memory if numpy.frombuffer(memory, numpy.uint32).tolist() == [place, *words] else None


def _numpy_memory() -> Any:
    """Where numpy.random keeps its words and its place."""
    bits = _numpy_bits()
    if type(bits) is not numpy.random.MT19937:
        return None
    memory = _at(bits.ctypes.state_address, 4 * _WORDS + 4)
    _, words, place, *_ = numpy.random.get_state()
    return memory if numpy.frombuffer(memory, numpy.uint32).tolist() == [*words.tolist(), place] else None


def _torch_memory() -> Any:
    """Where torch's CPU generator keeps its seed, its place and its words: somewhere near the object's start."""
    generator = torch.default_generator
    generator.manual_seed(0x0123456789ABCDEF)
    offset = bytes(_at(generator._cdata, 192)).find((0x0123456789ABCDEF).to_bytes(8, "little"))
    return _at(generator._cdata + offset, 20 + 4 * _WORDS) if offset > 0 and offset % 8 == 0 else None


def _state() -> tuple[Any, ...]:
    kind, words, *rest = numpy.random.get_state()
    torch_state = (torch.default_generator.get_state().tolist(), torch.initial_seed())
    return random.getstate(), kind, words.tolist(), rest, torch_state


def _is_exact(seeder: Seeder) -> bool:
    """Compares it with the generators' own functions, after draws and without."""
    own, indices = OwnFunctions(), [5, -1, "a", 1 << 70, True]
    for seeds_of in (own, seeder):
        seeds_of.prepare(-3, 7, indices, 0)
    for number in (0, 1, 2, 3, 4, 0):
        own.seed(number)
        if number in (1, 3):
            random.gauss(0, 1), numpy.random.randn(), torch.randn(1)
            seeder.seed(number)
        wanted = _state()
        own.seed(2)
        seeder.seed(4)
        seeder.seed(number)
        if _state() != wanted:
            return False
    return True
