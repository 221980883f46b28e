# SPDX-License-Identifier: Apache-2.0
"""Looking at a daemon as a browser or a scraper does, and OpenMetrics read strictly."""
import http.client
import json
import re
import socket

LIMIT_S = 120
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*)\})? ([0-9.e+-]+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "info": ("_info",), "histogram": ("_bucket", "_count", "_sum")}
TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(self.path)


def fetch(where, url, method="GET", headers=None, body=None):
    """(status, headers, bytes) of a port of this machine or of a folder with a control socket."""
    line = http.client.HTTPConnection("127.0.0.1", where, timeout=LIMIT_S) if isinstance(where, int) \
        else UnixConnection(where / "control.sock")
    try:
        line.request(method, url, body=body, headers=headers or {})
        answer = line.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        line.close()


def look(where, history=False):
    status, headers, body = fetch(where, "/v1/watch" + ("?history=1" if history else ""))
    assert status == 200 and headers["Content-Type"] == "application/json"
    return json.loads(body)


def unescape(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), text)


def parse_sample(line, family, kind, seen):
    match = SAMPLE.match(line)
    assert match, line
    name, labels, value = match.groups()
    assert name in [family + suffix for suffix in SUFFIXES[kind]], (line, family)
    pairs = LABEL.findall(labels or "")
    assert ",".join(f'{k}="{v}"' for k, v in pairs) == (labels or ""), line
    assert len({k for k, _ in pairs}) == len(pairs), line
    key = (name, tuple(sorted((k, unescape(v)) for k, v in pairs)))
    assert key not in seen, f"twice: {line}"
    if kind in ("counter", "histogram"):
        assert float(value) >= 0, line
    seen[key] = float(value)


def check_histograms(seen, family):
    groups = {}
    for (name, labels), value in seen.items():
        if name.startswith(family + "_"):
            rest = tuple(pair for pair in labels if pair[0] != "le")
            groups.setdefault(rest, {})[(name, dict(labels).get("le"))] = value
    for rest, values in groups.items():
        buckets = [(float(le), v) for (name, le), v in values.items() if name == family + "_bucket"]
        assert [v for _, v in buckets] == sorted(v for _, v in buckets), rest
        assert buckets[-1][0] == float("inf") and buckets[-1][1] == values[(family + "_count", None)], rest


def parse_metrics(text):
    """{(name, labels): value}; fails on what the format does not allow."""
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1 and "\r" not in text
    seen, families, family, kind = {}, {}, None, None
    for line in text.splitlines()[:-1]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert NAME.fullmatch(family) and kind in SUFFIXES and family not in families, line
            families[family] = kind
        elif line.startswith("# HELP "):
            assert line.split(" ")[2] == family, line
        else:
            assert line and not line.startswith("#"), line
            parse_sample(line, family, kind, seen)
    for name, what in families.items():
        if what == "histogram":
            check_histograms(seen, name)
    try:  # the reference's own parser where it is installed
        from prometheus_client.openmetrics import parser
    except ImportError:
        pass
    else:
        theirs = {(s.name, tuple(sorted(s.labels.items()))): s.value
                  for f in parser.text_string_to_metric_families(text) for s in f.samples}
        assert theirs == seen
    return seen


def metrics(where):
    status, headers, body = fetch(where, "/metrics")
    assert status == 200 and headers["Content-Type"] == TYPE, (status, headers)
    return parse_metrics(body.decode())


def value(seen, name, **labels):
    """The one sample whose labels have these among them."""
    found = [v for (n, have), v in seen.items() if n == name and set(labels.items()) <= set(have)]
    assert len(found) == 1, (name, labels, found)
    return found[0]
