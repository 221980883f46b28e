# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the command line's tests: the binary under test ($PENSTOCK), a way to run it, and made-up photos."""
import json
import os
import subprocess
from types import SimpleNamespace

import pytest

CROP = "decode | random_resized_crop(32) | hflip"


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    env = dict(os.environ)
    env["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    return env


@pytest.fixture(scope="session")
def penstock(binary, environment):
    """penstock("feed", path, ...) runs the command and gives code, out and err; check=False allows failure."""

    def run(*args, check=True, timeout=60, cwd=None, env=None):
        done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True, timeout=timeout,
                              cwd=cwd, env={**environment, **(env or {})}, stdin=subprocess.DEVNULL)
        if check:
            assert done.returncode == 0, f"penstock {args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture(scope="session")
def photos(penstock, tmp_path_factory):
    """48 photos in 4 classes. Tests must not change them."""
    path = tmp_path_factory.mktemp("data") / "photos"
    penstock("synth", "images", path, "--count", 48, "--classes", 4, "--seed", 5)
    return path


@pytest.fixture(scope="session")
def photo(photos):
    return sorted(photos.rglob("*.jpg"))[0]


@pytest.fixture(scope="session")
def feed(penstock):
    """feed(data, ...) with --json; gives the object of the last line."""

    def run(data, *args, pipeline=CROP, batch=8, **kwargs):
        done = penstock("feed", data, "--pipeline", pipeline, "--batch", batch, "--json", *args, **kwargs)
        done.report = json.loads(done.out.splitlines()[-1])
        return done

    return run


def read_ledger(path):
    """The lines that are not comments, as tuples (epoch, step, rank, slot, id, key, crc)."""
    rows = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        epoch, step, rank, slot, ident, key, crc = line.split("\t")
        rows.append((int(epoch), int(step), int(rank), int(slot), int(ident), key, crc))
    return rows


def comments(path, word):
    return [line.split("\t") for line in path.read_text().splitlines() if line.startswith(f"# {word}\t")]
