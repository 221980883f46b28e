# SPDX-License-Identifier: Apache-2.0
"""Where the verdict is told: by a loader whose engine is a daemon's, at the end of `penstock feed` and `penstock bench`."""
import json
import os
import select
import socket
import subprocess
import threading
import time

import pytest

import penstock
from conftest import DEADLINE_S, Consumer, check, helped, verdict_of

BINARY = os.environ.get("PENSTOCK", "penstock")
CROP = "decode | random_resized_crop(16) | hflip"
SLOW = CROP + " | delay(20, by=burn)"


@pytest.fixture
def daemon(tmp_path):
    """The address of a daemon with two workers."""
    child = subprocess.Popen([BINARY, "serve", "--socket", str(tmp_path / "served"), "--workers", "2", "--memory", "256M", "--cache", "0"],
                             stdout=subprocess.PIPE, text=True)
    ready, _, _ = select.select([child.stdout], [], [], 60)
    assert ready and child.stdout.readline().startswith("serving ")
    yield f"unix:{tmp_path / 'served'}"
    child.terminate()
    child.communicate(timeout=60)


def test_a_served_job_knows_what_the_daemon_is_busy_with(photos, daemon):
    with penstock.Loader(photos, SLOW, 8, engine=daemon) as loader:
        assert loader.engine.settings["served"]
        verdict = verdict_of(loader, 0.002, "augment")
    assert "delay takes" in verdict["text"] and verdict["numbers"]["workers"] == 2 and verdict["numbers"]["waited_for_work"] > 0.5
    assert verdict["stall"] > 0.5, verdict


def test_a_served_job_that_never_waits(photos, daemon):
    with penstock.Loader(photos, CROP, 8, engine=daemon) as loader:
        assert not verdict_of(loader, 0.1, "gpu")["help"]


def test_a_served_job_that_starves_beside_another(photos, daemon):
    with penstock.Loader(photos, CROP + " | delay(150)", 8, engine=daemon) as heavy, penstock.Loader(photos, CROP, 2, engine=daemon) as light:
        other = Consumer(heavy, 0)
        thread = threading.Thread(target=other.run)
        thread.start()
        try:
            verdict_of(light, 0.01, "starved")
        finally:
            other.stop.set()
            thread.join()


def watched(daemon):
    """GET /v1/watch."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(os.path.join(daemon.removeprefix("unix:"), "control.sock"))
        sock.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with sock.makefile("rb") as answer:
            return json.loads(answer.read().partition(b"\r\n\r\n")[2])


def test_the_same_is_told_everywhere(photos, daemon):
    """By the loader, on the control socket for the job and for the engine, and by `penstock top`."""
    with penstock.Loader(photos, CROP + " | delay(100)", 8, engine=daemon) as loader:
        consumer = Consumer(loader, 0.05)
        thread = threading.Thread(target=consumer.run)
        thread.start()
        try:
            end, told = time.monotonic() + DEADLINE_S, []
            while not told or not all(text.startswith("workers-bound: ") and "more workers would" in text for text in told):
                assert time.monotonic() < end, told
                time.sleep(1.2)
                view = watched(daemon)
                told = [loader.stats()["verdict"]["text"], view["jobs"][0]["verdict"]["text"], view["verdict"]["text"],
                        run("top", "--once", "--engine", daemon).splitlines()[1]]
            one, other = loader.stats()["verdict"], watched(daemon)["jobs"][0]["verdict"]
            assert one["kind"] == other["kind"] and helped(one) == helped(other) and set(one["numbers"]) == set(other["numbers"])
        finally:
            consumer.stop.set()
            thread.join()


def run(*args):
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


FEED = ("--pipeline", CROP + " | delay(100)", "--batch", "4", "--max-batches", "30", "--workers", "2", "--cache", "0")


def test_feed_ends_with_it(photos):
    assert run("feed", photos, *FEED).splitlines()[-1].startswith("workers-bound: ")
    told = json.loads(run("feed", photos, *FEED, "--json"))["verdict"]
    check({**told, "numbers": {name: float(value) for name, value in told["numbers"].items()}})
    assert told["kind"] == "workers" and helped(told) == ["workers"], told


def test_bench_tells_it_for_each_number_of_workers(photos):
    out = run("bench", photos, "--pipeline", CROP + " | delay(60)", "--batch", 2, "--seconds", 6, "--workers", 1, "--json")
    told = json.loads(out)["results"][0]["verdict"]
    assert told["kind"] == "workers" and told["stall"] > 0.9 and helped(told) == ["workers"], told
    assert "workers-bound: " in run("bench", photos, "--pipeline", CROP + " | delay(60)", "--batch", 2, "--seconds", 6, "--workers", 1)
