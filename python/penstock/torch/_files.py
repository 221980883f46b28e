# SPDX-License-Identifier: Apache-2.0
"""A native dataset over the files that a list of samples names, and the number each of them has there."""

from __future__ import annotations

import os
from typing import Any, Sequence

import numpy

from .. import _penstock
from ._datasets import Flat, Unknown


class Files:
    """The native listing, `ids[flat]` = its sample, and the samples' labels.

    labels: int64 when every label is a whole number, else None (they are then taken from the samples one by one).
    """

    def __init__(self, flat: Flat) -> None:
        self.snapshots = [list(leaf.samples) for leaf in flat.leaves]
        self.roots = [os.fspath(leaf.dataset.root) for leaf in flat.leaves]
        samples: list[tuple[str, Any]] = [sample for part in self.snapshots for sample in part]
        root = os.path.abspath(os.path.commonpath([os.path.abspath(root) for root in self.roots]))
        self.raw = _penstock.Dataset(root)
        self.ids = _find(self.raw, root, samples)
        self.labels = _labels(samples)
        self.pid = os.getpid()  # a forked child lists anew

    def holds(self, flat: Flat) -> bool:
        """Whether the samples are still those that were listed. Unchanged entries compare by identity, quickly."""
        return self.pid == os.getpid() and len(flat.leaves) == len(self.snapshots) and all(
            leaf.samples == then for leaf, then in zip(flat.leaves, self.snapshots)
        )


def _labels(samples: Sequence[tuple[str, Any]]) -> numpy.ndarray | None:
    if any(type(sample[1]) is not int for sample in samples):
        return None
    try:
        return numpy.fromiter((sample[1] for sample in samples), dtype=numpy.int64, count=len(samples))
    except OverflowError:
        return None


def _find(raw: _penstock.Dataset, root: str, samples: Sequence[tuple[str, Any]]) -> numpy.ndarray:
    """The native number of every path. Both lists are mostly in the same order, so the next one is tried first."""
    ids = numpy.empty(len(samples), dtype=numpy.int64)
    where: dict[str, int] | None = None
    count, expected = len(raw), 0
    prefix = root.rstrip(os.sep) + os.sep
    for at, (path, _) in enumerate(samples):
        key = _key(path, prefix)
        if expected < count and raw.sample(expected)[0] == key:
            ids[at] = expected
        else:
            if where is None:
                where = {raw.sample(i)[0]: i for i in range(count)}
            if key not in where:
                raise Unknown(f"{path!r} is not among the files that are read natively below {root!r}")
            ids[at] = where[key]
        expected = int(ids[at]) + 1
    return ids


def _key(path: str, prefix: str) -> str:
    text = os.fspath(path)
    if not text.startswith(prefix):
        text = os.path.abspath(text)
    return text[len(prefix) :] if text.startswith(prefix) else text
