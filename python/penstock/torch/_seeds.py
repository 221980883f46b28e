# SPDX-License-Identifier: Apache-2.0
"""Seeds: from torch's base seed to those of an epoch and a batch, and user code that draws from its own."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Iterator

import torch

_MASK = (1 << 64) - 1


def mix(seed: int, *numbers: int) -> int:
    """A 64-bit number from a seed and further numbers (the finaliser of splitmix64 after each)."""
    value = seed & _MASK
    for each in numbers:
        value = (value + (each + 1) * 0x9E3779B97F4A7C15) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Runs user code with torch, random and numpy (where imported) seeded, as in a worker; then puts them back."""
    numpy = sys.modules.get("numpy")
    before_torch, before_random = torch.get_rng_state(), random.getstate()
    before_numpy = numpy.random.get_state() if numpy else None
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy:
        numpy.random.seed(seed & 0xFFFFFFFF)
    try:
        yield
    finally:
        torch.set_rng_state(before_torch)
        random.setstate(before_random)
        if numpy:
            numpy.random.set_state(before_numpy)
