# SPDX-License-Identifier: Apache-2.0
"""What samples take, counted by all workers in one shared histogram, and the time from which one is slow.

The buckets and the rule are those of the engine's lanes: 16 buckets for each power of two, and a cut-off at P75, or at
P90 where little work lies above P75; where that lies among the slow ones or close to the median, at a multiple of the
median. Where no sample was slow so far, the first that takes three times the median will be. Every worker works the
cut-off out anew for all of them after 64 samples of its own.
"""

from __future__ import annotations

from typing import Any

import numpy

from . import _tasks

BUCKETS = 1024
_LIVE_AFTER = _LOOK_EVERY = 64  # samples
_FADE_AT = 2048  # samples counted, when older ones begin to count less
_TIMES_MEDIAN = 1.5  # the least cut-off
_WIDE = 3.0  # P75 over the median: it lies among the slow ones
_SMALL_MASS = 0.4  # work above P75, below which P90 is taken
_WORTH = 0.01  # work above the cut-off, below which nothing was slow: a worker was interrupted now and then


def bucket_of(value: int) -> int:
    if value < 16:
        return max(value, 0)
    octave = value.bit_length() - 1
    return (octave - 3) * 16 + (value >> (octave - 4) & 15)


def _floor_of(bucket: int) -> int:
    """The least value that goes into a bucket."""
    return bucket if bucket < 16 else (16 + bucket % 16) << (bucket // 16 - 1)


_FLOORS = numpy.array([_floor_of(bucket) for bucket in range(BUCKETS)], numpy.float64)


def _quantile(seen: numpy.ndarray, q: float) -> float:
    """seen: how many lie in a bucket or below it."""
    return float(_FLOORS[numpy.searchsorted(seen, int(q * (seen[-1] - 1)), side="right")])


def _mass_above(counts: numpy.ndarray, value: float) -> float:
    mass = counts * _FLOORS
    return float(mass[_FLOORS > value].sum() / max(mass.sum(), 1.0))


def cut_off(counts: numpy.ndarray) -> int:
    """The time from which a sample is slow."""
    seen = numpy.cumsum(counts)
    median, cut = _quantile(seen, 0.5), _quantile(seen, 0.75)
    if _mass_above(counts, cut) < _SMALL_MASS:
        cut = _quantile(seen, 0.9)
    if cut > _WIDE * median or cut < _TIMES_MEDIAN * median:
        cut = _TIMES_MEDIAN * median
    return int(cut if _mass_above(counts, cut) > _WORTH else _WIDE * median)


class Costs:
    """A worker's hand on the shared histogram, which begins at word `first`."""

    def __init__(self, arena: Any, first: int, workers: int) -> None:
        self._words, self._first = arena.words, first
        self._counts = numpy.frombuffer(arena.map, numpy.int64, BUCKETS, first * 8)
        self._look_every = max(_LOOK_EVERY // workers, 1)
        self._added = 0

    def add(self, took_ns: int) -> None:
        """Others may be adding meanwhile; a sample more or less does not matter."""
        self._words[self._first + bucket_of(took_ns)] += 1
        self._added += 1
        if self._added >= self._look_every:
            self._look()

    def _look(self) -> None:
        counts = self._counts.copy()
        timed = int(counts.sum())
        if timed < _LIVE_AFTER:
            self._added -= 1  # with the next one again
            return
        self._added, self._look_every = 0, _LOOK_EVERY
        self._words[_tasks.CUTOFF] = cut_off(counts)
        if timed >= _FADE_AT:
            self._counts //= 2
