# SPDX-License-Identifier: Apache-2.0
"""The notice that no batch came, from outside: a source that stalls, a daemon that does not answer, a slow consumer."""
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from conftest import CROP, LIMIT_S

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs


class Told:
    """A child whose standard error is read line by line."""

    def __init__(self, words, env):
        self.child = subprocess.Popen(list(map(str, words)), env={**env, "PENSTOCK_NOTICE_S": "0.3"}, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE)
        self.seen = b""

    def wait_for(self, pattern):
        deadline = time.monotonic() + LIMIT_S
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < deadline, f"{pattern} was not said: {self.seen}"
            if select.select([self.child.stderr], [], [], 1)[0]:
                part = os.read(self.child.stderr.fileno(), 65536)
                assert part, f"ended without {pattern}: {self.seen}"
                self.seen += part
        return found

    def end(self):
        self.child.kill()
        self.child.communicate(timeout=LIMIT_S)


@pytest.fixture
def told(environment):
    children = []

    def run(words, env=None):
        children.append(Told(words, {**environment, **(env or {})}))
        return children[-1]

    yield run
    for child in children:
        child.end()


def test_a_source_that_stalls(told, binary, photos):
    with rigs.Faultd(buckets={"b": photos}) as faultd:
        faultd.rules([{"match": {"op": "get"}, "do": {"stall": "before"}}])
        run = told([binary, "feed", "s3://b/", "--pipeline", CROP, "--batch", 8, "--quiet"], faultd.environment())
        run.wait_for(rb"no batch came for \d+ s: sample \d+ \(.*\.jpg\) is being read from its bucket \(s3\), for \d")


def test_a_daemon_that_hangs(told, binary, serve, photos):
    daemon = serve()
    run = told([binary, "feed", photos, "--pipeline", CROP, "--batch", 8, "--quiet", "--epochs", 1000000, "--engine", daemon.address])
    wait_for_samples(daemon)
    daemon.child.send_signal(signal.SIGSTOP)
    try:
        run.wait_for(rb"no batch came for \d+ s: the job waits for the served engine at " + re.escape(daemon.address).encode())
        assert b"penstock top --engine" in run.seen
    finally:
        daemon.child.send_signal(signal.SIGCONT)


def wait_for_samples(daemon):
    deadline = time.monotonic() + LIMIT_S
    while not any(job["samples"] > 0 for job in daemon.jobs()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_consumer_that_is_slow_hears_nothing(binary, serve, photos, environment):
    """A step takes half as long again as the notice would."""
    done = subprocess.run([binary, "feed", photos, "--pipeline", CROP, "--batch", "16", "--quiet", "--step-ms", "6000", "--max-batches", "3",
                           "--engine", serve().address], env={**environment, "PENSTOCK_NOTICE_S": "4"}, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0 and b"no batch came" not in done.stderr
