# SPDX-License-Identifier: Apache-2.0
"""The user's own functions on finished batches: each sample through `transform`, the list of them through `collate`."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Callable

from ._batch import Batch


class Regroup:
    """Takes a batch apart into samples and puts what the user's functions make of them together again."""

    def __init__(self, transform: Callable[[Any], Any] | None, collate: Callable[[list[Any]], Any] | None) -> None:
        self._transform = transform or (lambda sample: sample)
        self._collate = collate or stack

    def __call__(self, batch: Batch) -> Any:
        kind = namedtuple("Sample", [name if name.isidentifier() else f"field_{i}" for i, name in enumerate(batch.fields)])
        samples = [kind(*(values[slot] for values in batch)) for slot in range(batch.size)]
        made = []
        for slot, sample in enumerate(samples):
            try:
                made.append(self._transform(sample))
            except Exception as error:
                error.add_note(f"in transform= of sample {int(batch.ids[slot])} ({batch.keys[slot]})")
                raise
        try:
            return self._collate(made)
        except Exception as error:
            error.add_note(f"in collate= of samples {batch.ids.tolist()}")
            raise


def stack(samples: list[Any]) -> Any:
    """Equal samples along a new first dimension, tuples and dicts part by part; whatever does not stack stays a list."""
    first = samples[0]
    if isinstance(first, dict):
        return {key: stack([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple):
        parts = [stack(list(part)) for part in zip(*samples)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if type(first).__module__.partition(".")[0] == "torch":
        import torch

        return torch.stack(samples) if len({sample.shape for sample in samples}) == 1 else samples
    import numpy

    if isinstance(first, (numpy.ndarray, numpy.generic, int, float)) and len({numpy.shape(s) for s in samples}) == 1:
        return numpy.stack(samples)
    return samples
