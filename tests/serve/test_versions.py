# SPDX-License-Identifier: Apache-2.0
"""Peers of another release: the newest version of the feed protocol that both speak, or embedded with one line; daemons replaced by the
previous and the next version under running jobs."""
import os
import signal
import socket
import struct
import threading

import pytest

import wire
from conftest import LIMIT_S, rows

NEWEST = wire.VERSION
OLDEST = 5
ROUNDS = int(os.environ.get("PENSTOCK_REPLACED", "1"))
BACK_S = float(os.environ.get("PENSTOCK_BACK_S", "60"))
COUNT = 96


def claims(oldest, newest):
    return {"PENSTOCK_WIRE_VERSIONS": f"{oldest}-{newest}"}


def hello(raw, oldest, newest):
    """(kind, version in the head, REFUSED's version)"""
    raw.send(wire.head(wire.HELLO, struct.pack("<II", os.getpid(), oldest), version=newest))
    data = raw.sock.recv(65536)
    _, version, kind, _, _ = struct.unpack_from("<IHHII", data)
    return kind, version, struct.unpack_from("<iI", data, 16)[1] if kind == wire.REFUSED else None


@pytest.mark.parametrize("oldest, newest, agreed", [
    (OLDEST, NEWEST, NEWEST), (OLDEST, OLDEST, OLDEST), (1, OLDEST, OLDEST), (NEWEST, NEWEST + 1, NEWEST), (1, 65535, NEWEST),
    (0, NEWEST, NEWEST), (0, OLDEST, OLDEST),  # from before ranges: that one alone
    (0, NEWEST + 1, None), (NEWEST + 1, NEWEST + 2, None), (1, OLDEST - 1, None), (NEWEST + 1, NEWEST, None), (1 << 20, NEWEST, None)])
def test_the_newest_that_both_speak(serve, oldest, newest, agreed):
    raw = wire.Raw(serve())
    kind, version, theirs = hello(raw, oldest, newest)
    if agreed is None:
        assert (kind, theirs) == (wire.REFUSED, NEWEST) and raw.is_left()
    else:
        assert (kind, version) == (wire.WELCOME, agreed)


def speak(daemon, version):
    raw = wire.Raw(daemon)
    assert hello(raw, 0, version) == (wire.WELCOME, version, None)
    return raw


def test_packets_are_of_the_agreed_version(serve, photos):
    """The one before has an OPEN without a set's revision, and no LIST; the daemon leaves who mixes them."""
    daemon = serve()
    body = wire.spec()
    short = bytes(16) + struct.pack("<Q", len(body))
    for packet, version in ((short, OLDEST), (short + bytes(40), NEWEST)):
        folder, content = os.open(photos, os.O_PATH), wire.blob(body)
        raw = speak(daemon, version)
        raw.send(wire.head(wire.OPEN, packet, version=version), folder, content)
        data = raw.sock.recv(65536)
        assert struct.unpack_from("<IHHII", data)[2] == wire.REFUSED  # a revision of zeros: it was read
        for wrong, said in ((short + bytes(40), OLDEST), (short, NEWEST), (short, OLDEST + NEWEST - version), (short, NEWEST + 1)):
            if (wrong, said) != (packet, version):
                raw = speak(daemon, version)
                raw.send(wire.head(wire.OPEN, wrong, version=said), folder, content)
                assert raw.is_left()
        os.close(folder)
        os.close(content)
    raw = speak(daemon, OLDEST)
    folder = os.open(photos, os.O_RDONLY)
    raw.send(wire.head(wire.LIST, bytes(40), version=OLDEST), folder)
    assert raw.is_left()
    os.close(folder)
    daemon.fsck()


def test_a_daemon_from_before_ranges_is_greeted_again(client, tmp_path):
    """It refuses all but its own version, and says which that is."""
    greeted = []
    where = tmp_path / "old"
    where.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(where / "feed.sock"))
        sock.listen()
        sock.settimeout(LIMIT_S)

        def answer():
            while not greeted or greeted[-1] != OLDEST:
                one, _ = sock.accept()
                with one:
                    greeted.append(struct.unpack_from("<IHHII", one.recv(65536))[1])
                    if greeted[-1] != OLDEST:
                        one.send(wire.head(wire.REFUSED, struct.pack("<iI824x", 0, OLDEST), version=OLDEST))

        thread = threading.Thread(target=answer)
        thread.start()
        feed = client(env={"PENSTOCK_ENGINE": f"unix:{where}"})
        said = feed.end()
        thread.join(LIMIT_S)
    assert greeted == [NEWEST, OLDEST] and "in this process" in said and len(rows(feed.ledger)) == COUNT


@pytest.mark.parametrize("mine, theirs", [((OLDEST, NEWEST), (OLDEST, OLDEST)), ((OLDEST, OLDEST), (OLDEST, NEWEST)),
                                          ((OLDEST, NEWEST), (NEWEST, NEWEST + 1)), ((NEWEST, NEWEST + 1), (OLDEST, NEWEST)),
                                          ((OLDEST, NEWEST), (NEWEST - 1, NEWEST - 1)), ((NEWEST - 1, NEWEST - 1), (OLDEST, NEWEST))])
def test_one_version_off_is_served(serve, client, mine, theirs):
    alone = client("--engine", "embedded")
    assert alone.end() == ""
    daemon = serve(env=claims(*theirs))
    shown = daemon.get("/v1/engine")
    assert (shown["protocol_oldest"], shown["protocol"]) == theirs
    feed = client("--engine", daemon.address, "--step-ms", 20, env=claims(*mine))
    daemon.until(lambda jobs: any(job["pid"] == feed.child.pid for job in jobs))
    assert feed.end() == "" and rows(feed.ledger) == rows(alone.ledger)


# ---- replaced under jobs -------------------------------------------------------------------------

ENDLESS = ("--epochs", 100000, "--step-ms", 20)


def check_strict(found, expected):
    assert len(found) > COUNT and found[:len(expected)] == expected[:len(found)]


def check_exact(found):
    """Nothing twice, and nothing missing but in the last epoch."""
    assert len({(row[0], row[4]) for row in found}) == len(found)
    last = int(found[-1][0])
    for epoch in range(last):
        assert sum(row[0] == str(epoch) for row in found) == COUNT


def whole_rows(feed):
    return [row for row in rows(feed.ledger) if len(row) >= 7]  # the last line may be cut


def test_daemons_replaced_under_four_jobs(serve, client, capsys):
    """The previous version, the next, and this one again, killed or ended: no step fails, and all are on the engine again soon."""
    def start(oldest, newest):
        return serve("--cache", "2M", env=claims(oldest, newest))

    golden = client("--engine", "embedded", "--epochs", 40)
    daemon = start(OLDEST, NEWEST)
    shared = ("--sampling", "opportunistic", "--order", "ready")
    feeds = [client("--engine", daemon.address, *ENDLESS, *how) for how in ((), ("--order", "ready"), shared, (*shared, "--seed", 7))]
    pids = {feed.child.pid for feed in feeds}

    def on_it(jobs):
        assert all(feed.child.poll() is None for feed in feeds), [feed.child.poll() for feed in feeds]
        return {job["pid"] for job in jobs if job["state"] == "running" and job["batches"] > 0} == pids

    daemon.until(on_it)
    took = []
    for number in range(3 * ROUNDS):
        code, said = daemon.kill(signal.SIGKILL if number % 2 else signal.SIGTERM)
        assert said == "" and code in (0, -signal.SIGKILL)
        daemon = start(*((OLDEST, OLDEST), (NEWEST, NEWEST + 1), (OLDEST, NEWEST))[number % 3])
        took.append(daemon.until(on_it))
    with capsys.disabled():
        print("back on the engine after", " ".join(f"{seconds:.2f}" for seconds in took), "s")
    assert max(took) < BACK_S
    daemon.fsck()
    for feed in feeds:
        os.kill(feed.child.pid, signal.SIGTERM)
        said = feed.end(128 + signal.SIGTERM)
        assert [line for line in said.splitlines() if "is gone" not in line] == [] and said.count("is gone") == 1, said
        check_exact(whole_rows(feed))
    assert golden.end() == ""
    expected = rows(golden.ledger)
    check_strict(whole_rows(feeds[0]), expected)
    bytes_of = {(row[0], row[4]): row[6] for row in expected}
    assert all(bytes_of.get((row[0], row[4]), row[6]) == row[6] for row in whole_rows(feeds[1]))
