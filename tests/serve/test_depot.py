# SPDX-License-Identifier: Apache-2.0
"""A depot that the daemon keeps for others: sources with credentials of their own, limits, partial pulls, reasons, who may connect."""
import json
import os
import pathlib
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ask

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rigs"))
LIMIT_S = 60
ONE = {"access_key": "ONEACCESSKEY00000001", "secret_key": "one/canary+secret0123456789abcdefghijkl"}
TWO = {"access_key": "TWOACCESSKEY00000002", "secret_key": "two/canary+secret0123456789abcdefghijkl",
       "session_token": "canary-token/two" + "0123456789abcdef" * 8}  # longer than a register, which core files have too
CANARIES = [ONE["secret_key"].encode(), TWO["secret_key"].encode(), TWO["session_token"].encode()]


def keys_of(*all):
    return {one["access_key"]: {"secret": one["secret_key"], **({"token": one["session_token"]} if "session_token" in one else {})}
            for one in all}


@pytest.fixture
def faultd(photos, binary):
    rigs = pytest.importorskip("rigs")
    if '"bucket": false' in subprocess.run([binary, "settings", "--json"], capture_output=True, text=True).stdout:
        pytest.skip("built without buckets")
    with rigs.Faultd(buckets={"data": photos, "other": photos / "class_000"}, keys=keys_of(ONE, TWO)) as server:
        yield server


@pytest.fixture
def depot(tmp_path, serve, faultd):
    """A daemon with a depot, whose own environment knows no bucket and no credentials."""
    import rigs

    class Depot:
        dir = tmp_path / "datasets"

        def start(self, *args, **kwargs):
            self.daemon = serve("--datasets", self.dir, *args, **kwargs)
            return self.daemon

        def ask(self, method, url, body=None):
            return ask(self.daemon, method, "/v1/datasets/" + url, body)

        def source(self, name, keys, url="s3://data", **more):
            return self.ask("PUT", name + "/source", {"url": url, "endpoint": faultd.url, "region": "us-east-1", "path_style": True, **keys, **more})

        def until(self, name, what):
            limit = time.monotonic() + LIMIT_S
            while True:
                shown = self.ask("GET", name)[1]
                if what(shown):
                    return shown
                assert time.monotonic() < limit, shown
                time.sleep(0.01)

        def pull(self, name, **body):
            """What is shown when it has ended."""
            status, answer = self.ask("POST", name, body)
            assert status == 202, answer
            return self.until(name, lambda shown: not shown["pull"]["running"])

    keep = {name: os.environ.pop(name) for name in rigs.AWS_NAMES if name in os.environ}
    yield Depot()
    os.environ.update(keep)


def test_sources_have_their_own_credentials(depot, faultd, photos):
    faultd.control("keys", keys_of(ONE))
    depot.start()
    assert depot.source("set", TWO)[0] == 204
    assert (depot.dir / "set").is_dir()
    shown = depot.ask("GET", "set")[1]
    assert shown == {"name": "set", "revisions": [], "pull": None, "source": True}
    shown = depot.pull("set")
    assert shown["pull"]["error"]["reason"] == "credentials", shown
    assert depot.source("set", ONE)[0] == 204
    shown = depot.pull("set")
    assert shown["pull"]["error"] is None and shown["revisions"][0]["state"] == "complete", shown
    assert depot.ask("DELETE", "set/source")[0] == 204
    status, answer = depot.ask("DELETE", "set/source")
    assert status == 404 and answer["reason"] == "not_found"
    assert depot.ask("DELETE", "set") == (200, {"freed": shown["revisions"][0]["bytes"]})
    assert not (depot.dir / "set").exists()


def test_a_pull_goes_on_with_new_credentials(depot, faultd):
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 100}}])
    depot.start()
    assert depot.source("set", ONE)[0] == 204 and depot.ask("POST", "set")[0] == 202
    depot.until("set", lambda shown: shown["pull"]["objects_done"] > 0)
    assert depot.source("set", TWO)[0] == 204
    faultd.control("keys", keys_of(TWO))  # those that were sent with the old ones are sent again
    shown = depot.until("set", lambda shown: not shown["pull"]["running"])
    assert shown["pull"]["error"] is None and shown["revisions"][0]["complete"], shown


def test_two_sources_do_not_mix(depot, faultd):
    """Each dataset is asked for with its own keys, whatever the other's are."""
    depot.start()
    faultd.control("keys", keys_of(ONE))
    assert depot.source("one", ONE)[0] == 204 and depot.source("two", TWO)[0] == 204
    assert depot.pull("one")["pull"]["error"] is None
    assert depot.pull("two")["pull"]["error"]["reason"] == "credentials"


@pytest.mark.parametrize("body, words", [
    (b"", "JSON object"), (b"[]", "JSON object"), ({"endpoint": "x"}, "s3://"), ({"url": "file:///etc"}, "s3://"), ({"url": 3}, "texts"),
    ({"url": "s3://data", "secret_key": "x" * 300, "access_key": "y"}, "too long"), ({"url": "s3://data", "access_key": "y"}, "belong together"),
    ({"url": "s3://data", "access_key": "a b", "secret_key": "c"}, "blank"), ({"url": "s3://data", "path_style": 1}, "true or false"),
])
def test_wrong_sources_are_refused(depot, body, words):
    depot.start()
    status, answer = depot.ask("PUT", "set/source", body)
    assert status == 400 and words in answer["error"] and answer["reason"] == "invalid", answer
    assert not (depot.dir / "set").exists()
    assert depot.ask("PUT", "..%2Fx/source", {"url": "s3://data"})[0] == 400
    assert depot.ask("PUT", "../source", {"url": "s3://data"})[0] == 400
    assert depot.ask("POST", "set/source")[0] == 405


def test_limits_and_figures(depot):
    depot.start()
    for body, words in [(b"{", "JSON"), ({"limit_bytes": -1}, "whole number"), ({"high": "x"}, "percent"), ({"high": 50, "low": 60}, "low one")]:
        status, answer = depot.ask("PUT", "", body)
        assert status == 400 and words in answer["error"], answer
    assert depot.ask("PUT", "", {"limit_bytes": 100_000_000, "high": 90, "low": 80}) == (204, None)
    shown = depot.ask("GET", "")[1]
    assert (shown["limit_bytes"], shown["capacity_bytes"], shown["taken_bytes"], shown["free_bytes"]) == (100_000_000, 100_000_000, 0, 90_000_000)
    assert depot.source("set", ONE)[0] == 204
    size = depot.pull("set")["revisions"][0]["bytes"]
    shown = depot.ask("GET", "")[1]
    assert shown["taken_bytes"] == size and shown["free_bytes"] == 90_000_000 - size and len(shown["pulls"]) == 1
    assert depot.ask("PUT", "", {"limit_bytes": 0})[0] == 204
    assert depot.ask("GET", "")[1]["capacity_bytes"] > 0


def test_a_dry_pull_names_the_revision(depot, faultd):
    depot.start()
    assert depot.source("set", ONE)[0] == 204
    assert depot.ask("PUT", "", {"limit_bytes": 1000})[0] == 204
    dry = depot.pull("set", dry=True)
    assert dry["pull"]["dry"] and dry["pull"]["error"] is None and dry["pull"]["objects"] == 96 and dry["revisions"] == []
    assert faultd.stats()["requests"].get("get", 0) == 0
    assert depot.ask("PUT", "", {"limit_bytes": 0})[0] == 204
    assert depot.pull("set", revision=dry["pull"]["revision"])["revisions"][0]["revision"] == dry["pull"]["revision"]


def test_what_does_not_fit(depot, photos):
    depot.start()
    assert depot.source("set", ONE)[0] == 204
    total = depot.pull("set", dry=True)["pull"]["bytes"]
    assert depot.ask("PUT", "", {"limit_bytes": total // 3, "high": 100, "low": 100})[0] == 204
    error = depot.pull("set")["pull"]["error"]
    assert error["reason"] == "no_space" and error["needed_bytes"] == total and error["free_bytes"] == total // 3
    shown = depot.pull("set", partial=True)
    one = shown["revisions"][0]
    assert shown["pull"]["error"] is None and one["state"] == "partial" and 0 < one["bytes_here"] <= total // 3 and one["bytes"] == total
    assert depot.ask("PUT", "", {"limit_bytes": 0})[0] == 204
    one = depot.pull("set", partial=True)["revisions"][0]
    assert one["state"] == "complete" and one["bytes_here"] == total


def test_reasons(depot, faultd):
    depot.start()
    assert depot.source("none", ONE, url="s3://nosuch")[0] == 204
    assert depot.pull("none")["pull"]["error"]["reason"] == "not_found"
    assert depot.source("empty", ONE, url="s3://data/nothing/")[0] == 204
    assert depot.pull("empty")["pull"]["error"]["reason"] == "empty"
    assert depot.source("set", ONE)[0] == 204
    assert depot.pull("set", revision="0123456789abcdef0123456789abcdef")["pull"]["error"]["reason"] == "gone"
    assert depot.ask("POST", "nowhere")[0] == 202
    shown = depot.until("nowhere", lambda shown: not shown["pull"]["running"])
    assert shown["pull"]["error"]["reason"] == "other" and shown["source"] is False


def test_a_real_server(depot, photos, tmp_path):
    """The same with versitygw: right and wrong keys, a revision that is complete."""
    import rigs
    why = rigs.missing_versitygw()
    if why:
        pytest.skip(why)
    with rigs.Versitygw(tmp_path / "s3") as server:
        for path in sorted(photos.rglob("*.jpg"))[:12]:
            server.put("real", str(path.relative_to(photos)), path.read_bytes())
        depot.start()
        right = {"access_key": server.access, "secret_key": server.secret, "endpoint": server.url}
        assert depot.source("set", {**right, "secret_key": "x" * 40}, url="s3://real")[0] == 204
        assert depot.pull("set")["pull"]["error"]["reason"] == "credentials"
        assert depot.source("set", right, url="s3://real")[0] == 204
        shown = depot.pull("set")
        assert shown["pull"]["error"] is None and shown["revisions"][0]["objects"] == 12 and shown["revisions"][0]["state"] == "complete"


def test_pins_come_and_go(depot):
    depot.start()
    assert depot.source("set", ONE, url="s3://other")[0] == 204
    assert depot.pull("set", pin=True)["revisions"][0]["pinned"] is True
    assert depot.pull("set")["revisions"][0]["pinned"] is True  # nothing was said
    assert depot.pull("set", pin=False)["revisions"][0]["pinned"] is False
    assert depot.pull("set", pin=True)["revisions"][0]["pinned"] is True
    assert depot.ask("DELETE", "set")[0] == 200


def test_what_is_in_use_stays(depot, client):
    depot.start()
    assert depot.source("set", ONE, url="s3://data")[0] == 204
    revision = depot.pull("set")["revisions"][0]["revision"]
    feed = client("--epochs", 100000, "--step-ms", 20, data=depot.dir / "set" / revision / "data")
    depot.until("set", lambda shown: shown["revisions"][0]["in_use"])
    status, answer = depot.ask("DELETE", "set")
    assert status == 409 and answer["reason"] == "in_use", answer
    feed.kill()
    depot.until("set", lambda shown: not shown["revisions"][0]["in_use"])
    assert depot.ask("DELETE", "set@" + revision)[0] == 200


def test_instances_differ(depot, serve, tmp_path):
    first = depot.start().get("/v1/engine")
    assert len(first["instance"]) == 16 and int(first["instance"], 16) >= 0 and first["protocol"] >= 4
    depot.daemon.kill(signal.SIGTERM)
    assert depot.start().get("/v1/engine")["instance"] != first["instance"]
    assert depot.ask("GET", "set")[0] == 404  # what was said went with the first one


def test_modes_of_the_sockets(depot):
    daemon = depot.start("--allow-uid", "any")
    mode = lambda name: stat.S_IMODE((daemon.dir / name).stat().st_mode)
    assert (mode("feed.sock"), mode("control.sock"), mode(".")) == (0o666, 0o600, 0o711)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
def test_others_may_feed_and_not_control(binary, depot, environment, tmp_path):
    daemon = depot.start("--allow-uid", "any")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and path.name.startswith("pytest-"):
            path.chmod(0o755)
    tmp_path.chmod(0o755)
    script = ("import socket, sys\n"
              "for name, kind in (('feed.sock', socket.SOCK_SEQPACKET), ('control.sock', socket.SOCK_STREAM)):\n"
              "    try:\n"
              "        socket.socket(socket.AF_UNIX, kind).connect(sys.argv[1] + '/' + name); print('in')\n"
              "    except OSError as e: print(type(e).__name__)\n")
    done = subprocess.run([sys.executable, "-c", script, str(daemon.dir)], user=47002, group=47002, extra_groups=[], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("another user cannot run python here")
    assert done.stdout.split() == ["in", "PermissionError"], done


def test_secrets_are_nowhere(depot, faultd, tmp_path):
    """Not in answers, errors, the log, arguments; and not in a core file of the daemon while a pull and its credentials are there."""
    folder = tmp_path / "cores"
    folder.mkdir()
    daemon = depot.start(cwd=folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2))
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 300}}])
    said = []
    for keys in (ONE, TWO):
        said.append(depot.source("set", keys))
    said.append(depot.ask("PUT", "set/source", {"url": "s3://data", **TWO, "access_key": ""}))
    said.append(depot.ask("PUT", "bad/source", {"url": "ftp://data", **TWO}))
    assert depot.ask("POST", "set")[0] == 202
    said.append(depot.until("set", lambda shown: shown["pull"]["objects_done"] > 0))
    said += [depot.ask("GET", ""), daemon.get("/v1/engine"), daemon.get("/v1/jobs")]
    said.append(pathlib.Path(f"/proc/{daemon.child.pid}/cmdline").read_bytes())
    said.append(depot.source("set", TWO))  # what it leaves behind nobody has used for something else yet
    body = json.dumps({"url": "s3://data", "endpoint": faultd.url, **TWO}).encode()
    last = socket.socket(socket.AF_UNIX)  # whose connection stays, with its memory
    last.connect(str(daemon.dir / "control.sock"))
    last.sendall(b"PUT /v1/datasets/set/source HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b" 204 " in last.recv(4096)
    _, err = daemon.kill(signal.SIGABRT)
    said.append(err)
    for canary in CANARIES:
        assert canary.decode() not in repr(said)
    written = [path for path in depot.dir.rglob("*") if path.is_file() and not path.name.endswith(".jpg")]
    assert written
    for path in written:
        assert not any(canary in path.read_bytes() for canary in CANARIES), path
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip("core files go elsewhere here")
    cores = [path for path in folder.iterdir() if path.name.startswith("core")]
    assert cores, "no core file was written: nothing was shown"
    for core in cores:
        content = core.read_bytes()
        assert b"class_000" in content, "the core has no memory of the process in it"
        for canary in CANARIES:
            assert canary not in content, (canary, content.find(canary))
        core.unlink()
