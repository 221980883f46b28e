# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of `penstock top`: a screen in tmux, a stand-in that answers as an engine does, real daemons and jobs."""
import contextlib
import copy
import json
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

LIMIT_S = 60
PIPELINE = "decode | random_resized_crop(32) | hflip"


def wait_for(what, found, limit=LIMIT_S):
    """Asks until it is true; what() says what was seen instead."""
    deadline = time.monotonic() + limit
    while True:
        value = found()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain; seen last:\n{what()}"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Nothing that a test starts depends on where the tests are run."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "LC_", "LANG", "NO_COLOR", "TMUX"))}
    env["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    env["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("run"))
    env["LC_ALL"] = "C.UTF-8"
    return env


@pytest.fixture(scope="session")
def photos(binary, environment, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "photos"
    subprocess.run([binary, "synth", "images", path, "--count", "48", "--quiet"], check=True, env=environment)
    return path


@pytest.fixture
def once(binary, environment):
    def run(*args, env=None):
        return subprocess.run([binary, "top", *map(str, args)], capture_output=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                              env={**environment, **(env or {})})

    return run


# ---- a view as an engine gives it ----------------------------------------------------------------


def verdict(kind="decode", text="decode-bound: 3 more cores would remove the stall", stall=0.42):
    return {"kind": kind, "text": text, "stall": stall, "numbers": {"rate": 410.5}, "help": []}


def job(ident, **more):
    stages = [("read", 0.8, 0.7), ("decode", 6.0, 0), ("random_resized_crop", 2.0, 0), ("hflip", 0.2, 0), ("finish", 1.0, 0), ("wait", 7, 0)]
    made = {"id": ident, "state": "running", "pid": 1000 + ident, "uid": 0, "dataset": f"/data/set{ident}", "pipeline": PIPELINE, "batch": 8,
            "rank": 0, "world": 1, "order": "ready", "sampling": "plain", "group": "", "epoch": 2, "epoch_samples": 1000, "epoch_done": 455,
            "seconds": 60.5, "samples": 10000, "batches": 1250, "skipped": 1, "warnings": 0, "bytes_read": 1 << 30, "bytes_delivered": 1 << 31,
            "waits": 1250, "wait_seconds": 7, "wait_p50_seconds": 0.001, "wait_p99_seconds": 0.25, "rate_now": 100.5 * ident, "stall_now": 0.42,
            "ready": 3, "ready_depth": 4, "preparations": 9000, "shared": 0, "adopted": 0, "substitutions": 0,
            "hits": {"encoded": 1200, "decoded": 3000, "augmented": 0, "disk": 0, "remote": 0}, "misses": 5800,
            "stages": [{"name": n, "runs": 10000, "seconds": s, "away_seconds": a, "buckets": [0] * 15} for n, s, a in stages],
            "lanes": {"slow": 12, "parked": 3, "early": 1, "stragglers": 0, "cutoff_seconds": 0.0125, "prediction_error": 0.08,
                      "cost_buckets": [0] * 16},
            "verdict": verdict(text=f"decode-bound: job {ident} waits for the decoder")}
    made.update(more)
    return made


def view(count=2):
    form = {"entries": 10, "bytes": 100 << 20, "hits": 3000, "inserts": 10, "evictions": 0}
    return {"time": 1.5, "instance": "0123456789abcdef", "version": "9.8.7",
            "engine": {"seconds": 4321, "workers": 4, "active_workers": 3, "cpus": 4, "cpu_seconds": 99, "cpu_share_now": 0.5,
                       "memory_bytes": 4 << 30, "used_bytes": 1 << 30, "peak_bytes": 2 << 30},
            "verdict": verdict(), "jobs": [job(i + 1) for i in range(count)], "stage_bounds": [],
            "cache": {"limit_bytes": 1 << 30, "bytes": 300 << 20, "evictions": 5,
                      "forms": {name: copy.copy(form) for name in ("encoded", "decoded", "augmented")}},
            "model": None,
            "sources": [{"kind": "s3", "requests": 1234, "bytes": 5 << 30, "retries": 7, "errors": 0, "bytes_per_second_now": 12 << 20}],
            "tiers": {"disk": {"entries": 77, "bytes": 1 << 30, "limit_bytes": 8 << 30, "written": 1, "evicted": 0, "damaged": 0,
                               "dropped": 0, "errors": 0, "off": False},
                      "remote": {"hits": 55, "misses": 44, "errors": 0, "open": True, "bytes_per_second": 0}},
            "bad": [{"time": 1, "job": 1, "key": "class1/broken.jpg", "stage": "decode", "message": "it ends too early"}]}


class Engine:
    """Answers every question with `body`: an object, or bytes as they are. hang: takes the question and says nothing."""

    def __init__(self, path, body=None):
        self.dir, self.body, self.hang, self.asked = Path(path), body if body is not None else view(), False, 0
        self.dir.mkdir(parents=True, exist_ok=True)
        self.address = f"unix:{path}"
        self.sock, self.held = socket.socket(socket.AF_UNIX), []
        here = os.getcwd()
        os.chdir(self.dir)  # a socket's path may only be short
        with contextlib.suppress(FileNotFoundError):
            os.unlink("control.sock")
        self.sock.bind("control.sock")
        os.chdir(here)
        self.sock.listen(64)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                peer, _ = self.sock.accept()
            except OSError:
                return
            self.asked += 1
            if self.hang:
                self.held.append(peer)
                continue
            with peer, contextlib.suppress(OSError):
                peer.recv(4096)
                body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
                if not body.startswith(b"HTTP/"):
                    body = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                peer.sendall(body)

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.thread.join(LIMIT_S)
        with contextlib.suppress(FileNotFoundError):
            (self.dir / "control.sock").unlink()


@pytest.fixture
def engine(tmp_path):
    """engine(...) makes a stand-in; all are closed with the test."""
    with contextlib.ExitStack() as stack:
        def make(path=None, body=None):
            made = Engine(path or tmp_path / "engine", body)
            stack.callback(made.close)
            return made

        yield make


# ---- a screen ------------------------------------------------------------------------------------


class Screen:
    """A shell in tmux."""

    def __init__(self, env, cols, rows, path):
        self.socket = str(path / "tmux")
        self.env = {**env, "TERM": "xterm-256color"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", cols, "-y", rows, "sh")
        self.tmux("set-option", "-g", "status", "off")
        self.size(cols, rows)
        self.run("PS1='ready> '; clear")
        self.wait("ready>", without=["clear"])

    def tmux(self, *args):
        return subprocess.run(["tmux", "-u", "-S", self.socket, *map(str, args)], check=True, env=self.env, capture_output=True, text=True,
                              timeout=LIMIT_S).stdout

    def size(self, cols, rows):
        self.tmux("resize-window", "-x", cols, "-y", rows)

    def type(self, *keys):
        self.tmux("send-keys", *keys)

    def run(self, line):
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def text(self, *how):
        return self.tmux("capture-pane", "-p", *how)

    def lines(self):
        return self.text().splitlines()

    def wait(self, *words, without=()):
        """Until all the words are on the screen, and none of the others; the screen."""
        def there():
            text = self.text()
            return text if all(w in text for w in words) and not any(w in text for w in without) else None

        return wait_for(self.text, there)

    def fact(self, name):
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def close(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.tmux("kill-server")


@pytest.fixture
def screen(environment, tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("tmux is not here")
    made = []

    def make(cols=80, rows=24, env=None):
        made.append(Screen({**environment, **(env or {})}, cols, rows, tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def top(screen, binary):
    """top(cols, rows, "--engine", …): a screen with it running."""
    def run(cols, rows, *args, env=None):
        made = screen(cols, rows, env)
        made.run(" ".join([f"'{binary}' top", *map(str, args)]))
        return made

    return run


# ---- real ones -----------------------------------------------------------------------------------


class Daemon:
    """A `penstock serve` that listens by the time this is made."""

    def __init__(self, binary, environment, path, *args):
        self.address = f"unix:{path}"
        self.child = subprocess.Popen([binary, "serve", "--socket", str(path), "--memory", "256M", *map(str, args)], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True, env=environment)
        ready, _, _ = select.select([self.child.stdout], [], [], LIMIT_S)
        assert ready and self.child.stdout.readline().startswith("serving ")

    def kill(self):
        self.child.kill()
        self.child.wait(LIMIT_S)
        self.child.stdout.close()


@pytest.fixture
def serve(binary, environment, tmp_path):
    with contextlib.ExitStack() as stack:
        def start(*args, path=None):
            daemon = Daemon(binary, environment, path or tmp_path / "served", *args)
            stack.callback(lambda: daemon.child.poll() is not None or daemon.kill())
            return daemon

        yield start


@pytest.fixture
def feed(binary, environment, photos):
    """feed(daemon, ...) starts a job that goes on until the test ends."""
    with contextlib.ExitStack() as stack:
        def start(daemon, *args):
            child = subprocess.Popen([binary, "feed", str(photos), "--pipeline", PIPELINE, "--batch", "8", "--epochs", "1000000", "--step-ms", "20",
                                      "--quiet", "--engine", daemon.address, *map(str, args)], env=environment, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            stack.callback(lambda: (child.kill(), child.wait(LIMIT_S)))
            return child

        yield start
