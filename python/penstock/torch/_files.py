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
    """The native list of the samples. They are kept once, natively, in a short form.

    has_labels: every label is a whole number, and known natively; else they are taken from the samples one by one.
    foreign: flat indices of files whose names say that only Pillow reads them.
    """

    def __init__(self, flat: Flat) -> None:
        self._root = _root(flat)
        self._lengths = [len(leaf.samples) for leaf in flat.leaves]
        self._snapshots: list[list[Any]] | None = None  # only of samples with other labels
        try:
            self.raw = _penstock.files(_column(flat, 0), _column(flat, 1), _classes(flat), self._root)
        except (TypeError, OverflowError):  # labels that are no whole numbers
            self._snapshots = [list(leaf.samples) for leaf in flat.leaves]
            self.raw = _penstock.files(_column(flat, 0), None, None, self._root)
        self.has_labels = self._snapshots is None
        self.foreign = self._foreign(flat)
        self.pid = os.getpid()  # a forked child lists anew

    def _foreign(self, flat: Flat) -> list[int]:
        if self.raw.fields[0][4] != "any":
            return []
        ends = (os.fspath(path).rpartition(".")[2].lower() for path in _column(flat, 0))
        return [at for at, end in enumerate(ends) if end not in _NATIVE]

    def labels_of(self, flat: numpy.ndarray) -> numpy.ndarray:
        """int64, the caller's own; has_labels is true."""
        ids = numpy.ascontiguousarray(flat, dtype=numpy.int64)
        labels = self.raw.labels_of(ids)
        assert labels is not None
        return numpy.frombuffer(labels, dtype=numpy.int64)

    def label_range(self) -> tuple[int, int] | None:
        """The least and the largest label."""
        every = self.labels_of(numpy.arange(len(self.raw))) if self.has_labels else None
        return None if every is None else (int(every.min()), int(every.max()))

    def holds(self, flat: Flat) -> bool:
        """Whether the samples are still those that were listed."""
        if self.pid != os.getpid() or [len(leaf.samples) for leaf in flat.leaves] != self._lengths:
            return False
        if self._snapshots is not None:
            return all(leaf.samples == then for leaf, then in zip(flat.leaves, self._snapshots))
        try:
            return self.raw.files_same(_column(flat, 0), _column(flat, 1), self._root)
        except Exception:  # entries that are not even such as can be listed
            return False


def _column(flat: Flat, which: int) -> Iterable[Any]:
    return map(operator.itemgetter(which), itertools.chain.from_iterable(leaf.samples for leaf in flat.leaves))


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
