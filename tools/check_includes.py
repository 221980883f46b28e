#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the #include lines and says where a room includes what it may not.

The rooms below src/ depend on each other in one direction; the table is the whole truth. From outside a room only its
public header, src/<room>/<room>.h, may be included (core and cache have several); a *_priv.h never leaves its room. cli/, python/ and
examples/ see include/penstock.h alone. Tests of a room may look inside that room.

    tools/check_includes.py [ROOT]
"""
import os
import re
import sys

sys.dont_write_bytecode = True
import csource

ARROWS = {
    "core": set(),
    "net": {"core"},
    "source": {"core", "net"},
    "codec": {"core"},
    "op": {"core"},
    "sample": {"core"},
    "cache": {"core"},
    "model": {"core"},
    "watch": {"core"},
    "depot": {"core", "net"},
    "pipeline": {"core", "codec", "op"},
    "sched": {"core", "source", "codec", "op", "pipeline", "sample", "cache", "model", "watch"},
    "engine": {"core", "source", "codec", "op", "pipeline", "sample", "cache", "model", "sched", "net", "depot",
               "watch"},
    "serve": {"core", "engine", "net", "depot", "watch"},
}
# Rooms with more than one public header.
SEVERAL = {"cache": {"cache.h", "disk.h", "envelope.h", "remote.h"},
           "watch": {"view.h", "history.h", "metrics.h", "text.h", "trace.h", "verdict.h"}}
# Third-party headers, and the only places that may know them.
LIBRARIES = {
    "jpeglib.h": {"src/codec", "bench", "cli"},
    "jerror.h": {"src/codec", "bench"},
    "spng.h": {"src/codec", "cli"},
    "zlib.h": {"src/codec", "cli"},
    "libdeflate.h": {"src/codec"},
    "FLAC/stream_decoder.h": {"src/codec"},
    "FLAC/stream_encoder.h": {"cli"},
    "kiss_fftr.h": {"src/op"},
    "liburing.h": {"src/source"},
    "hiredis/hiredis.h": {"src/cache"},
    "hiredis/hiredis_ssl.h": {"src/cache"},
    "jansson.h": {"src/source", "src/serve", "cli"},
    "microhttpd.h": {"src/serve"},
    "curl/curl.h": {"src/net"},
    "expat.h": {"src/net"},
    "openssl/*": {"src/net", "src/depot", "src/cache"},
    "Python.h": {"python"},
}
FRONTS = ("cli", "python", "examples")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)


def place_of(path):
    """("src", room), ("tests", room) or (top folder, "")."""
    parts = path.split(os.sep)
    return (parts[0], parts[1]) if parts[0] in ("src", "tests") and len(parts) > 2 else (parts[0], "")


def judge_room(top, room, target):
    """Why a file in `top`/`room` may not include the header `target` of another room; None if it may."""
    other, _, name = target.partition("/")
    if top == "src" and other != room and other not in ARROWS[room]:
        return "%s may not include %s; it may include %s" % (room, other, ", ".join(sorted(ARROWS[room])) or "no room")
    if other == room:
        return None
    if name.endswith("_priv.h"):
        return "%s is private to %s" % (target, other)
    public = SEVERAL.get(other, {other + ".h"})
    if top == "src" and other != "core" and name not in public:
        return "of %s only %s may be included" % (other, " and ".join(other + "/" + one for one in sorted(public)))
    return None


def judge(root, path, quote, target):
    top, room = place_of(path)
    if quote == "<":
        homes = LIBRARIES.get(target) or LIBRARIES.get(target.split("/")[0] + "/*")
        where = "%s/%s" % (top, room) if top == "src" else top
        if homes and top != "tests" and where not in homes:
            return "<%s> belongs to %s" % (target, " and ".join(sorted(homes)))
        return None
    if target == "penstock.h" or top == "include":
        return None
    beside = os.path.exists(os.path.join(root, os.path.dirname(path), target))
    if top in FRONTS:
        return None if beside and "/" not in target else "%s/ may include \"penstock.h\" and its own headers only" % top
    if target.split("/")[0] in ARROWS:
        return judge_room(top, room, target)
    if top == "src":
        return "includes are rooted: write \"<room>/<header>.h\""
    return None


def check(root):
    complaints = []
    for path in csource.files(root, ("src", "include", "tests", "bench") + FRONTS, (".c", ".h")):
        top, room = place_of(path)
        if top == "src" and room not in ARROWS:
            complaints.append("%s: the room \"%s\" is not in the table of tools/check_includes.py" % (path, room))
            continue
        text = csource.read(root, path)
        for match in INCLUDE.finditer(text):
            why = judge(root, path, match.group(1), match.group(2))
            if why:
                complaints.append("%s:%d: %s" % (path, text.count("\n", 0, match.start()) + 1, why))
    return complaints


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    complaints = check(root)
    print("\n".join(complaints), end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
