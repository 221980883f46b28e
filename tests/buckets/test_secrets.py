# SPDX-License-Identifier: Apache-2.0
"""A canary for credentials: they are in none of the places where somebody may see them later."""
import pathlib
import resource
import signal
import socket
import subprocess
import time
import urllib.parse

import pytest

import rigs
from conftest import CROP, SHORT

ACCESS, SECRET, TOKEN = "CANARYACCESSKEY00001", "canary/secret+0123456789abcdefghijklmnop", "canary-token-ABCDEFGHIJKLMNOPQRSTUVWXYZ=="
KEYS = {ACCESS: {"secret": SECRET, "token": TOKEN}}
URL = "s3://data/photos"


def places_of(secret):
    """A secret as it is and as it may be written: in a URL, behind the text that a signing key begins with."""
    return {secret.encode(), urllib.parse.quote(secret, safe="").encode(), ("AWS4" + secret).encode()}


CANARIES = places_of(SECRET) | places_of(TOKEN) | {b"pod-canary"}


def must_be_clean(*texts):
    for text in texts:
        text = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        for canary in CANARIES:
            assert canary not in text, canary
        assert b"Signature=" not in text and b"X-Amz-Signature" not in text


@pytest.fixture(scope="module")
def signed(data):
    with rigs.Faultd(buckets={"data": data}, keys=KEYS) as server:
        yield server


def by_environment(server, tmp_path):
    return server.environment(AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET, AWS_SESSION_TOKEN=TOKEN)


def by_file(server, tmp_path):
    path = tmp_path / "credentials"
    path.write_text(f"[other]\naws_access_key_id = x\n[canary]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n"
                    f"aws_session_token = {TOKEN}\n")
    path.chmod(0o600)
    env = server.environment(AWS_PROFILE="canary")
    env["AWS_SHARED_CREDENTIALS_FILE"] = str(path)
    return env


def by_container(server, tmp_path):
    server.control("document", {"path": "/creds", "authorization": "pod-canary", "body": (
        '{"AccessKeyId": "%s", "SecretAccessKey": "%s", "Token": "%s", "Expiration": "2099-01-01T00:00:00Z"}' % (ACCESS, SECRET, TOKEN))})
    (tmp_path / "pod-token").write_text("pod-canary\n")
    return server.environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url + "/creds",
                              AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "pod-token"))


WAYS = {"environment": by_environment, "file": by_file, "container": by_container}


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_with_credentials(feed, signed, golden, tmp_path, way):
    signed.rules([])
    done = feed(URL, WAYS[way](signed, tmp_path))
    assert done.code == 0, done.err
    assert done.rows == golden["photos"]
    must_be_clean(done.out, done.err)


ERRORS = {
    "denied": {"status": 403, "code": "AccessDenied"}, "wrong signature": {"status": 403, "code": "SignatureDoesNotMatch"},
    "expired": {"status": 400, "code": "ExpiredToken"}, "gone": {"status": 404, "code": "NoSuchKey"}, "failing": {"status": 500},
    "elsewhere": {"redirect": "http://127.0.0.1:9/?X-Amz-Security-Token=" + TOKEN},
    "said back": {"status": 403, "body": "<Error><Code>%s</Code><Message>%s %s</Message></Error>" % (SECRET, SECRET, TOKEN)},
}


@pytest.mark.parametrize("op", ["list", "get"])
@pytest.mark.parametrize("what", ERRORS)
def test_an_error_with_credentials(feed, signed, tmp_path, what, op):
    """Also where the server puts what it was sent into its own message."""
    signed.rules([{"match": {"op": op, "key": "*" if op == "list" else "photos/*"}, "do": ERRORS[what]}])
    done = feed(URL, {**by_environment(signed, tmp_path), **SHORT})
    assert done.code == 1, done.out
    must_be_clean(done.out, done.err)


def test_a_url_with_a_password_is_not_shown(feed, signed):
    for url in (f"http://user:{urllib.parse.quote(SECRET, safe='')}@127.0.0.1:{signed.port}/data/none.tar",
                f"http://127.0.0.1:{signed.port}/data/none.tar?X-Amz-Signature=0&X-Amz-Security-Token={urllib.parse.quote(TOKEN, safe='')}"):
        done = feed(url, signed.environment())
        assert done.code != 0
        must_be_clean(done.out, done.err)


def processes(top):
    """A process and those below it."""
    found = [top]
    for pid in found:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(word) for word in task.read_text().split()]
    return found


def start_feed(binary, env, folder, data=URL, *more):
    """A feed that goes on until it is ended, with core files allowed; returns when its first batches are through."""
    ledger = folder / "ledger.tsv"
    env = {**env, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    child = subprocess.Popen([binary, "feed", data, "--pipeline", CROP, "--batch", "8", "--epochs", "100000", "--step-ms", "5",
                              "--memory", "128M", "--ledger", str(ledger), "--quiet", *more], cwd=folder, env=env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2))
    return child


def asked(server, count, child):
    limit = time.monotonic() + 60
    while server.stats()["requests"].get("get", 0) < count:
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.parametrize("way", WAYS)
def test_core_files_and_arguments(binary, signed, tmp_path, way):
    """Also with credentials from the environment, which the kernel keeps in the process's own memory."""
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip("core files go elsewhere here")
    signed.rules([])
    child = start_feed(binary, WAYS[way](signed, tmp_path), tmp_path)
    try:
        asked(signed, 100, child)
        for pid in processes(child.pid):
            must_be_clean(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    finally:
        child.send_signal(signal.SIGABRT)
        out, err = child.communicate(timeout=60)
    must_be_clean(out, err)
    cores = [path for path in tmp_path.iterdir() if path.name.startswith("core")]
    assert cores, "no core file was written: nothing was shown"
    assert any(b"photos/" in core.read_bytes() for core in cores), "the core has no memory of the process in it"
    for core in cores:
        content = core.read_bytes()
        for canary in CANARIES:
            assert canary not in content, (canary, content.find(canary))
        core.unlink()


@pytest.mark.parametrize("right", [True, False])
def test_the_password_of_the_remote_tier(binary, feed, data, golden, tmp_path, right):
    """From the environment and from the URL; a password that is refused is not shown either."""
    if "--remote" not in subprocess.run([binary, "feed", "--help"], capture_output=True, text=True).stdout:
        pytest.skip("built without the remote tier")
    (tmp_path / "word").write_text(TOKEN if right else "another")
    with rigs.Faultd(resp=1, password_file=tmp_path / "word") as server:
        done = feed(data / "photos", rigs.clean_environment(PENSTOCK_REMOTE_PASSWORD=TOKEN), "--remote", f"redis://127.0.0.1:{server.resp[0]}")
        must_be_clean(done.out, done.err)
        assert done.code != 0 or done.rows == golden["photos"]
        quoted = urllib.parse.quote(TOKEN, safe="")
        done = feed(data / "photos", None, "--remote", f"redis://:{quoted}@127.0.0.1:{server.resp[0]}")
        must_be_clean(done.out, done.err)


def control(folder, path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(str(folder / "control.sock"))
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = b""
        while part := sock.recv(65536):
            answer += part
    return answer


def test_a_daemon_tells_nobody(binary, signed, tmp_path):
    """Its clients only name the data; what it says on its control socket and in its log has no credentials in it."""
    signed.rules([])
    env = {**by_environment(signed, tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    served = tmp_path / "served"
    daemon = subprocess.Popen([binary, "serve", "--socket", str(served), "--memory", "256M", "--dataset", "photos=" + URL],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)
    try:
        assert daemon.stdout.readline().startswith("serving "), daemon.stderr.read()
        child = start_feed(binary, env, tmp_path, URL, "--engine", f"unix:{served}")
        try:
            asked(signed, 20, child)
            for path in ("/metrics", "/v1/jobs", "/v1/engine", "/v1/datasets", "/healthz", "/"):
                must_be_clean(control(served, path))
            for pid in [*processes(daemon.pid), *processes(child.pid)]:
                must_be_clean(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
        finally:
            child.kill()
            must_be_clean(*child.communicate(timeout=30))
    finally:
        daemon.send_signal(signal.SIGTERM)
        must_be_clean(*daemon.communicate(timeout=60))
