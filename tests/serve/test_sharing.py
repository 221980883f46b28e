# SPDX-License-Identifier: Apache-2.0
"""Jobs of a daemon that share preparations: exact in every epoch, whoever is slow, joins, or is killed."""
import os
import random
import time

from conftest import check_exact, rows

CLIENTS = int(os.environ.get("PENSTOCK_KILLS_SHARING", "10"))
DAEMONS = int(os.environ.get("PENSTOCK_KILLS_DAEMON", "4"))
COUNT, EPOCHS = 96, 3


def shared(daemon, step_ms, epochs=EPOCHS):
    return ("--engine", daemon.address, "--sampling", "opportunistic", "--order", "ready", "--epochs", epochs, "--step-ms", step_ms)


def check(feed):
    """Exact; its preparations."""
    return check_exact(feed.ledger, EPOCHS, range(COUNT))


def check_same_bytes(feeds):
    """A preparation is the same sample with the same bytes for whoever got it."""
    seen = {}
    for feed in feeds:
        for row in rows(feed.ledger):
            assert seen.setdefault(row[7], (row[4], row[6])) == (row[4], row[6])


def test_different_speeds(serve, client):
    daemon = serve("--cache", "2M")
    feeds = [client(*shared(daemon, ms), "--seed", ms) for ms in (2, 4, 6, 10)]
    assert [feed.end() for feed in feeds] == ["", "", "", ""]
    numbers = [number for feed in feeds for number in check(feed)]
    assert len(numbers) == 4 * EPOCHS * COUNT
    assert len(set(numbers)) < 0.8 * len(numbers), "next to nothing was shared"
    check_same_bytes(feeds)
    daemon.fsck()
    daemon.until(lambda jobs: not jobs)
    assert daemon.cache()["pinned"] == 0


def test_client_killed_at_random_moments(serve, client):
    """The other three are exact; it is gone, with what it held, within a second; the books agree."""
    daemon = serve("--cache", "2M")
    dice = random.Random(21)
    survivors, kills = [], 0
    while kills < CLIENTS:
        while len(survivors) < 3:
            survivors.append(client(*shared(daemon, dice.choice([1, 2, 4]))))
        victim = client(*shared(daemon, dice.choice([1, 2, 4])))
        time.sleep(dice.uniform(0, 0.4))  # the random moment itself
        victim.kill()
        kills += 1
        took = daemon.until(lambda jobs, pid=victim.child.pid: not any(job["pid"] == pid for job in jobs))
        assert took < 1, took
        daemon.fsck()
        for feed in [feed for feed in survivors if feed.child.poll() is not None]:
            assert feed.end() == ""
            check(feed)
            survivors.remove(feed)
    for feed in survivors:
        assert feed.end() == ""
        check(feed)
    daemon.until(lambda jobs: not jobs)
    daemon.fsck()
    assert daemon.cache()["pinned"] == 0
    assert daemon.kill(15) == (0, "")


def test_nothing_stays_pinned_after_a_kill(serve, client):
    """With nobody else there, what is still held was the victim's."""
    daemon = serve("--cache", "2M")
    dice = random.Random(22)
    for _ in range(4):
        victims = [client(*shared(daemon, 1, epochs=50)) for _ in range(2)]
        daemon.until(lambda jobs: sum(job.get("batches", 0) > 0 for job in jobs) == 2)
        time.sleep(dice.uniform(0, 0.2))  # the random moment itself
        for victim in victims:
            victim.kill()
        begin = time.monotonic()
        while daemon.jobs() or daemon.cache()["pinned"]:
            assert time.monotonic() - begin < 1, (daemon.jobs(), daemon.cache())
        daemon.fsck()


def test_daemon_killed_in_mid_epoch(serve, client):
    """Its clients finish exactly, by themselves, sharing with nobody."""
    dice = random.Random(23)
    for _ in range(DAEMONS):
        daemon = serve("--cache", "2M")
        feeds = [client(*shared(daemon, ms)) for ms in (20, 30)]
        daemon.until(lambda jobs: sum(job.get("batches", 0) > 0 for job in jobs) == 2)
        time.sleep(dice.uniform(0, 0.1))  # the random moment itself
        daemon.kill()
        for feed in feeds:
            said = feed.end()
            assert len(said.splitlines()) == 1 and said.count("is gone") == 1, said
            assert 0 < len(check(feed)) < EPOCHS * COUNT
