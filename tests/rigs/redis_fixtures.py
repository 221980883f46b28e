# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests that need a redis-server: `from redis_fixtures import redis, server`."""
import pytest

import rigs


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all tests of a file."""
    with rigs.Redis(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture
def redis(server):
    """The same, empty."""
    server.command("FLUSHALL")
    return server
