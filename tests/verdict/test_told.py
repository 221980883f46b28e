# SPDX-License-Identifier: Apache-2.0
"""Where the verdict is told: by a loader whose engine is a daemon's, at the end of `penstock feed` and `penstock bench`."""
import json
import os
import select
import subprocess
import threading

import pytest

import penstock
from conftest import Consumer, check, helped, verdict_of

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
