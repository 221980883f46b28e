# SPDX-License-Identifier: Apache-2.0
"""Reading what was pulled: files that are gone or damaged are found, fetched again and never served; the same identities as in the bucket."""
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rigs"))
CROP = "decode | random_resized_crop(32) | hflip"


@pytest.fixture(scope="module")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


@pytest.fixture
def bucket(binary, tmp_path):
    subprocess.run([binary, "synth", "images", str(tmp_path / "bucket"), "--count", "48", "--classes", "4", "--seed", "5"], check=True,
                   stdout=subprocess.DEVNULL)
    return tmp_path / "bucket"


@pytest.fixture
def run(binary, tmp_path):
    env = {**os.environ, "PENSTOCK_DATASETS": str(tmp_path / "depot"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def call(*args, more=None, check=True):
        done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True, timeout=120, env={**env, **(more or {})})
        assert not check or done.returncode == 0, done.stderr
        return done

    return call


def feed(run, data, ledger, *args, **kwargs):
    """{key: crc of what was delivered}, and what was said."""
    done = run("feed", data, "--pipeline", CROP, "--batch", 8, "--seed", 3, "--ledger", ledger, "--json", *args, **kwargs)
    rows = [line.split("\t") for line in Path(ledger).read_text().splitlines() if not line.startswith("#")]
    return {row[5]: row[6] for row in rows}, done.stderr


def flip(path, bit=12345):
    os.chmod(path, 0o644)
    content = bytearray(Path(path).read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    Path(path).write_bytes(content)


def test_damaged_and_missing_files_are_fetched_again_and_never_served(run, bucket, tmp_path):
    path = Path(json.loads(run("pull", "photos", bucket, "--json").stdout)["path"])
    wanted, _ = feed(run, bucket, tmp_path / "direct")
    got, said = feed(run, "penstock://photos", tmp_path / "clean")
    assert got == wanted and "fetched again" not in said
    files = sorted(p.relative_to(bucket) for p in bucket.rglob("*.jpg"))
    for name in files[:5]:
        flip(path / name)
    (path / files[7]).unlink()
    got, said = feed(run, "penstock://photos", tmp_path / "mended")
    assert got == wanted and said.count("fetched again") >= 5
    for name in files:
        assert (path / name).read_bytes() == (bucket / name).read_bytes()
    got, said = feed(run, "penstock://photos", tmp_path / "again")
    assert got == wanted and "fetched again" not in said


def test_a_file_that_goes_while_it_is_read(run, bucket, tmp_path):
    """Listings are remembered: the file is in it and is gone when it is read."""
    path = Path(json.loads(run("pull", "photos", bucket, "--json").stdout)["path"])
    wanted, _ = feed(run, "penstock://photos", tmp_path / "first")
    shutil.rmtree(path / sorted(os.listdir(path))[0])
    got, said = feed(run, "penstock://photos", tmp_path / "second")
    assert got == wanted and len(got) == 48


def test_what_cannot_be_fetched_again_is_a_bad_sample(run, bucket, tmp_path):
    path = Path(json.loads(run("pull", "photos", bucket, "--json").stdout)["path"])
    name = sorted(p.relative_to(bucket) for p in bucket.rglob("*.jpg"))[3]
    flip(path / name)
    (bucket / name).unlink()
    done = run("feed", "penstock://photos", "--pipeline", CROP, "--batch", 8, "--json", check=False)
    assert done.returncode == 1 and str(name) in done.stderr


@pytest.fixture
def faultd(bucket):
    rigs = pytest.importorskip("rigs")
    with rigs.Faultd(buckets={"data": bucket}) as server:
        yield server


def test_the_same_identities_as_in_the_bucket(run, bucket, faultd, tmp_path):
    more = faultd.environment(PENSTOCK_DATASETS=str(tmp_path / "depot"))
    probe = run("pull", "photos", "s3://data", "--json", more=more, check=False)
    if probe.returncode != 0 and "built without" in probe.stderr:
        pytest.skip(probe.stderr)
    assert probe.returncode == 0, probe.stderr
    run("feed", "s3://data", "--pipeline", CROP, "--batch", 8, "--save-state", tmp_path / "state", "--max-batches", 3, more=more)
    done = run("feed", "penstock://photos", "--pipeline", CROP, "--batch", 8, "--load-state", tmp_path / "state", "--json", more=more)
    assert json.loads(done.stdout.splitlines()[-1])["samples"] == 48 - 24


def done_notes(depot):
    return sum(p.stat().st_size // 27 for p in depot.glob("photos/.*/done"))


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_here_already_is_read_from_here(run, binary, bucket, faultd, tmp_path, damaged):
    """The pull waits for its last object; what came before is not asked for again, unless it was damaged since."""
    more = faultd.environment(PENSTOCK_DATASETS=str(tmp_path / "depot"))
    keys = sorted(str(p.relative_to(bucket)) for p in bucket.rglob("*.jpg"))
    faultd.rules([{"match": {"op": "get", "key": "*" + keys[-1], "times": 1}, "do": {"delay_ms": 60000}}])
    child = subprocess.Popen([binary, "pull", "photos", "s3://data", "--connections", "1", "--quiet"], env={**os.environ, **more})
    try:
        end = time.monotonic() + 50
        while child.poll() is None and done_notes(tmp_path / "depot") < len(keys) - 1:
            assert time.monotonic() < end
            time.sleep(0.01)
        if child.poll() is not None:
            pytest.skip("the pull ended at once")
        wanted, _ = feed(run, bucket, tmp_path / "direct")
        if damaged:
            flip(next((tmp_path / "depot" / "photos").glob(f".*/data/{keys[5]}")))
        before = gets(faultd)
        got, said = feed(run, "penstock://photos", tmp_path / "early", more=more)
        assert got == wanted and "what is missing is read from" in said
        assert damaged == ("the bucket is read instead" in said)
        assert damaged or gets(faultd) - before == 1
    finally:
        child.kill()
        child.wait(60)


def gets(faultd):
    return faultd.stats()["requests"].get("get", 0)


def test_training_while_the_pull_runs(run, binary, bucket, faultd, tmp_path):
    more = faultd.environment(PENSTOCK_DATASETS=str(tmp_path / "depot"))
    faultd.rules([{"match": {"op": "get", "if_match": True, "key": "*0001*"}, "do": {"delay_ms": 3000}}])
    child = subprocess.Popen([binary, "pull", "photos", "s3://data", "--connections", "1", "--quiet"], env={**os.environ, **more})
    try:
        while child.poll() is None and not list((tmp_path / "depot" / "photos").glob(".*/listing")):
            pass
        if child.poll() not in (None, 0):
            pytest.skip("the pull ended at once")
        faultd.rules([])
        wanted, _ = feed(run, bucket, tmp_path / "direct")
        got, said = feed(run, "penstock://photos", tmp_path / "early", more=more)
        assert got == wanted
    finally:
        child.wait(60)
    assert child.returncode == 0
    got, said = feed(run, "penstock://photos", tmp_path / "late", more=more)
    assert got == wanted and "is missing" not in said
