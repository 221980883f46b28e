# SPDX-License-Identifier: Apache-2.0
"""Servers for tests and benches, each a process on loopback that ends with its `with` block: faultd, versitygw, redis-server.

What a machine does not have is no failure: missing_versitygw() and missing_redis() say what to install, for a skip.
"""
import contextlib
import datetime
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import string
import subprocess
import sys
import time
import urllib.parse

FAULTD = pathlib.Path(__file__).resolve().parent.parent / "faultd" / "faultd.py"
sys.path.insert(0, str(FAULTD.parent))
import sigv4
START_S = 30
AWS_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
             "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
             "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
             "PENSTOCK_S3_STYLE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")


def clean_environment(**more):
    """This process's environment without settings of buckets, and with no settings files of the user."""
    kept = {name: value for name, value in os.environ.items() if name not in AWS_NAMES}
    kept.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull)
    kept.update(more)
    return kept


def free_ports(count):
    """Ports nobody listens on just now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def wait_for_port(port, child, what):
    """Until something listens; connecting is the only way to learn it of a server that says nothing."""
    end = time.monotonic() + START_S
    while True:
        assert child.poll() is None, "%s ended at once with status %s" % (what, child.returncode)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "%s does not listen on port %d" % (what, port)
            time.sleep(0.02)


def end(child, number=signal.SIGTERM):
    """Ends a child that this module started."""
    if child.poll() is None:
        child.send_signal(number)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Faultd:
    """A running faultd: Faultd(buckets={"b": folder or spec}, keys={...}, resp=3, cluster=True)."""

    def __init__(self, buckets=None, keys=None, rules=None, resp=0, cluster=False, password_file=None, tls=None):
        command = [sys.executable, str(FAULTD), "--until-eof", "--resp", str(resp)]
        command += ["--cluster"] if cluster else []
        command += ["--password-file", str(password_file)] if password_file else []
        command += ["--tls", *map(str, tls)] if tls else []
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ports = json.loads(self.child.stdout.readline() or "{}")
        assert ports, "faultd did not start"
        self.port, self.resp, self.tls = ports["http"], ports["resp"], tls
        self.url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.port)
        for name, bucket in (buckets or {}).items():
            self.bucket(name, bucket)
        if keys:
            self.control("keys", keys)
        if rules:
            self.rules(rules)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()

    def control(self, word, text=None):
        if self.tls:
            import ssl
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=ssl._create_unverified_context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", "/__faultd/" + word, None if text is None else json.dumps(text))
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            return json.loads(body)

    def bucket(self, name, what):
        """A folder, or a dict as README.md of faultd has it."""
        return self.control("bucket/" + name, what if isinstance(what, dict) else {"folder": str(what)})

    def rules(self, rules):
        """Replaces all rules, and starts counting again."""
        self.control("rules", rules)
        return self.control("reset")

    def stats(self):
        return self.control("stats")

    def log(self):
        return self.control("log")

    def replace(self, bucket, key, **how):
        return self.control("replace", {"bucket": bucket, "key": key, **how})

    def environment(self, **more):
        """For a client of the S3 side; unsigned unless keys are among `more`."""
        return clean_environment(AWS_ENDPOINT_URL_S3=self.url, AWS_REGION="us-east-1", **more)


@contextlib.contextmanager
def black_hole():
    """A port whose connections are never answered: its queue is full, so that the kernel drops what comes."""
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket())
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        port = sock.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port


def find_versitygw():
    """$VERSITYGW, the PATH, or where `go install` puts it."""
    places = [os.environ.get("VERSITYGW"), shutil.which("versitygw"), "/usr/local/bin/versitygw",
              os.path.expanduser("~/.local/bin/versitygw"), os.path.expanduser("~/go/bin/versitygw")]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def missing_versitygw():
    return None if find_versitygw() else "no versitygw: tools/setup.sh servers installs it (needs Go 1.25 or newer)"


def find_redis():
    """Debian's redis-server is a link to a tool of redis-tools, which goes by the name it is called with."""
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")


def missing_redis():
    return None if find_redis() else "no redis-server: tools/setup.sh servers installs it"


class Versitygw:
    """A real S3 server over a folder: each folder in `root` is a bucket. Its keys are made up for each run."""

    def __init__(self, root, log=None):
        self.port, = free_ports(1)
        self.url = "http://127.0.0.1:%d" % self.port
        letters = string.ascii_letters + string.digits
        self.access, self.secret = ("".join(random.choices(letters, k=count)) for count in (20, 40))
        self.root = pathlib.Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        command = [find_versitygw(), "--port", "127.0.0.1:%d" % self.port, "--region", "us-east-1", "--quiet", "--keep-alive", "posix",
                   str(root)]
        self.log = open(log or os.devnull, "wb")
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={
            **clean_environment(), "ROOT_ACCESS_KEY": self.access, "ROOT_SECRET_KEY": self.secret})

    def __enter__(self):
        wait_for_port(self.port, self.child, "versitygw")
        return self

    def __exit__(self, *_):
        end(self.child)
        self.log.close()

    def environment(self, **more):
        return clean_environment(AWS_ENDPOINT_URL_S3=self.url, AWS_REGION="us-east-1", AWS_ACCESS_KEY_ID=self.access,
                                 AWS_SECRET_ACCESS_KEY=self.secret, **more)

    def put(self, bucket, key, content, connection=None):
        """An object with an ETag and a checksum, which a file that is only copied into the folder would not have."""
        (self.root / bucket).mkdir(exist_ok=True)
        path = urllib.parse.quote("/%s/%s" % (bucket, key))
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": "127.0.0.1:%d" % self.port, "x-amz-content-sha256": hashlib.sha256(content).hexdigest(), "x-amz-date": date}
        scope, names = "%s/us-east-1/s3/aws4_request" % date[:8], sorted(headers)
        text = sigv4.signature(self.secret, "PUT", path, "", headers, names, date, scope, headers["x-amz-content-sha256"])
        headers["Authorization"] = "%s Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
            sigv4.ALGORITHM, self.access, scope, ";".join(names), text)
        with contextlib.ExitStack() as stack:
            if connection is None:
                connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)))
            connection.request("PUT", path, content, headers)
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status == 200, said

    def upload(self, bucket, folder):
        """All files below a folder, keys as their paths from there."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            for path in sorted(pathlib.Path(folder).rglob("*")):
                if path.is_file():
                    self.put(bucket, path.relative_to(folder).as_posix(), path.read_bytes(), connection)


class Redis:
    """A redis-server of its own, nothing kept on disk; cluster=True for a node of one. stop() and start() as often as wished."""

    def __init__(self, folder, cluster=False, password=None, memory=None):
        self.folder, self.cluster, self.password, self.memory = pathlib.Path(folder), cluster, password, memory
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.bus = free_ports(2)
        self.child = None
        self.start()

    def start(self):
        settings = ["bind 127.0.0.1", "port %d" % self.port, "save \"\"", "appendonly no", "daemonize no", "dir %s" % self.folder,
                    "logfile %s" % (self.folder / "redis.log"), "protected-mode yes"]
        if self.cluster:
            settings += ["cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 1000",
                         "cluster-port %d" % self.bus, "cluster-require-full-coverage no", "cluster-announce-ip 127.0.0.1"]
        if self.password:
            settings += ["requirepass %s" % self.password, "masterauth %s" % self.password]
        if self.memory:
            settings += ["maxmemory %s" % self.memory, "maxmemory-policy allkeys-lru"]
        path = self.folder / "redis.conf"
        path.touch(mode=0o600)
        path.write_text("\n".join(settings) + "\n")
        self.child = subprocess.Popen(["redis-server", str(path)], executable=find_redis(), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_port(self.port, self.child, "redis-server")

    def stop(self, number=signal.SIGKILL):
        end(self.child, number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)  # a test may have stopped it
        end(self.child, signal.SIGKILL)

    @property
    def url(self):
        return "redis://127.0.0.1:%d" % self.port

    def command(self, *words):
        """One command; text, an int, None, a list, or an exception with the error's text."""
        return resp_command(self.port, *words, password=self.password)


def resp_command(port, *words, password=None):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock, sock.makefile("rwb") as stream:
        if password:
            _send(stream, "AUTH", password)
            _reply(stream)
        _send(stream, *words)
        return _reply(stream)


def _send(stream, *words):
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
    stream.flush()


def _reply(stream):
    line = stream.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"*":
        return None if int(rest) < 0 else [_reply(stream) for _ in range(int(rest))]
    return None if int(rest) < 0 else stream.read(int(rest) + 2)[:-2]


class RedisCluster:
    """Primaries without replicas, each with an equal part of the slots; ready when every node knows the whole of it."""

    def __init__(self, folder, nodes=3, password=None):
        self.stack = contextlib.ExitStack()
        self.nodes = [self.stack.enter_context(Redis(pathlib.Path(folder) / str(number), cluster=True, password=password))
                      for number in range(nodes)]
        slots = 16384
        for number, node in enumerate(self.nodes):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.command("CLUSTER", "ADDSLOTSRANGE", slots * number // nodes, slots * (number + 1) // nodes - 1)
        for node in self.nodes[1:]:
            self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
        limit = time.monotonic() + START_S
        while not all(self.knows_all(node) for node in self.nodes):
            assert time.monotonic() < limit, "the cluster does not form"
            time.sleep(0.05)

    def knows_all(self, node):
        info = node.command("CLUSTER", "INFO")
        return b"cluster_state:ok" in info and b"cluster_slots_ok:16384" in info and (
            b"cluster_known_nodes:%d" % len(self.nodes) in info)

    @property
    def url(self):
        return "redis://" + ",".join("127.0.0.1:%d" % node.port for node in self.nodes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()
