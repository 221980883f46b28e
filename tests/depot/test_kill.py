# SPDX-License-Identifier: Apache-2.0
"""kill -9 of `penstock pull` at random moments: the next one completes, and no revision that is not whole is ever seen."""
import json
import os
import random
import shutil
import subprocess
import time

import pytest
from folders import files, size_of

KILLS = int(os.environ.get("PENSTOCK_KILLS_PULL", "20"))
SEED = int(os.environ.get("PENSTOCK_SEED", "7"))
OBJECTS, LARGE = 60, 6


@pytest.fixture(scope="module")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


def fill(bucket, rng, count=OBJECTS):
    """Small objects and a few of some megabytes, so that a moment is often inside one."""
    for i in range(count):
        path = bucket / f"c{i % 5}" / f"{i:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(4 << 20, 8 << 20) if i % (count // LARGE) == 0 else rng.randrange(1, 60000)))


def pull(binary, bucket, depot, *args):
    return [binary, "pull", "set", str(bucket), "--to", str(depot), "--json", "--connections", "4", *args]


def check_shown(depot, bucket, contents):
    """Whatever is shown is whole: every file there, with the bytes of its revision. How many there are."""
    home = depot / "set"
    shown = [p for p in home.iterdir() if not p.name.startswith(".") and p.name != "latest"] if home.exists() else []
    for revision in shown:
        assert (revision / ".complete").exists()
        have = files(revision / "data")
        assert have in contents, f"{revision} shows {len(have)} files"
    if (home / "latest").is_symlink():
        assert (home / "latest").exists(), "latest leads nowhere"
    return len(shown)


def check_blocks(binary, bucket, depot):
    """The checksums of blocks are what the files say: looking everything over changes none."""
    path = depot / "set" / "latest" / "blocks"
    before = path.read_bytes()
    done = subprocess.run(pull(binary, bucket, depot, "--check"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["objects_bad"] == 0 and path.read_bytes() == before


def test_killed_pulls_complete_later(binary, tmp_path):
    rng = random.Random(SEED)
    print("seed", SEED)
    bucket, depot = tmp_path / "bucket", tmp_path / "depot"
    fill(bucket, rng)
    contents = [files(bucket)]
    begin = time.monotonic()
    subprocess.run(pull(binary, bucket, depot), check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - begin
    shutil.rmtree(depot)
    killed = finished = 0
    span = whole
    while killed < KILLS:
        child = subprocess.Popen(pull(binary, bucket, depot), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            child.wait(rng.uniform(0, span))
        except subprocess.TimeoutExpired:
            child.kill()
        out, err = child.communicate()
        assert child.returncode in (0, -9), err
        killed += child.returncode == -9
        span = min(whole, span * 1.1) if child.returncode else span * 0.7  # moments that are too late find nothing to kill
        check_shown(depot, bucket, contents)
        if child.returncode == 0 or killed % 4 == 3:  # complete it; then another one, of which most can be linked, or all anew
            done = subprocess.run(pull(binary, bucket, depot), capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["complete"]
            assert files(depot / "set" / "latest" / "data") == contents[-1]
            check_blocks(binary, bucket, depot)
            finished += 1
            assert finished < 5 * KILLS, "hardly any pull is killed: the moments are badly chosen"
            if finished % 2:
                (bucket / "c0" / "new.bin").write_bytes(rng.randbytes(3 << 20))
                contents.append(files(bucket))
            else:
                shutil.rmtree(depot)
    print(f"{killed} killed, {finished} completed, a whole pull takes {whole:.2f} s")
    done = subprocess.run(pull(binary, bucket, depot), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["complete"] and files(depot / "set" / "latest" / "data") == contents[-1]
    leftovers = [p.name for p in (depot / "set").iterdir() if p.name.startswith(".") and len(p.name) == 33]
    assert not leftovers


def test_parts_are_not_fetched_again(binary, tmp_path):
    """What is on the disk when the puller dies counts: bytes that are fetched afterwards are those that were missing."""
    rng = random.Random(SEED)
    bucket, depot = tmp_path / "bucket", tmp_path / "depot"
    fill(bucket, rng)
    total = sum(len(b) for b in files(bucket).values())
    child = subprocess.Popen(pull(binary, bucket, depot), stdout=subprocess.DEVNULL)
    hidden = None
    while child.poll() is None:  # until a few megabytes are there
        hidden = hidden or next((p for p in (depot / "set").glob(".*") if len(p.name) == 33), None) if (depot / "set").exists() else None
        have = sum(map(size_of, hidden.glob("parts/*"))) if hidden else 0
        if have > 2 << 20:
            break
    child.kill()
    child.wait()
    if hidden is None or not hidden.exists():
        pytest.skip("the pull was over before it could be killed")
    there = sum(p.stat().st_size for p in hidden.glob("parts/*")) + sum(p.stat().st_size for p in hidden.glob("data/**/*") if p.is_file())
    done = subprocess.run(pull(binary, bucket, depot), capture_output=True, text=True, check=True)
    fetched = json.loads(done.stdout)["bytes_fetched"]
    assert fetched <= total - there + (1 << 20), (fetched, total, there)
    assert files(depot / "set" / "latest" / "data") == files(bucket)
