# SPDX-License-Identifier: Apache-2.0
"""kill -9: of a client, which disturbs nobody and leaves nothing; of the daemon, whose clients finish by themselves."""
import os
import random
import time

import pytest

from conftest import multiset, rows

CLIENTS = int(os.environ.get("PENSTOCK_KILLS_CLIENT", "20"))
DAEMONS = int(os.environ.get("PENSTOCK_KILLS_DAEMON", "10"))


def steady(order, step_ms=2):
    return ("--order", order, "--epochs", 3, "--step-ms", step_ms)


def slow(order):
    """Still there when something is to happen to it, whatever else the machine does."""
    return steady(order, 20)


@pytest.fixture
def expected(client):
    """Ledgers of the same jobs, undisturbed."""
    kept = {}

    def of(*args):
        if args not in kept:
            one = client("--engine", "embedded", *args)
            assert one.end() == ""
            kept[args] = one
        return kept[args].ledger

    return of


def check(feed, ledger, order):
    if order == "strict":
        assert rows(feed.ledger) == rows(ledger)
    assert multiset(feed.ledger) == multiset(ledger)


def test_client_killed_at_random_moments(serve, client, expected):
    """Three go on exactly, the pins of the fourth are gone within a second, fewer than CLIENTS runs are needed per kill."""
    daemon = serve()
    dice = random.Random(11)
    survivors, kills = [], 0
    while kills < CLIENTS:
        while len(survivors) < 3:
            order = dice.choice(["strict", "ready"])
            survivors.append((client("--engine", daemon.address, *steady(order)), order))
        victim = client("--engine", daemon.address, *steady(dice.choice(["strict", "ready"])))
        time.sleep(dice.uniform(0, 0.4))  # the random moment itself
        victim.kill()
        kills += 1
        took = daemon.until(lambda jobs, pid=victim.child.pid: not any(job["pid"] == pid for job in jobs))
        assert took < 1, took
        going = []
        for feed, order in survivors:
            if feed.child.poll() is None:
                going.append((feed, order))
            else:
                assert feed.end() == ""
                check(feed, expected(*steady(order)), order)
        survivors = going
    for feed, order in survivors:
        assert feed.end() == ""
        check(feed, expected(*steady(order)), order)
    daemon.until(lambda jobs: not jobs)
    assert daemon.get("/v1/datasets") == {"datasets": []}
    assert daemon.kill(15) == (0, "")


@pytest.mark.parametrize("order", ["strict", "ready"])
def test_daemon_killed_in_mid_epoch(serve, client, expected, order):
    dice = random.Random(12)
    for _ in range((DAEMONS + 1) // 2):
        daemon = serve()
        feeds = [client("--engine", daemon.address, *slow(order), "--rank", f"{rank}/2") for rank in range(2)]
        daemon.until(lambda jobs: sum(job.get("batches", 0) > 0 for job in jobs) == 2)
        time.sleep(dice.uniform(0, 0.2))  # the random moment itself
        daemon.kill()
        for rank, feed in enumerate(feeds):
            said = feed.end()
            assert len(said.splitlines()) == 1 and said.count("is gone") == 1, said
            check(feed, expected(*slow(order), "--rank", f"{rank}/2"), order)


def test_state_after_the_daemon_died(serve, client, expected, tmp_path):
    for order in "strict", "ready":
        daemon = serve()
        state = tmp_path / f"state-{order}"
        feed = client("--engine", daemon.address, *slow(order), "--max-batches", 20, "--save-state", state)
        daemon.until(lambda jobs: any(job.get("batches", 0) > 3 for job in jobs))
        daemon.kill()
        assert feed.end().count("is gone") == 1
        rest = client("--engine", "embedded", *slow(order), "--load-state", state)
        rest.end()
        whole = expected(*slow(order))
        assert multiset(feed.ledger) + multiset(rest.ledger) == multiset(whole)
        if order == "strict":
            assert rows(feed.ledger) + rows(rest.ledger) == rows(whole)


def test_stopped_client_stalls_nobody(serve, client, expected):
    daemon = serve()
    stopped = client("--engine", daemon.address, *slow("strict"))
    daemon.until(lambda jobs: any(job.get("batches", 0) > 2 for job in jobs))
    os.kill(stopped.child.pid, 19)
    other = client("--engine", daemon.address, *steady("strict"))
    assert other.end() == ""
    check(other, expected(*steady("strict")), "strict")
    os.kill(stopped.child.pid, 18)
    assert stopped.end() == ""
    check(stopped, expected(*slow("strict")), "strict")
