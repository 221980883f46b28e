# SPDX-License-Identifier: Apache-2.0
"""The progress line: rate, share done and time left on a terminal; nothing at all elsewhere, or with --quiet."""
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs

LEFT = r", \d+ %, (\d+ d )?(\d+ h )?(\d+ min )?(\d+ s )?left"
PLAN = ["--pipeline", "decode | resize(64)"]


class Terminal:
    """A command whose standard error is a terminal; output goes to a pipe that nobody needs."""

    def __init__(self, binary, env, *args):
        try:
            self.fd, side = os.openpty()
        except OSError as error:
            pytest.skip(f"no terminal can be made here: {error}")
        self.child = subprocess.Popen([binary, *map(str, args)], stdout=subprocess.DEVNULL, stderr=side, env=env)
        os.close(side)
        self.seen = ""

    def read(self, left):
        """False when it has ended."""
        if not select.select([self.fd], [], [], left)[0]:
            return True
        try:
            self.seen += os.read(self.fd, 4096).decode()
        except OSError:
            return False
        return True

    def wait_for(self, pattern, timeout=60):
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, f"{pattern} did not appear: {self.seen[-500:]!r}"
            assert self.read(1), f"ended without {pattern}: {self.seen[-500:]!r}"
        return re.search(pattern, self.seen)

    def end(self, number=signal.SIGINT):
        if self.child.poll() is None and number:
            self.child.send_signal(number)
        while self.read(60):
            pass
        os.close(self.fd)
        return self.child.wait(timeout=60)


@pytest.fixture
def terminal(binary, environment):
    open_ones = []

    def run(*args, env=None):
        open_ones.append(Terminal(binary, {**environment, "TERM": "xterm", **(env or {})}, *args))
        return open_ones[-1]

    yield run
    for one in open_ones:
        if one.child.poll() is None:
            one.child.kill()
            one.child.wait()


def test_synth(terminal, tmp_path):
    run = terminal("synth", "images", tmp_path / "p", "--count", 200000)
    run.wait_for(r"\rsynth|\x1b\[Ksynth")
    run.wait_for(r"synth: [\d,]+ of 200,000 photos, [\d,]+/s" + LEFT)
    assert run.end() == 130
    assert run.seen.endswith("\r\x1b[K"), "the line is taken away"


def test_bench(terminal, photos):
    run = terminal("bench", photos, "--seconds", 60, "--workers", 1)
    run.wait_for(r"bench: [\d,]+ images, [\d,]+/s" + LEFT + ", limit of 1 thread")
    assert run.end() == 130


def test_plan(terminal, photos):
    run = terminal("plan", photos, *PLAN, "--cache", "64M", "--seconds", 60)
    run.wait_for(r"plan, measuring:" + LEFT[1:])
    assert run.end() == 130


def test_inspect(terminal, photos):
    assert terminal("inspect", photos, "--deep").end(None) == 0


@pytest.fixture
def bucket(photos):
    with rigs.Faultd(buckets={"b": photos.parent}) as faultd:
        faultd.rules([{"match": {"op": "get"}, "do": {"bandwidth": 20000}}])
        yield faultd


def test_pull(terminal, bucket, tmp_path):
    run = terminal("pull", "p", "s3://b/photos", env={**bucket.environment(), "PENSTOCK_DATASETS": str(tmp_path / "d")})
    run.wait_for(r"pulling [0-9a-f]{8}: [\d.]+ [KM]?i?B of [\d.]+ [KM]iB, [\d.]+ [KM]?i?B/s" + LEFT + r", \d+/48 obj")
    assert run.end() == 130


def test_listing(terminal, tmp_path):
    """How many there will be is not known before the end; a name that would move the cursor does not."""
    count = {"count": 100000, "classes": 100, "format": "class{c:04d}/{i:08d}.jpg", "size": 1000, "listing": {"page": 1000}}
    with rigs.Faultd(buckets={"b": count}) as faultd:
        faultd.rules([{"match": {"op": "list", "nth": list(range(5, 200))}, "do": {"delay_ms": 400}}])
        run = terminal("inspect", "s3://b/", "--index-dir", "none", env=faultd.environment())
        run.wait_for(r"listing s3://b/: [\d,]+ found, [\d,]+/s")
        assert run.end() == 130


def test_a_terminal_that_cannot_take_a_line_back(terminal, tmp_path):
    run = terminal("synth", "images", tmp_path / "new", "--count", 20, env={"TERM": "dumb"})
    assert run.end(None) == 0 and "\x1b" not in run.seen and "synth:" not in run.seen


def test_names_cannot_steer_the_terminal(terminal, photos, tmp_path):
    evil = tmp_path / "a\x1b[2Jb"
    evil.symlink_to(photos)
    run = terminal("inspect", evil, "--index-dir", "none")
    run.end(None)
    assert "\x1b[2J" not in run.seen


@pytest.mark.parametrize("command", [["synth", "images", "{new}", "--count", 8], ["bench", "{photos}", "--seconds", 0.3, "--workers", 1],
                                     ["plan", "{photos}", *PLAN, "--cache", "64M", "--seconds", 0.5], ["pull", "p", "{photos}"],
                                     ["feed", "{photos}", *PLAN, "--fields", "image=padded"]], ids=lambda c: c[0])
def test_quiet_is_quiet(terminal, penstock, photos, tmp_path, command):
    def words(new):
        return [str(word).format(new=tmp_path / new, photos=photos) for word in command]

    env = {"PENSTOCK_DATASETS": str(tmp_path / "d")}
    run = terminal(*words("a"), "--quiet", env=env)
    assert run.end(None) == 0 and run.seen == ""
    assert penstock(*words("b"), env=env).err == "", "no terminal, no progress"
