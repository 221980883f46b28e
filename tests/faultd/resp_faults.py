# SPDX-License-Identifier: Apache-2.0
"""What a Redis server or cluster may do to a client that only caches, as rules of faultd; each must be a miss and no more.

Errors by name; storms that send a client in circles; values that are not what was stored; frames that are no RESP or say they
are endless; topologies with hosts that are not there. `dead` stands for an address of loopback where nobody listens.
"""

GETS = {"op": "resp", "command": "GET"}
CACHE_COMMANDS = {"op": "resp", "command": "[GSM]*ET"}  # GET, SET, MGET

ERRORS = {
    "clusterdown": "CLUSTERDOWN The cluster is down", "loading": "LOADING Redis is loading the dataset in memory",
    "oom": "OOM command not allowed when used memory > 'maxmemory'.", "readonly": "READONLY You can't write against a read only replica.",
    "noauth": "NOAUTH Authentication required.", "noperm": "NOPERM this user has no permissions to run the 'get' command",
    "tryagain": "TRYAGAIN Multiple keys request during rehashing of slot", "busy": "BUSY Redis is busy running a script.",
    "masterdown": "MASTERDOWN Link with MASTER is down", "misconf": "MISCONF Errors writing to the disk", "unknown": "ERR unknown command",
    "wrongtype": "WRONGTYPE Operation against a key holding the wrong kind of value",
    "moved to nonsense": "MOVED x y z", "moved without an address": "MOVED 1", "ask nobody": "ASK 1 :0", "moved beyond": "MOVED 99999 127.0.0.1:1",
}


def errors(share=1.0, seed=1):
    """By name, rules that answer so much of all commands of a cache with an error."""
    return {name: [{"name": name, "match": {**CACHE_COMMANDS, "share": share, "seed": seed}, "do": {"error": text}}]
            for name, text in ERRORS.items()}


def storms(dead):
    """MOVED and ASK without end: to the next node, to the same one, to one that is not there."""
    ring = [{"match": {**GETS, "node": node}, "do": {"moved": (node + 1) % 3}} for node in range(3)]
    return {
        "moved in circles": ring, "moved to itself": [{"match": {**GETS, "node": node}, "do": {"moved": node}} for node in range(3)],
        "ask in circles": [{"match": {**GETS, "node": node}, "do": {"ask": (node + 1) % 3}} for node in range(3)],
        "moved to the dead": [{"match": GETS, "do": {"moved": dead}}], "ask the dead": [{"match": GETS, "do": {"ask": dead}}],
        "moved elsewhere": [{"match": GETS, "do": {"moved": "127.1.2.3:9"}}],
        "half moved": [{"match": {**GETS, "share": 0.5, "seed": 2}, "do": {"moved": 0}}],
    }


SLOW = {
    "hangs": [{"match": CACHE_COMMANDS, "do": {"hang": True}}], "five seconds": [{"match": CACHE_COMMANDS, "do": {"delay_ms": 5000}}],
    "resets": [{"match": CACHE_COMMANDS, "do": {"reset": True}}], "closes": [{"match": CACHE_COMMANDS, "do": {"close": True}}],
    "byte by byte": [{"match": CACHE_COMMANDS, "do": {"split": True}}],  # slow, not wrong
    "one in ten hangs": [{"match": {**CACHE_COMMANDS, "share": 0.1, "seed": 3}, "do": {"hang": True}}],
}

# Frames for GET that no client may believe, nor reserve memory for.
HOSTILE = {
    "bulk of 9e18": "$9000000000000000000\r\n", "bulk below nought": "$-7\r\n", "bulk of text": "$abc\r\n", "array of 2^63": "*9223372036854775807\r\n",
    "array of 2^32": "*4294967296\r\n$1\r\n", "deep": "*1\r\n" * 100_000, "map": "%4611686018427387904\r\n", "no type": "hello\r\n",
    "no end": "$5\r\nhelloXX", "number that is none": ":12x4\r\n", "zero bytes": "\0" * 64, "two replies": "$1\r\na\r\n$1\r\nb\r\n",
    "a long line": "+" + "a" * 200_000, "an error without end": "-" + "E" * 200_000,
}


def hostile():
    return {name: [{"match": GETS, "do": {"raw": frame}}] for name, frame in HOSTILE.items()}


# Values of a cache that somebody else has touched: each must be found by the envelope.
VALUES = {
    "one bit": {"flip": 12345}, "one bit of the head": {"flip": 3}, "cut by one": {"truncate": 1}, "cut by many": {"truncate": 1000},
    "longer": {"extra": 7}, "of another key": {"swap": "*"}, "overwritten": {"overwrite": "hello"}, "empty": {"overwrite": ""},
}


def values(share=1.0, seed=1):
    return {name: [{"name": name, "match": {**GETS, "share": share, "seed": seed}, "do": {"value": spoil}}]
            for name, spoil in VALUES.items()}


def topologies(dead):
    """Texts for Faultd.control("resp", …), beside the true one."""
    return {
        "a dead node": {"ranges": [[0, 5460, 0], [5461, 10921, 1], [10922, 16383, dead]]},
        "all dead": {"ranges": [[0, 16383, dead]]}, "unknown hosts": {"ranges": [[0, 16383, "127.1.2.3:9"]]},
        "a hole": {"ranges": [[0, 5460, 0], [10922, 16383, 2]]}, "empty": {"ranges": []}, "overlapping": {"ranges": [[0, 16383, 0], [0, 16383, 1]]},
        "beyond": {"ranges": [[0, 99999, 0]]}, "backwards": {"ranges": [[16383, 0, 0]]}, "empty host": {"ranges": [[0, 16383, ":6379"]]},
    }
