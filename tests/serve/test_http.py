# SPDX-License-Identifier: Apache-2.0
"""The TCP side: off unless asked for, closed to other names, origins and users without a token, and not to be worn down."""
import contextlib
import http.client
import os
import re
import resource
import socket
import subprocess
import time

import pytest
from conftest import LIMIT_S, rows
from looking import fetch, look, metrics, value

SLOW = int(os.environ.get("PENSTOCK_SLOW_CONNECTIONS", "2000"))
TOKEN = "0123456789abcdef-token=="


def port_of(daemon):
    line = daemon.child.stdout.readline()
    found = re.fullmatch(r"to be looked at: port (\d+) of \S+, http://([^/ ]+):(\d+)/\n", line)
    assert found[1] == found[3] and found[2] not in ("0.0.0.0", "[::]")  # what a browser can be given
    return int(found[1])


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\nsecond line\n")
    path.chmod(0o600)
    return path


def listening(pid):
    """Inodes of the TCP sockets that listen, of a process."""
    held = {os.readlink(link.path) for link in os.scandir(f"/proc/{pid}/fd") if os.path.islink(link.path)}
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/net/{table}") as lines:
            found |= {row[9] for row in map(str.split, list(lines)[1:]) if row[3] == "0A"}
    return {inode for inode in found if f"socket:[{inode}]" in held}


def test_tcp_is_off_unless_asked_for(serve, tmp_path):
    assert not listening(serve("--workers", 1).child.pid)
    daemon = serve("--workers", 1, "--http", 0, path=tmp_path / "b")
    assert len(listening(daemon.child.pid)) == 1
    assert fetch(port_of(daemon), "/metrics")[0] == 200


def refused(binary, environment, tmp_path, *args):
    done = subprocess.run([binary, "serve", "--socket", str(tmp_path / "no"), *map(str, args)], env=environment, text=True,
                          capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 1 and not done.stdout
    return done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.1.2.3:80", "[::ffff:127.0.0.1]:0", "[fe80::1]:0"])
def test_other_machines_need_a_token(binary, environment, tmp_path, address):
    assert "--http-token" in refused(binary, environment, tmp_path, "--http", address)


@pytest.mark.parametrize("address", ["x", "70000", "1.2.3:80", "localhost:80", "[127.0.0.1]:80", "::1:80", "", ":", "[]:1"])
def test_addresses_that_are_none(binary, environment, tmp_path, address):
    assert "--http takes" in refused(binary, environment, tmp_path, "--http", address)


def test_a_port_that_is_taken(binary, environment, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        said = refused(binary, environment, tmp_path, "--http", str(other.getsockname()[1]))
    assert "choose another port" in said


def test_tokens_that_are_none(binary, environment, tmp_path, token):
    args = ("--http", "0", "--http-token", token)
    token.write_text("short\n")
    assert "16 are the least" in refused(binary, environment, tmp_path, *args)
    token.write_text("with a space in it, and a comma\n")
    assert "nothing else" in refused(binary, environment, tmp_path, *args)
    token.write_text("a" * 513 + "\n")
    assert "more than 512" in refused(binary, environment, tmp_path, *args)
    token.write_text(TOKEN)
    token.chmod(0o640)
    assert "others may read" in refused(binary, environment, tmp_path, *args)
    assert "cannot be read" in refused(binary, environment, tmp_path, "--http", "0", "--http-token", tmp_path / "none")


def test_the_longest_token(serve, token):
    token.write_text("a" * 512 + "\n")
    port = port_of(serve("--workers", 1, "--http", 0, "--http-token", token))
    assert fetch(port, "/metrics", headers={"Authorization": "Bearer " + "a" * 512})[0] == 200
    assert fetch(port, "/metrics", headers={"Authorization": "Bearer " + "a" * 511})[0] == 401


def test_a_token_of_base64_in_an_address(serve, token):
    text = "Ab+/cd+efghijklmno=="
    token.write_text(text)
    port = port_of(serve("--workers", 1, "--http", 0, "--http-token", token))
    for given in (text, text.replace("+", "%2B"), text.replace("+", "%2b").replace("=", "%3D").replace("/", "%2F")):
        status, headers, _ = fetch(port, f"/?token={given}")
        assert status == 303, given
        assert fetch(port, "/v1/watch", headers={"Cookie": headers["Set-Cookie"].split(";")[0]})[0] == 200
    assert fetch(port, f"/?token={text.replace('+', '-')}")[0] == 401


def test_loopback_of_ipv6(serve):
    """However the address was written, browsers write it one way."""
    port = port_of(serve("--workers", 1, "--http", "[0:0:0:0:0:0:0:1]:0"))
    with socket.create_connection(("::1", port), timeout=LIMIT_S) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\nHost: [::1]\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 200"


def test_every_address_of_ipv6_with_a_token(serve, token):
    port = port_of(serve("--workers", 1, "--http", "[::]:0", "--http-token", token))
    with socket.create_connection(("::1", port), timeout=LIMIT_S) as sock:
        sock.sendall(f"GET /metrics HTTP/1.0\r\nHost: [::1]\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert sock.recv(12) == b"HTTP/1.1 200"


def test_the_token_opens(serve, token):
    port = port_of(serve("--workers", 1, "--http", "0.0.0.0:0", "--http-token", token))
    for url in ("/", "/metrics", "/v1/watch", "/v1/stream", "/nothing"):
        assert fetch(port, url)[0] == 401
    for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "second line"):
        assert fetch(port, "/metrics", headers={"Authorization": f"Bearer {wrong}"})[0] == 401
        assert fetch(port, "/metrics", headers={"Cookie": f"penstock_{port}={wrong}"})[0] == 401
    assert fetch(port, "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert fetch(port, "/?token=wrong")[0] == 401 and fetch(port, f"/metrics?token={TOKEN}")[0] == 401
    status, headers, body = fetch(port, f"/?token={TOKEN}")
    assert (status, headers["Location"], body) == (303, "/", b"")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert fetch(port, "/v1/watch", headers={"Cookie": cookie.split(";")[0]})[0] == 200


@pytest.mark.parametrize("host,status", [
    ("127.0.0.1", 200), ("127.0.0.1:1", 200), ("localhost", 200), ("LOCALHOST:8080", 200), ("me.example", 200), ("two.example:1", 200),
    ("evil.example", 403), ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403), ("127.0.0.1:x", 403), ("10.0.0.1", 403),
    ("", 403), ("me.example,two.example", 403), ("[::1]", 403), ("[", 403)])
def test_hosts(serve, host, status):
    port = port_of(serve("--workers", 1, "--http", 0, "--http-host", "me.example,two.example"))
    assert fetch(port, "/v1/watch", headers={"Host": host})[0] == status


def test_origins(serve):
    port = port_of(serve("--workers", 1, "--http", 0))
    assert fetch(port, "/v1/watch", headers={"Origin": f"http://127.0.0.1:{port}"})[0] == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1", f"http://127.0.0.1:{port}.evil.example", "file://", ""):
        status, headers, _ = fetch(port, "/v1/watch", headers={"Origin": origin})
        assert status == 403 and not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", ["//", "//metrics", "/metrics/", "/../metrics", "/v1/../metrics", "/%2e%2e/metrics", "/metrics%00",
                                  "/v1/jobs", "/v1/datasets", "/v1/datasets/x", "/v1/engine", "/v1/check", "/etc/passwd", "/v1//watch",
                                  "/index.html", "/" + "a" * 8000])
def test_paths_that_are_none(serve, path):
    port = port_of(serve("--workers", 1, "--http", 0))
    assert fetch(port, path)[0] in (400, 404)


def test_only_looking(serve):
    daemon = serve("--workers", 1, "--http", 0)
    port = port_of(daemon)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        with contextlib.suppress(ConnectionError):
            assert fetch(port, "/v1/watch", method, body=b"x" if method != "CONNECT" else None)[0] in (400, 405)
    status, headers, body = fetch(port, "/metrics", "HEAD")
    assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 1000
    status, headers, _ = fetch(port, "/", headers={"Accept-Encoding": "gzip"})
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")


def test_more_than_32_streams_are_sent_away(serve):
    port = port_of(serve("--workers", 1, "--http", 0))
    lines = []
    for _ in range(32):
        lines.append(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S))
        lines[-1].request("GET", "/v1/stream")
        answer = lines[-1].getresponse()
        assert answer.status == 200 and answer.readline() == b"retry: 2000\n"
    assert fetch(port, "/v1/stream")[0] == 503 and fetch(port, "/v1/watch")[0] == 200
    for line in lines:
        line.close()


def open_slowly(port, count):
    """As many connections as the system lets us have, each with half a request."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    socks = []
    for _ in range(min(count, most - 200)):
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", port))
        socks.append(sock)
    for sock in socks:
        with contextlib.suppress(OSError):
            sock.send(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    return socks


def drip(socks):
    for sock in socks:
        with contextlib.suppress(OSError):
            sock.send(b"a")


def test_slow_connections_and_huge_headers_wear_nothing_down(serve, client, photos):
    daemon = serve("--workers", 1, "--cache", 0, "--http", 0)
    port = port_of(daemon)
    one = client("--engine", daemon.address, "--epochs", 1000, pipeline="decode | delay(ms=4) | random_resized_crop(32)")
    socks = open_slowly(port, SLOW)
    assert len(socks) > 100
    before = until_samples(daemon, 1)
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")
    until_samples(daemon, before + 96)  # the job goes on, and the control socket answers
    begin = time.monotonic()
    while True:  # bytes that drip in do not hold a place for ever
        drip(socks)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
            sock.sendall(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            if sock.recv(12) == b"HTTP/1.1 200" or sock.recv(1):
                break
        assert time.monotonic() - begin < 3 * LIMIT_S  # 64 have their turn every 10 s; the system's own tries end after two minutes
    print(f"{len(socks)} slow connections; an answer {time.monotonic() - begin:.0f} s later")
    for sock in socks:
        sock.close()
    begin = time.monotonic()
    while True:
        try:
            seen = metrics(port)
            break
        except OSError:
            assert time.monotonic() - begin < LIMIT_S
    assert value(seen, "penstock_job_samples_total", dataset=photos.name) >= before + 96
    assert daemon.child.poll() is None and one.child.poll() is None
    assert look(daemon.dir)["jobs"][0]["state"] == "running"
    one.child.terminate()
    one.child.communicate(timeout=LIMIT_S)
    assert len(rows(one.ledger)) >= before  # every step that was taken


def until_samples(daemon, least):
    begin = time.monotonic()
    while not (jobs := look(daemon.dir)["jobs"]) or jobs[0]["samples"] < least:
        assert time.monotonic() - begin < LIMIT_S and daemon.child.poll() is None
        time.sleep(0.02)
    return jobs[0]["samples"]
