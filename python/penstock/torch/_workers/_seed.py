# SPDX-License-Identifier: Apache-2.0
"""Random numbers in workers: torch's seeds when a worker starts, then a seed of its own for every sample.

A sample's seed is made from the epoch's seed, its position in the epoch and its index, so what a dataset draws for it
does not depend on the number of workers or on which of them took it.
"""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch

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


def seed_sample(epoch_seed: int, position: int, index: Any) -> None:
    """Before each sample. Only the CPU generator: torch.manual_seed would queue a call for CUDA every time."""
    seed = sample_seed(epoch_seed, position, index)
    _seed_torch(seed)
    _seed_python(seed)
    _seed_numpy(seed & 0xFFFFFFFF)
