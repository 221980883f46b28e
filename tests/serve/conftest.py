# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the served engine's tests: daemons and clients as processes of their own, and what they left in ledgers."""
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

CROP = "decode | random_resized_crop(32) | hflip"
LIMIT_S = 120


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    env = dict(os.environ)
    env["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    env["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("run"))
    env["PENSTOCK_WIRE_VERSIONS"] = ""
    return env


def make_photos(binary, path, count, seed=5):
    subprocess.run([binary, "synth", "images", str(path), "--count", str(count), "--classes", "4", "--seed", str(seed)],
                   check=True, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="session")
def photos(binary, tmp_path_factory):
    """96 photos in 4 classes. Tests must not change them."""
    return make_photos(binary, tmp_path_factory.mktemp("data") / "photos", 96)


class Daemon:
    """A `penstock serve` that listens by the time this is made."""

    def __init__(self, binary, environment, path, *args, **kwargs):
        self.dir, self.binary = Path(path), binary
        self.control = Path(args[args.index("--control") + 1]) if "--control" in args else self.dir
        self.address = f"unix:{path}"
        self.child = subprocess.Popen([binary, "serve", "--socket", str(path), "--memory", "256M", *map(str, args)],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **kwargs)
        ready, _, _ = select.select([self.child.stdout], [], [], LIMIT_S)
        first = self.child.stdout.readline() if ready else ""
        assert first.startswith("serving "), f"{first!r} {self.child.stderr.read() if not first else ''}"

    def get(self, url="/v1/jobs"):
        """What the control socket says."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LIMIT_S)
            sock.connect(str(self.control / "control.sock"))
            sock.sendall(f"GET {url} HTTP/1.0\r\n\r\n".encode())
            answer = b""
            while part := sock.recv(65536):
                answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0], head
        return json.loads(body)

    def jobs(self):
        return self.get()["jobs"]

    def cache(self):
        return self.get("/v1/engine")["cache"]

    def until(self, what, limit=LIMIT_S):
        """Seconds until what(jobs) held."""
        begin = time.monotonic()
        while not what(self.jobs()):
            assert self.child.poll() is None, self.child.stderr.read()
            assert time.monotonic() - begin < limit, self.jobs()
        return time.monotonic() - begin

    def fsck(self):
        """Has the books checked; they must agree."""
        done = subprocess.run([self.binary, "fsck", "--socket", str(self.control)], capture_output=True, text=True, timeout=LIMIT_S)
        assert (done.returncode, done.stdout, done.stderr) == (0, "clean\n", ""), done

    def kill(self, number=signal.SIGKILL):
        self.child.send_signal(number)
        out, err = self.child.communicate(timeout=LIMIT_S)
        return self.child.returncode, err


def ask(daemon, method, url, body=None):
    """(status, object)"""
    text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(LIMIT_S)
        sock.connect(str(daemon.control / "control.sock"))
        sock.sendall(f"{method} {url} HTTP/1.0\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        answer = b""
        while part := sock.recv(65536):
            answer += part
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(rest) if rest else None


@pytest.fixture
def serve(binary, environment, tmp_path):
    """serve(...) starts a daemon; all are ended with the test."""
    with contextlib.ExitStack() as stack:
        def start(*args, path=None, env=None, **kwargs):
            daemon = Daemon(binary, {**environment, **(env or {})}, path or tmp_path / "served", *args, **kwargs)
            stack.callback(lambda: daemon.child.poll() is not None or daemon.kill())
            return daemon

        yield start


class Client:
    """A `penstock feed`, with a ledger."""

    def __init__(self, binary, environment, data, ledger, *args, pipeline=CROP, batch=8, **kwargs):
        self.ledger = Path(ledger)
        self.child = subprocess.Popen(
            [binary, "feed", str(data), "--pipeline", pipeline, "--batch", str(batch), "--ledger", str(ledger), "--quiet",
             *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **kwargs)

    def end(self, code=0):
        """What it said on standard error."""
        out, err = self.child.communicate(timeout=LIMIT_S)
        assert self.child.returncode == code, f"{self.child.returncode}: {out} {err}"
        return err

    def kill(self):
        self.child.kill()
        self.child.communicate(timeout=LIMIT_S)


@pytest.fixture
def client(binary, environment, photos, tmp_path):
    """client("--engine", …) starts a feed of the photos; all are ended with the test."""
    count = 0
    with contextlib.ExitStack() as stack:
        def start(*args, data=photos, env=None, **kwargs):
            nonlocal count
            count += 1
            one = Client(binary, {**environment, **(env or {})}, data, tmp_path / f"ledger{count}", *args, **kwargs)
            stack.callback(lambda: one.child.poll() is not None or one.kill())
            return one

        yield start


def rows(path):
    """The lines that are not comments, as tuples of text: epoch, step, rank, slot, id, key, crc."""
    return [tuple(line.split("\t")) for line in Path(path).read_text().splitlines() if not line.startswith("#")]


def multiset(path):
    """How often each sample was delivered in each epoch, and with which bytes."""
    return Counter((row[0], row[4], row[6]) for row in rows(path))


def check_exact(path, epochs, ids):
    """Each epoch has each sample once, and no preparation came twice; the numbers of preparations."""
    found = rows(path)
    assert Counter((row[0], row[4]) for row in found) == Counter((str(e), str(i)) for e in range(epochs) for i in ids)
    numbers = [row[7] for row in found if len(row) > 7]
    assert len(set(numbers)) == len(numbers)
    return numbers
