# SPDX-License-Identifier: Apache-2.0
"""The happy path against a real S3 server, for what a server of our own making would get wrong in the same way as the client."""
import pathlib
import subprocess

import pytest

import rigs
from conftest import must_be

pytestmark = pytest.mark.skipif(bool(rigs.missing_versitygw()), reason=str(rigs.missing_versitygw()))


@pytest.fixture(scope="module")
def server(data, tmp_path_factory):
    with rigs.Versitygw(tmp_path_factory.mktemp("s3")) as real:
        real.upload("test-data", data)
        yield real


@pytest.mark.parametrize("kind", ["photos", "shards"])
def test_an_epoch(feed, server, golden, kind):
    must_be(feed(f"s3://test-data/{kind}", server.environment()), golden[kind])


def test_keys_with_all_kinds_of_signs(feed, server, data):
    photo = sorted((data / "photos").rglob("*.jpg"))[0].read_bytes()
    names = ["with space.jpg", "plus+and&.jpg", "percent%41.jpg", "ümlaut.jpg", "a=b;c,d.jpg", "(brackets)~!'.jpg"]
    for name in names:
        server.put("odd-names", "class/" + name, photo)
    done = feed("s3://odd-names", server.environment(), batch=2)
    assert done.code == 0, done.err
    assert sorted(pathlib.PurePath(row[4]).name for row in done.rows) == sorted(names)


def test_more_keys_than_a_page_has(binary, server, data):
    photo = sorted((data / "photos").rglob("*.jpg"))[0].read_bytes()
    for number in range(1100):
        server.put("pages", f"c{number % 3}/{number:05}.jpg", photo)
    done = subprocess.run([binary, "inspect", "s3://pages", "--probe", "1", "--index-dir", "none"], env=server.environment(),
                          capture_output=True, text=True)
    assert done.returncode == 0 and "1100" in done.stdout.replace(",", ""), done


def test_wrong_credentials(feed, server):
    env = server.environment()
    env["AWS_SECRET_ACCESS_KEY"] = "x" * 40
    done = feed("s3://test-data/photos", env)
    assert done.code == 1 and "SignatureDoesNotMatch" in done.err and "x" * 40 not in done.err, done.err


def test_no_such_bucket(feed, server):
    done = feed("s3://not-there/photos", server.environment())
    assert done.code == 1 and "NoSuchBucket" in done.err, done.err
