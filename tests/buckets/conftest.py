# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of buckets: photos, the same photos behind faultd, and what an epoch of them must look like.

The measure of every test is the ledger: what came from the bucket is, sample by sample, what comes from the local folder, or
it did not come.
"""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from types import SimpleNamespace

import pytest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs

SHORT = {"PENSTOCK_NET_TIMEOUT": "2"}  # seconds without a byte, where an error is waited for
CROP = "decode | random_resized_crop(32) | hflip"
COUNT = 64


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


@pytest.fixture(scope="session")
def data(binary, tmp_path_factory):
    """A folder with photos/ (64 in 4 classes, small) and shards/ (two tars of the same). Tests must not change them."""
    root = tmp_path_factory.mktemp("data")
    subprocess.run([binary, "synth", "images", str(root / "photos"), "--count", str(COUNT), "--classes", "4", "--seed", "5"],
                   check=True, stdout=subprocess.DEVNULL)
    files = sorted((root / "photos").rglob("*.jpg"))
    (root / "shards").mkdir()
    for number in range(2):
        with tarfile.open(root / "shards" / f"part-{number}.tar", "w") as tar:
            for path in files[number::2]:
                tar.add(path, path.relative_to(root / "photos").as_posix())
    return root


def read_ledger(path):
    """The lines that are not comments: (epoch, step, slot, id, key, crc)."""
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        if not line.startswith("#"):
            epoch, step, _, slot, ident, key, crc = line.split("\t")[:7]
            rows.append((int(epoch), int(step), int(slot), int(ident), key, crc))
    return rows


@pytest.fixture(scope="session")
def feed(binary, tmp_path_factory):
    """feed(where, env, *args) consumes an epoch; code, out, err and the ledger's rows. A run that hangs fails the test."""
    folder = tmp_path_factory.mktemp("ledgers")
    home = tmp_path_factory.mktemp("home")

    def run(where, env=None, *args, timeout=60, batch=8, pipeline=CROP):
        ledger = folder / "ledger.tsv"
        ledger.unlink(missing_ok=True)
        command = [binary, "feed", str(where), "--pipeline", pipeline, "--batch", str(batch), "--ledger", str(ledger), "--json",
                   "--memory", "256M", *map(str, args)]
        env = {"PENSTOCK_NET_TIMEOUT": "30", **(env or rigs.clean_environment()), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL,
                              env=env)
        report = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr, report=report,
                               rows=read_ledger(ledger) if ledger.exists() else [])

    return run


@pytest.fixture(scope="session")
def golden(feed, data):
    """Rows of the local folder, and of the local shards."""
    rows = {kind: feed(data / kind).rows for kind in ("photos", "shards")}
    assert all(len(each) == COUNT for each in rows.values())
    return rows


@pytest.fixture(scope="module")
def faultd(data):
    with rigs.Faultd(buckets={"data": data}) as server:
        yield server


def must_be(done, golden):
    """An epoch to the byte."""
    assert done.code == 0, done.err
    assert done.rows == golden


def must_not_lie(done, golden):
    """Whole, or ended with an error, and then nothing in it is wrong."""
    if done.code == 0:
        assert done.rows == golden
    else:
        assert done.err.startswith("penstock: "), done.err
        good = {(row[3], row[4], row[5]) for row in golden}
        assert all((row[3], row[4], row[5]) in good for row in done.rows)


def pytest_collection_modifyitems(items):
    if os.environ.get("PENSTOCK_LONG"):
        return
    for item in items:
        if "long" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="long: set PENSTOCK_LONG=1"))


def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs for minutes; only with PENSTOCK_LONG=1")
