# SPDX-License-Identifier: Apache-2.0
"""The fault server itself: a test that relies on a fault must be able to rely on it."""
import base64
import datetime
import hashlib
import http.client
import pathlib
import re
import sys
import time
import zlib

import pytest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "rigs")]
import objects
import rigs
import sigv4

CONTENT = bytes(range(256)) * 8
KEYS = {"ACCESS": {"secret": "hidden", "token": "session"}}


@pytest.fixture(scope="module")
def faultd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bucket")
    (folder / "a").mkdir()
    (folder / "a" / "x y+.bin").write_bytes(CONTENT)
    with rigs.Faultd(buckets={"b": folder}) as server:
        yield server


def get(faultd, path="/b/a/x%20y%2B.bin", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", faultd.port, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_an_honest_object(faultd):
    faultd.rules([])
    status, headers, body = get(faultd, x_amz_checksum_mode="ENABLED")
    assert (status, body) == (200, CONTENT)
    assert headers["ETag"] == '"%s"' % hashlib.md5(CONTENT).hexdigest()
    assert base64.b64decode(headers["x-amz-checksum-crc32"]) == zlib.crc32(CONTENT).to_bytes(4, "big")
    status, headers, body = get(faultd, Range="bytes=10-19")
    assert (status, body, headers["Content-Range"]) == (206, CONTENT[10:20], "bytes 10-19/2048")
    assert get(faultd, Range="bytes=5000-")[0] == 416
    assert get(faultd, If_Match='"other"')[0] == 412
    assert get(faultd, path="/b/a/none")[0] == 404
    status, headers, body = get(faultd, method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, "2048", b"")
    assert faultd.stats()["requests"] == {"get": 5, "head": 1}


def test_checksums_are_the_known_ones():
    digits = b"123456789"
    assert objects.CHECKSUMS["crc32c"](digits).hex() == "e3069283"
    assert objects.CHECKSUMS["crc64nvme"](digits).hex() == "ae8b14860a799888"


def test_a_listing_in_pages(faultd):
    faultd.bucket("many", {"count": 2500, "classes": 10})
    faultd.rules([])
    found, token = [], ""
    while True:
        text = get(faultd, "/many?list-type=2&prefix=class" + token)[2].decode()
        found += re.findall("<Key>(.*?)</Key>", text)
        more = re.search("<NextContinuationToken>(.*?)<", text)
        if not more:
            break
        token = "&continuation-token=" + more[1]
    assert found == sorted(found) and len(set(found)) == 2500
    assert faultd.stats()["requests"] == {"list": 3}
    text = get(faultd, "/many?list-type=2&delimiter=/")[2].decode()
    assert len(re.findall("<CommonPrefixes>", text)) == 10


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("framing", ["length", "close", "chunked"])
def test_a_cut_body(faultd, how, framing):
    faultd.rules([{"do": {"cut": {"at": 100, "how": how, "framing": framing}}}])
    if (how, framing) == ("fin", "close"):
        assert get(faultd)[2] == CONTENT[:100]  # looks whole: only who knows the size can tell
        return
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        get(faultd)


def test_lies(faultd):
    def told(headers=None, **do):
        faultd.rules([{"do": do}])
        return get(faultd, **(headers or {}))

    part = {"Range": "bytes=10-19"}
    assert told(ignore_range=True, headers=part)[::2] == (200, CONTENT)
    assert told(content_range={"total": 1}, headers=part)[1]["Content-Range"] == "bytes 10-19/2049"
    assert told(shift=1, headers=part)[2] == CONTENT[11:21]
    assert told(extra=3)[2] == CONTENT + b"\xee" * 3
    assert told(content_length="-7")[2] == CONTENT[:-7]
    with pytest.raises(http.client.IncompleteRead):
        told(content_length="+7")
    status, headers, body = told(gzip=True)
    assert headers["Content-Encoding"] == "gzip" and zlib.decompress(body, 31) == CONTENT
    changed = int.from_bytes(told(flip=12)[2], "little") ^ int.from_bytes(CONTENT, "little")
    assert changed == 1 << 12
    assert told(redirect="http://127.0.0.1:1/")[1]["Location"] == "http://127.0.0.1:1/"
    assert told(status=429)[0] == 429
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        told(reset=True)


def test_which_requests_a_rule_is_for(faultd):
    faultd.rules([{"name": "first", "match": {"key": "a/*", "nth": 1, "per": "key"}, "do": {"status": 500}}])
    assert [get(faultd)[0] for _ in range(3)] == [500, 200, 200]
    faultd.rules([{"name": "half", "match": {"share": 0.5, "seed": 3}, "do": {"status": 503}}])
    statuses = [get(faultd)[0] for _ in range(60)]
    assert 15 < statuses.count(503) < 45 and faultd.stats()["fired"] == {"half": statuses.count(503)}
    faultd.rules([{"match": {"share": 0.5, "seed": 3}, "do": {"status": 503}}])
    assert [get(faultd)[0] for _ in range(60)] == statuses


def test_a_replaced_object(tmp_path):
    (tmp_path / "k").write_bytes(CONTENT)
    with rigs.Faultd(buckets={"b": tmp_path}) as faultd:
        before = get(faultd, "/b/k")[1]["ETag"]
        faultd.replace("b", "k")
        status, headers, body = get(faultd, "/b/k")
        assert body == bytes(255 - byte for byte in CONTENT) and headers["ETag"] != before
        assert get(faultd, "/b/k", If_Match=before)[0] == 412
        assert headers["ETag"].strip('"') in get(faultd, "/b?list-type=2")[2].decode()


def signed(faultd, path, query="", secret="hidden", token="session"):
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": "127.0.0.1:%d" % faultd.port, "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(), "x-amz-date": date,
               "x-amz-security-token": token}
    scope = "%s/us-east-1/s3/aws4_request" % date[:8]
    text = sigv4.signature(secret, "GET", path, query, headers, sorted(headers), date, scope, headers["x-amz-content-sha256"])
    headers["Authorization"] = "%s Credential=ACCESS/%s, SignedHeaders=%s, Signature=%s" % (
        sigv4.ALGORITHM, scope, ";".join(sorted(name for name in headers)), text)
    return get(faultd, path + ("?" + query if query else ""), **headers)


def test_signatures(tmp_path):
    (tmp_path / "k y").write_bytes(CONTENT)
    with rigs.Faultd(buckets={"b": tmp_path}, keys=KEYS) as faultd:
        assert signed(faultd, "/b/k%20y")[0] == 200
        assert signed(faultd, "/b", "prefix=k%20y&list-type=2")[0] == 200
        status, _, body = signed(faultd, "/b/k%20y", secret="another")
        assert status == 403 and b"SignatureDoesNotMatch" in body
        assert b"InvalidToken" in signed(faultd, "/b/k%20y", token="old")[2]
        assert b"AccessDenied" in get(faultd, "/b/k%20y")[2]


def test_the_worked_example_of_the_signature():
    """The published example of a GET of an object with a Range."""
    headers = {"host": "examplebucket.s3.amazonaws.com", "range": "bytes=0-9", "x-amz-date": "20130524T000000Z",
               "x-amz-content-sha256": hashlib.sha256(b"").hexdigest()}
    assert sigv4.signature("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "GET", "/test.txt", "", headers, sorted(headers),
                           "20130524T000000Z", "20130524/us-east-1/s3/aws4_request", headers["x-amz-content-sha256"]) == (
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


def test_a_slow_body_is_let_go_by_other_rules(faultd):
    faultd.rules([{"match": {"op": "get"}, "do": {"bandwidth": 50, "until_rules": True}}])  # 41 seconds
    connection = http.client.HTTPConnection("127.0.0.1", faultd.port, timeout=60)
    connection.request("GET", "/b/a/x%20y%2B.bin")
    answer = connection.getresponse()
    first = answer.read(10)
    begun = time.monotonic()
    faultd.rules([])
    assert first + answer.read() == CONTENT
    assert time.monotonic() - begun < 20
    connection.close()


def test_resp():
    with rigs.Faultd(resp=3, cluster=True) as faultd:
        slots = rigs.resp_command(faultd.resp[0], "CLUSTER", "SLOTS")
        assert [row[:2] for row in slots] == [[0, 5460], [5461, 10921], [10922, 16383]]
        with pytest.raises(RuntimeError, match="MOVED 12182 127.0.0.1:%d" % faultd.resp[2]):
            rigs.resp_command(faultd.resp[0], "GET", "foo")
        assert rigs.resp_command(faultd.resp[2], "SET", "foo", "bar", "NX", "PX", "60000") == b"OK"
        assert rigs.resp_command(faultd.resp[2], "SET", "foo", "more", "NX") is None
        faultd.rules([{"match": {"command": "GET"}, "do": {"value": {"flip": 3}}}])
        assert rigs.resp_command(faultd.resp[2], "GET", "foo") == b"jar"
        faultd.rules([{"match": {"command": "GET"}, "do": {"error": "LOADING not yet"}}])
        with pytest.raises(RuntimeError, match="LOADING"):
            rigs.resp_command(faultd.resp[2], "GET", "foo")
