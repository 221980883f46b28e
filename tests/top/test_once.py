# SPDX-License-Identifier: Apache-2.0
"""`penstock top --once` and --json: plain text out of whatever an engine says, and no crash from what is no engine."""
import copy
import json
import random
import subprocess

import pytest

from conftest import LIMIT_S, view

SEED = 20261116


def test_no_escape_byte_in_a_pipe(once, engine):
    done = once("--engine", engine().address, "--once")
    assert done.returncode == 0 and done.stderr == b""
    assert b"\x1b" not in done.stdout and b"\r" not in done.stdout
    text = done.stdout.decode()
    for words in ("penstock 9.8.7", "decode-bound: 3 more cores", "SAMPLES/S", "/data/set2", "where a sample's time goes", "lanes   12 slow"):
        assert words in text
    assert "q quit" not in text and all(len(line) <= 80 for line in text.splitlines())


def test_the_verdict_is_there_to_the_last_word(once, engine):
    body = view(2)
    body["verdict"]["text"] = "decode-bound: " + "some cores would help, " * 10 + "THE END"
    body["jobs"][0]["verdict"]["text"] = "decode-bound: " + "others would not, " * 10 + "OF THE JOB"
    text = " ".join(once("--engine", engine(body=body).address, "--once").stdout.decode().split())
    assert body["verdict"]["text"] in text and body["jobs"][0]["verdict"]["text"] in text


@pytest.mark.parametrize("cols", [40, 41, 60, 79, 80, 100, 119, 120, 121, 200, 400])
def test_every_width(once, engine, cols):
    body = view(3)
    body["jobs"][2].update(rate_now=123456789.5, id=4000000, pid=4194304, dataset="/a/very/long/path" * 9, epoch=12345)
    done = once("--engine", engine(body=body).address, "--once", env={"COLUMNS": str(cols)})
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and all(len(line) <= cols for line in lines)
    head = next(line for line in lines if line.lstrip().startswith("JOB"))
    assert "SAMPLES/S" in head and "STALL" in head
    assert ("PIPELINE" in head) == (cols >= 200) and "123,456,789" in done.stdout.decode()


def test_json(once, engine, binary, environment):
    stand_in = engine()
    done = once("--engine", stand_in.address, "--once", "--json")
    assert done.stdout.count(b"\n") == 1 and json.loads(done.stdout) == view() and done.stdout.isascii()
    child = subprocess.Popen([binary, "top", "--json", "--interval", "0.1", "--engine", stand_in.address], stdout=subprocess.PIPE,
                             env=environment, text=True)
    assert [json.loads(child.stdout.readline())["version"] for _ in range(3)] == ["9.8.7"] * 3
    child.terminate()
    child.communicate(timeout=LIMIT_S)
    assert child.returncode == 143


def test_not_on_a_terminal(once, engine):
    done = once("--engine", engine().address)
    assert done.returncode == 2 and b"--once" in done.stderr


@pytest.mark.parametrize("evil", ["\x1b]0;owned\x07", "\x1b[2J", "a\rb\nc\td", "\x9b31m", "\x7f\x08", "\u202egpj.exe", "\ufeff\u200b\u2066", "\u0000"[:0]
                                  + "\U000e0041"])
def test_hostile_text(once, engine, evil):
    body = view()
    body["version"] = evil
    body["verdict"]["text"] = "verdict " + evil
    body["jobs"][0].update(dataset=evil, pipeline=evil, state=evil, order=evil)
    body["jobs"][0]["verdict"]["text"] = evil
    body["jobs"][0]["stages"][1]["name"] = evil
    body["sources"][0]["kind"] = evil
    body["bad"][0].update(key=evil, message=evil, stage=evil)
    address = engine(body=body).address
    for env in ({"COLUMNS": "80"}, {"COLUMNS": "300"}, {"LC_ALL": "C"}):
        done = once("--engine", address, "--once", env=env)
        assert done.returncode == 0
        text = done.stdout.decode()
        for character in text:
            code = ord(character)
            assert character == "\n" or (code >= 0x20 and not 0x7f <= code <= 0x9f), hex(code)
            assert not (0x200b <= code <= 0x200f or 0x2028 <= code <= 0x202e or 0x2060 <= code <= 0x206f or code == 0xfeff or code >= 0xe0000)
        assert "\\x" in text
    assert once("--engine", address, "--once", "--json").stdout.isascii()


def refused(done):
    assert done.returncode == 1 and done.stdout == b"" and done.stderr.startswith(b"penstock: "), done


def test_what_is_no_view(once, engine):
    stand_in = engine()
    for body in (b"", b"\0" * 100, b"HTTP/1.0 500 Oops\r\n\r\n{}", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/9", b"[" * 100000,
                 {}, [], 7, "x", {"engine": 1, "jobs": []}, {"engine": {}, "jobs": {}}, b'{"engine": {}, "jobs": [], "jobs": []}',
                 b'{"engine": {}, "jobs": [1e999]}', b'{"engine": {}, "jobs": []}\0', b'{"a": "\xff"}', b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{}"):
        stand_in.body = body
        refused(once("--engine", stand_in.address, "--once"))
    stand_in.body = b"HTTP/1.0 404 Not Found\r\n\r\n{}"
    done = once("--engine", stand_in.address, "--once")
    assert done.returncode == 1 and b"another version" in done.stderr
    stand_in.body = {"engine": {}, "jobs": []}
    assert b"no jobs" in once("--engine", stand_in.address, "--once").stdout


def test_cut_anywhere(once, engine):
    stand_in = engine()
    whole = json.dumps(view()).encode()
    for at in range(1, len(whole) - 1, len(whole) // 60):
        stand_in.body = whole[:at]
        refused(once("--engine", stand_in.address, "--once"))
        stand_in.body = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole[:at]
        refused(once("--engine", stand_in.address, "--once"))


def spoil(value, rng):
    """The same with some values replaced by others of any kind."""
    if rng.random() < 0.08:
        return rng.choice([None, True, -1, 0, 1e308, -1e308, 2**62, "", "x" * 5000, [], {}, [[]], {"a": {}}, "\x1b[2J", 0.5, [1, "a", None]])
    if isinstance(value, dict):
        return {name: spoil(one, rng) for name, one in value.items() if rng.random() > 0.03}
    if isinstance(value, list):
        return [spoil(one, rng) for one in value] * rng.choice([1, 1, 1, 0, 3])
    return value


def test_values_of_the_wrong_kind(once, engine):
    stand_in, rng, good = engine(), random.Random(SEED), 0
    for turn in range(60):
        stand_in.body = spoil(copy.deepcopy(view(3)), rng)
        done = once("--engine", stand_in.address, "--once", env={"COLUMNS": str(rng.choice([40, 80, 200]))})
        assert done.returncode in (0, 1), f"seed {SEED}, turn {turn}: {done}"
        assert b"\x1b" not in done.stdout
        good += done.returncode == 0
    assert good > 20


def test_many_jobs(once, engine):
    done = once("--engine", engine(body=view(3000)).address, "--once")
    assert done.returncode == 0 and done.stdout.count(b" 3/4 ") == 512, "the first of them"
