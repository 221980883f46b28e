# SPDX-License-Identifier: Apache-2.0
"""From a dataset of torchvision to a flat list of files: what lies under Subset, random_split and ConcatDataset.

A leaf is an ImageFolder (or a DatasetFolder with torchvision's own loader) of exact type; its `.samples` as they
stand are the truth, edited or not. The layers above only choose and join, which is one table from outer index to flat
index.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any, Callable

import numpy

from ._recognise import why_unknown


class Unknown(Exception):
    """This dataset runs as it is; says why."""


@dataclasses.dataclass
class Leaf:
    """One folder dataset. `start`: flat index of its first sample."""

    dataset: Any
    start: int

    @property
    def samples(self) -> list[tuple[str, Any]]:
        return self.dataset.samples


@dataclasses.dataclass
class Flat:
    """All leaves, and `table[i]` = flat index of the outer dataset's sample i (None: the same)."""

    leaves: list[Leaf]
    table: numpy.ndarray | None
    layers: list[str]

    @property
    def count(self) -> int:
        last = self.leaves[-1]
        return last.start + len(last.samples)

    @property
    def transform(self) -> Callable[[Any], Any] | None:
        return self.leaves[0].dataset.transform

    def leaf_of(self, flat: int) -> Leaf:
        return next(leaf for leaf in reversed(self.leaves) if leaf.start <= flat)


def flatten(dataset: Any) -> Flat:
    """Raises Unknown with the reason when any layer is not what its library ships."""
    flat = Flat([], None, [])
    table = _walk(dataset, flat, 0)
    flat.table = None if table is None else numpy.ascontiguousarray(table, dtype=numpy.int64)
    first = flat.leaves[0].dataset.transform
    if any(leaf.dataset.transform is not first for leaf in flat.leaves):
        raise Unknown("the joined folders have different transforms")
    return flat


def _walk(dataset: Any, flat: Flat, depth: int) -> numpy.ndarray | None:
    """Adds the leaves below `dataset`; its table from own index to flat index."""
    kind = type(dataset)
    if kind.__module__ == "torch.utils.data.dataset" and kind.__name__ in ("Subset", "ConcatDataset"):
        why = why_unknown(dataset, "torch")
        if why is not None:
            raise Unknown(why)
        walk = _walk_subset if kind.__name__ == "Subset" else _walk_concat
        return walk(dataset, flat, depth)
    return _walk_folder(dataset, flat, depth)


def _note(flat: Flat, depth: int, text: str) -> None:
    flat.layers.append("  " * depth + text)


def _walk_subset(dataset: Any, flat: Flat, depth: int) -> numpy.ndarray | None:
    try:
        chosen = numpy.asarray(dataset.indices, dtype=numpy.int64)
    except (TypeError, ValueError) as why:
        raise Unknown(f"the indices of a Subset are not whole numbers: {why}") from None
    if chosen.ndim != 1:
        raise Unknown("the indices of a Subset are not a list")
    _note(flat, depth, f"Subset of {len(chosen)} samples: a table of indices")
    inner = _walk(dataset.dataset, flat, depth + 1)
    return pick(inner, len(dataset.dataset), chosen)


def _walk_concat(dataset: Any, flat: Flat, depth: int) -> numpy.ndarray | None:
    _note(flat, depth, f"ConcatDataset of {len(dataset.datasets)}: a table of indices")
    tables = []
    for each in dataset.datasets:
        start = flat.count if flat.leaves else 0
        table = _walk(each, flat, depth + 1)
        tables.append(numpy.arange(start, flat.count) if table is None else table)
    lengths = numpy.cumsum([len(table) for table in tables])
    if list(lengths) != list(dataset.cumulative_sizes):
        raise Unknown("the parts of a ConcatDataset changed their lengths after it was made")
    return numpy.concatenate(tables)


def _walk_folder(dataset: Any, flat: Flat, depth: int) -> numpy.ndarray | None:
    folder = sys.modules.get("torchvision.datasets.folder")
    if folder is None or type(dataset) not in (folder.ImageFolder, folder.DatasetFolder):
        raise Unknown(f"{type(dataset).__module__}.{type(dataset).__qualname__} is no dataset that is known here")
    why = why_unknown(dataset, "torchvision")
    if why is not None:
        raise Unknown(why)
    if dataset.loader not in (folder.default_loader, folder.pil_loader):
        raise Unknown("its loader is not torchvision's default_loader")
    if dataset.loader is folder.default_loader and sys.modules["torchvision"].get_image_backend() != "PIL":
        raise Unknown("torchvision's image backend is not PIL")
    if not isinstance(dataset.samples, list) or not dataset.samples:
        raise Unknown("it has no list of samples")
    start = flat.count if flat.leaves else 0
    flat.leaves.append(Leaf(dataset, start))
    _note(flat, depth, f"{type(dataset).__name__} {os.fspath(dataset.root)!r}, {len(dataset.samples)} samples: native")
    if start == 0:
        return None
    return numpy.arange(start, start + len(dataset.samples), dtype=numpy.int64)


def pick(table: numpy.ndarray | None, length: int, indices: numpy.ndarray) -> numpy.ndarray:
    """table[indices] with Python's meaning of negative indices; IndexError where one is out of range."""
    wrapped = numpy.where(indices < 0, indices + length, indices) if indices.size and indices.min() < 0 else indices
    if wrapped.size and (wrapped.min() < 0 or wrapped.max() >= length):
        bad = indices[(wrapped < 0) | (wrapped >= length)][0]
        raise IndexError(f"index {bad} is out of range for a dataset of {length} samples")
    return wrapped if table is None else table[wrapped]
