# SPDX-License-Identifier: Apache-2.0
"""Commands on data in buckets: as on the same files in a folder, from the embedded engine and from a daemon."""
import pathlib
import signal
import subprocess
import sys

import pytest

from conftest import CROP, read_ledger

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs


@pytest.fixture(scope="module")
def server(photos):
    with rigs.Faultd(buckets={"b": photos.parent}) as faultd:
        yield faultd


def listed(text):
    return [line for line in text.splitlines() if "revision" not in line and "://" not in line and "memory" not in line]


def test_inspect(penstock, photos, server):
    near, far = penstock("inspect", photos), penstock("inspect", "s3://b/photos", env=server.environment())
    assert "48" in far.out and "4 classes" in far.out or "classes" in far.out
    assert sorted(word for word in near.out.split() if word.startswith("class")) == sorted(
        word for word in far.out.split() if word.startswith("class"))


@pytest.mark.parametrize("order", ["strict", "ready"])
def test_ledgers_are_those_of_the_folder(feed, photos, server, tmp_path, order):
    near, far = tmp_path / "near.tsv", tmp_path / "far.tsv"
    feed(photos, "--ledger", near, "--seed", 4, "--order", order, "--epochs", 2)
    feed("s3://b/photos", "--ledger", far, "--seed", 4, "--order", order, "--epochs", 2, env=server.environment())
    rows = [[(row[0], *row[4:]) for row in read_ledger(path)] for path in (near, far)]
    assert (rows[0] == rows[1]) if order == "strict" else (sorted(rows[0]) == sorted(rows[1])) and len(rows[1]) == 96


def test_run_takes_one_object(penstock, photo, photos, server, tmp_path):
    key = photo.relative_to(photos.parent).as_posix()
    penstock("run", photo, "--pipeline", CROP, "--npy", tmp_path / "a.npy")
    penstock("run", "s3://b/" + key, "--pipeline", CROP, "--npy", tmp_path / "b.npy", env=server.environment())
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_what_is_not_there(penstock, server):
    done = penstock("inspect", "s3://nothing/here", check=False, env=server.environment())
    assert done.code not in (0, 139) and "s3://nothing" in done.err


def test_a_daemon_reads_what_its_owner_names(binary, feed, penstock, server, environment, tmp_path):
    env = {**environment, **server.environment(), "XDG_CACHE_HOME": environment["XDG_CACHE_HOME"]}
    alone, served = tmp_path / "alone.tsv", tmp_path / "served.tsv"
    feed("s3://b/photos", "--ledger", alone, "--seed", 4, env=env)
    daemon = subprocess.Popen([binary, "serve", "--socket", tmp_path / "d", "--dataset", "photos=s3://b/photos/"], env=env,
                              stdout=subprocess.PIPE, text=True)
    try:
        assert daemon.stdout.readline().startswith("serving")
        server.control("reset")
        done = feed("s3://b/photos", "--ledger", served, "--seed", 4, "--engine", f"unix:{tmp_path / 'd'}", env=env)
        assert read_ledger(served) == read_ledger(alone) and "own process" not in done.err, done.err
        assert server.stats()["requests"] == {"list": 2, "get": 48}  # both have listed it, one has read it


    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(30) == 0


def test_datasets_of_a_daemon_are_checked(penstock, tmp_path):
    done = penstock("serve", "--socket", tmp_path / "d", "--dataset", "photos", check=False)
    assert done.code != 0 and "NAME=s3://" in done.err
