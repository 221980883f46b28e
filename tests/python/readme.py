# SPDX-License-Identifier: Apache-2.0
"""The program in README.md, and photos that it can learn from."""

import pathlib
import re

import numpy
import PIL.Image

README = pathlib.Path(__file__).parents[2] / "README.md"
COLOURS = {"blue": (40, 60, 200), "green": (40, 180, 60), "red": (200, 50, 40)}


def program() -> str:
    """Its first Python block, as it stands there."""
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None, "README.md has no Python block"
    return found[1]


def make_photos(root: pathlib.Path, per_class: int = 50) -> None:
    """Noisy pictures in class folders; a class is a colour."""
    rng = numpy.random.default_rng(7)
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = numpy.clip(rng.normal(colour, 40, (15, 20, 3)), 0, 255).astype(numpy.uint8)
            PIL.Image.fromarray(pixels).resize((160, 120), PIL.Image.BICUBIC).save(root / name / f"{i:03}.jpg")


def check_output(text: str) -> None:
    """One line an epoch: number, loss, the verdict. The loss falls."""
    lines = [line.split(maxsplit=2) for line in text.splitlines()]
    assert [line[0] for line in lines] == ["0", "1", "2", "3", "4"], text
    losses = [float(line[1]) for line in lines]
    assert losses[-1] < losses[0], losses
    assert all(":" in line[2] and len(line[2]) > 20 for line in lines), text
