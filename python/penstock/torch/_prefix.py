# SPDX-License-Identifier: Apache-2.0
"""The native prefix inside a Python worker: one sample through it, then what is left as the user wrote it.

Used where not all transforms are known, and where files cannot be listed natively. A sample that the engine refuses
goes the user's way from the start, so that what Pillow reads is delivered and what it refuses raises Pillow's
exception.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from .. import _penstock
from ._datasets import Flat
from ._lower import Lowered


def is_there() -> bool:
    """Whether this build can run a pipeline on single samples."""
    return hasattr(_penstock, "Prep")


class Prefix:
    """prepare(index) for a worker: what dataset[index] gives. Made in the trainer; each process compiles its own."""

    def __init__(self, dataset: Any, flat: Flat, lowered: Lowered) -> None:
        self.dataset, self.flat = dataset, flat
        self.text, self.form, self.image = lowered.text, lowered.form, lowered.image
        self.drawn, self.rest = lowered.drawn, lowered.rest
        self._prep: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prep": None}

    def __call__(self, index: int) -> tuple[Any, Any]:
        flat = self._flat(index)
        leaf = self.flat.leaf_of(flat)
        path, label = leaf.samples[flat - leaf.start]
        native = self._run(path)
        if native is None:
            return self.dataset[index]
        sample = self._as_expected(native)
        for each in self.rest:
            sample = each(sample)
        change = leaf.dataset.target_transform
        return sample, label if change is None else change(label)

    def _flat(self, index: int) -> int:
        length = len(self.dataset)
        if not -length <= index < length:
            raise IndexError(f"index {index} is out of range for a dataset of {length} samples")
        index = int(index) % length
        return index if self.flat.table is None else int(self.flat.table[index])

    def _run(self, path: str) -> _penstock.Batch | None:
        if self._prep is None:
            self._prep = _penstock.Prep(self.text, 0)
        # The sample's own generator is seeded by now; one draw from it stands for all of the prefix.
        key = int(torch.empty((), dtype=torch.int64).random_().item()) if self.drawn else 0
        try:
            return self._prep.run(path, id=key)
        except _penstock.Error:
            return None

    def _as_expected(self, batch: _penstock.Batch) -> Any:
        """What the next transform would have been given."""
        array = numpy.asarray(batch.view("image"))[0]
        if self.form == "pil":
            from PIL import Image

            return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
        tensor = torch.from_numpy(array.copy())
        if not self.image:
            return tensor
        from torchvision import tv_tensors

        return tv_tensors.Image(tensor)
