# SPDX-License-Identifier: Apache-2.0
"""Jobs by the folder of a dataset: whoever has it open reads that dataset through the daemon, as another user in namespaces of his own,
complete or not, and nothing else."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import pod
import wire
from conftest import CROP, LIMIT_S, Daemon, ask, make_photos, rows

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rigs"))
KEYS = {"access_key": "PODACCESSKEY00000001", "secret_key": "pod/secret0123456789abcdefghijklmnopqrs"}
SERVER = 47001


@pytest.fixture
def photos(binary, ground):
    return make_photos(binary, ground / "photos", 48, seed=9)


@pytest.fixture
def ground():
    """A folder that every user may come to."""
    with tempfile.TemporaryDirectory(prefix="penstock-pod-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def faultd(photos, binary):
    rigs = pytest.importorskip("rigs")
    if '"bucket": false' in subprocess.run([binary, "settings", "--json"], capture_output=True, text=True).stdout:
        pytest.skip("built without buckets")
    with rigs.Faultd(buckets={"data": photos, "other": photos / "class_001"}, keys={KEYS["access_key"]: {"secret": KEYS["secret_key"]}}) as server:
        yield server


class Node:
    """A daemon with its depot, as on a node, and pods beside it."""

    def __init__(self, binary, environment, ground, faultd, **user):
        self.binary, self.environment, self.ground, self.faultd, self.user = binary, environment, ground, faultd, user
        self.run, self.control, self.datasets, self.count, self.children = ground / "run", ground / "control", ground / "datasets", 0, []
        for path in (self.run, self.control, self.datasets):
            path.mkdir()
            if "user" in user:
                os.chown(path, user["user"], user["group"])
        self.start()

    def start(self, *args, **more):
        env = {**self.environment, "HOME": str(self.ground), "XDG_CACHE_HOME": str(self.datasets / ".cache"), **more}
        self.daemon = Daemon(self.binary, env, self.run, "--control", self.control, "--datasets", self.datasets, "--allow-uid", "any",
                             *args, **self.user)

    def ask(self, method, url, body=None):
        """As the daemon's own user: only he may."""
        os.seteuid(self.user.get("user", os.geteuid()))
        try:
            return ask(self.daemon, method, "/v1/datasets/" + url, body)
        finally:
            os.seteuid(0)

    def source(self, name, url="s3://data"):
        body = {"url": url, "endpoint": self.faultd.url, "region": "us-east-1", "path_style": True, **KEYS}
        assert self.ask("PUT", name + "/source", body)[0] == 204

    def until(self, name, what):
        limit = time.monotonic() + LIMIT_S
        while not what(shown := self.ask("GET", name)[1]):
            assert time.monotonic() < limit, shown
            time.sleep(0.01)
        return shown

    def pull(self, name, **body):
        assert self.ask("POST", name, body)[0] == 202
        shown = self.until(name, lambda shown: not shown["pull"]["running"])
        assert shown["pull"]["error"] is None, shown
        return shown["revisions"][0]

    def begin(self, *args, mounts, env=None, data="/penstock/data"):
        """A feed in a pod with these mounts, and where its ledger will be."""
        self.count += 1
        out = self.ground / f"out{self.count}"
        out.mkdir()
        out.chmod(0o777)
        argv = [self.binary, "feed", data, "--pipeline", CROP, "--batch", "8", "--ledger", "/out/ledger", "--quiet", *map(str, args)]
        command = pod.command(self.ground / f"pod{self.count}", argv, mounts, writable=out)
        child = subprocess.Popen(command, env=pod.environment(**(env or {})), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child, out / "ledger"

    def end(self, child, ledger):
        """(exit status, ledger's rows, what it said)"""
        _, said = child.communicate(timeout=LIMIT_S)
        return child.returncode, rows(ledger) if ledger.exists() else [], said

    def feed(self, *args, **how):
        return self.end(*self.begin(*args, **how))

    def jobs_of(self, uid):
        return [job for job in self.daemon.jobs() if job["uid"] == uid]


@pytest.fixture
def node(binary, environment, ground, faultd):
    why = pod.missing()
    if why:
        pytest.skip(why)
    one = Node(binary, environment, ground, faultd, user=SERVER, group=SERVER, extra_groups=[])
    yield one
    for child in one.children:
        if child.poll() is None:
            child.kill()
            child.communicate()
    one.daemon.kill()


@pytest.fixture
def golden(binary, environment, photos, tmp_path):
    """The same job, embedded, on the files themselves."""
    ledger = tmp_path / "golden"
    subprocess.run([binary, "feed", str(photos), "--pipeline", CROP, "--batch", "8", "--ledger", str(ledger), "--quiet", "--epochs", "2"],
                   check=True, env=environment)
    return rows(ledger)


def all_mounts(node, name="set"):
    return {"/penstock/data": node.datasets / name, "/run/penstock": node.run}


def test_a_pod_gets_the_same_batches(node, golden):
    node.source("set")
    revision = node.pull("set")["revision"]
    before = node.daemon.get("/v1/engine")["seconds"]
    code, found, said = node.feed("--epochs", 2, mounts=all_mounts(node), env={"PENSTOCK_REVISION": revision})
    assert (code, said) == (0, "") and found == golden  # nothing was said: the daemon did it
    code, found, said = node.feed("--epochs", 2, mounts=all_mounts(node))  # the latest
    assert (code, said) == (0, "") and found == golden and before >= 0
    code, found, said = node.feed("--epochs", 2, mounts={"/penstock/data": node.datasets / "set"}, env={"PENSTOCK_ENGINE": ""})
    assert code == 0 and found == golden  # by itself, without an engine


def test_its_files_need_not_be_readable(node, golden):
    """The folder is the right, not what the modes of the files say: they are the daemon's alone here."""
    node.source("set")
    node.pull("set")
    for path in (node.datasets / "set").rglob("*"):
        if "data" in path.parts:
            path.chmod(0o700 if path.is_dir() else 0o400)
    code, found, said = node.feed("--epochs", 2, mounts=all_mounts(node))
    assert (code, said) == (0, "") and found == golden


def test_what_is_not_here_comes_from_the_bucket(node, golden, faultd):
    node.source("set")
    total = node.ask("GET", "")[1]["capacity_bytes"]
    assert total > 0
    dry = node.ask("POST", "set", {"dry": True})[0]
    size = node.until("set", lambda shown: not shown["pull"]["running"])["pull"]["bytes"]
    assert dry == 202 and node.ask("PUT", "", {"limit_bytes": size // 2, "high": 100, "low": 100})[0] == 204
    one = node.pull("set", partial=True)
    assert one["state"] == "partial" and 0 < one["bytes_here"] < one["bytes"]
    faultd.control("reset")
    code, found, said = node.feed("--epochs", 2, mounts=all_mounts(node), env={"PENSTOCK_REVISION": one["revision"]})
    assert (code, said) == (0, "") and found == golden
    asked = faultd.stats()
    assert asked["requests"].get("list", 0) == 0  # the revision is what was listed when it was pulled
    assert 0 < asked["bytes"] <= 2 * (one["bytes"] - one["bytes_here"]) + 1000 * 100
    code, found, said = node.feed(mounts={"/penstock/data": node.datasets / "set"}, env={"PENSTOCK_ENGINE": ""})
    assert code == 1 and found == [] and "no revision of it is complete here yet" in said


def test_a_job_begins_while_it_is_pulled(node, golden, faultd):
    node.source("set")
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 100}}])
    assert node.ask("POST", "set", {})[0] == 202
    node.until("set", lambda shown: shown["revisions"] and shown["revisions"][0]["state"] == "pulling")
    code, found, said = node.feed("--epochs", 2, mounts=all_mounts(node))
    assert (code, said) == (0, "") and found == golden
    assert node.until("set", lambda shown: not shown["pull"]["running"])["revisions"][0]["state"] == "complete"


def test_a_bucket_that_moved_on_is_not_mixed_in(node, golden, faultd, photos):
    """An object that was replaced is not of the revision: it is a bad sample, and the others are what they were."""
    node.source("set")
    size = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
    assert node.ask("PUT", "", {"limit_bytes": size // 2, "high": 100, "low": 100})[0] == 204
    one = node.pull("set", partial=True)
    here = {str(p.relative_to(Path(one["path"]))) for p in Path(one["path"]).rglob("*.jpg")}
    missing = sorted({str(p.relative_to(photos)) for p in photos.rglob("*.jpg")} - here)
    faultd.replace("data", missing[0], from_key=missing[1])
    code, found, said = node.feed("--on-error", "skip:10", mounts=all_mounts(node))
    assert code == 0 and {row[5] for row in found} == {row[5] for row in golden} - {missing[0]}
    assert {(row[5], row[6]) for row in found} <= {(row[5], row[6]) for row in golden}


def running(jobs):
    return any(job["uid"] == 47002 and job["state"] == "running" and job["batches"] > 0 for job in jobs)


@pytest.mark.parametrize("whole", [True, False])
def test_the_daemon_is_replaced(node, golden, photos, whole):
    """A job of a complete dataset goes on by itself meanwhile, one of a partial dataset waits; both are the new daemon's soon after."""
    node.source("set")
    if not whole:
        size = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
        assert node.ask("PUT", "", {"limit_bytes": size // 2, "high": 100, "low": 100})[0] == 204
    assert (node.pull("set", partial=True)["state"] == "complete") == whole
    child, ledger = node.begin("--epochs", 100000, "--step-ms", 50, mounts=all_mounts(node))
    node.daemon.until(running)
    for _ in range(2):
        node.daemon.kill()
        node.start()
        node.source("set")  # as the agent does for another instance
        node.daemon.until(running)
    end_exact(node, child, ledger, golden)


def end_exact(node, child, ledger, golden):
    """Ends a feed of many epochs, an epoch from now; nothing of them came twice, and nothing is missing."""
    enough, limit = len(rows(ledger)) + 48, time.monotonic() + LIMIT_S
    while len(rows(ledger)) < enough:
        assert time.monotonic() < limit and child.poll() is None
        time.sleep(0.05)
    os.kill(pod.inside(child.pid), signal.SIGTERM)
    code, found, said = node.end(child, ledger)
    assert "is gone" in said
    found = [row for row in found if len(row) >= 7]  # the last line may be cut
    two = [row for row in found if row[0] in "01"]
    assert len(two) > 8 and two == golden[:len(two)]
    assert len({(row[0], row[4]) for row in found}) == len(found)  # nothing twice
    for epoch in range(int(found[-1][0])):
        assert sum(row[0] == str(epoch) for row in found) == 48  # and nothing missing


@pytest.mark.parametrize("whole", [True, False])
def test_an_earlier_daemon_in_between(node, golden, photos, whole):
    """It knows nothing of folders of datasets: what is complete is read in the pod, what is not waits for the next daemon."""
    node.source("set")
    if not whole:
        size = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
        assert node.ask("PUT", "", {"limit_bytes": size // 2, "high": 100, "low": 100})[0] == 204
    node.pull("set", partial=True)
    child, ledger = node.begin("--epochs", 100000, "--step-ms", 50, mounts=all_mounts(node))
    node.daemon.until(running)
    node.daemon.kill()
    node.start(PENSTOCK_WIRE_VERSIONS="5-5")
    if whole:
        before, limit = len(rows(ledger)), time.monotonic() + LIMIT_S
        while len(rows(ledger)) < before + 3 * 48:
            assert time.monotonic() < limit and child.poll() is None
            time.sleep(0.05)
        code, found, said = node.feed("--epochs", 2, mounts=all_mounts(node))
        assert code == 0 and found == golden and "of an earlier release" in said, said
    node.daemon.kill()
    node.start()
    node.source("set")
    node.daemon.until(running)
    end_exact(node, child, ledger, golden)


def test_a_daemon_that_was_not_told_yet(node, golden, photos):
    """After another start it does not know where datasets come from until its owner says so: what is whole is read, the rest waits."""
    node.source("whole")
    node.pull("whole", pin=True)  # nothing of it makes way
    size = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
    assert node.ask("PUT", "", {"limit_bytes": size * 3 // 2, "high": 100, "low": 100})[0] == 204
    node.source("set")
    assert node.pull("set", partial=True)["state"] == "partial"
    child, ledger = node.begin("--epochs", 100000, "--step-ms", 50, mounts=all_mounts(node))
    node.daemon.until(running)
    node.daemon.kill()
    node.start()
    assert listed(node.daemon, node.datasets / "set", os.O_RDONLY) == wire.REFUSED
    assert listed(node.daemon, node.datasets / "whole", os.O_RDONLY) == wire.LISTED
    assert node.ask("GET", "whole")[1]["source"] is False and node.ask("DELETE", "whole/source")[0] == 404
    late = node.begin("--epochs", 2, mounts=all_mounts(node))
    code, found, said = node.feed("--epochs", 2, mounts=all_mounts(node, "whole"))
    assert (code, said) == (0, "") and found == golden
    assert child.poll() is None and late[0].poll() is None
    node.source("set")
    node.daemon.until(running)
    code, found, said = node.end(*late)
    assert (code, said) == (0, "") and found == golden
    end_exact(node, child, ledger, golden)
    assert node.ask("DELETE", "set/source")[0] == 204 and not (node.datasets / "set" / ".given").exists()


def test_what_is_whole_is_mended_once_the_source_was_said(node, golden, faultd):
    node.source("set")
    one = node.pull("set")
    node.daemon.kill()
    node.start("--cache", "0")  # every epoch reads the files
    child, ledger = node.begin("--epochs", 100000, "--step-ms", 50, mounts=all_mounts(node))
    node.daemon.until(running)
    node.source("set")
    gone = next(Path(one["path"]).rglob("*.jpg"))
    gone.unlink()
    limit = time.monotonic() + LIMIT_S
    while not gone.exists():
        assert time.monotonic() < limit and child.poll() is None
        time.sleep(0.05)
    os.kill(pod.inside(child.pid), signal.SIGTERM)
    _, found, said = node.end(child, ledger)
    found = [row for row in found if len(row) >= 7]
    assert said == "" and found[:len(golden)] == golden[:len(found)]


def test_a_pull_that_ends_is_in_nobodys_way(node, faultd):
    """Its folder gets another name while others look for it."""
    node.source("set")
    for _ in range(6):
        assert node.ask("POST", "set", {})[0] == 202
        node.until("set", lambda shown: shown["revisions"] and shown["revisions"][0]["objects"])
        while node.ask("GET", "set")[1]["pull"]["running"]:
            assert listed(node.daemon, node.datasets / "set", os.O_RDONLY) == wire.LISTED
        assert node.ask("DELETE", "set")[0] == 200


def test_a_job_of_a_pull_that_ended_meanwhile_comes_back(node, golden, faultd):
    """It began with what was in the bucket; the next daemon has the whole of it on the disk."""
    node.source("set")
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 100}}])
    assert node.ask("POST", "set", {})[0] == 202
    node.until("set", lambda shown: shown["revisions"] and shown["revisions"][0]["state"] == "pulling")
    child, ledger = node.begin("--epochs", 100000, "--step-ms", 50, mounts=all_mounts(node))
    node.daemon.until(running)
    faultd.rules([])
    node.until("set", lambda shown: not shown["pull"]["running"])
    node.daemon.kill()
    node.start()
    node.daemon.until(running)
    end_exact(node, child, ledger, golden)


def test_without_the_folder_there_is_nothing(node):
    node.source("set")
    node.source("other", "s3://other")
    one = node.pull("set")
    node.pull("other")
    empty = node.ground / "empty"
    empty.mkdir()
    for mounts in ({"/run/penstock": node.run}, {"/run/penstock": node.run, "/penstock/data": empty}):
        code, found, said = node.feed(mounts=mounts)
        assert code == 1 and found == []
    for path in (node.datasets / "set", node.datasets / "set" / one["revision"] / "data"):
        code, found, said = node.feed(mounts={"/run/penstock": node.run}, data=str(path))
        assert code == 1 and found == []
    code, found, said = node.feed(mounts=all_mounts(node, "other"), env={"PENSTOCK_REVISION": one["revision"]})
    assert code == 1 and found == []  # the other's revision, with this one's folder
    code, found, said = node.feed(mounts=all_mounts(node, "other"))
    assert code == 0 and len(found) == len({row[5] for row in found}) and all("/" not in row[5] for row in found)
    assert {row[5] for row in found} == {path.name for path in (node.ground / "photos" / "class_001").iterdir()}


def test_the_control_socket_is_out_of_sight(node):
    """A pod may run as the daemon's own user: what it is given must not have more than the feed's socket."""
    assert sorted(os.listdir(node.run)) == ["feed.sock"]
    assert sorted(os.listdir(node.control)) == ["control.sock", "lock"]
    ask = [node.binary, "jobs", "--json", "--socket"]
    assert subprocess.run([*ask, str(node.control)], capture_output=True, user=SERVER, group=SERVER).returncode == 0
    command = pod.command(node.ground / "pod-asks", [*ask, "/run/penstock"], {"/run/penstock": node.run}, uid=SERVER)
    done = subprocess.run(command, env=pod.environment(), capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "", done
    node.daemon.kill(signal.SIGTERM)
    assert os.listdir(node.run) == [] and os.listdir(node.control) == ["lock"]


def listed(daemon, folder, flags, revision=b""):
    raw = wire.Raw(daemon)
    raw.greet()
    fd = os.open(folder, flags)
    try:
        raw.send(wire.head(wire.LIST, revision.ljust(40, b"\0")), fd)
        kind, body, fds = raw.receive()
    finally:
        os.close(fd)
    if kind == wire.REFUSED:
        print("refused:", body[8 + 24 + 32 + 256:].split(b"\0")[0].decode())
    for other in fds:
        os.close(other)
    return kind


def test_a_name_of_the_folder_is_no_right(node):
    """O_PATH needs no permission to read: such a descriptor is only a name. Folders that are not of the depot are none either."""
    node.source("set")
    one = node.pull("set")
    folder = node.datasets / "set"
    assert listed(node.daemon, folder, os.O_RDONLY) == wire.LISTED
    assert listed(node.daemon, folder, os.O_RDONLY, one["revision"].encode()) == wire.LISTED
    assert listed(node.daemon, folder, os.O_RDONLY, b"x" * 40) == wire.REFUSED
    assert listed(node.daemon, folder, os.O_PATH) == wire.REFUSED
    assert listed(node.daemon, node.datasets, os.O_RDONLY) == wire.REFUSED
    assert listed(node.daemon, folder / one["revision"], os.O_RDONLY) == wire.REFUSED
    assert listed(node.daemon, "/", os.O_RDONLY) == wire.REFUSED
    node.daemon.fsck()


def test_other_folders_are_checked_as_ever(node, golden):
    """A folder of files that the pod's user may not read stays closed to him, though he may come in."""
    closed = node.ground / "closed"
    shutil.copytree(node.ground / "photos", closed)
    for path in [closed, *closed.rglob("*")]:
        os.chown(path, SERVER, SERVER)
        path.chmod(0o755 if path.is_dir() else 0o600)
    code, found, said = node.feed(mounts={"/run/penstock": node.run, "/penstock/data": closed})
    assert code == 1 and found == []
