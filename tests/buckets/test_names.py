# SPDX-License-Identifier: Apache-2.0
"""Names that are not resolved, late, or wrongly: waited for as long as patience says, asked for again, never stuck."""
import os
import time

import pytest

import rigs
from conftest import COUNT, must_be

URL = "s3://data/photos"

# C7


@pytest.fixture
def named(feed, faultd, tmp_path):
    """named(way, **env) feeds an epoch from a host whose name is resolved that way; the result, seconds, and lookups."""
    def run(way, **env):
        faultd.rules([])
        log = tmp_path / "lookups"
        env = rigs.clean_environment(AWS_ENDPOINT_URL_S3=f"http://bucket.test:{faultd.port}", AWS_REGION="us-east-1",
                                     LD_PRELOAD=os.environ["FAULT_RESOLVER_LIB"], FAULT_RESOLVER=way, FAULT_RESOLVER_LOG=str(log), **env)
        begin = time.monotonic()
        done = feed(URL, env, timeout=50)
        return done, time.monotonic() - begin, len(log.read_bytes())

    return run


def test_a_name_server_that_is_away_for_a_while(named, golden):
    done, _, lookups = named("fail:3")
    must_be(done, golden["photos"])
    assert 4 <= lookups < COUNT


def test_a_name_that_is_never_found(named):
    done, took, lookups = named("fail:1000000", PENSTOCK_NET_TIMEOUT="2")
    assert done.code == 1 and "bucket.test" in done.err and took < 20, done.err
    assert lookups <= 20


def test_a_name_server_that_takes_its_time(named, golden):
    done, _, _ = named("slow:3")
    must_be(done, golden["photos"])


def test_a_name_server_that_never_answers(named):
    """The lookup itself cannot be ended; nobody waits for it."""
    done, took, _ = named("slow:45", PENSTOCK_NET_TIMEOUT="2")
    assert done.code == 1 and "bucket.test" in done.err and took < 20, (took, done.err)


def test_a_host_that_has_moved(named, golden):
    """The address that was found leads nowhere: the name is looked up again, before curl's minute is over."""
    done, took, lookups = named("stale:1")
    must_be(done, golden["photos"])
    assert lookups >= 2 and took < 20
