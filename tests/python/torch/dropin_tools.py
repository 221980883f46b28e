# SPDX-License-Identifier: Apache-2.0
"""What the tests of penstock.torch share: recipes, and comparing a loader with torch's on the same arguments."""

import random
import time

import numpy
import PIL
import torch
import torch.utils.data
from torchvision import datasets, transforms

import penstock.torch
from penstock.torch._workers import _tasks

# What is partly lowered begins natively in Python workers, in builds that can do single samples.
PARTLY = "prefix" if hasattr(penstock._penstock, "Prep") else "python"
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# Levels of a byte that resizing may be apart. With Pillow 9.4 none were seen; newer versions differ by one here and there.
LEVELS = 0 if int(PIL.__version__.split(".")[0]) < 11 else 1
# float32 sums in another order, and the levels after division by the deviation.
CLOSE = 1e-6 + LEVELS / 255 / min(STD)


def evaluation(size: int = 16) -> transforms.Compose:
    return transforms.Compose(
        [
            transforms.Resize(size + 4),
            transforms.CenterCrop(size),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def training(size: int = 16) -> transforms.Compose:
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def folder(root, transform=None, **options) -> datasets.ImageFolder:
    return datasets.ImageFolder(str(root), transform or evaluation(), **options)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def until_full(runner) -> None:
    """Waits until as much is ready as may be, which is what lanes count as slack."""
    words, deadline = runner._arena.words, time.monotonic() + 60
    while (words[_tasks.FILLED] & ((1 << _tasks.FILLED_BITS) - 1)) - words[_tasks.TAKEN] < words[_tasks.ROOM]:
        assert words[_tasks.MORE] and time.monotonic() < deadline
        time.sleep(0.001)


def run(kind, make, epochs: int = 2, seed: int = 5):
    """All batches of some epochs, and a draw from torch's generator afterwards: it shows what was consumed."""
    seed_all(seed)
    loader = make(kind)
    batches = [batch for _ in range(epochs) for batch in loader]
    return loader, batches, torch.rand(3)


def pairs(make, epochs: int = 2):
    """The same loader from torch and from Penstock: (ours, its batches, torch's batches). Draws must agree too."""
    _, expected, theirs = run(torch.utils.data.DataLoader, make, epochs)
    loader, got, ours = run(penstock.torch.DataLoader, make, epochs)
    assert torch.equal(theirs, ours), "torch's generator was left in another state"
    return loader, got, expected


def assert_same(got, expected) -> None:
    """Equal structure, types and values, tensors within CLOSE."""
    assert type(got) is type(expected), (type(got), type(expected))
    if isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        if expected.is_floating_point():
            assert torch.allclose(got, expected, rtol=0, atol=CLOSE), (got - expected).abs().max()
        elif expected.dtype == torch.uint8:
            assert (got.int() - expected.int()).abs().max() <= LEVELS
        else:
            assert torch.equal(got, expected)
    elif isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            assert_same(one, other)
    else:
        assert got == expected


def assert_equal_runs(make, path: str = "native", epochs: int = 2):
    """Ours gives torch's batches, on the path named."""
    loader, got, expected = pairs(make, epochs)
    assert len(expected) > 0
    assert_same(got, expected)
    assert loader.stats()["path"] == path, loader.explain()
    return loader
