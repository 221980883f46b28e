# SPDX-License-Identifier: Apache-2.0
"""The feed protocol by hand, for clients that do what they should not. Mirrors src/serve/wire.h."""
import fcntl
import mmap
import os
import select
import socket
import struct

MAGIC, VERSION = 0x46545350, 7
HELLO, WELCOME, REFUSED, OPEN, SEGMENT, OPENED, RESTART, CREDIT, BATCH, SKIP, END, FAILED, RELEASE, LIST, LISTED = range(1, 16)
F_ADD_SEALS, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE = 1033, 2, 4, 8
LIMIT_S = 60


def head(kind, body, generation=0, version=VERSION, magic=MAGIC, size=None):
    return struct.pack("<IHHII", magic, version, kind, generation, 16 + len(body) if size is None else size) + body


def spec(pipeline="decode | center_crop(32)", batch=8, order=0, epochs=0, path="", sampler=0, leases=0, name=""):
    """A job's options; see src/serve/spec.c."""
    texts = [pipeline, "", "", "", name, path]
    lengths = [len(text) + 1 if text else 0 for text in texts]
    numbers = struct.pack("<3Q6q", 0, 0, epochs, 0, 0, 0, -1, -1, -1)
    words = struct.pack("<17i", batch, order, 0, 0, 1, sampler, 1, 0, 0, 0, 0, 0, leases, 0, 0, 0, 0)
    return numbers + words + struct.pack("<7I2i", *lengths, 0, 0, 0) + b"".join(t.encode() + b"\0" for t in texts if t)


def blob(data, seals=SEAL_SHRINK | SEAL_GROW | SEAL_WRITE):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Raw:
    """A connection that says what it likes."""

    def __init__(self, daemon):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(str(daemon.dir / "feed.sock"))
        self.segments = {}

    def send(self, packet, *fds):
        socket.send_fds(self.sock, [packet], list(fds)) if fds else self.sock.send(packet)

    def receive(self):
        """kind, body, fds; kind None when the daemon has left."""
        assert select.select([self.sock], [], [], LIMIT_S)[0], "the daemon says nothing"
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, 65536, 4)
        except ConnectionError:
            return None, b"", []
        return (struct.unpack_from("<IHHII", data)[2], data[16:], fds) if data else (None, b"", [])

    def is_left(self):
        """Whether the daemon closes without another batch."""
        while True:
            kind, _, fds = self.receive()
            for fd in fds:
                os.close(fd)
            if kind is None:
                return True
            if kind == BATCH:
                return False

    def greet(self):
        self.send(head(HELLO, struct.pack("<II", os.getpid(), 0)))
        kind, _, _ = self.receive()
        assert kind == WELCOME

    def open(self, root, revision, data, fd=None, size=None, depot_revision=b""):
        """Until OPENED or something else; that kind and its body."""
        directory = os.open(root, os.O_PATH) if isinstance(root, (str, os.PathLike)) else root
        content = blob(data) if fd is None else fd
        self.send(head(OPEN, revision + struct.pack("<Q40s", len(data) if size is None else size, depot_revision)), directory, content)
        while True:
            kind, body, fds = self.receive()
            if kind != SEGMENT:
                return kind, body
            ident, _, size = struct.unpack_from("<IIQ", body)
            self.segments[ident] = (mmap.mmap(fds[0], size), fds[0])

    def credit(self, count=2, generation=0, waited_ns=0):
        self.send(head(CREDIT, struct.pack("<IIQ", count, 0, waited_ns), generation))

    def batch(self):
        """segment id, flags."""
        while True:
            kind, body, fds = self.receive()
            assert kind in (BATCH, SKIP, END), kind
            if kind == BATCH:
                ident, flags, size = struct.unpack_from("<IIQ", body)
                if fds:
                    self.segments[ident] = (mmap.mmap(fds[0], size), fds[0])
                return ident, flags

    def release(self, ident):
        self.send(head(RELEASE, struct.pack("<II", ident, 0)))
