# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus scrapes a daemon while jobs run: no scrape fails, and what it has last is what the ledger says."""
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from conftest import LIMIT_S, rows
from looking import SUFFIXES, fetch
from test_http import port_of

SCRAPE_S = float(os.environ.get("PENSTOCK_SCRAPE_S", "4"))
needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="needs Debian's prometheus")
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 900ms}}
scrape_configs:
  - job_name: penstock
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Prometheus:
    def __init__(self, path, port):
        (path / "prometheus.yml").write_text(CONFIG.format(port=port))
        self.port = free_port()
        self.child = subprocess.Popen(
            ["prometheus", f"--config.file={path}/prometheus.yml", f"--storage.tsdb.path={path}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, query):
        """[(labels, value)], or None while it does not answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
                return [(one["metric"], float(one["value"][1])) for one in json.load(answer)["data"]["result"]]
        except OSError:
            return None

    def end(self):
        self.child.terminate()
        self.child.wait(timeout=LIMIT_S)


def wait_for(what, limit=LIMIT_S):
    begin = time.monotonic()
    while not (found := what()):
        assert time.monotonic() - begin < limit
        time.sleep(0.2)
    return found


@needs_prometheus
def test_no_scrape_fails_and_the_last_value_is_the_ledgers(serve, client, photos, tmp_path):
    daemon = serve("--workers", 1, "--cache", 0, "--http", 0)
    watcher = Prometheus(tmp_path, port_of(daemon))
    try:
        wait_for(lambda: watcher.ask("up"))
        begin = time.monotonic()
        clients = []
        while time.monotonic() - begin < SCRAPE_S or not clients:
            clients.append(client("--engine", daemon.address, "--epochs", 4, pipeline="decode | delay(ms=3) | random_resized_crop(32)"))
            clients[-1].end()
        delivered = sum(len(rows(one.ledger)) for one in clients)
        total = "penstock_dataset_samples_total"
        wait_for(lambda: (found := watcher.ask(total)) and found[0][1] == delivered)
        assert watcher.ask(total)[0][0]["dataset"] == photos.name
        # A scrape fails where the system did not let the daemon answer in time; on a machine that is not
        # overloaded none does, which is for the long run to show.
        scrapes, well = (watcher.ask(f"{what}_over_time(up[10m])")[0][1] for what in ("count", "sum"))
        print(f"{scrapes:.0f} scrapes, {scrapes - well:.0f} failed; {delivered} samples by the ledgers and by Prometheus, {len(clients)} jobs")
        assert scrapes == well if SCRAPE_S >= 60 else well > scrapes / 2
        assert scrapes >= min(3, SCRAPE_S / 2)
        queried(watcher)
    finally:
        watcher.end()


def queries():
    root = Path(__file__).resolve().parents[2]
    board = json.loads((root / "deploy" / "grafana-penstock.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(found) >= 18
    return [expr.replace("$dataset", ".*").replace("$__rate_interval", "1m") for expr in found]


def queried(watcher):
    """Prometheus takes every query of the dashboard."""
    for expr in queries():
        assert "$" not in expr and watcher.ask(expr) is not None, expr


def test_the_dashboard_names_metrics_that_there_are(serve):
    _, _, body = fetch(serve("--workers", 1).dir, "/metrics")
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", body.decode(), re.MULTILINE))
    known = {name + suffix for name, kind in kinds.items() for suffix in SUFFIXES[kind]}
    for expr in queries():
        names = set(re.findall(r"penstock_\w+", expr))
        assert names and names <= known, expr
