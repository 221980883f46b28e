# SPDX-License-Identifier: Apache-2.0
"""The RESP side of faultd: as many nodes as asked for, alone or as a cluster, with values that can be spoilt."""
import asyncio
import fnmatch
import time

import answers

SLOTS = 16384
OK = b"+OK\r\n"
NIL = b"$-1\r\n"


def slot_of(key):
    """CRC16 (XMODEM) of the key or of the part in braces."""
    begin = key.find(b"{")
    end = key.find(b"}", begin + 1)
    if begin >= 0 and end > begin + 1:
        key = key[begin + 1:end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOTS


def bulk(value):
    return NIL if value is None else b"$%d\r\n%s\r\n" % (len(value), value)


def array(parts):
    return b"*%d\r\n" % len(parts) + b"".join(parts)


def integer(value):
    return b":%d\r\n" % value


def fail(text):
    return b"-%s\r\n" % text.encode()


async def read_command(reader, early=None):
    """A list of byte strings, or None at the end. Inline commands too. early: called with what came before a third word."""
    line = await reader.readline()
    if not line:
        return None
    if not line.startswith(b"*"):
        return line.split()
    parts = []
    for number in range(int(line[1:])):
        size = int((await reader.readline())[1:])
        if number == 2 and early:
            await early(parts)
        parts.append((await reader.readexactly(size + 2))[:-2])
    return parts


class Nodes:
    """The servers. One key space for each node; in a cluster a key lives on the node of its slot."""

    def __init__(self, rules, stats):
        self.rules, self.stats = rules, stats
        self.servers, self.addresses, self.values = [], [], []
        self.password, self.cluster, self.ranges = None, False, []

    async def start(self, count, cluster, password):
        self.cluster, self.password = cluster, password
        for number in range(count):
            self.values.append({})
            server = await asyncio.start_server(lambda r, w, n=number: self.serve(n, r, w), "127.0.0.1", 0, limit=1 << 26)
            self.servers.append(server)
            self.addresses.append(server.sockets[0].getsockname())
        self.spread()

    def spread(self):
        """Slots in equal parts, as redis-cli would."""
        count = len(self.addresses)
        self.ranges = [[SLOTS * n // count, SLOTS * (n + 1) // count - 1, n] for n in range(count)]

    def script(self, text):
        """{"ranges": [[first, last, node or "host:port"], ...]}: another topology; {"flush": true}; {"spread": true}."""
        if text.get("spread"):
            self.spread()
        self.ranges = text.get("ranges", self.ranges)
        if text.get("flush"):
            for values in self.values:
                values.clear()

    def address(self, node):
        return "%s:%d" % self.addresses[node][:2] if isinstance(node, int) else node

    def owner(self, slot):
        return next((node for first, last, node in self.ranges if first <= slot <= last), None)

    async def serve(self, node, reader, writer):
        self.stats["resp_connections"] = self.stats.get("resp_connections", 0) + 1
        session = {"in": self.password is None, "asking": False}
        try:
            while True:
                command = await read_command(reader, lambda parts: self.early(node, parts, writer))
                if command is None:
                    break
                if command and not await self.one(node, session, command, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    async def early(self, node, parts, writer):
        """{"early": text} is answered to a command whose third word, a value as a rule, was not read yet; then a pause."""
        do, _ = self.rules.apply({"op": "resp early", "command": parts[0].decode("latin-1").upper(),
                                  "key": parts[1].decode("utf-8", "surrogateescape"), "node": node})
        if "early" in do:
            writer.write(do["early"].encode("latin-1"))
            await writer.drain()
            await asyncio.sleep(0.3)

    async def one(self, node, session, command, reader, writer):
        """Answers one command; says whether the connection goes on."""
        name = command[0].decode("latin-1").upper()
        key = command[1].decode("utf-8", "surrogateescape") if len(command) > 1 else ""
        counts = self.stats.setdefault("resp", {})
        counts[name] = counts.get(name, 0) + 1
        do, _ = self.rules.apply({"op": "resp", "command": name, "key": key, "node": node})
        if "delay_ms" in do:
            await asyncio.sleep(do["delay_ms"] / 1000)
        if do.get("hang"):
            await answers.hang(reader)
            return False
        if do.get("reset"):
            answers.reset(writer)
            return False
        reply = self.scripted(do, command)
        if reply is None:
            reply = self.reply(node, session, name, command, do.get("value"))
        for at in range(len(reply)) if do.get("split") else [None]:
            writer.write(reply if at is None else reply[at:at + 1])
            await writer.drain()
            if at is not None:
                await asyncio.sleep(0)
        return not do.get("close") and name != "QUIT"

    def scripted(self, do, command):
        if "raw" in do:
            return do["raw"].encode("latin-1")
        if "error" in do:
            return fail(do["error"])
        for word, text in (("moved", "MOVED"), ("ask", "ASK")):
            if word in do:
                slot = slot_of(command[1]) if len(command) > 1 else 0
                return fail("%s %d %s" % (text, slot, self.address(do[word])))
        return None

    def reply(self, node, session, name, command, spoil):
        arguments = command[1:]
        if name in ("AUTH", "HELLO", "QUIT", "PING", "SELECT", "CLIENT", "READONLY", "READWRITE", "COMMAND", "INFO", "ECHO"):
            return self.about_session(session, name, arguments)
        if not session["in"]:
            return fail("NOAUTH Authentication required.")
        if name == "CLUSTER":
            return self.about_cluster(arguments)
        if name == "ASKING":
            session["asking"] = True
            return OK
        if name in ("FLUSHALL", "FLUSHDB"):
            self.values[node].clear()
            return OK
        if name == "DBSIZE":
            return integer(len(self.values[node]))
        if not arguments:
            return fail("ERR unknown command '%s'" % name)
        asked, session["asking"] = session["asking"], False
        owner = self.owner(slot_of(arguments[0])) if self.cluster else node
        if owner is None:
            return fail("CLUSTERDOWN Hash slot not served")
        if owner != node and not asked:
            return fail("MOVED %d %s" % (slot_of(arguments[0]), self.address(owner)))
        return self.about_values(self.values[node], name, arguments, spoil)

    def about_session(self, session, name, arguments):
        if name == "AUTH":
            if self.password is None:
                return fail("ERR AUTH called without any password configured")
            session["in"] = bool(arguments) and arguments[-1].decode("latin-1") == self.password
            return OK if session["in"] else fail("WRONGPASS invalid username-password pair or user is disabled.")
        if name == "HELLO":
            return fail("NOPROTO unsupported protocol version")
        if name == "PING":
            return b"+PONG\r\n"
        if name == "ECHO":
            return bulk(arguments[0])
        if name == "INFO":
            return bulk(b"redis_version:7.0.15\r\ncluster_enabled:%d\r\n" % self.cluster)
        return b"*0\r\n" if name == "COMMAND" else OK

    def about_cluster(self, arguments):
        if not self.cluster:
            return fail("ERR This instance has cluster support disabled")
        word = arguments[0].upper() if arguments else b""
        if word == b"SLOTS":
            return array([array([integer(first), integer(last), self.node_line(node)]) for first, last, node in self.ranges])
        if word == b"INFO":
            return bulk(b"cluster_state:ok\r\ncluster_known_nodes:%d\r\n" % len(self.addresses))
        return fail("ERR Unknown subcommand")

    def node_line(self, node):
        host, _, port = self.address(node).rpartition(":")
        return array([bulk(host.encode()), integer(int(port)), bulk(b"%040d" % int(port))])

    def about_values(self, values, name, arguments, spoil):
        now = time.monotonic()
        for key in arguments:
            if key in values and values[key][1] <= now:
                del values[key]
        found = values.get(arguments[0], (None, 0))
        if name == "GET":
            return bulk(self.spoilt(values, found[0], spoil))
        if name == "GETDEL":
            values.pop(arguments[0], None)
            return bulk(self.spoilt(values, found[0], spoil))
        if name == "MGET":
            return array([bulk(self.spoilt(values, values.get(key, (None, 0))[0], spoil)) for key in arguments])
        if name == "SET":
            return self.set(values, arguments, found, now)
        if name == "PSETEX":
            return self.set(values, [arguments[0], arguments[2], b"PX", arguments[1]], found, now)
        if name in ("DEL", "UNLINK"):
            return integer(sum(values.pop(key, None) is not None for key in arguments))
        if name == "EXISTS":
            return integer(sum(key in values for key in arguments))
        if name == "STRLEN":
            return integer(len(found[0] or b""))
        if name == "PTTL":
            return integer(-2 if found[0] is None else -1 if found[1] == float("inf") else int((found[1] - now) * 1000))
        if name in ("PEXPIRE", "EXPIRE") and found[0] is not None:
            values[arguments[0]] = (found[0], now + int(arguments[1]) / (1000 if name == "PEXPIRE" else 1))
            return integer(1)
        return fail("ERR unknown command '%s'" % name)

    @staticmethod
    def set(values, arguments, found, now):
        key, value, options = arguments[0], arguments[1], [word.upper() for word in arguments[2:]]
        ends = float("inf")
        for word, unit in ((b"PX", 1000), (b"EX", 1)):
            if word in options:
                ends = now + int(options[options.index(word) + 1]) / unit
        if b"NX" in options and found[0] is not None or b"XX" in options and found[0] is None:
            return NIL
        values[key] = (value, ends)
        return OK

    @staticmethod
    def spoilt(values, value, spoil):
        """spoil: {"flip": bit}, {"truncate": bytes}, {"swap": glob of another key}, {"overwrite": text}, {"extra": bytes}"""
        if value is None or not spoil:
            return value
        if "swap" in spoil:
            others = [other for key, (other, _) in sorted(values.items())
                      if other != value and fnmatch.fnmatchcase(key.decode("utf-8", "surrogateescape"), spoil["swap"])]
            return others[0] if others else value
        if "overwrite" in spoil:
            return spoil["overwrite"].encode("latin-1")
        if "truncate" in spoil:
            return value[:-spoil["truncate"]]
        if "extra" in spoil:
            return value + b"\xee" * spoil["extra"]
        at = spoil["flip"] // 8 % max(1, len(value))
        return value[:at] + bytes([value[at] ^ 1 << spoil["flip"] % 8]) + value[at + 1:] if value else value
