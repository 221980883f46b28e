# SPDX-License-Identifier: Apache-2.0
"""`penstock run` against Pillow and torchvision, end to end: made-up photos, and real ones where PENSTOCK_PHOTOS names them."""
import os
import pathlib

import numpy
import pytest
from PIL import Image

transforms = pytest.importorskip("torchvision.transforms")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def files(photos):
    found = sorted(photos.rglob("*.jpg"))[::4]
    real = os.environ.get("PENSTOCK_PHOTOS")
    if real:
        found += sorted(pathlib.Path(real).rglob("*.JPEG"))[::20]
    return found


def ours(penstock, tmp_path, file, pipeline):
    out = tmp_path / "out.npy"
    penstock("run", file, "--pipeline", pipeline, "--npy", out)
    return numpy.load(out)


def test_decode_is_bit_exact(penstock, tmp_path, files):
    for file in files:
        assert numpy.array_equal(ours(penstock, tmp_path, file, "decode"), Image.open(file).convert("RGB")), file


def test_evaluation_recipe(penstock, tmp_path, files):
    """Resize, centre crop, to float, normalise: what every evaluation script does."""
    steps = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(),
                                transforms.Normalize(MEAN, STD)])
    for file in files:
        want = steps(Image.open(file).convert("RGB")).numpy()
        got = ours(penstock, tmp_path, file, "decode | resize(256) | center_crop(224) | normalize(imagenet)")
        assert got.shape == want.shape and got.dtype == want.dtype
        assert numpy.abs(got - want).max() < 1e-6, file


def test_the_same_sample_of_a_dataset(penstock, feed, tmp_path, photos):
    """What run gives for an id is what feed delivered for it."""
    from conftest import read_ledger
    ledger = tmp_path / "ledger.tsv"
    pipeline = "decode | random_resized_crop(48) | hflip"
    feed(photos, "--seed", 9, "--epochs", 2, "--ledger", ledger, "--fields", "image", pipeline=pipeline)
    rows = read_ledger(ledger)
    for epoch, _, _, _, ident, key, crc in rows[::13]:
        out = tmp_path / "one.npy"
        penstock("run", photos / key, "--pipeline", pipeline, "--npy", out, "--seed", 9, "--epoch", epoch, "--id", ident)
        assert crc32c(numpy.load(out).tobytes()) == int(crc, 16), key


def crc32c(data):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
