# SPDX-License-Identifier: Apache-2.0
"""The real servers that tests and benches start: they come up, do what a client needs, and are gone afterwards."""
import http.client
import pathlib
import sys

import pytest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rigs

needs_versitygw = pytest.mark.skipif(bool(rigs.missing_versitygw()), reason=str(rigs.missing_versitygw()))
needs_redis = pytest.mark.skipif(bool(rigs.missing_redis()), reason=str(rigs.missing_redis()))


@needs_versitygw
def test_versitygw_keeps_what_is_put(tmp_path):
    with rigs.Versitygw(tmp_path) as server:
        server.put("bucket", "a/b c", b"content")
        assert (tmp_path / "bucket" / "a" / "b c").read_bytes() == b"content"
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/bucket/a/b%20c")
        assert connection.getresponse().status == 403  # not signed
        connection.close()
    assert server.child.poll() is not None


@needs_redis
def test_redis_alone(tmp_path):
    with rigs.Redis(tmp_path, password="word") as server:
        assert server.command("SET", "key", "value") == b"OK"
        server.stop()
        server.start()
        assert server.command("GET", "key") is None
    assert server.child.poll() is not None


@needs_redis
def test_redis_as_a_cluster(tmp_path):
    with rigs.RedisCluster(tmp_path) as cluster:
        said = [None] * 3
        for number, node in enumerate(cluster.nodes):
            try:
                said[number] = node.command("SET", "foo", "bar")
            except RuntimeError as error:
                said[number] = str(error)
        moved = "MOVED 12182 127.0.0.1:%d" % cluster.nodes[2].port
        assert said == [moved, moved, b"OK"]
    assert all(node.child.poll() is not None for node in cluster.nodes)
