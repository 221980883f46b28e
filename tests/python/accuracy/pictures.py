# SPDX-License-Identifier: Apache-2.0
"""Pictures that a small net can learn, but not to the last one, and that cost more in some classes than in others.

A picture is a coarse pattern of its class under heavy coarse noise, drawn smoothly at its class's size. Once the
pipeline has brought all to one size, a class's size is no longer to be seen. What differs is the work: a picture of
class SLOW is a progressive file of 16 times the pixels, and fetching it costs some milliseconds besides.
"""

from __future__ import annotations

import hashlib
import io
import pathlib
from typing import Any, Callable

import numpy
import PIL.Image

SIDES = (40, 40, 40, 160, 40, 80, 40, 40)  # by class
CLASSES = len(SIDES)
SLOW = 3
SLOW_ROUNDS = 6000  # of a hash that lets other threads run: 3 to 4 ms
CELLS = 8
SIGNAL, NOISE = 16.0, 44.0  # levels of a byte
DATA_SEED = 20240


def _picture(pattern: numpy.ndarray, side: int, rng: numpy.random.Generator) -> PIL.Image.Image:
    levels = 128.0 + SIGNAL * pattern + rng.normal(0.0, NOISE, pattern.shape)
    coarse = PIL.Image.fromarray(numpy.clip(levels, 0, 255).astype(numpy.uint8), "RGB")
    return coarse.resize((side, side), PIL.Image.BICUBIC)


def make_folder(root: pathlib.Path, per_class: int, part: int) -> pathlib.Path:
    """Class folders of JPEGs; parts 0, 1, ... have no picture in common."""
    patterns = numpy.random.default_rng(DATA_SEED).normal(0.0, 1.0, (CLASSES, CELLS, CELLS, 3))
    for label, pattern in enumerate(patterns):
        place = root / f"class{label}"
        place.mkdir(parents=True)
        for number in range(per_class):
            rng = numpy.random.default_rng((DATA_SEED, part, label, number))
            image = _picture(pattern, SIDES[label], rng)
            image.save(place / f"{number:04}.jpg", quality=90, progressive=label == SLOW)
    return root


class Fetched:
    """The pictures of a folder as encoded bytes. Fetching one of class SLOW takes its time, as decrypting it would."""

    def __init__(self, root: pathlib.Path) -> None:
        self.paths = sorted(root.glob("*/*.jpg"))
        self.labels = [int(path.parent.name.removeprefix("class")) for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, i: int) -> tuple[bytes, int]:
        data = self.paths[i].read_bytes()
        if self.labels[i] == SLOW:
            hashlib.pbkdf2_hmac("sha256", data, b"cost", SLOW_ROUNDS)
        return data, self.labels[i]


class SlowFirst(Fetched):
    """The same without what fetching costs, and with those of class SLOW numbered first."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        order = sorted(range(len(self.paths)), key=lambda i: self.labels[i] != SLOW)
        self.paths, self.labels = [self.paths[i] for i in order], [self.labels[i] for i in order]

    def read(self, i: int) -> tuple[bytes, int]:
        return self.paths[i].read_bytes(), self.labels[i]


class Decoded:
    """The same as a map-style dataset of torch's kind: Pillow and `transform` make a sample of the bytes."""

    def __init__(self, fetched: Fetched, transform: Callable[[Any], Any]) -> None:
        self.fetched, self.transform = fetched, transform

    def __len__(self) -> int:
        return len(self.fetched)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        data, label = self.fetched.read(i)
        return self.transform(PIL.Image.open(io.BytesIO(data)).convert("RGB")), label
