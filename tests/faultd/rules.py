# SPDX-License-Identifier: Apache-2.0
"""What faultd does to which request: rules that are matched in order, and all that match are applied, later ones last.

Whether a rule with a share fires for a request is a hash of the rule's seed, the key and how often that key was asked for
under the rule, so that a run can be repeated however its requests are interleaved.
"""
import fnmatch
import hashlib
import time

MATCHES = {"op", "method", "bucket", "key", "range", "longer", "if_match", "command", "node", "nth", "per", "share", "seed", "times",
           "after_s", "for_s"}
DOES = {
    # answers of HTTP
    "status", "code", "headers", "body", "redirect", "delay_ms", "first_delay_ms", "bandwidth", "until_rules", "cut", "stall",
    "reset", "content_length", "extra", "extra_hidden", "content_range", "ignore_range", "shift", "gzip", "flip", "etag", "replace", "checksum", "close",
    # answers of RESP
    "error", "moved", "ask", "hang", "raw", "split", "value", "early",
}


def draw(*parts):
    """An integer below 2^63 that hangs on the parts alone."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def range_length(text):
    """Bytes of a Range header; 0 where there is none, or none with an end."""
    first, _, last = (text or "").removeprefix("bytes=").partition("-")
    return int(last) - int(first) + 1 if first.isdigit() and last.isdigit() else 0


class Rule:
    def __init__(self, number, text):
        unknown = set(text) - {"name", "match", "do"} | set(text.get("match", {})) - MATCHES | set(text.get("do", {})) - DOES
        if unknown:
            raise ValueError("no such word in a rule: %s" % ", ".join(sorted(unknown)))
        self.name = text.get("name", "rule%d" % number)
        self.match, self.do = text.get("match", {}), text.get("do", {})
        self.begin = time.monotonic()
        self.seen, self.fired = {}, 0

    def fits(self, request):
        """request: a dict with the words of match that tell what was asked."""
        for word in ("op", "method", "bucket", "key", "command"):
            if word in self.match and not fnmatch.fnmatchcase(str(request.get(word, "")), self.match[word]):
                return False
        for word in ("range", "if_match"):
            if word in self.match and bool(request.get(word)) != self.match[word]:
                return False
        if "longer" in self.match and range_length(request.get("range")) <= self.match["longer"]:
            return False
        if "node" in self.match and request.get("node") != self.match["node"]:
            return False
        age = time.monotonic() - self.begin - self.match.get("after_s", 0)
        return 0 <= age < self.match.get("for_s", float("inf"))

    def fires(self, request):
        """What is to be done, or None. Counts, so it is called once a request."""
        if not self.fits(request):
            return None
        key = request.get("key", "")
        counted = key if self.match.get("per") == "key" else None
        count = self.seen[counted] = self.seen.get(counted, 0) + 1
        nth = self.match.get("nth")
        if nth is not None and count not in (nth if isinstance(nth, list) else [nth]):
            return None
        share = self.match.get("share")
        if share is not None:
            per_key = self.seen[("share", key)] = self.seen.get(("share", key), 0) + 1
            if draw("share", self.match.get("seed", 0), key, per_key) >= share * 2 ** 63:
                return None
        if self.fired >= self.match.get("times", float("inf")):
            return None
        self.fired += 1
        done = dict(self.do)
        for word in ("cut", "flip", "stall"):  # "random" is settled here, where the count is known
            if word in done:
                done[word + "_draw"] = draw(word, self.match.get("seed", 0), key, self.fired)
        return done


class Rules:
    def __init__(self):
        self.rules, self.times_set = [], 0

    def set(self, texts):
        self.times_set += 1
        self.rules = [Rule(number, text) for number, text in enumerate(texts)]

    def apply(self, request):
        """What to do to a request, and the names of the rules that said so."""
        done, names = {}, []
        for rule in self.rules:
            more = rule.fires(request)
            if more is not None:
                done.update(more)
                names.append(rule.name)
        if done.get("until_rules"):
            since = self.times_set
            done["over"] = lambda: self.times_set != since
        return done, names

    def fired(self):
        return {rule.name: rule.fired for rule in self.rules}
