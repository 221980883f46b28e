#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A server of S3, plain HTTP and RESP on loopback that fails as it is told. README.md beside it has the words of its rules.

    faultd.py [--bucket NAME=FOLDER]... [--bucket-spec NAME=JSON]... [--rules FILE] [--keys FILE] [--tls CERT KEY]
              [--resp NODES [--cluster] [--password-file FILE]] [--until-eof]

Prints one line of JSON when it listens: {"http": port, "resp": [ports]}. Ends at SIGTERM, or with --until-eof when its standard
input is closed, so that it never outlives the test that started it.
"""
import argparse
import asyncio
import base64
import json
import os
import signal
import socket
import ssl
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import answers
import objects
import resp
import rules as rules_of
import sigv4

CONTROL = "/__faultd/"
LOG_ROOM = 2_000_000
HEAD_ROOM = 64 << 10


class Request:
    """One request as it came, and what it means to S3."""

    def __init__(self, head, buckets):
        lines = head.decode("latin-1").split("\r\n")
        self.method, target, _ = lines[0].split(" ", 2)
        self.headers = {}
        for line in lines[1:]:
            name, found, value = line.partition(":")
            if found:
                self.headers[name.strip().lower()] = value.strip()
        self.path, _, self.query_text = target.partition("?")
        self.query = dict(urllib.parse.parse_qsl(self.query_text, keep_blank_values=True, errors="surrogateescape"))
        place = urllib.parse.unquote_to_bytes(self.path).decode("utf-8", "surrogateescape").lstrip("/")
        label = self.headers.get("host", "").partition(".")[0]
        if label in buckets:  # virtual-host style
            self.bucket, self.key = label, place
        else:
            self.bucket, _, self.key = place.partition("/")
        self.op = self.kind()

    def kind(self):
        if self.key == "" and self.method == "GET":
            return "list"
        return self.method.lower()

    def facts(self):
        return {"op": self.op, "method": self.method, "bucket": self.bucket, "key": self.key,
                "range": self.headers.get("range"), "if_match": self.headers.get("if-match")}


class Faultd:
    def __init__(self):
        self.buckets, self.keys, self.documents = {}, {}, {}
        self.rules = rules_of.Rules()
        self.begin = time.monotonic()
        self.log, self.stats = [], {}
        self.open_now = 0
        self.forget()
        self.nodes = resp.Nodes(self.rules, self.stats)

    def forget(self):
        self.log.clear()
        self.stats.clear()
        self.stats.update({"requests": {}, "statuses": {}, "bytes": 0, "connections": 0, "most_open": self.open_now,
                           "ranges": 0, "if_match": 0, "signed": 0})

    # Control: what tests say and ask, under a path of its own; not counted.

    def control(self, request, body):
        word, _, name = request.path[len(CONTROL):].partition("/")
        text = json.loads(body) if body else {}
        if word == "rules":
            self.rules.set(text)
        elif word == "reset":
            self.forget()
        elif word == "bucket":
            self.buckets[name] = objects.make_bucket(text)
        elif word == "replace":
            self.replace(text["bucket"], text["key"], text)
        elif word == "keys":
            self.keys = text
        elif word == "document":
            self.documents[text["path"]] = text
        elif word == "resp":
            self.nodes.script(text)
        elif word == "log":
            return self.log
        elif word != "stats":
            raise ValueError("no such control word: %s" % word)
        return {**self.stats, "fired": self.rules.fired(), "log_entries": len(self.log), "now": time.monotonic() - self.begin}

    def replace(self, bucket, key, how):
        """Another content from now on: base64 bytes, the content of another key, or the old one with each byte turned over."""
        if "base64" in how:
            content = base64.b64decode(how["base64"])
        elif "from_key" in how:
            content = self.buckets[bucket].read(how["from_key"])
        else:
            content = bytes(255 - byte for byte in self.buckets[bucket].read(key))
        self.buckets[bucket].replace(key, content)

    def document(self, request):
        """Something at a fixed path outside all buckets, such as credentials of a container. authorization: what must be sent."""
        told = self.documents[request.path]
        if "authorization" in told and request.headers.get("authorization") != told["authorization"]:
            return answers.error(401, "Unauthorized")
        return answers.Answer(told.get("status", 200), told["body"].encode(), told.get("headers", {}))

    def honest(self, request, do):
        """The answer of a server without faults."""
        if request.path in self.documents:
            return self.document(request)
        bucket = self.buckets.get(request.bucket)
        if self.keys:
            refused = sigv4.refusal(self.keys, request.method, request.path, request.query_text, request.headers)
            if refused:
                return answers.error(*refused)
        if bucket is None:
            return answers.error(404, "NoSuchBucket")
        if request.method not in ("GET", "HEAD"):
            return answers.error(405, "MethodNotAllowed")
        if request.op == "list":
            return answers.Answer(200, objects.list_xml(request.bucket, bucket, request.query), {"Content-Type": "application/xml"})
        if request.key == "":
            return answers.Answer(200, b"")
        return answers.of_object(bucket, request.key, request.headers, do)

    async def answer(self, request, number, first, reader, writer):
        """One request; says whether the connection goes on."""
        arrived = time.monotonic() - self.begin
        do, names = self.rules.apply(request.facts())
        delay_ms = do.get("delay_ms", 0) + (do.get("first_delay_ms", 0) if first else 0)
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        try:
            answer = answers.distort(self.honest(request, do), do)
        except Exception as error:  # a fault of the fault server is no answer that a test should take for one
            print("faultd: %s %s: %r" % (request.method, request.path, error), file=sys.stderr, flush=True)
            answer = answers.error(599, "Faultd", repr(error))
        if "replace" in do:
            self.replace(request.bucket, do["replace"].get("key", request.key), do["replace"])
        self.count(request, answer.status)
        entry = {"t": arrived, "connection": number, **request.facts(), "query": request.query_text, "status": answer.status,
                 "rules": names, "signed": "authorization" in request.headers}
        if len(self.log) < LOG_ROOM:
            self.log.append(entry)
        goes_on, sent = await answers.send(reader, writer, answer, do, request.method == "HEAD")
        entry["bytes"], entry["end"] = sent, time.monotonic() - self.begin
        self.stats["bytes"] += sent
        return goes_on

    def count(self, request, status):
        stats = self.stats
        stats["requests"][request.op] = stats["requests"].get(request.op, 0) + 1
        stats["statuses"][str(status)] = stats["statuses"].get(str(status), 0) + 1
        stats["ranges"] += "range" in request.headers
        stats["if_match"] += "if-match" in request.headers
        stats["signed"] += "authorization" in request.headers

    async def serve(self, reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = None
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = Request(head[:-4], self.buckets)
                body = await reader.readexactly(int(request.headers.get("content-length", 0)))
                if request.path.startswith(CONTROL):
                    text = json.dumps(self.control(request, body)).encode()
                    writer.write(answers.head_bytes(answers.Answer(200, text), close=False) + text)
                    await writer.drain()
                    continue
                first = number is None
                if first:
                    number = self.stats["connections"]
                    self.stats["connections"] += 1
                    self.open_now += 1
                    self.stats["most_open"] = max(self.stats["most_open"], self.open_now)
                if not await self.answer(request, number, first, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            if isinstance(error, ValueError):
                print("faultd: %r" % error, file=sys.stderr, flush=True)
        finally:
            self.open_now -= number is not None
            writer.close()


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bucket", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--bucket-spec", action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--rules", metavar="FILE", help="JSON list of rules")
    parser.add_argument("--keys", metavar="FILE", help='signatures are checked: {"ACCESS": {"secret": ..., "token": ...}}')
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--resp", type=int, default=0, metavar="NODES")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--password-file", metavar="FILE")
    parser.add_argument("--until-eof", action="store_true")
    return parser.parse_args(argv)


def load(path):
    with open(path, encoding="utf-8") as handle:
        return json.load(handle)


async def run(options):
    faultd = Faultd()
    for text in options.bucket:
        name, _, folder = text.partition("=")
        faultd.buckets[name] = objects.make_bucket({"folder": folder})
    for text in options.bucket_spec:
        name, _, spec = text.partition("=")
        faultd.buckets[name] = objects.make_bucket(json.loads(spec))
    if options.rules:
        faultd.rules.set(load(options.rules))
    if options.keys:
        faultd.keys = load(options.keys)
    context = None
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
    server = await asyncio.start_server(faultd.serve, "127.0.0.1", options.port, limit=HEAD_ROOM, backlog=512, ssl=context)
    password = None
    if options.password_file:
        with open(options.password_file, encoding="utf-8") as handle:
            password = handle.read().strip()
    await faultd.nodes.start(options.resp, options.cluster, password)
    print(json.dumps({"http": server.sockets[0].getsockname()[1], "resp": [place[1] for place in faultd.nodes.addresses]}), flush=True)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    if options.until_eof:
        loop.add_reader(0, lambda: os.read(0, 4096) or over.set())
    await over.wait()
    os._exit(0)  # connections that hang on purpose are not waited for


if __name__ == "__main__":
    try:
        asyncio.run(run(parse(sys.argv[1:])))
    except KeyboardInterrupt:
        pass
