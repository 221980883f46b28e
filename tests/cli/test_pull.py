# SPDX-License-Identifier: Apache-2.0
"""penstock pull, datasets and evict from outside, with a folder as the bucket, and feeding what was pulled."""
import contextlib
import json
import os
import shutil
import subprocess

import pytest

CROP = "decode | random_resized_crop(32) | hflip"


@pytest.fixture
def depot(tmp_path):
    return tmp_path / "depot"


@pytest.fixture
def env(depot):
    return {"PENSTOCK_DATASETS": str(depot)}


@pytest.fixture
def bucket(photos, tmp_path):
    return shutil.copytree(photos, tmp_path / "bucket")


@pytest.fixture
def pull(penstock, bucket, env):
    def run(*args, name="photos", url=bucket, **kwargs):
        done = penstock("pull", name, *([url] if url else []), "--json", *args, env=env, **kwargs)
        return json.loads(done.out) if done.code == 0 else done

    return run


def test_what_was_pulled_is_listed_and_fed(penstock, feed, pull, bucket, env):
    report = pull()
    assert report["complete"] and report["latest"] and report["objects"] == 48
    assert report["bytes_fetched"] == report["bytes"] > 0
    listed = json.loads(penstock("datasets", "--json", env=env).out)
    assert [d["name"] for d in listed["datasets"]] == ["photos"] and listed["used"] == report["bytes"]
    direct = feed(bucket, "--epochs", 1)
    named = feed("penstock://photos", "--epochs", 1, env=env)
    assert named.report["samples"] == direct.report["samples"] == 48
    at = feed(f"penstock://photos@{report['revision'][:8]}", env=env)
    assert at.report["samples"] == 48
    assert json.loads(penstock("datasets", "--json", env=env).out)["datasets"][0]["uses"] > 1.9


def test_a_second_pull_fetches_nothing(pull):
    first = pull()
    again = pull(url=None)
    assert again["revision"] == first["revision"] and again["bytes_fetched"] == 0


def test_a_new_revision_links_the_old(pull, bucket):
    first = pull()
    some = sorted(bucket.rglob("*.jpg"))
    shutil.copy(some[0], some[1])
    second = pull()
    assert second["revision"] != first["revision"]
    assert second["bytes_linked"] > 0 and second["bytes_fetched"] == some[0].stat().st_size


def test_deleted_and_damaged_files_are_fetched_again(pull, bucket):
    path = pull()["path"]
    files = sorted(p for p in bucket.rglob("*.jpg"))
    inside = [os.path.join(path, p.relative_to(bucket)) for p in files]
    os.unlink(inside[0])
    assert pull()["objects_bad"] == 1
    os.chmod(inside[1], 0o644)
    with open(inside[1], "r+b") as handle:
        handle.seek(100)
        byte = handle.read(1)[0]
        handle.seek(100)
        handle.write(bytes([byte ^ 1]))
    assert pull()["objects_bad"] == 0  # of the right length
    assert pull("--check")["objects_bad"] == 1
    for one, other in zip(files, inside):
        with open(other, "rb") as handle:
            assert handle.read() == one.read_bytes()


def test_evicting(penstock, pull, env, depot):
    report = pull("--pin")
    done = penstock("evict", "photos", env=env, check=False)
    assert done.code == 1 and "pinned" in done.err
    penstock("datasets", "--unpin", "photos", env=env)
    assert json.loads(penstock("evict", "photos", "--json", env=env).out)["freed"] == report["bytes"]
    assert "nothing was pulled" in penstock("datasets", env=env).out
    assert not list((depot / "photos").glob("[0-9a-f]*"))
    done = penstock("feed", "penstock://photos", "--pipeline", CROP, env=env, check=False)
    assert done.code == 1 and "penstock pull" in done.err


def test_what_is_in_use_is_not_evicted(binary, environment, penstock, pull, env):
    pull()
    child = subprocess.Popen([binary, "feed", "penstock://photos", "--pipeline", CROP, "--batch", "8", "--step-ms", "100",
                              "--epochs", "1000", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**environment, **env})
    with contextlib.ExitStack() as stack:
        stack.callback(child.wait)
        stack.callback(child.kill)
        while not json.loads(penstock("datasets", "--json", env=env).out)["datasets"][0]["in_use"]:
            assert child.poll() is None
        done = penstock("evict", "photos", env=env, check=False)
        assert done.code == 1 and "in use" in done.err
    penstock("evict", "photos", env=env)


def test_limits(penstock, pull, env, bucket):
    size = pull()["bytes"]
    out = penstock("datasets", "--limit", size + 1000, "--high", 100, "--low", 50, env=env).out
    assert "evicts above 100 %, down to 50 %" in out
    assert pull(name="second")["complete"]  # the first makes way
    names = [d["name"] for d in json.loads(penstock("datasets", "--json", env=env).out)["datasets"]]
    assert names == ["second"]
    penstock("datasets", "--limit", size - 1, env=env)
    done = pull(name="third", check=False)
    assert done.code == 1 and "raise the limit" in done.err
    assert len(json.loads(penstock("datasets", "--json", env=env).out)["datasets"]) == 1
    penstock("evict", "--to-fit", 1, env=env)
    assert json.loads(penstock("datasets", "--json", env=env).out)["used"] == 0


@pytest.mark.parametrize("args, words", [
    (["pull", "a/b", "x"], "a dataset's name"),
    (["pull", "x"], "give a URL"),
    (["pull", "x", "ftp://y"], "s3://BUCKET/PREFIX"),
    (["pull", "x", "/nowhere/at/all"], "no folder"),
    (["pull", "x", ".", "--revision", "123"], "a revision is"),
    (["evict", "nobody"], "no such dataset"),
    (["datasets", "--high", "50", "--low", "60"], "watermarks"),
])
def test_what_is_wrong_is_said(penstock, env, depot, args, words):
    depot.mkdir()
    done = penstock(*args, env=env, check=False)
    assert done.code == 1 and words in done.err


def test_evict_wants_one_of_two(penstock):
    assert penstock("evict", check=False).code == 2
    assert penstock("evict", "x", "--to-fit", "1G", check=False).code == 2
