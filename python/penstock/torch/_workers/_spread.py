# SPDX-License-Identifier: Apache-2.0
"""Whether the samples of a batch are worth spreading over workers when a user's collate_fn needs them all in one place.

Spread samples have to travel to the worker that collates. That pays where travelling is cheap beside making them, or
where samples differ so much that a batch made by one worker would come late. Otherwise one worker makes the whole batch, as
torch does. (With default_collate there is no question: a sample is written straight into its batch.)
"""

from __future__ import annotations

_CHEAP = 0.05  # of a sample's time: travelling does not matter
_TOO_DEAR = 0.5  # ...: nothing is worth it
_UNEVEN = 0.25  # spread of a batch's time, relative to its mean, from which batches would come late
_MEMORY = 1 / 64  # how fast old samples are forgotten
_SETTLED = 16  # samples before anything is decided


class Balance:
    """A worker's running figures of its samples."""

    def __init__(self) -> None:
        self.count = 0
        self._mean = 0.0
        self._square = 0.0
        self._travel = 0.0

    def add(self, spent_ns: int) -> None:
        """The time that one sample took to make."""
        self.count += 1
        rate = max(_MEMORY, 1 / self.count)
        self._mean += rate * (spent_ns - self._mean)
        self._square += rate * (float(spent_ns) * spent_ns - self._square)

    def add_travel(self, spent_ns: int) -> None:
        """The time that it took to put one where others find it, and to take it out again."""
        self._travel = spent_ns if not self._travel else self._travel + (spent_ns - self._travel) / 8

    def spread(self, batch_size: int) -> bool:
        """Whether samples should be spread."""
        if self.count < _SETTLED or not self._travel:
            return False
        share = self._travel / max(self._mean, 1.0)
        variance = max(0.0, self._square - self._mean * self._mean)
        uneven = (variance / batch_size) ** 0.5 > _UNEVEN * self._mean
        return share < _CHEAP or (uneven and share < _TOO_DEAR)
