# SPDX-License-Identifier: Apache-2.0
"""Clients that send garbage, lie, scribble or never give back: refused or contained, and nobody else notices."""
import json
import os
import random
import resource
import socket
import struct
import subprocess
import time

import pytest

import wire
from conftest import CROP, rows
from looking import metrics


@pytest.fixture
def revision(binary, environment, photos):
    """Of the photos, as bytes."""
    done = subprocess.run([binary, "inspect", str(photos), "--json"], capture_output=True, text=True, env=environment, check=True)
    return bytes.fromhex(json.loads(done.stdout)["revision"])


@pytest.fixture
def unharmed(serve, client):
    """A daemon with an ordinary client, which must come to its exact end once the test has done its worst."""
    daemon = serve("--client-cap", "1M")
    alone = client("--engine", "embedded", "--epochs", 4)
    feed = client("--engine", daemon.address, "--epochs", 4, "--step-ms", 10)
    daemon.until(lambda jobs: any(job.get("batches", 0) > 0 for job in jobs))
    yield daemon
    assert alone.end() == "" and feed.end() == ""
    assert rows(feed.ledger) == rows(alone.ledger)
    daemon.until(lambda jobs: not jobs)
    assert daemon.kill(15) == (0, "")


def test_garbage(unharmed):
    dice = random.Random(3)
    for i in range(200):
        raw = wire.Raw(unharmed)
        if i % 2:
            raw.greet()
        good = wire.head(dice.randrange(16), dice.randbytes(dice.randrange(2048)), version=dice.choice([0, 2, 2, 7]))
        packet = dice.choice([good, dice.randbytes(dice.randrange(1, 5000)), good[:dice.randrange(1, len(good))]])
        raw.send(packet)
        assert raw.is_left()
        raw.sock.close()


def test_out_of_turn(unharmed, photos, revision):
    release = wire.head(wire.RELEASE, struct.pack("<II", 0, 0))
    credit = wire.head(wire.CREDIT, struct.pack("<IIQ", 1, 0, 0))
    restart = wire.head(wire.RESTART, struct.pack("<QQ", 0, 0), generation=1)
    hello = wire.head(wire.HELLO, struct.pack("<II", 1, 0))
    for before in range(3):
        for packet in (release, credit, restart) if before < 2 else (release, hello, restart[:8] + b"\5" + restart[9:]):
            raw = wire.Raw(unharmed)
            if before:
                raw.greet()
            if before == 2:
                assert raw.open(photos, revision, wire.spec())[0] == wire.OPENED
            raw.send(packet)
            assert raw.is_left()


def test_hostile_specs(unharmed, photos, revision, tmp_path):
    """Every byte of a good one changed, lengths that lie, descriptors that are something else."""
    dice = random.Random(4)
    good = wire.spec(path="x")

    def answer(data, root=photos, **kwargs):
        raw = wire.Raw(unharmed)
        raw.greet()
        kind, _ = raw.open(root, revision, data, **kwargs)
        raw.sock.close()
        return kind

    assert answer(good) == wire.OPENED
    for at in range(72, len(good), 3):
        answer(good[:at] + bytes([good[at] ^ dice.randrange(1, 256)]) + good[at + 1:])
    for cut in range(0, len(good), 17):
        assert answer(good[:cut]) == wire.REFUSED
    assert answer(good, size=1 << 40) == wire.REFUSED and answer(good, size=3) == wire.REFUSED
    assert answer(good, fd=wire.blob(good, seals=0)) == wire.REFUSED  # could change while it is read
    reader, _ = os.pipe()
    assert answer(good, fd=reader) == wire.REFUSED
    assert answer(good, root=os.open("/dev/null", os.O_RDONLY)) == wire.REFUSED
    assert answer(wire.spec(name="../photos")) == wire.REFUSED
    raw = wire.Raw(unharmed)
    raw.greet()
    assert raw.open(photos, bytes(16), good)[0] == wire.REFUSED  # another dataset than the one that is there


def test_own_ring(unharmed, photos, revision):
    """It cannot be resized; what is written to it harms nobody else, nor the daemon."""
    raw = wire.Raw(unharmed)
    raw.greet()
    assert raw.open(photos, revision, wire.spec("decode | center_crop(32) | normalize(imagenet) || mixup(0.4)", epochs=3))[0] == wire.OPENED
    dice = random.Random(5)
    for memory, fd in raw.segments.values():
        for size in (0, 4096, 1 << 30):
            with pytest.raises(OSError):
                os.ftruncate(fd, size)
        with pytest.raises(OSError):
            os.posix_fallocate(fd, 0, len(memory) + 4096)
    raw.credit()
    for _ in range(36):
        ident, _ = raw.batch()
        for memory, _ in raw.segments.values():  # all of them, while workers fill them
            memory[:] = b"\xff" * len(memory)
            memory[:4096] = dice.randbytes(4096)
        raw.release(ident)
        raw.credit(1)
    raw.sock.close()


@pytest.mark.parametrize("pipeline", [CROP, "decode"])
def test_never_giving_back(unharmed, photos, revision, pipeline):
    """The cap ends it: no further batches come, and the daemon's memory stays where it is."""
    raw = wire.Raw(unharmed)
    raw.greet()
    assert raw.open(photos, revision, wire.spec(pipeline, batch=16))[0] == wire.OPENED
    raw.credit()
    got = 0
    while True:
        try:
            raw.sock.settimeout(3)
            data, fds, _, _ = socket.recv_fds(raw.sock, 65536, 4)
        except TimeoutError:
            break
        assert data, "the daemon left"
        if struct.unpack_from("<IHHII", data)[2] == wire.BATCH:
            got += 1
            raw.credit(1)
        for fd in fds:
            os.close(fd)
    raw.sock.close()
    assert 2 < got < 600, got


def test_credit_without_end(unharmed, photos, revision):
    raw = wire.Raw(unharmed)
    raw.greet()
    assert raw.open(photos, revision, wire.spec())[0] == wire.OPENED
    raw.credit(1 << 31)
    assert raw.is_left()


def test_waits_that_cannot_be(unharmed, photos, revision):
    """Whatever a client says that it waited: totals of its dataset grow no faster than time does, and never fall."""
    raw = wire.Raw(unharmed)
    raw.greet()
    begin = time.monotonic()
    assert raw.open(photos, revision, wire.spec(epochs=100))[0] == wire.OPENED
    raw.credit()
    before = 0
    for said in ((1 << 64) - 1, 1 << 63, 1 << 63, 10**18, 5, 0, 0, 0):  # by the last ones all were taken note of
        ident, _ = raw.batch()
        raw.release(ident)
        raw.credit(1, waited_ns=said)
        waited = [v for (name, _), v in metrics(unharmed.dir).items() if name == "penstock_dataset_wait_seconds_total"]
        assert before <= sum(waited) < 60 + time.monotonic() - begin, said
        before = sum(waited)
    raw.sock.close()


def test_silent_crowd(unharmed):
    crowd = [wire.Raw(unharmed) for _ in range(300)]
    unharmed.until(lambda jobs: len(jobs) > 290)
    for raw in crowd:
        raw.sock.close()


def cpu_s(pid):
    """Seconds of CPU time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as handle:
        fields = handle.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_more_connections_than_descriptors(serve, client):
    """They are turned away, the daemon rests, and those who come later are served."""
    daemon = serve(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    raws = [wire.Raw(daemon) for _ in range(100)]
    assert raws[-1].is_left()
    before = cpu_s(daemon.child.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.child.wait(2)
    assert cpu_s(daemon.child.pid) - before < 0.5
    for raw in raws:
        raw.sock.close()
    daemon.until(lambda jobs: not jobs)
    assert client("--engine", daemon.address).end() == ""
