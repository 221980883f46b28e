# SPDX-License-Identifier: Apache-2.0
"""Whether the samples of a batch are worth spreading over workers, or one worker makes the whole batch, as torch does.

Spread samples cost more than samples made in one go. Where a user's collate_fn needs them all in one place they have to
travel to the worker that collates. With default_collate a sample is written straight into its batch, but it is taken,
seeded, looked at and written by itself. Spreading pays where that is little beside making the sample, or where samples
differ so much that a batch made by one worker would come late.
"""

from __future__ import annotations

import resource
from typing import Callable

SLOT_NS = 5_000  # what spreading costs for a sample that is written straight into its batch
_CHEAP = 0.05  # of a sample's time: travelling does not matter
_TOO_DEAR = 0.5  # ...: nothing is worth it
_UNEVEN = 0.25  # spread of a batch's time, relative to its mean, from which batches would come late
_MEMORY = 1 / 64  # how fast old samples are forgotten
_SETTLED = 16  # samples before anything is decided
_OUTLIER, _AT_MOST = 4, 2  # times the mean: what a sample's time is suspicious from, and what then is made of it


def switches() -> int:
    """How often the kernel took the processor away from this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


class Balance:
    """A worker's running figures of its samples.

    travel_ns: where it is known; then samples are spread to begin with. On a machine with more to do than it has cores a
    sample often takes milliseconds only because another process had its turn. That is not the sample's unevenness: a
    time far above the mean counts little if there were more `preempted()` than before."""

    def __init__(self, travel_ns: float = 0.0, preempted: Callable[[], int] = switches) -> None:
        self.count = 0
        self._mean = 0.0
        self._square = 0.0
        self._travel = travel_ns
        self._at_first = travel_ns > 0
        self._preempted, self._switches = preempted, 0

    def add(self, spent_ns: int, samples: int = 1) -> None:
        """The time that one sample took to make, or some of them together."""
        self.count += samples
        rate = min(1.0, samples * max(_MEMORY, 1 / self.count))
        mean = spent_ns / samples
        if mean > _OUTLIER * self._mean and self.count > _SETTLED:
            known, self._switches = self._switches, self._preempted()
            if self._switches != known:
                mean = _AT_MOST * self._mean
        before = self._mean
        self._mean += rate * (mean - before)
        # The means of many vary less than they do.
        square = self._mean * self._mean + samples * (mean - before) * (mean - self._mean)
        self._square += rate * (square - self._square)

    def add_travel(self, spent_ns: int) -> None:
        """The time that it took to put one where others find it, and to take it out again."""
        self._travel = spent_ns if not self._travel else self._travel + (spent_ns - self._travel) / 8

    def spread(self, batch_size: int) -> bool:
        """Whether samples should be spread."""
        if self.count < _SETTLED or not self._travel:
            return self._at_first
        share = self._travel / max(self._mean, 1.0)
        variance = max(0.0, self._square - self._mean * self._mean)
        uneven = (variance / batch_size) ** 0.5 > _UNEVEN * self._mean
        return share < _CHEAP or (uneven and share < _TOO_DEAR)
