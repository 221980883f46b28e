# SPDX-License-Identifier: Apache-2.0
"""A native dataset over the files that a list of samples names. A sample's number there is its flat index."""

from __future__ import annotations

import itertools
import operator
import os
from typing import Any, Iterable

import numpy

from .. import _penstock
from ._datasets import Flat

_NATIVE = ("jpg", "jpeg", "png", "webp")
_FEW = 16


def too_many(count: int, of: int) -> bool:
    """Whether so many samples that only Pillow reads, in the caller's thread, are better left to workers."""
    return count > max(_FEW, of // 100)


class Files:
    """The native list and the samples' labels.

    labels: int64 when every label is a whole number, else None (they are then taken from the samples one by one).
    foreign: flat indices of files whose names say that only Pillow reads them.
    """

    def __init__(self, flat: Flat) -> None:
        self.snapshots = [list(leaf.samples) for leaf in flat.leaves]
        self.raw = self._list(_root(flat), _classes(flat))
        labels = self.raw.labels
        self.labels: numpy.ndarray | None = None if labels is None else numpy.asarray(labels)
        self.foreign = self._foreign()
        self.pid = os.getpid()  # a forked child lists anew

    def _column(self, which: int) -> Iterable[Any]:
        return map(operator.itemgetter(which), itertools.chain.from_iterable(self.snapshots))

    def _list(self, root: str | None, classes: list[str] | None) -> _penstock.Dataset:
        try:
            return _penstock.files(self._column(0), self._column(1), classes, root)
        except (TypeError, OverflowError):  # labels that are no whole numbers
            return _penstock.files(self._column(0), None, None, root)

    def _foreign(self) -> list[int]:
        if self.raw.fields[0][4] != "any":
            return []
        ends = (os.fspath(path).rpartition(".")[2].lower() for path in self._column(0))
        return [at for at, end in enumerate(ends) if end not in _NATIVE]

    def holds(self, flat: Flat) -> bool:
        """Whether the samples are still those that were listed. Unchanged entries compare by identity, quickly."""
        return self.pid == os.getpid() and len(flat.leaves) == len(self.snapshots) and all(
            leaf.samples == then for leaf, then in zip(flat.leaves, self.snapshots)
        )


def _root(flat: Flat) -> str | None:
    """What most paths begin with, so that it need not be kept with each of them."""
    roots = [os.fspath(leaf.dataset.root) for leaf in flat.leaves]
    try:
        root = roots[0] if len(roots) == 1 else os.path.commonpath(roots)
    except ValueError:
        return None
    return root if isinstance(root, str) and os.path.isdir(root) else None


def _classes(flat: Flat) -> list[str] | None:
    """Class names, where all folders have the same ones."""
    names = [getattr(leaf.dataset, "classes", None) for leaf in flat.leaves]
    if any(each != names[0] for each in names) or not isinstance(names[0], list):
        return None
    return names[0] if all(isinstance(name, str) for name in names[0]) else None
