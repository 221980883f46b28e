# SPDX-License-Identifier: Apache-2.0
"""Pulling from a bucket over the net, from a server that fails as it is told."""
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from folders import files, size_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rigs"))
rigs = pytest.importorskip("rigs")

KILLS = int(os.environ.get("PENSTOCK_KILLS_PULL", "20")) // 2
OBJECTS = 40


@pytest.fixture(scope="module")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


@pytest.fixture
def bucket(tmp_path):
    rng = random.Random(3)
    folder = tmp_path / "bucket"
    for i in range(OBJECTS):
        path = folder / "train" / f"c{i % 4}" / f"{i:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(3 << 20 if i % 20 == 0 else rng.randrange(0, 40000)))
    (folder / "trainer.txt").write_text("no part of train/")
    return folder


@pytest.fixture
def faultd(bucket):
    with rigs.Faultd(buckets={"data": bucket}) as server:
        yield server


class Puller:
    def __init__(self, binary, faultd, depot):
        self.binary, self.faultd, self.depot = binary, faultd, depot

    def command(self, *args, url="s3://data/train", name="set"):
        return [self.binary, "pull", name, url, "--to", str(self.depot), "--json", "--connections", "4", *args]

    def start(self, *args, **kwargs):
        return subprocess.Popen(self.command(*args, **kwargs), env=self.faultd.environment(), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def __call__(self, *args, check=True, **kwargs):
        done = subprocess.run(self.command(*args, **kwargs), env=self.faultd.environment(), capture_output=True, text=True, timeout=120)
        if check:
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)
        return done

    def has(self, bucket, name="set"):
        data = self.depot / name / "latest" / "data"
        assert files(data) == files(bucket / "train")


@pytest.fixture
def pull(binary, faultd, tmp_path):
    probe = subprocess.run([binary, "pull", "probe", "s3://data/train/c0/", "--to", str(tmp_path / "probe")], capture_output=True, text=True,
                           env=faultd.environment())
    if probe.returncode != 0 and "built without" in probe.stderr:
        pytest.skip(probe.stderr)
    faultd.rules([])
    return Puller(binary, faultd, tmp_path / "depot")


def test_one_request_an_object_and_a_listing(pull, faultd, bucket):
    report = pull()
    assert report["objects"] == OBJECTS and report["bytes_fetched"] == report["bytes"]
    pull.has(bucket)
    requests = faultd.stats()["requests"]
    empty = sum(1 for b in files(bucket / "train").values() if not b)
    assert requests["list"] == 1 and requests["get"] == OBJECTS - empty
    assert faultd.stats()["if_match"] == requests["get"]
    faultd.rules([])
    assert pull()["bytes_fetched"] == 0  # looked over: one listing, no object
    assert faultd.stats()["requests"].get("get", 0) == 0


def test_errors_and_cuts_are_got_over(pull, faultd, bucket):
    faultd.rules([{"match": {"op": "get", "share": 0.2, "seed": 1}, "do": {"status": 503}},
                  {"match": {"op": "get", "share": 0.2, "seed": 2, "times": 10}, "do": {"cut": {"at": "random", "how": "rst"}}}])
    pull()
    pull.has(bucket)


def test_a_flipped_bit_is_never_kept(pull, faultd, bucket):
    """The MD5 in the etag tells, even where the server sends no checksum."""
    faultd.rules([{"match": {"op": "get", "key": "*000.bin", "times": 1}, "do": {"flip": 12345, "checksum": "none"}}])
    pull()
    pull.has(bucket)
    assert faultd.stats()["fired"]


def test_bits_that_flip_again_and_again_are_an_error(pull, faultd, bucket):
    faultd.rules([{"match": {"op": "get", "key": "*000.bin"}, "do": {"flip": 12345, "checksum": "none"}}])
    done = pull(check=False)
    assert done.returncode == 1 and "MD5" in done.stderr
    assert not (pull.depot / "set" / "latest").exists()
    faultd.rules([])
    pull()
    pull.has(bucket)


def test_an_object_replaced_meanwhile_gives_the_new_revision(pull, faultd, bucket):
    faultd.rules([{"match": {"op": "get", "key": "*001.bin", "times": 1}, "do": {"replace": {"key": "train/c3/003.bin"}}}])
    report = pull("--connections", "1")
    shown = [p for p in (pull.depot / "set").iterdir() if len(p.name) == 32]
    assert [p.name for p in shown] == [report["revision"]]
    assert faultd.stats()["requests"]["list"] == 2
    mine, theirs = files(shown[0] / "data"), files(bucket / "train")
    assert mine.keys() == theirs.keys()
    assert [key for key in mine if mine[key] != theirs[key]] == ["c3/003.bin"]  # the bucket's folder has the old one


def test_a_part_is_gone_on_with_by_a_range(pull, faultd, bucket):
    faultd.rules([{"match": {"op": "get", "key": "*000.bin"}, "do": {"bandwidth": 2 << 20}}])
    child = pull.start()
    end = time.monotonic() + 30
    while child.poll() is None and time.monotonic() < end:
        if any(size_of(p) > 1 << 20 for p in (pull.depot / "set").glob(".*/parts/*")):
            break
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -9
    have = sum(p.stat().st_size for p in (pull.depot / "set").glob(".*/parts/*"))
    assert have > 1 << 20
    faultd.rules([])
    report = pull()
    pull.has(bucket)
    assert report["bytes_fetched"] <= report["bytes"] - have
    assert any(entry.get("range") and entry.get("if_match") for entry in faultd.log())


def test_a_slow_disk_ends_requests_and_goes_on_by_ranges(pull, faultd, bucket):
    """More came than may be under way (1 MiB for so many connections): the rest is asked for once that is written."""
    slow = os.environ.get("PENSTOCK_SLOW_WRITES")
    if not slow:
        pytest.skip("nothing that makes writes slow")
    for i in range(4):
        (bucket / "train" / f"long{i}.bin").write_bytes(random.Random(i).randbytes(4 << 20))
    faultd.rules([])
    large = [p for p in (bucket / "train").rglob("*.bin") if p.stat().st_size > 2 << 20]
    done = subprocess.run(pull.command("--connections", "200"), env={**faultd.environment(), "LD_PRELOAD": slow}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    pull.has(bucket)
    resumed = [entry for entry in faultd.log() if entry.get("range") and entry.get("if_match")]
    assert len(resumed) >= len(large)
    # And when it fails: everything that is under way ends.
    faultd.rules([{"match": {"op": "get", "key": "*000.bin"}, "do": {"flip": 12345, "checksum": "none"}}])
    done = subprocess.run(pull.command("--connections", "200", name="other"), env={**faultd.environment(), "LD_PRELOAD": slow},
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "MD5" in done.stderr


def test_killed_at_random_moments(pull, faultd, bucket):
    rng = random.Random(11)
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 5}}])
    begin = time.monotonic()
    pull(name="timed")
    whole = time.monotonic() - begin
    for _ in range(KILLS):
        child = pull.start()
        try:
            child.wait(rng.uniform(0, whole * 1.1))
        except subprocess.TimeoutExpired:
            child.kill()
        child.communicate()
        for shown in (p for p in (pull.depot / "set").glob("*") if len(p.name) == 32):
            assert files(shown / "data") == files(bucket / "train")
    pull()
    pull.has(bucket)


def test_deleted_and_damaged_files_are_fetched_again(pull, faultd, bucket):
    data = Path(pull()["path"])
    faultd.rules([])
    (data / "c1" / "001.bin").unlink()
    damaged = data / "c0" / "000.bin"
    damaged.chmod(0o644)
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 8
    damaged.write_bytes(content)
    assert pull("--check")["objects_bad"] == 2
    pull.has(bucket)
    assert faultd.stats()["requests"]["get"] == 2


def test_hostile_keys_are_refused(pull, faultd):
    faultd.bucket("evil", {"keys": ["ok", "../../escape"], "size": 10})
    done = pull(check=False, url="s3://evil", name="evil")
    assert done.returncode == 1 and "'..'" in done.stderr
    faultd.bucket("evil", {"keys": ["a", "a/b"], "size": 10})
    done = pull(check=False, url="s3://evil", name="evil")
    assert done.returncode == 1 and "object and a folder" in done.stderr


def test_one_object_of_http(pull, faultd, bucket):
    report = pull(url=f"{faultd.url}/data/train/c1/001.bin", name="one")
    assert report["objects"] == 1
    assert (Path(report["path"]) / "001.bin").read_bytes() == (bucket / "train" / "c1" / "001.bin").read_bytes()
    report = pull(url="s3://data/train/c1/001.bin", name="two")
    assert (Path(report["path"]) / "001.bin").read_bytes() == (bucket / "train" / "c1" / "001.bin").read_bytes()


@pytest.mark.parametrize("url", ["s3://data/train", "s3://data/train/"])
def test_a_revision_that_is_here_is_not_listed_again(pull, faultd, bucket, url):
    """Its objects are known, and so is what a URL without a slash at its end means: a folder, as it did."""
    first = pull(url=url)
    data = Path(first["path"])
    faultd.rules([])
    (data / "c1" / "001.bin").unlink()
    assert pull("--revision", first["revision"], url=url)["objects_bad"] == 1
    pull.has(bucket)
    assert faultd.stats()["requests"] == {"get": 1}
    assert (data.parent / "manifest").read_text().split("\n")[0].endswith("\ts3://data/train/")  # for whoever mends it
    # And one that was begun: as after another start, with the revision that was meant.
    faultd.rules([{"match": {"op": "get", "key": "*020.bin"}, "do": {"status": 403}}])
    done = pull(check=False, url=url, name="begun")
    assert done.returncode == 1 and (pull.depot / "begun" / f".{first['revision']}" / "listing").exists()
    faultd.rules([])
    assert pull("--revision", first["revision"], url=url, name="begun")["complete"]
    pull.has(bucket, "begun")
    assert faultd.stats()["requests"].get("list", 0) == 0


def test_one_object_that_is_here_stays_one(pull, faultd, bucket):
    for name, url in (("one", f"{faultd.url}/data/train/c1/001.bin"), ("two", "s3://data/train/c1/001.bin")):
        first = pull(url=url, name=name)
        (Path(first["path"]) / "001.bin").unlink()
        again = pull("--revision", first["revision"], url=url, name=name)
        assert (Path(again["path"]) / "001.bin").read_bytes() == (bucket / "train" / "c1" / "001.bin").read_bytes()
