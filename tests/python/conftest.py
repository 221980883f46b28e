# SPDX-License-Identifier: Apache-2.0
"""Data for the tests: small photo-like JPEGs in class folders, made here from fixed seeds."""

import os
import pathlib
import signal

import numpy
import PIL.Image
import pytest

CLASSES = ("ant", "bee", "cat")
PER_CLASS = 20
CROP = "decode | random_resized_crop(16) | hflip"


def noise_image(seed: int) -> PIL.Image.Image:
    """Smooth noise, between 24x20 and 40x36 pixels."""
    rng = numpy.random.default_rng(seed)
    height, width = 20 + seed % 17, 24 + seed * 7 % 17
    coarse = PIL.Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=numpy.uint8), "RGB")
    return coarse.resize((width, height), PIL.Image.BICUBIC)


def make_folder(root: pathlib.Path, per_class: int = PER_CLASS) -> pathlib.Path:
    for number, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            noise_image(number * per_class + i).save(root / name / f"{i:03}.jpg", quality=90)
    return root


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """Ctrl-C works, also where the tests were started in the background by a shell that had it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Remembered listings go to a folder of the tests' own."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> pathlib.Path:
    """60 good JPEGs; not to be changed."""
    return make_folder(tmp_path_factory.mktemp("photos") / "data")


@pytest.fixture
def own_photos(tmp_path) -> pathlib.Path:
    """15 JPEGs that a test may damage."""
    return make_folder(tmp_path / "data", per_class=5)


def pytest_collection_modifyitems(items):
    if os.environ.get("PENSTOCK_LONG"):
        return
    skip = pytest.mark.skip(reason="long: set PENSTOCK_LONG=1")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs for minutes; only with PENSTOCK_LONG=1")
