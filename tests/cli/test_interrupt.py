# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: back within 200 ms, with report, ledger and state; a second run works. The progress line tells when to send it."""
import json
import os
import select
import signal
import subprocess
import time

import pytest

from conftest import CROP, read_ledger

GRACE_S = float(os.environ.get("PENSTOCK_GRACE_S", "0.2"))  # sanitizer builds get more


class Run:
    """A command whose standard error is a terminal."""

    def __init__(self, binary, environment, *args, **kwargs):
        try:
            self.terminal, side = os.openpty()
        except OSError as error:
            pytest.skip(f"no terminal can be made here: {error}")
        self.child = subprocess.Popen([binary, *map(str, args)], stdout=subprocess.PIPE, stderr=side, text=True, env=environment, **kwargs)
        os.close(side)
        self.seen = b""

    def wait_for(self, words, timeout=20):
        deadline = time.monotonic() + timeout
        while words not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                pytest.fail(f"{words} did not appear: {self.seen}")
            try:
                self.seen += os.read(self.terminal, 4096)
            except OSError:
                pytest.fail(f"ended without {words}: {self.seen}")

    def stop(self, number):
        """Seconds until it was gone, and its standard output."""
        begin = time.monotonic()
        os.kill(self.child.pid, number)
        out, _ = self.child.communicate(timeout=60)
        took = time.monotonic() - begin
        os.close(self.terminal)
        return took, out


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("step", [0, 30000])
def test_returns_at_once_with_a_report(binary, environment, photos, number, code, step):
    """step 0: in the middle of work; 30 s: in the middle of the trainer's step."""
    run = Run(binary, environment, "feed", photos, "--pipeline", CROP, "--batch", 8, "--epochs", 1000000, "--json", "--step-ms", step)
    run.wait_for(b" samples,")
    took, out = run.stop(number)
    assert run.child.returncode == code
    report = json.loads(out.splitlines()[-1])
    assert report["interrupted"] is True and report["samples"] >= 8
    assert took < GRACE_S


def test_returns_at_once_while_it_works_on_large_pictures(binary, environment, tmp_path):
    from PIL import Image
    (tmp_path / "a").mkdir()
    Image.effect_noise((3000, 2000), 60).convert("RGB").save(tmp_path / "a" / "0.jpg", progressive=True, quality=90)
    for i in range(1, 8):
        os.link(tmp_path / "a" / "0.jpg", tmp_path / "a" / f"{i}.jpg")
    run = Run(binary, environment, "feed", tmp_path, "--pipeline", "decode | resize(64)", "--fields", "image=padded", "--batch", 1,
              "--epochs", 1000)
    run.wait_for(b"epoch 0")
    took, out = run.stop(signal.SIGINT)
    assert run.child.returncode == 130 and "interrupted" in out
    assert took < GRACE_S


def test_a_ledger_can_be_watched(binary, environment, photos, tmp_path):
    """Also of a slow job, which needs minutes to fill a buffer."""
    child = subprocess.Popen([binary, "feed", photos, "--pipeline", CROP, "--batch", "2", "--epochs", "1000", "--step-ms", "100", "--quiet",
                              "--ledger", tmp_path / "l.tsv"], env=environment, stdout=subprocess.DEVNULL)
    try:
        seen, deadline = 0, time.monotonic() + 60
        while seen < 40:
            assert child.poll() is None and time.monotonic() < deadline, seen
            time.sleep(0.05)
            seen = len(read_ledger(tmp_path / "l.tsv")) if (tmp_path / "l.tsv").exists() else 0
    finally:
        child.kill()
        child.wait()


def test_ledger_and_state_cover_what_was_delivered(binary, environment, feed, photos, tmp_path):
    run = Run(binary, environment, "feed", photos, "--pipeline", CROP, "--batch", 8, "--epochs", 40, "--json", "--step-ms", 20,
              "--ledger", tmp_path / "a.tsv", "--save-state", tmp_path / "s")
    run.wait_for(b"epoch 1")
    took, out = run.stop(signal.SIGINT)
    assert run.child.returncode == 130 and took < GRACE_S
    first = read_ledger(tmp_path / "a.tsv")
    assert len(first) == json.loads(out.splitlines()[-1])["samples"] >= 48
    batches = len(first) // 8 + 2
    feed(photos, "--epochs", 40, "--load-state", tmp_path / "s", "--ledger", tmp_path / "b.tsv", "--max-batches", 2)
    feed(photos, "--epochs", 40, "--ledger", tmp_path / "whole.tsv", "--max-batches", batches)
    assert first + read_ledger(tmp_path / "b.tsv") == read_ledger(tmp_path / "whole.tsv")


def test_a_second_run_works(binary, environment, feed, photos):
    run = Run(binary, environment, "feed", photos, "--pipeline", CROP, "--epochs", 1000000)
    run.wait_for(b"epoch 2")
    run.stop(signal.SIGINT)
    assert feed(photos).report["samples"] == 48


def test_ignored_signals_stay_ignored(binary, environment, photos):
    """As under nohup or in a shell's background."""
    run = Run(binary, environment, "feed", photos, "--pipeline", CROP, "--batch", 8, "--step-ms", 60,
              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    run.wait_for(b" samples,")
    _, out = run.stop(signal.SIGINT)
    assert run.child.returncode == 0 and "48 samples" in out


@pytest.mark.parametrize("command", [["inspect", "--deep"], ["bench", "--seconds", "60"]])
def test_other_commands_end_too(binary, environment, photos, command):
    run = Run(binary, environment, command[0], photos, *command[1:])
    run.wait_for(command[0].encode())
    took, _ = run.stop(signal.SIGINT)
    assert run.child.returncode == 130
    assert took < 2
