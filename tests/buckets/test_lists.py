# SPDX-License-Identifier: Apache-2.0
"""Listings: long ones, and those of a server that means harm."""
import os
import subprocess
import time

import pytest

import rigs

BYTES_A_KEY, LIST_S = 200, 10


def inspect(binary, url, env):
    """`penstock inspect` of one sample: exit status, output, errors, and the most memory it had, in bytes."""
    child = subprocess.Popen([binary, "inspect", url, "--probe", "1", "--index-dir", "none"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env={"PENSTOCK_NET_TIMEOUT": "30", **env}, stdin=subprocess.DEVNULL)
    out, err = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stdout.close()
    child.stderr.close()
    return child.returncode, out.decode(errors="replace"), err, usage.ru_maxrss << 10


@pytest.fixture(scope="module")
def photo(data):
    """The content of every object here."""
    return str(min((data / "photos").rglob("*.jpg"), key=lambda path: path.stat().st_size))


@pytest.fixture(scope="module")
def lists():
    with rigs.Faultd() as server:
        yield server


def check_long(binary, lists, photo, count, limit_s):
    lists.bucket("few", {"count": 1000, "classes": 10, "content": photo})
    lists.bucket("many", {"count": count, "classes": 100, "content": photo})
    lists.rules([])
    code, _, err, least = inspect(binary, "s3://few/", lists.environment())
    assert code == 0, err
    lists.rules([])
    begin = time.monotonic()
    code, out, err, most = inspect(binary, "s3://many/", lists.environment())
    took = time.monotonic() - begin
    assert code == 0, err
    assert f"{count}" in out.replace(",", ""), out
    assert lists.stats()["requests"]["list"] == count // 1000
    assert took <= limit_s, took
    assert (most - least) / (count - 1000) <= BYTES_A_KEY, (most - least) / (count - 1000)


def test_a_hundred_thousand_keys(binary, lists, photo):
    check_long(binary, lists, photo, 100_000, LIST_S)


@pytest.mark.long
def test_a_million_keys(binary, lists, photo):
    check_long(binary, lists, photo, 1_000_000, LIST_S * 10)


LIES = {
    "the same token again": {"loop_after": 2}, "the same keys again": {"same_page_again": True}, "not in order": {"unsorted_page": 1},
    "a key twice": {"duplicate_page": 1}, "entities": {"entity_bomb": True}, "truncated without a token": {"no_token": True},
    "no XML": {"raw": "hello"}, "cut off": {"raw": "<?xml version='1.0'?><ListBucketResult><Contents><Key>a/b.jpg</Key>"},
    "endless element": {"raw": "<?xml version='1.0'?><ListBucketResult><Contents><Key>" + "k" * 3_000_000},
    "deep": {"raw": "<?xml version='1.0'?>" + "<a>" * 100_000},
    "a size below nought": {"raw": "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a/b.jpg</Key><ETag>e</ETag>"
                            "<Size>-1</Size></Contents></ListBucketResult>"},
    "a size beyond all": {"raw": "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a/b.jpg</Key><ETag>e</ETag>"
                          "<Size>99999999999999999999999</Size></Contents></ListBucketResult>"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_listing_that_lies_is_refused(binary, lists, photo, lie):
    lists.bucket("lies", {"count": 5000, "classes": 10, "content": photo, "listing": LIES[lie]})
    lists.rules([])
    begin = time.monotonic()
    code, _, err, most = inspect(binary, "s3://lies/", lists.environment())
    assert code == 1 and err.startswith(b"penstock: "), err
    assert time.monotonic() - begin < 60
    assert most < 300 << 20, "entities were expanded"
    assert lists.stats()["requests"]["list"] <= 12, "went round in circles"


HOSTILE = ["../../etc/x.jpg", "a/../../x.jpg", "a/./x.jpg", "/etc/x.jpg", "a//x.jpg", "a/new\nline.jpg", "a/\x1b[31mred.jpg", "a/\udcff\udcfe.jpg",
           "a/" + "k" * 1100 + ".jpg", "a/tab\there.jpg", "a/back\\slash\r.jpg"]


@pytest.mark.parametrize("key", HOSTILE, ids=lambda key: ascii(key)[:30])
def test_a_hostile_key_is_refused_and_escaped(binary, lists, photo, key):
    """No key becomes a path, and none reaches the terminal as it is. Some are only odd, and may be taken."""
    lists.bucket("odd", {"keys": [key, "b/plain.jpg"], "content": photo})
    lists.rules([])
    code, out, err, _ = inspect(binary, "s3://odd/", lists.environment())
    text = out.encode("utf-8", "surrogateescape") + err
    assert not any(byte < 32 and byte != 10 or byte == 127 for byte in text), text
    assert key.encode("utf-8", "surrogateescape").replace(b"/", b"") not in text.replace(b"/", b"") or key.isprintable()
    if ".." in key or key.startswith("/") or "\n" in key or len(key) > 1024:
        assert code == 1 and err.startswith(b"penstock: "), text


def test_a_nul_in_a_key(binary, lists):
    lists.bucket("nul", {"listing": {"raw": "<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated>"
                                     "<EncodingType>url</EncodingType><Contents><Key>a/x%00.jpg</Key><ETag>e</ETag><Size>5</Size></Contents>"
                                     "</ListBucketResult>"}})
    code, _, err, _ = inspect(binary, "s3://nul/", lists.environment())
    assert code == 1 and err.startswith(b"penstock: ") and b"\0" not in err, err


def test_keys_are_decoded_wherever_the_listing_says_that_they_are_coded(feed, lists, photo):
    names = ["with space.jpg", "plus+.jpg", "percent%41.jpg"]
    lists.bucket("coded", {"keys": [f"ds/a b/{name}" for name in names], "content": photo, "listing": {"coding_last": True}})
    lists.rules([])
    done = feed("s3://coded/ds", lists.environment(), batch=1)
    assert done.code == 0, done.err
    assert sorted(row[4] for row in done.rows) == sorted(f"a b/{name}" for name in names)


@pytest.mark.long
def test_a_listing_that_trickles_ends_with_an_error(binary, lists, photo):
    lists.bucket("slow", {"count": 3000, "classes": 10, "content": photo})
    lists.rules([{"match": {"op": "list", "nth": list(range(2, 100))}, "do": {"bandwidth": 20}}])
    begin = time.monotonic()
    code, _, err, _ = inspect(binary, "s3://slow/", lists.environment(PENSTOCK_NET_TIMEOUT="3"))
    assert code == 1 and err.startswith(b"penstock: "), err
    assert time.monotonic() - begin < 180


# C9


@pytest.mark.parametrize("op", ["list", "get"])
@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_not_followed(feed, faultd, op, status):
    """Neither to another server nor to a file; the other server here would count it."""
    with rigs.Faultd() as other:
        for place in (other.url + "/data/photos", "file:///etc/hostname", "//127.0.0.1:%d/data" % other.port):
            faultd.rules([{"match": {"op": op}, "do": {"redirect": place, "status": status}}])
            done = feed("s3://data/photos", faultd.environment(AWS_ACCESS_KEY_ID="CANARYACCESS", AWS_SECRET_ACCESS_KEY="canary-secret"))
            assert done.code == 1 and str(status) in done.err, done.err
            assert "canary" not in (done.out + done.err).lower()
        assert other.stats()["connections"] == 0 and other.stats()["requests"] == {}
