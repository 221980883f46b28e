# SPDX-License-Identifier: Apache-2.0
"""Situations that are built for real: pictures, a source of set speed, a consumer of set speed, and asking until the verdict stands."""
import hashlib
import multiprocessing
import os
import pathlib
import signal
import socket
import sys
import threading
import time

import numpy
import PIL.Image
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))

DEADLINE_S, LOOKS = 90, 12  # both must be over: a machine may stand still for a minute
IN_A_ROW = 2
EACH_S = 1.2  # longer than what a verdict looks back at least


def smooth(seed, height, width):
    rng = numpy.random.default_rng(seed)
    coarse = PIL.Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=numpy.uint8), "RGB")
    return coarse.resize((width, height), PIL.Image.BICUBIC)


def make(root, count, height=96, width=96, suffix="jpg"):
    """A folder of pictures, two classes."""
    for i in range(count):
        path = root / f"c{i % 2}" / f"{i:04}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        smooth(i, height, width).save(path)
    return root


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """300 small JPEGs; not to be changed."""
    return make(tmp_path_factory.mktemp("photos"), 300)


class Archive:
    """Samples that a function brings, each after a while."""

    def __init__(self, photos, each_s):
        self.bytes, self.each_s = next(iter(sorted(photos.rglob("*.jpg")))).read_bytes(), each_s

    def __len__(self):
        return 2000

    def read(self, i):
        time.sleep(self.each_s)
        return self.bytes, i % 2


class Consumer:
    """Takes batches at a set pace, over and over, in a thread of its own where another is to be asked meanwhile."""

    def __init__(self, loader, step_s, burst=1):
        self.loader, self.step_s, self.burst = loader, step_s, burst
        self.taken, self.stop = 0, threading.Event()

    def steps(self):
        while not self.stop.is_set():
            for batch in self.loader:
                del batch
                self.taken += 1
                yield
                if self.stop.is_set():
                    return
                if self.taken % self.burst == 0:
                    time.sleep(self.step_s)

    def run(self):
        for _ in self.steps():
            pass


def until(loader, step_s, holds, burst=1, each_s=EACH_S):
    """Trains until what is told held some times in a row; the last verdict."""
    consumer, told, right = Consumer(loader, step_s, burst), [], 0
    begun = asked = time.monotonic()
    for _ in consumer.steps():
        now = time.monotonic()
        if now - asked < each_s:
            continue
        asked = now
        verdict = loader.stats()["verdict"]
        check(verdict)
        told.append("%5.1f s, rate %.4g: %s" % (now - begun, verdict["numbers"]["rate"], verdict["text"]))
        right = right + 1 if holds(verdict) else 0
        if right == IN_A_ROW:
            print(told[-1])
            return verdict
        assert now - begun < DEADLINE_S or len(told) < LOOKS, "never, but:\n%s\n%s" % ("\n".join(told[-12:]), verdict)


def verdict_of(loader, step_s, kind, burst=1, also=lambda verdict: True, each_s=EACH_S):
    """Trains until the verdict was this kind some times in a row; the last one."""
    return until(loader, step_s, lambda verdict: verdict["kind"] == kind and also(verdict), burst, each_s)


def check(verdict):
    """What holds for every verdict."""
    assert 0 <= verdict["stall"] <= 1 and verdict["text"] and "\n" not in verdict["text"]
    assert all(isinstance(value, float) for value in verdict["numbers"].values())
    for one in verdict["help"]:
        assert one["amount"] > 0 and one["unit"] in ("cores", "workers", "bytes", "times") and 0 <= one["stall"] <= 1


def helped(verdict):
    return [one["what"] for one in verdict["help"]]


# ---- a source of set speed -------------------------------------------------------------------------------------------


class Pipe:
    """So many bytes a second for all together, in the order in which they were asked for; each answer takes delay_s at least."""

    def __init__(self, rate, delay_s):
        self.rate, self.delay_s = rate, delay_s
        self.lock, self.free = threading.Lock(), 0.0

    def wait(self, size):
        now = time.monotonic()
        with self.lock:
            self.free = max(self.free, now) + size / self.rate
            due = max(self.free, now + self.delay_s)
        time.sleep(max(0.0, due - time.monotonic()))


def answer(sock, objects, pipe):
    """As much S3 as is needed: one listing, and objects."""
    rows = "".join("<Contents><Key>%s</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified><ETag>&quot;%s&quot;</ETag><Size>%d</Size>"
                   "</Contents>" % (key, hashlib.md5(body).hexdigest(), len(body)) for key, body in sorted(objects.items()))
    page = ('<?xml version="1.0"?><ListBucketResult><Name>data</Name><KeyCount>%d</KeyCount><IsTruncated>false</IsTruncated>%s'
            "</ListBucketResult>" % (len(objects), rows)).encode()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with sock, sock.makefile("rb") as lines:
        while True:
            request = lines.readline()
            if not request:
                return
            while lines.readline() not in (b"\r\n", b""):
                pass
            path, _, query = request.split()[1].decode().partition("?")
            body, etag = (page, "") if query else (objects[path[len("/data/"):]], None)
            if etag is None:
                etag = 'ETag: "%s"\r\n' % hashlib.md5(body).hexdigest()
                pipe.wait(len(body))
            sock.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (etag.encode(), len(body)) + body)


def serve(listener, objects, rate, delay_s):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(rate, delay_s)
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0], objects, pipe), daemon=True).start()


@pytest.fixture
def bucket(photos, monkeypatch):
    """bucket(rate=bytes a second, delay_s=of each answer): the photos as s3://data, each so many times."""
    children = []

    def start(rate, delay_s, times=1):
        objects = {"%s/%d-%s" % (path.parent.name, i, path.name): path.read_bytes() for path in photos.rglob("*.jpg") for i in range(times)}
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        child = multiprocessing.get_context("fork").Process(target=serve, args=(listener, objects, rate, delay_s), daemon=True)
        child.start()
        children.append(child)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:%d" % listener.getsockname()[1])
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, os.devnull)
        listener.close()
        return "s3://data"

    yield start
    for child in children:
        child.terminate()
        child.join()
