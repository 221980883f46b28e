# SPDX-License-Identifier: Apache-2.0
"""Buckets from Python: the same bytes as from the local folder, errors that name the key, and processes that fork."""
import os
import zlib

import pytest

import rigs
from conftest import CROP

penstock = pytest.importorskip("penstock")
URL = "s3://data/photos"


@pytest.fixture(autouse=True)
def settings(faultd, monkeypatch, tmp_path):
    for name in rigs.AWS_NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in faultd.environment(XDG_CACHE_HOME=str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    faultd.rules([])


def sums(where, epochs=1):
    with penstock.Loader(str(where), CROP, 8, seed=3, memory="256M") as loader:
        return [[zlib.crc32(batch[0]) for batch in loader] for _ in range(epochs)]


def test_the_same_batches_as_from_the_folder(faultd, data):
    assert sums(URL, 2) == sums(data / "photos", 2)
    assert faultd.stats()["requests"]["list"] == 1


def test_an_error_names_the_key(faultd):
    faultd.rules([{"match": {"op": "get", "key": "photos/*1.jpg"}, "do": {"status": 404, "code": "NoSuchKey"}}])
    with pytest.raises(Exception, match="1.jpg"):
        sums(URL)


def test_both_sides_of_a_fork_go_on(faultd, data):
    """The parent has a loader open and the net at work; the child opens its own."""
    golden = sums(data / "photos")
    with penstock.Loader(URL, CROP, 8, seed=3, memory="256M") as loader:
        batches = iter(loader)
        first = zlib.crc32(next(batches)[0])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if sums(URL) == golden else 2
            finally:
                os._exit(code)
        rest = [zlib.crc32(batch[0]) for batch in batches]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [[first, *rest]] == golden
