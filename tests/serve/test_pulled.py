# SPDX-License-Identifier: Apache-2.0
"""Pulled datasets over the control socket: shown, pulled with progress, stopped, evicted; by the daemon's own user alone."""
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ask

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rigs"))
LIMIT_S = 60


@pytest.fixture
def datasets(tmp_path, environment, monkeypatch):
    monkeypatch.setitem(environment, "PENSTOCK_DATASETS", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


def test_what_was_pulled_is_shown_and_evicted(binary, environment, datasets, photos, serve):
    daemon = serve()
    status, shown = ask(daemon, "GET", "/v1/datasets/")
    assert status == 200 and shown["revisions"] == [] and shown["pulls"] == []
    subprocess.run([binary, "pull", "photos", str(photos), "--quiet"], check=True, env=environment)
    status, shown = ask(daemon, "GET", "/v1/datasets/photos")
    assert status == 200 and shown["name"] == "photos" and shown["pull"] is None and shown["source"] is False
    one = shown["revisions"][0]
    assert one["state"] == "complete" and one["bytes_here"] == one["bytes"]
    assert one["complete"] and one["latest"] and one["objects"] == 96 and one["bytes"] > 0
    status, answer = ask(daemon, "GET", "/v1/datasets/nobody")
    assert status == 404 and answer["reason"] == "not_found"
    assert ask(daemon, "DELETE", "/v1/datasets/photos") == (200, {"freed": one["bytes"]})
    assert ask(daemon, "DELETE", "/v1/datasets/photos")[0] == 404
    assert ask(daemon, "GET", "/v1/datasets") == (200, {"datasets": []})  # those that jobs read, as before


@pytest.mark.parametrize("body, words", [
    (b"{", "JSON object"), (b"[]", "JSON object"), ({"url": 3}, "texts"), ({"url": "/etc"}, "s3://"), ({"url": "file:///etc"}, "s3://"),
    ({"url": "s3://x", "pin": 1}, "true or false"), ({"url": "x" * 3000}, "texts"), (b"x" * 17000, "too long"),
])
def test_wrong_requests_are_refused(datasets, serve, body, words):
    daemon = serve()
    status, answer = ask(daemon, "POST", "/v1/datasets/set", body)
    assert status == 400 and words in answer["error"] and answer["reason"] == "invalid"
    assert ask(daemon, "PUT", "/v1/datasets/set")[0] == 405
    assert ask(daemon, "POST", "/v1/jobs")[0] == 405


def until(daemon, what):
    end = time.monotonic() + LIMIT_S
    while True:
        shown = ask(daemon, "GET", "/v1/datasets/set")[1]
        if what(shown["pull"]):
            return shown
        assert time.monotonic() < end, shown


@pytest.fixture
def faultd(photos, binary):
    rigs = pytest.importorskip("rigs")
    probe = subprocess.run([binary, "settings", "--json"], capture_output=True, text=True)
    if '"bucket"' in probe.stdout and '"bucket": false' in probe.stdout:
        pytest.skip("built without buckets")
    with rigs.Faultd(buckets={"data": photos}) as server:
        yield server


@pytest.fixture
def bucket_environment(faultd, environment, datasets, monkeypatch):
    for name, value in faultd.environment().items():
        monkeypatch.setitem(environment, name, value)


def test_the_daemon_pulls_with_progress(faultd, bucket_environment, datasets, serve):
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 50}}])
    daemon = serve()
    status, answer = ask(daemon, "POST", "/v1/datasets/set", {"url": "s3://data", "pin": True})
    assert status == 202 and answer["pull"]["state"] == "running"
    assert ask(daemon, "POST", "/v1/datasets/set", {"url": "s3://data"})[0] == 409
    seen = until(daemon, lambda pull: 0 < pull["objects_done"] < 96)
    assert not seen["revisions"][0]["complete"] and seen["pull"]["bytes"] > seen["pull"]["bytes_done"] > 0
    seen = until(daemon, lambda pull: pull["state"] != "running")
    assert seen["pull"]["state"] == "done" and seen["revisions"][0]["complete"] and seen["revisions"][0]["pinned"]
    assert seen["pull"]["error"] is None and seen["revisions"][0]["state"] == "complete"
    assert ask(daemon, "DELETE", "/v1/datasets/set")[0] == 200  # also what is pinned: its owner says so


def test_a_pull_is_stopped_and_goes_on(faultd, bucket_environment, datasets, serve):
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 200}}])
    daemon = serve()
    assert ask(daemon, "POST", "/v1/datasets/set", {"url": "s3://data"})[0] == 202
    until(daemon, lambda pull: pull["objects_done"] > 0)
    assert ask(daemon, "DELETE", "/v1/datasets/set")[0] == 202
    seen = until(daemon, lambda pull: pull["state"] != "running")
    assert seen["pull"]["state"] == "failed" and seen["pull"]["error"]["reason"] == "stopped"
    faultd.rules([])
    assert ask(daemon, "POST", "/v1/datasets/set")[0] == 202  # the URL is remembered
    seen = until(daemon, lambda pull: pull["state"] != "running")
    assert seen["pull"]["state"] == "done" and seen["pull"]["bytes_fetched"] < seen["pull"]["bytes"]


def test_the_end_of_the_daemon_ends_its_pulls(faultd, bucket_environment, datasets, serve):
    faultd.rules([{"match": {"op": "get"}, "do": {"delay_ms": 500}}])
    daemon = serve()
    assert ask(daemon, "POST", "/v1/datasets/set", {"url": "s3://data"})[0] == 202
    until(daemon, lambda pull: pull["objects"] > 0)
    daemon.child.terminate()
    daemon.child.communicate(timeout=20)
    assert daemon.child.returncode == 0
    assert not (datasets / "set" / "latest").exists()
