# SPDX-License-Identifier: Apache-2.0
"""How faultd answers one HTTP request: the honest answer first, then what the rules do to it, then the bytes on the wire."""
import asyncio
import gzip
import socket
import struct

REASONS = {200: "OK", 206: "Partial Content", 301: "Moved Permanently", 302: "Found", 304: "Not Modified", 307: "Temporary Redirect",
           400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 412: "Precondition Failed",
           416: "Range Not Satisfiable", 429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway",
           503: "Service Unavailable"}
CODES = {429: "TooManyRequests", 500: "InternalError", 502: "BadGateway", 503: "SlowDown"}


class Answer:
    """What goes out. body is all that is sent unless it is cut; length is what the header says, None for no header."""

    def __init__(self, status, body=b"", headers=None):
        self.status, self.body, self.headers = status, body, dict(headers or {})
        self.length, self.hidden = len(body), b""
        self.framing, self.end = "length", "keep"


def error(status, code, message=""):
    text = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>' % (code, message)
    return Answer(status, text.encode(), {"Content-Type": "application/xml"})


def parse_range(text, size):
    """(start, end) with end exclusive; None for none; "bad" for one that cannot be satisfied."""
    if not text.startswith("bytes=") or "," in text:
        return None
    first, _, last = text[6:].partition("-")
    try:
        if first == "":
            start, end = max(0, size - int(last)), size
        else:
            start, end = int(first), min(size, int(last) + 1) if last else size
    except ValueError:
        return None
    return (start, end) if 0 <= start < end else "bad"


def of_object(bucket, key, headers, do):
    """The answer to GET of an object; HEAD drops the body later. do: what concerns the choice of bytes."""
    content = bucket.read(key)
    if content is None:
        return error(404, "NoSuchKey", "no such key")
    etag = bucket.etag(key, content)
    wanted = headers.get("if-match")
    if wanted is not None and wanted not in (etag, "*"):
        return error(412, "PreconditionFailed", "another ETag")
    common = {"ETag": do.get("etag", etag), "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT", "Accept-Ranges": "bytes",
              "Content-Type": "application/octet-stream"}
    span = parse_range(headers.get("range", ""), len(content))
    if span == "bad":
        return error(416, "InvalidRange", "out of range")
    if span is None or do.get("ignore_range"):
        if bucket.checksum and headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
            add_checksum(common, bucket, key, content, do.get("checksum"))
        return Answer(200, content, common)
    start, end = span
    if "shift" in do:
        start, end = max(0, start + do["shift"]), min(len(content), end + do["shift"])
    common["Content-Range"] = "bytes %d-%d/%d" % (start, end - 1, len(content))
    lie = do.get("content_range", {})
    if isinstance(lie, str):
        common["Content-Range"] = lie
    elif lie is None:
        del common["Content-Range"]
    elif lie:
        common["Content-Range"] = "bytes %d-%d/%d" % (start + lie.get("start", 0), end - 1 + lie.get("end", 0),
                                                      len(content) + lie.get("total", 0))
    return Answer(206, content[start:end], common)


def add_checksum(headers, bucket, key, content, lie):
    """lie: "none" leaves it out, "composite" gives one over parts, "wrong" another one."""
    if lie == "none":
        return
    value = bucket.checksum_of(key, content)
    if lie == "composite":
        headers["x-amz-checksum-type"] = "COMPOSITE"
        value = value[:-2] + "==-2"
    else:
        headers["x-amz-checksum-type"] = "FULL_OBJECT"
    if lie == "wrong":
        value = ("B" if value[0] == "A" else "A") + value[1:]
    headers["x-amz-checksum-" + bucket.checksum] = value


def distort(answer, do):
    """What rules do to an answer that stands."""
    if "redirect" in do:
        answer = Answer(do.get("status", 302), b"elsewhere", {"Location": do["redirect"]})
    elif "status" in do:
        answer = error(do["status"], do.get("code", CODES.get(do["status"], "Fault")), "as the rules say")
    if "body" in do:
        answer.body = do["body"].encode("latin-1")
        answer.length = len(answer.body)
    answer.headers.update(do.get("headers", {}))
    if do.get("gzip"):
        answer.body = gzip.compress(answer.body, 1)
        answer.headers["Content-Encoding"] = "gzip"
        answer.length = len(answer.body)
    if "flip" in do and answer.body:
        bit = do["flip_draw"] if do["flip"] == "random" else do["flip"]
        at = bit // 8 % len(answer.body)
        answer.body = answer.body[:at] + bytes([answer.body[at] ^ 1 << bit % 8]) + answer.body[at + 1:]
    if "extra" in do:
        answer.body += b"\xee" * do["extra"]
        answer.length = len(answer.body)
    answer.hidden = b"\xee" * do.get("extra_hidden", 0)
    if "content_length" in do:  # "+7", "-7" or a number; what is told and what comes differ, so nothing can follow
        told = do["content_length"]
        answer.length = answer.length + int(told) if isinstance(told, str) else told
        answer.end = "fin"
    if do.get("close"):
        answer.end = "fin"
    if "cut" in do:
        cut = do["cut"]
        at = do["cut_draw"] % max(1, len(answer.body)) if cut.get("at", "random") == "random" else cut["at"]
        answer.body, answer.hidden = answer.body[:at], b""
        answer.framing, answer.end = cut.get("framing", "length"), cut.get("how", "fin")
    return answer


def head_bytes(answer, close):
    lines = ["HTTP/1.1 %d %s" % (answer.status, REASONS.get(answer.status, "Status"))]
    lines += ["%s: %s" % pair for pair in answer.headers.items()]
    if answer.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    elif answer.framing == "length" and answer.length is not None:
        lines.append("Content-Length: %d" % answer.length)
    lines.append("Server: faultd")
    lines.append("Connection: %s" % ("close" if close else "keep-alive"))
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def reset(writer):
    """The connection ends with RST."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def hang(reader):
    """Until the other side gives up."""
    while await reader.read(65536):
        pass


async def send_body(writer, body, do, chunked):
    rate, over = do.get("bandwidth"), do.get("over", bool)
    step = max(1, int(rate / 50)) if rate else 1 << 20
    at, part = 0, b""
    while (at := at + len(part)) < len(body):
        if over():
            rate, step = None, len(body)
        part = body[at:at + step]
        writer.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        await writer.drain()
        if rate:
            await asyncio.sleep(len(part) / rate)


async def send(reader, writer, answer, do, head_only):
    """Returns whether the connection goes on, and the bytes of the body that were sent."""
    stall = do.get("stall")
    if stall == "before":
        await hang(reader)
        return False, 0
    if do.get("reset"):
        reset(writer)
        return False, 0
    body = b"" if head_only else answer.body
    stops = answer.end != "keep" or answer.framing == "close"
    head = head_bytes(answer, close=answer.end == "fin" and answer.framing != "length")
    if stall is None and not do.get("bandwidth") and answer.framing != "chunked":
        writer.write(head + body + answer.hidden if not head_only else head)
        await writer.drain()
    else:
        writer.write(head)
        await writer.drain()
        if stall == "headers":
            await hang(reader)
            return False, 0
        if stall is not None:
            body = body[:do["stall_draw"] % max(1, len(body)) if stall == "random" else stall]
        await send_body(writer, body, do, answer.framing == "chunked")
        if stall is not None:
            await hang(reader)
            return False, len(body)
        if answer.framing == "chunked" and answer.end == "keep":
            writer.write(b"0\r\n\r\n")
    if answer.end == "rst":
        await asyncio.sleep(0.02)  # what was written is to arrive before the reset throws it away
        reset(writer)
    elif answer.end == "hang":
        await hang(reader)
    return not stops, len(body)
