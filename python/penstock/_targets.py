# SPDX-License-Identifier: Apache-2.0
"""What a detection model is trained with: the objects of each sample as a dictionary, under torchvision's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._batch import Batch

NAMES = ("boxes", "labels", "masks", "image_id", "area", "iscrowd")


def targets_of(batch: Batch) -> list[dict[str, Any]]:
    """A dictionary for each slot with those of NAMES that are fields of the batch, over the batch's own memory."""
    names = [name for name in NAMES if name in batch.fields]
    if not names:
        raise TypeError(f"this batch has no objects: none of its fields {', '.join(batch.fields)} is {', '.join(NAMES)}")
    return [{name: _slot(batch, name, slot) for name in names} for slot in range(batch.size)]


def _slot(batch: Batch, name: str, slot: int) -> Any:
    value = batch[name]
    if name == "image_id":
        return value[slot : slot + 1]
    if isinstance(value, list) or batch._know().sizes(name) is None:
        return value[slot]
    return _cut(value[slot], batch.lengths(name)[slot])


def _cut(value: Any, lengths: Any) -> Any:
    """A padded slot without its padding."""
    sizes = lengths.tolist() if value.ndim > 1 else [int(lengths)]
    return value[tuple(slice(size) for size in sizes)]
