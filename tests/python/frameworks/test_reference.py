# SPDX-License-Identifier: Apache-2.0
"""torchvision's reference training script with its loader's name changed: it trains, and it evaluates as with torch's.

Needs the scripts, which are not part of any package: PENSTOCK_REFERENCE names the folder references/classification of
torchvision's repository. PENSTOCK_REFERENCE_DATA may name a folder with train/ (256 pictures or more) and val/ to be used in
place of small made-up pictures.
"""

import math
import os
import pathlib

import pytest
import torch
from conftest import noise_image
from frameworks_tools import torchrun

SCRIPTS = os.environ.get("PENSTOCK_REFERENCE", "")
pytestmark = pytest.mark.skipif(not SCRIPTS, reason="PENSTOCK_REFERENCE names no folder with torchvision's scripts")

PROGRAM = pathlib.Path(__file__).with_name("reference_program.py")
SMALL = "--model mobilenet_v3_small --epochs 1 -b 16 -j 2 --train-crop-size 32 --val-resize-size 36 --val-crop-size 32"
MIX = ["--mixup-alpha", "0.2", "--cutmix-alpha", "1.0", "--random-erase", "0.5", "--label-smoothing", "0.1"]
# Pillow's newer versions round a resized level another way here and there; a network of random weights makes little of it.
CLOSE = 0.02


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """256 pictures to train with, which the sampler of repeated augmentation needs, and 24 to validate with."""
    given = os.environ.get("PENSTOCK_REFERENCE_DATA")
    if given:
        return pathlib.Path(given)
    root = tmp_path_factory.mktemp("reference")
    for part, start, count in (("train", 0, 256), ("val", 256, 24)):
        for i in range(count):
            folder = root / part / f"class{i % 6}"
            folder.mkdir(parents=True, exist_ok=True)
            noise_image(start + i).save(folder / f"{i:04}.jpg", quality=90)
    return root


def train(kind, data, result, *more, ranks=0):
    """What the program wrote: one result, or one of each rank."""
    where = ["--data-path", str(data), "--output-dir", str(result.parent), *SMALL.split(), *more]
    torchrun(ranks, [str(PROGRAM), SCRIPTS, kind, str(result), *where])
    names = [f"{result}.{rank}" for rank in range(ranks)] if ranks else [result]
    loaded = [torch.load(name, weights_only=True) for name in names]
    return loaded if ranks else loaded[0]


def assert_trained(got, batches, path="native"):
    """The losses of the epoch are finite and its batches came from Penstock."""
    assert len(got["losses"]["train"]) == batches and all(map(math.isfinite, got["losses"]["train"]))
    assert all(map(math.isfinite, got["losses"]["test"]))
    assert got["paths"] == {"train": path, "test": "native"}, got["explain"]["train"]


def pictures(data, part):
    return sum(len(files) for _, _, files in os.walk(data / part))


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("policy", ["ta_wide", "ra", "augmix", "imagenet"])
def test_recipe(data, tmp_path, policy, version):
    more = [*MIX, "--auto-augment", policy] + (["--use-v2"] if version == "v2" else [])
    got = train("penstock", data, tmp_path / "result", *more)
    assert_trained(got, -(-pictures(data, "train") // 16))
    assert got["soft"], "labels were not mixed"
    transforms, _, collation = got["explain"]["train"].partition("collation:")
    assert "Python" not in transforms, transforms
    assert ("choice(1: mixup" if version == "v2" else "Python, in the caller's thread") in collation


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_tensor_backend(data, tmp_path, version):
    more = ["--backend", "tensor", "--auto-augment", "ta_wide"] + (["--use-v2"] if version == "v2" else [])
    assert_trained(train("penstock", data, tmp_path / "result", *more), -(-pictures(data, "train") // 16))


def test_repeated_augmentation_over_two_ranks(data, tmp_path):
    more = [*MIX, "--auto-augment", "ta_wide", "--use-v2", "--ra-sampler", "--ra-reps", "4"]
    for got in train("penstock", data, tmp_path / "result", *more, ranks=2):
        assert_trained(got, pictures(data, "train") // 256 * 256 // 2 // 16)
        assert "RASampler" in got["explain"]["train"]


@pytest.mark.parametrize("ranks", [0, 2])
def test_evaluation_is_torchs(data, tmp_path, ranks):
    """The same weights give the same targets, predictions within what resizing differs, and so the same accuracy."""
    train("torch", data, tmp_path / "result", "--lr", "0.01")
    resume = ["--test-only", "--resume", str(tmp_path / "checkpoint.pth")]
    expected = train("torch", data, tmp_path / "torch", *resume, ranks=ranks)
    got = train("penstock", data, tmp_path / "ours", *resume, ranks=ranks)
    for theirs, ours in zip(expected, got) if ranks else [(expected, got)]:
        assert ours["paths"] == {"test": "native"} and torch.equal(ours["targets"], theirs["targets"])
        assert torch.allclose(ours["outputs"], theirs["outputs"], rtol=0, atol=CLOSE)
        assert torch.equal(ours["outputs"].argmax(1), theirs["outputs"].argmax(1))
