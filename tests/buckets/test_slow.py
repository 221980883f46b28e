# SPDX-License-Identifier: Apache-2.0
"""Servers that are slow, stand still or are away for a while: nothing hangs, nothing is asked for without end."""
import contextlib
import signal
import subprocess
import time

import pytest

import rigs
from conftest import COUNT, CROP, SHORT, must_be

URL = "s3://data/photos"
STEP_MS = 80  # for 8 samples: 100 requests a second


# C7


def test_a_request_without_an_answer_is_sent_again(feed, faultd, golden):
    """Small objects: a second request on another connection after two seconds."""
    faultd.rules([{"name": "silent", "match": {"op": "get", "key": "photos/*7.jpg", "nth": 1, "per": "key"}, "do": {"stall": "before"}}])
    begin = time.monotonic()
    must_be(feed(URL, faultd.environment(), timeout=30), golden["photos"])
    assert time.monotonic() - begin < 9
    silent = faultd.stats()["fired"]["silent"]
    assert silent >= 4
    asked = {}
    for entry in faultd.log():
        if entry["op"] == "get" and entry["key"].endswith("7.jpg"):
            asked.setdefault(entry["key"], []).append((entry["t"], entry["connection"]))
    again = [times for times in asked.values() if len(times) > 1]
    assert len(again) == silent
    assert all(1.5 < times[1][0] - times[0][0] < 4 and times[1][1] != times[0][1] for times in again), again


def test_trickles_and_stalls_are_given_up(feed, faultd, golden):
    """Less than 1 KB a second for ten seconds; all kinds in one run, so that it lasts as long as one."""
    ways = [{"bandwidth": 1}, {"stall": "headers"}, {"stall": 3000}]
    faultd.rules([{"name": f"slow{number}", "match": {"op": "get", "key": f"photos/*{number}.jpg", "nth": 1, "per": "key"}, "do": do}
                  for number, do in enumerate(ways)])
    begin = time.monotonic()
    must_be(feed(URL, faultd.environment(), timeout=60), golden["photos"])
    assert time.monotonic() - begin < 30
    assert all(count >= 4 for count in faultd.stats()["fired"].values())


def test_a_black_hole_is_an_error_in_time(feed):
    with rigs.black_hole() as port:
        env = rigs.clean_environment(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{port}", AWS_REGION="us-east-1", **SHORT)
        done = feed(URL, env, timeout=30)
        assert done.code == 1 and done.err.startswith("penstock: "), done.err


def test_nobody_there(feed):
    port, = rigs.free_ports(1)
    env = rigs.clean_environment(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{port}", AWS_REGION="us-east-1", **SHORT)
    done = feed(URL, env, timeout=30)
    assert done.code == 1 and str(port) in done.err, done.err


# C2


def outage(binary, faultd, tmp_path, jobs, before_s, away_s, after_s):
    """Jobs that take batches at a set pace, over and over, while the bucket is away in the middle; the log and the jobs."""
    begin = faultd.rules([{"name": "away", "match": {"after_s": before_s, "for_s": away_s}, "do": {"status": 500}}])["now"]
    children, said = [], []
    with contextlib.ExitStack() as stack:
        for number in range(jobs):
            env = {**faultd.environment(), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / str(number))}
            child = subprocess.Popen([binary, "feed", URL, "--pipeline", CROP, "--batch", "8", "--epochs", "100000", "--step-ms",
                                      str(STEP_MS), "--memory", "128M", "--workers", "1", "--quiet", "--seed", str(number)],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
            stack.callback(lambda child=child: (child.kill(), child.communicate()))
            children.append(child)
        end = time.monotonic() + before_s + away_s + after_s
        for child in children:
            try:
                said.append(child.communicate(timeout=max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                said.append(None)  # still at work, as it should be
        log = [entry for entry in faultd.log() if entry["op"] == "get"]
    return log, said, begin + before_s


def rate(log, begin, end):
    return sum(begin <= entry["t"] < end for entry in log) / (end - begin)


def check_outage(binary, faultd, tmp_path, jobs, away_s):
    """The normal rate is what the jobs' pace asks for: what they ask for ahead comes in bursts."""
    log, said, gone = outage(binary, faultd, tmp_path, jobs, 4.0, away_s, 8.0)
    assert said == [None] * jobs, said
    normal, over = jobs * 8 / (STEP_MS / 1000), gone + away_s
    assert any(entry["status"] == 200 for entry in log if entry["t"] < gone)
    assert any(entry["status"] == 500 for entry in log)
    back = min(entry["t"] for entry in log if entry["t"] >= over and entry["status"] == 200)
    figures = {"normal": normal, "drained": rate(log, gone + away_s * 2 / 3, over), "recovered after": back - over,
               "first second": rate(log, back, back + 1)}
    assert figures["drained"] <= 0.1 * normal, figures
    assert figures["recovered after"] <= 5, figures
    assert figures["first second"] <= 1.5 * normal, figures


def test_an_outage_is_waited_out(binary, faultd, tmp_path):
    check_outage(binary, faultd, tmp_path, jobs=1, away_s=9)


@pytest.mark.long
def test_a_minute_of_outage_under_sixteen_jobs(binary, faultd, tmp_path):
    check_outage(binary, faultd, tmp_path, jobs=16, away_s=60)


def test_an_outage_that_does_not_end_is_an_error(feed, faultd):
    faultd.rules([{"match": {"op": "get"}, "do": {"status": 500}}])
    done = feed(URL, faultd.environment(**SHORT), timeout=30)
    assert done.code == 1 and "500" in done.err and ".jpg" in done.err, done.err
    assert faultd.stats()["requests"]["get"] <= 10 * COUNT


def test_twenty_milliseconds_away_the_epoch_is_the_same(feed, faultd, golden):
    faultd.rules([{"do": {"delay_ms": 20}}])
    must_be(feed(URL, faultd.environment()), golden["photos"])


# Stopping


STUCK = {"list": ("s3://data/shards", "list"), "head": ("s3://data/shards/part-0.tar", "head"), "scan": ("s3://data/shards", "get")}


@pytest.mark.parametrize("what", STUCK)
def test_a_dataset_that_does_not_open_can_be_stopped(binary, faultd, what):
    """Patience is a hundred seconds here; what Ctrl-C ends has ended long before."""
    where, op = STUCK[what]
    faultd.rules([{"name": "stuck", "match": {"op": op}, "do": {"stall": "before"}}])
    child = subprocess.Popen([binary, "inspect", where, "--index-dir", "none"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env=faultd.environment(PENSTOCK_NET_TIMEOUT="100"))
    try:
        end = time.monotonic() + 30
        while not faultd.stats()["fired"].get("stuck") and time.monotonic() < end:
            time.sleep(0.05)
        begin = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        assert time.monotonic() - begin < 20 and child.returncode != 0, err
    finally:
        child.kill()
        child.wait()
        faultd.rules([])
