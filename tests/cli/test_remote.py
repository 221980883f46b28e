# SPDX-License-Identifier: Apache-2.0
"""--remote: samples kept in Redis for all engines. Nothing but speed and figures may differ, whatever the server does.
REMOTE_TIMES: how often it is killed, stopped and emptied (3 unless told)."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import CROP, read_ledger

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs
import resp_faults
from redis_fixtures import redis, server  # noqa: F401, fixtures

TIMES = int(os.environ.get("REMOTE_TIMES", "3"))
COSTLY = "decode | delay(5) | random_resized_crop(32) | hflip | normalize(imagenet)"
SLOWLY = COSTLY.replace("delay(5)", "delay(100)")
pytestmark = pytest.mark.skipif(bool(rigs.missing_redis()), reason=str(rigs.missing_redis()))


@pytest.fixture(scope="module", autouse=True)
def built(penstock):
    if json.loads(penstock("settings", "--json").out)["features"]["remote"].startswith("built without"):
        pytest.skip("built without hiredis")


@pytest.fixture(scope="module")
def plain(feed, photos, tmp_path_factory):
    """What COSTLY delivers without any tier."""
    path = tmp_path_factory.mktemp("plain") / "ledger"
    feed(photos, "--epochs", 2, "--seed", 3, "--ledger", path, pipeline=COSTLY)
    return read_ledger(path)


def decodes(report):
    return next(stage["runs"] for stage in report["stages"] if stage["name"].startswith("delay"))


class Engine:
    """penstock feed beside the test."""

    def __init__(self, binary, photos, url, *more, ledger=None, pipeline=COSTLY):
        command = [binary, "feed", photos, "--pipeline", pipeline, "--batch", 8, "--json", "--quiet", "--seed", 3, "--remote", url, *more]
        command += ["--ledger", ledger] if ledger else []
        self.child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=rigs.clean_environment())

    def report(self):
        out, self.said = self.child.communicate(timeout=120)
        assert self.child.returncode == 0, self.said
        return json.loads(out.splitlines()[-1])


def two_engines(binary, photos, redis, more, pipeline=COSTLY):
    """Their reports, and how often they were not answered in time: then a sample is made anew, as it must be."""
    redis.command("FLUSHALL")
    reports = [engine.report() for engine in [Engine(binary, photos, redis.url, "--epochs", 1, *more, pipeline=pipeline)
                                                for _ in range(2)]]
    late = sum(report["remote_errors"] for report in reports)
    assert [report["samples"] for report in reports] == [48, 48]
    assert 48 <= sum(map(decodes, reports)) <= 48 + late
    assert sum(report["remote_hits"] for report in reports) == 96 - sum(map(decodes, reports))
    return reports, late


def answered_in_time(*arguments):
    """two_engines until nothing was late: each sample was decoded once, to the sample."""
    for _ in range(8):  # on a machine that has other things to do
        if two_engines(*arguments)[1] == 0:
            return
    pytest.skip("a machine so busy that Redis does not answer within 50 ms")


@pytest.mark.parametrize("more", [(), ("--order", "ready"), ("--cache", "auto", "--memory", "256M")])
def test_two_engines_decode_each_sample_once(binary, photos, redis, more):
    answered_in_time(binary, photos, redis, more)
    third = Engine(binary, photos, redis.url, "--epochs", 1, *more).report()
    assert decodes(third) <= third["remote_errors"] and third["remote_hits"] == 48 - decodes(third)


def claimed(redis):
    """Samples that somebody is about to make."""
    marks = [key for key in redis.command("KEYS", "*:making")]
    return [key for key in marks if not redis.command("EXISTS", key[:-len(b":making")])]


def test_slow_engines_decode_each_sample_once(binary, photos, redis):
    """Each takes longer for what it looks ahead at than a mark lasts that nobody renews."""
    answered_in_time(binary, photos, redis, ("--workers", 1), SLOWLY)


def test_what_is_claimed_is_made_soon(binary, photos, redis):
    """An engine claims what its workers go on with, not all that it looks ahead at: the rest is for others."""
    engine, most = Engine(binary, photos, redis.url, "--epochs", 1, "--workers", 1, pipeline=SLOWLY), 0
    while engine.child.poll() is None:
        most = max(most, len(claimed(redis)))
        time.sleep(0.02)
    assert decodes(engine.report()) == 48 and 0 < most <= 8


def test_an_engine_that_dies_with_claims_holds_nobody_up(binary, photos, redis):
    """What it had claimed is made by the other one, when the marks have run out."""
    dead = Engine(binary, photos, redis.url, "--epochs", 1, "--workers", 2, pipeline=SLOWLY)
    end = time.monotonic() + 60
    while not claimed(redis):
        assert time.monotonic() < end and dead.child.poll() is None
        time.sleep(0.01)
    dead.child.kill()
    dead.child.communicate()
    left = 48 - (redis.command("DBSIZE") - len(redis.command("KEYS", "*:making")))
    begin = time.monotonic()
    report = Engine(binary, photos, redis.url, "--epochs", 1, "--workers", 16, pipeline=SLOWLY).report()
    assert report["samples"] == 48 and left <= decodes(report) <= left + report["remote_errors"]
    assert time.monotonic() - begin < 60


def test_the_same_comes_out(binary, photos, redis, plain, tmp_path):
    for turn in range(2):
        report = Engine(binary, photos, redis.url, "--epochs", 2, ledger=tmp_path / str(turn)).report()
        assert read_ledger(tmp_path / str(turn)) == plain
        assert report["remote_hits"] + report["remote_errors"] >= (48, 96)[turn]


def test_engines_of_a_group_share(binary, photos, redis, tmp_path):
    """Every sample is prepared, adopted, or another job's; each of the two has all of them once an epoch."""
    more = ("--epochs", 3, "--order", "ready", "--cache", "64M", "--sampling", "opportunistic")
    pipeline = "decode | random_resized_crop(32) | delay(5) | hflip | normalize(imagenet)"
    pair = [Engine(binary, photos, redis.url, *more, ledger=tmp_path / str(i), pipeline=pipeline) for i in range(2)]
    for i, report in enumerate([engine.report() for engine in pair]):
        assert report["samples"] == 3 * 48 == report["preparations"] + report["adopted"] + report["augmented_hits"]
        rows = [line.split("\t") for line in (tmp_path / str(i)).read_text().splitlines() if not line.startswith("#")]
        assert len({(row[0], row[4]) for row in rows}) == len(rows) == 3 * 48


def test_a_cluster(binary, photos, plain, tmp_path):
    with rigs.RedisCluster(tmp_path / "cluster") as cluster:
        for turn in range(2):
            report = Engine(binary, photos, cluster.url, "--epochs", 2, ledger=tmp_path / str(turn)).report()
            assert read_ledger(tmp_path / str(turn)) == plain
        assert report["remote_hits"] + report["remote_errors"] >= 96
        dead = Engine(binary, photos, cluster.url, "--epochs", 2, ledger=tmp_path / "dead")
        time.sleep(0.2)
        cluster.nodes[1].stop()
        dead.report()
        assert read_ledger(tmp_path / "dead") == plain


def test_other_pipelines_do_not_mix(feed, photos, redis, tmp_path):
    for pipeline in (CROP, "decode | resize(40) | random_crop(32)", "decode | center_crop(40) | random_crop(32) | normalize(imagenet)"):
        ledgers = []
        for url in ((), ("--remote", redis.url), ("--remote", redis.url)):
            ledgers.append(tmp_path / "ledger")
            feed(photos, "--ledger", ledgers[-1], *url, pipeline=pipeline)
            ledgers[-1] = read_ledger(ledgers[-1])
        assert ledgers[0] == ledgers[1] == ledgers[2]


@pytest.mark.parametrize("what", ["kill", "stop", "flush"])
def test_a_server_that_goes_changes_no_byte(binary, photos, redis, plain, tmp_path, what):
    """At random moments of an epoch, and it comes back in another one."""
    random.seed(what)
    for _ in range(TIMES):
        engine = Engine(binary, photos, redis.url, "--epochs", 2, ledger=tmp_path / "ledger")
        time.sleep(random.random() * 0.4)
        if what == "flush":
            redis.command("FLUSHALL")
        elif what == "kill":
            redis.stop()
        else:
            redis.child.send_signal(signal.SIGSTOP)
        again = threading.Timer(random.random() * 0.3, lambda: redis.start() if what == "kill" else redis.child.send_signal(signal.SIGCONT))
        again.start()
        report = engine.report()
        again.join()
        assert report["samples"] == 96 and read_ledger(tmp_path / "ledger") == plain
        assert engine.said.count("remote tier") <= 1


@pytest.mark.parametrize("name", sorted(resp_faults.VALUES))
def test_values_that_somebody_touched_are_not_served(binary, photos, plain, tmp_path, name):
    with rigs.Faultd(resp=1) as faultd:
        url = "redis://127.0.0.1:%d" % faultd.resp[0]
        Engine(binary, photos, url, "--epochs", 1).report()
        faultd.rules(resp_faults.values(0.5)[name])
        report = Engine(binary, photos, url, "--epochs", 2, ledger=tmp_path / "ledger").report()
        assert read_ledger(tmp_path / "ledger") == plain
        assert report["remote_errors"] > 10


def test_what_it_is_is_told(penstock, photos, redis):
    out = penstock("feed", photos, "--pipeline", CROP, "--epochs", 1, "--remote", redis.url).out
    assert "remote       " in out
    for url, why in (("http://x", "redis://"), ("redis://me:secret@x", "PENSTOCK_REMOTE_PASSWORD")):
        done = penstock("feed", photos, "--pipeline", CROP, "--remote", url, check=False)
        assert done.code != 0 and why in done.err and "secret" not in done.err


def test_nobody_there_costs_no_sample(feed, photos, plain, tmp_path):
    port, = rigs.free_ports(1)
    done = feed(photos, "--epochs", 2, "--seed", 3, "--ledger", tmp_path / "ledger", "--remote", "redis://127.0.0.1:%d" % port, pipeline=COSTLY)
    assert read_ledger(tmp_path / "ledger") == plain and done.err.count("remote tier") == 1
