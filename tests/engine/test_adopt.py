# SPDX-License-Identifier: Apache-2.0
"""Preparations that engines of a group lend each other through the remote tier: a real one, and one that misbehaves.
ADOPT_TOOL is adopt_tool, which checks that every job gets every sample once an epoch and no bytes twice."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs
import resp_faults
from redis_fixtures import redis, server  # noqa: F401, fixtures

pytestmark = pytest.mark.skipif(bool(rigs.missing_redis()), reason=str(rigs.missing_redis()))


def engines(url, what):
    """What they met; what they said."""
    done = subprocess.run([os.environ["ADOPT_TOOL"], url, what], capture_output=True, text=True, timeout=300,
                          env=rigs.clean_environment())
    assert done.returncode == 0, done.stderr + done.stdout
    print(done.stdout, done.stderr)
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def calls(redis, command):
    """How often the server was asked for that."""
    found = re.search(rb"cmdstat_%s:calls=(\d+)" % command.encode(), redis.command("INFO", "commandstats"))
    return int(found[1]) if found else 0


@pytest.fixture
def faultd():
    with rigs.Faultd(resp=1) as server:
        server.address = "redis://127.0.0.1:%d" % server.resp[0]
        yield server


@pytest.mark.parametrize("what", ["two", "cached", "three"])
def test_engines_prepare_a_sample_once_between_them(redis, what):
    """An answer that is late costs a preparation, or two: what was taken is gone."""
    met, _ = engines(redis.url, what)
    assert met["prepared"] < 0.85 * met["samples"] + 2 * met["errors"]
    assert met["adopted"] > 0 or met["errors"] > met["samples"] / 4


def test_a_cluster(tmp_path):
    with rigs.RedisCluster(tmp_path) as cluster:
        met, _ = engines(cluster.url, "two")
        assert met["adopted"] > 0 or met["errors"] > met["samples"] / 4


def test_what_is_lent_does_not_stay(redis):
    engines(redis.url, "own")
    keys = [key for key in redis.command("KEYS", "penstock:*") if not key.endswith(b":making")]
    lent = [key for key in keys if redis.command("STRLEN", key) < 10000]  # decoded ones are larger
    assert lent and all(0 < redis.command("PTTL", key) <= 120000 for key in lent)


def test_ones_own_does_not_come_back(redis):
    before = calls(redis, "getdel"), calls(redis, "psetex")
    met, _ = engines(redis.url, "own")
    assert met["adopted"] == 0 and met["prepared"] == met["samples"]
    assert calls(redis, "getdel") > before[0] and calls(redis, "psetex") > before[1]


def test_a_job_that_comes_from_another_engine_gets_nothing_again(redis):
    engines(redis.url, "moved")


@pytest.mark.parametrize("name", sorted(resp_faults.VALUES))
def test_what_somebody_touched_is_not_adopted(faultd, name):
    faultd.rules([{"match": {"op": "resp", "command": "GETDEL"}, "do": {"value": resp_faults.VALUES[name]}}])
    met, _ = engines(faultd.address, "two")
    assert met["adopted"] == 0 and met["prepared"] == met["samples"]
    assert faultd.stats()["resp"]["GETDEL"] > 0


@pytest.mark.parametrize("command", ["GETDEL", "PSETEX"])
@pytest.mark.parametrize("why", ["ERR unknown command", "NOPERM this user has no permissions"])
def test_a_server_that_cannot_is_left_alone(faultd, command, why):
    """With one message of each engine; everything else that it is good for goes on."""
    faultd.rules([{"match": {"op": "resp", "command": command}, "do": {"error": why}}])
    met, said = engines(faultd.address, "two")
    assert met["adopted"] == 0 and met["prepared"] == met["samples"]
    assert said.count("refuses GETDEL") == 2 and "it answers NOPERM" not in said
    asked = faultd.stats()["resp"]
    assert 0 < asked[command] < met["samples"] / 2 + met["errors"] and asked["GET"] > 0
