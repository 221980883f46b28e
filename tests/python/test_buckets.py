# SPDX-License-Identifier: Apache-2.0
"""Datasets in buckets are what the same files in a folder are: keys, labels, bytes, batches, splits; and what it takes to read them."""

import io
import json
import os
import pathlib
import shutil
import sys
import tarfile
import threading
import time

import numpy
import penstock
import pytest

from conftest import CROP, make_folder

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs

BUILT = {name: built for name, built, _ in penstock._penstock.features()}
pytestmark = pytest.mark.skipif(not BUILT["bucket"], reason="built without libcurl, expat and libcrypto")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Class folders, shards, manifests and splits, all of the same pictures."""
    root = tmp_path_factory.mktemp("bucket")
    make_folder(root / "classes")
    (root / "classes" / "splits").mkdir()
    (root / "classes" / "splits" / "few.txt").write_text("ant/000.jpg\nbee/003.jpg\n")
    files = sorted((root / "classes").rglob("*.jpg"))
    (root / "shards").mkdir()
    for number in range(3):
        with tarfile.open(root / "shards" / f"shard-{number}.tar", "w") as tar:
            for i, file in enumerate(files[number::3]):
                label = ("ant", "bee", "cat").index(file.parent.name)
                for name, content in (("jpg", file.read_bytes()), ("cls", str(label).encode()), ("json", b'{"weight": %d}' % i)):
                    info = tarfile.TarInfo(f"{number}-{i:04}.{name}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    shutil.copytree(root / "classes", root / "lists" / "pictures")
    rows = [(file.relative_to(root / "classes").as_posix(), file.parent.name) for file in files]
    with open(root / "lists" / "all.tsv", "w") as out:
        out.write("# root: pictures\nkey\tlabel\n" + "".join(f"{key}\t{name}\n" for key, name in rows))
    with open(root / "lists" / "some.jsonl", "w") as out:
        out.writelines(json.dumps({"key": "pictures/" + key, "label": name, "number": i}) + "\n" for i, (key, name) in enumerate(rows[::2]))
    (root / "lists" / "splits").mkdir()
    (root / "lists" / "splits" / "few.txt").write_text("0\n2\n")
    shutil.copy(files[7], root / "one.jpg")
    return root


@pytest.fixture
def server(root, monkeypatch):
    with rigs.Faultd(buckets={"b": root}) as faultd:
        for name, value in faultd.environment().items():
            monkeypatch.setenv(name, value)
        faultd.control("reset")
        yield faultd


def copied(loader):
    return [{name: numpy.array(batch[name]) for name in (*batch.dtypes, "id", "key", "valid")} for batch in loader]


def batches(data, **options):
    with penstock.Loader(data, CROP, 16, seed=5, workers=2, **options) as loader:
        return copied(loader)


def same(one, other):
    assert len(one) == len(other) > 0
    for a, b in zip(one, other):
        assert a.keys() == b.keys() and all(numpy.array_equal(a[name], b[name]) for name in a)


KINDS = ("classes", "shards", "shards/shard-1.tar", "lists/all.tsv", "lists/some.jsonl", "one.jpg")


@pytest.mark.parametrize("path", KINDS)
def test_is_the_same_as_a_folder(root, server, path):
    near, far = penstock.Dataset(root / path), penstock.Dataset("s3://b/" + path)
    assert far.kind == near.kind and len(far) == len(near) and list(far.keys) == list(near.keys)
    assert far.classes == near.classes and far.fields == near.fields and far.splits == near.splits
    assert [far.label(i) for i in range(len(far))] == [near.label(i) for i in range(len(near))]
    for name in near.splits:
        assert numpy.array_equal(far.split(name), near.split(name))
    for name in ("image", "weight", "number"):
        if name in near.fields:
            for i in range(0, len(near), 7):
                assert far.read(i, name) == near.read(i, name)
    same(batches(far), batches(near))


@pytest.mark.parametrize("order", ["strict", "ready"])
@pytest.mark.parametrize("path", ["classes", "shards"])
def test_every_sample_comes_once(root, server, path, order):
    seen = [int(i) for batch in batches("s3://b/" + path, order=order, ends="short") for i in batch["id"]]
    assert sorted(seen) == list(range(60))


def test_one_request_for_each_object(server):
    data = penstock.Dataset("s3://b/classes")
    list(penstock.Loader(data, CROP, 16, ends="short", workers=2, epochs=1))
    counts = server.stats()["requests"]
    assert counts["list"] == 1 and counts["get"] == 60 + 1 and counts.get("head", 0) == 0, counts  # one list of ids


def test_members_of_shards_are_ranges(server):
    data = penstock.Dataset("s3://b/shards")
    server.control("reset")
    list(penstock.Loader(data, CROP, 16, ends="short", workers=2, epochs=1))
    stats = server.stats()
    gets = stats["requests"]["get"]  # neighbours come with one
    assert list(stats["requests"]) == ["get"] and gets <= 60 and stats["ranges"] == stats["if_match"] == gets, stats


def test_shards_are_scanned_once_a_version(root, server, tmp_path):
    index = tmp_path / "index"
    first = penstock.Dataset("s3://b/shards", index_dir=index)
    server.control("reset")
    again = penstock.Dataset("s3://b/shards", index_dir=index)
    assert again.revision == first.revision and server.stats()["requests"] == {"list": 1}
    server.replace("b", "shards/shard-1.tar", from_key="shards/shard-2.tar")
    other = penstock.Dataset("s3://b/shards", index_dir=index)
    assert other.revision != first.revision and "shard-1.tar/2-0000" in list(other.keys)


def test_a_replaced_object_is_an_error_that_says_so(root, server):
    data = penstock.Dataset("s3://b/classes")
    server.replace("b", "classes/bee/004.jpg")
    with pytest.raises(penstock.Error) as caught, penstock.Loader(data, CROP, 4, workers=2) as loader:
        list(loader)
    assert caught.value.key == "bee/004.jpg" and "replaced" in str(caught.value)
    assert str(caught.value).count('"') >= 4  # both versions
    with penstock.Loader(data, CROP, 4, on_error="skip:3", workers=2, ends="short", epochs=1) as loader:
        seen = sorted(int(i) for batch in loader for i in batch["id"])
    bad = list(data.keys).index("bee/004.jpg")
    assert seen == [i for i in range(60) if i != bad]


def test_the_new_version_is_another_sample(server):
    before = penstock.Dataset("s3://b/classes")
    server.replace("b", "classes/bee/004.jpg", from_key="classes/bee/005.jpg")
    after = penstock.Dataset("s3://b/classes")
    assert before.revision != after.revision and after.read(24, "image") == after.read(25, "image")


def test_where_the_bucket_is_does_not_matter(root, server):
    with rigs.Faultd(buckets={"other": root / "classes"}) as second:
        one = penstock.Dataset("s3://b/classes").revision
        os.environ["AWS_ENDPOINT_URL_S3"] = second.url
        assert penstock.Dataset("s3://other").revision == one


@pytest.mark.parametrize("path", ["lists/all.tsv", "lists/some.jsonl", "shards/shard-0.tar", "one.jpg"])
def test_a_web_server_has_lists_and_single_files(root, server, path):
    near, far = penstock.Dataset(root / path), penstock.Dataset(f"{server.url}/b/{path}")
    assert list(far.keys) == list(near.keys) and far.fields == near.fields
    same(batches(far), batches(near))


def test_a_web_server_cannot_be_listed(server):
    with pytest.raises(penstock.Error, match="cannot be asked what it has"):
        penstock.Dataset(f"{server.url}/b/classes")


HOSTILE = ("a/../b.jpg", "/etc/passwd.jpg", "a//b.jpg", "a/./b.jpg", "a\nb.jpg", "a\x7f.jpg", "x/../../y.jpg")


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_keys_are_refused_at_listing(server, key):
    server.bucket("bad", {"keys": ["0.jpg", key, "z.jpg"]})
    with pytest.raises(penstock.Error) as caught:
        penstock.Dataset("s3://bad")
    text = str(caught.value)
    assert "rename or remove" in text and "\n" not in text and "\x7f" not in text


def test_an_empty_prefix_says_so(server):
    with pytest.raises(penstock.Error, match="empty|no samples|nothing"):
        penstock.Dataset("s3://b/nowhere")


def test_folders_without_objects_keep_their_number(server):
    server.bucket("c", {"keys": ["a/", "b/1.jpg", "c/", "d/1.jpg", ".hidden/x.jpg", "d/.also/x.jpg"]})
    data = penstock.Dataset("s3://c")
    assert data.classes == ("a", "b", "c", "d") and [data.label(i) for i in range(2)] == [1, 3]


def test_saved_states_go_on(server):
    data = penstock.Dataset("s3://b/classes")
    whole = batches(data)
    with penstock.Loader(data, CROP, 16, seed=5, workers=2) as loader:
        turn = iter(loader)
        next(turn)
        state = loader.state_dict()
    with penstock.Loader("s3://b/classes", CROP, 16, seed=5, workers=2) as loader:
        loader.load_state_dict(state)
        rest = copied(loader)
    same(rest, whole[1:])


def test_a_forked_child_reads_too(server):
    data = penstock.Dataset("s3://b/classes")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if len(batches("s3://b/classes")) == 4 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(batches(data)) == 4


def test_leaving_early_does_not_wait_for_the_server(server):
    server.rules([{"match": {"op": "get"}, "do": {"stall": "headers"}}])
    begin = time.monotonic()
    loader = penstock.Loader("s3://b/classes/ant", CROP, 4, workers=2)
    closer = threading.Timer(0.3, loader.close)
    closer.start()
    with pytest.raises(penstock.Error):
        next(iter(loader))
    closer.join()
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("order", ["strict", "ready"])
def test_a_consumer_that_waits_makes_it_look_further(root, server, order):
    """Batches have room for four samples; with answers that take long many more are on their way."""
    server.rules([{"match": {"op": "get"}, "do": {"delay_ms": 50}}])
    data = penstock.Dataset("s3://b/classes")
    server.control("reset")
    with penstock.Loader(data, CROP, 2, seed=5, workers=2, order=order, ready_depth=1, cache=0, epochs=1) as loader:
        far = copied(loader)
    assert server.stats()["most_open"] > 8
    with penstock.Loader(root / "classes", CROP, 2, seed=5, workers=2, order=order, ready_depth=1, cache=0) as loader:
        near = copied(loader)
    if order == "strict":
        same(far, near)
    else:
        assert sorted(int(i) for batch in far for i in batch["id"]) == list(range(60))
    assert server.stats()["requests"]["get"] == 60
