# SPDX-License-Identifier: Apache-2.0
"""Ranks of one machine with engine="auto": one engine for all of them, which ends with local rank 0."""
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from conftest import LIMIT_S

penstock = pytest.importorskip("penstock")
RANKS, COUNT = 4, 96
SCRIPT = Path(__file__).with_name("rank.py")


class Rank:
    def __init__(self, number, env, photos, epochs, pause):
        self.child = subprocess.Popen([sys.executable, str(SCRIPT), str(photos), str(epochs), str(pause)], env=env,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self):
        ready, _, _ = select.select([self.child.stdout], [], [], LIMIT_S)
        text = self.child.stdout.readline() if ready else ""
        assert text, self.child.stderr.read()
        return json.loads(text)

    def go(self):
        self.child.stdin.write("go\n")
        self.child.stdin.flush()

    def end(self):
        """What it took, and what it said."""
        out, err = self.child.communicate(timeout=LIMIT_S)
        assert self.child.returncode == 0, err
        return json.loads(out)["ids"], err


@pytest.fixture
def ranks(environment, photos, tmp_path):
    """ranks(...) starts four, as torchrun would; all are ended with the test."""
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        def start(epochs=2, pause=0.0, numbers=range(RANKS), **more):
            env = {**environment, "XDG_RUNTIME_DIR": str(run), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", **more}
            made = []
            for number in numbers:
                made.append(Rank(number, {**env, "RANK": str(number), "LOCAL_RANK": str(number)}, photos, epochs, pause))
                stack.callback(lambda child=made[-1].child: (child.kill(), child.communicate()))
            return made

        start.run = run
        yield start


def threads(pid):
    names = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text().strip())
    return names


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(what):
    begin = time.monotonic()
    while not what():
        assert time.monotonic() - begin < LIMIT_S


def check_once(taken, epochs=2):
    for epoch in range(epochs):
        assert Counter(i for ids in taken for i in ids[epoch]) == Counter(range(COUNT))


def test_one_engine_for_all(ranks):
    four = ranks()
    told = [rank.line() for rank in four]
    assert all(one["served"] for one in told)
    (daemon,) = children(four[0].child.pid)
    assert [children(rank.child.pid) for rank in four[1:]] == [[], [], []]
    pids = [daemon, *(rank.child.pid for rank in four)]
    workers = [name for pid in pids for name in threads(pid) if name.startswith("pst-work")]
    assert 1 <= len(workers) <= 1.1 * penstock.settings()["cpus"], workers
    for rank in four:
        rank.go()
    ended = [rank.end() for rank in four]
    check_once([ids for ids, _ in ended])
    for _, err in ended:  # rank 0 may be the first to end
        assert err == "" or (err.count("is gone") == 1 and len(err.splitlines()) == 1), err
    until(lambda: not Path(f"/proc/{daemon}").exists())
    assert os.listdir(ranks.run) == []


def test_rank_0_is_killed(ranks):
    four = ranks(pause=0.01)
    assert all(rank.line()["served"] for rank in four)
    (daemon,) = children(four[0].child.pid)
    four[0].child.kill()
    four[0].child.wait(LIMIT_S)
    until(lambda: not Path(f"/proc/{daemon}").exists() or Path(f"/proc/{daemon}/stat").read_text().split(") ")[1][0] == "Z")
    for rank in four[1:]:
        rank.go()
    ended = [rank.end() for rank in four[1:]]
    for ids, err in ended:
        assert err.count("is gone") == 1 and len(err.splitlines()) == 1, err
    taken = Counter(i for ids, _ in ended for i in ids[0])
    assert max(taken.values()) == 1 and len(taken) == COUNT * 3 // 4
    assert os.listdir(ranks.run) == []


def test_no_child_can_be_started(ranks):
    """Each rank takes its share, and says so."""
    blocked = ranks.run / "file"
    blocked.write_text("")
    four = ranks(XDG_RUNTIME_DIR=str(blocked))
    told = [rank.line() for rank in four]
    assert [one["served"] for one in told] == [False] * RANKS
    assert sum(one["workers"] for one in told) <= max(RANKS, penstock.settings()["cpus"])
    for rank in four:
        rank.go()
    ended = [rank.end() for rank in four]
    check_once([ids for ids, _ in ended])
    assert all(len(err.splitlines()) == 1 and "do not share an engine" in err for _, err in ended), ended


def test_two_runs_do_not_meet(ranks):
    first, second = ranks(MASTER_PORT="29513"), ranks(MASTER_PORT="29514")
    assert all(rank.line()["served"] for rank in first + second)
    assert len(os.listdir(ranks.run)) == 2
    for four in first, second:
        for rank in four:
            rank.go()
        check_once([rank.end()[0] for rank in four])


def test_rank_0_comes_last(ranks):
    others = ranks(numbers=[1, 2, 3])
    until(lambda: os.listdir(ranks.run))
    (zero,) = ranks(numbers=[0])
    assert all(rank.line()["served"] for rank in [*others, zero])
    for rank in [*others, zero]:
        rank.go()
    check_once([rank.end()[0] for rank in [*others, zero]])


def test_a_fork_of_rank_0_does_not_keep_it_alive(ranks, environment, photos):
    """The pipe by which the daemon sees the end of rank 0 is closed in its children."""
    code = f"""
import os, sys
import penstock
loader = penstock.Loader({str(photos)!r}, "decode | resize(32)", 4, engine="auto", memory="64M", cache=0)
next(iter(loader))
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), 9)
"""
    env = {**environment, "XDG_RUNTIME_DIR": str(ranks.run), "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0",
           "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29515"}
    rank = subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    orphan = int(rank.stdout.readline())
    rank.wait(LIMIT_S)
    until(lambda: os.listdir(ranks.run) == [])
    assert Path(f"/proc/{orphan}").exists()
    rank.stdin.close()
    rank.stdout.close()
