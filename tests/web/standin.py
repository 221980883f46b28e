#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the daemon for the page: serves a bundled page and made-up views, for what a real daemon does not show at will
(hostile keys, dead tiers, a model of a known shape, no job at all) and for working on the page without one.

    tests/web/standin.py --html FILE --csp FILE [--port N] [--scene two|none|hostile|many|wordy] [--busy N]

--busy N: so many streams are refused first. Prints the port, and ends when its standard input does.
"""

import argparse
import http.server
import json
import math
import os
import pathlib
import sys
import threading
import time

BOUNDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10]
EVIL = [
    '<img src=x onerror="window.hacked=1">.jpg',
    "</script><script>window.hacked=2</script>",
    "a\u202egpj.exe",
    "'\"&amp;\\\x1b[31m\n",
    "ö/日本/" + "long" * 200,
]
START = time.time()


DECODE = "decode-bound: 3 more cores or 4 GiB of cache would remove the stall (the consumer waits 42 % of the time)"


def triangle():
    rows = []
    for e in range(11):
        for d in range(11 - e):
            a = 10 - e - d
            rows.append([e / 10, d / 10, a / 10, 2200 + 2600 * math.exp(-((d - 6) ** 2 + (e - 3) ** 2) / 18) + 30 * a])
    return rows


def verdict(kind, text, stall):
    return {
        "kind": kind,
        "text": text,
        "stall": stall,
        "numbers": {
            "rate": 2962.4,
            "wanted_rate": 5120.0,
            "busy_cores": 7.8,
            "cores": 8,
            "cpu_seconds": 0.00262,
            "source_seconds": 0.00041,
            "cache_bytes": 4.1e9,
        },
        "help": (
            [
                {"what": "cores", "amount": 3, "unit": "cores", "rate": 5010, "stall": 0.02},
                {"what": "cache", "amount": 4 << 30, "unit": "bytes", "rate": 5120, "stall": 0},
            ]
            if kind == "decode"
            else []
        ),
    }


def job(number, dataset, rate, now):
    went = now - START + 300
    wave = 1 + 0.06 * math.sin(now / 5 + number)
    samples = int(rate * went)
    stages = [
        ("read", 0.00018, 0.0011),
        ("wait", 0.00004, 0),
        ("decode", 0.0021, 0),
        ("random_resized_crop", 0.00031, 0),
        ("flip", 0.00003, 0),
        ("color_jitter", 0.0004 * number, 0),
        ("normalize", 0.00012, 0),
        ("finish", 0.00005, 0),
    ]
    return {
        "id": number,
        "state": "running",
        "pid": 4100 + number,
        "uid": 1000,
        "dataset": dataset,
        "pipeline": "decode | random_resized_crop(224) | flip | normalize",
        "batch": 256,
        "rank": 0,
        "world": 1,
        "order": "ready",
        "sampling": "plain",
        "group": "",
        "epoch": 3,
        "epoch_samples": 1281167,
        "epoch_done": samples % 1281167,
        "seconds": went,
        "samples": samples,
        "batches": samples // 256,
        "skipped": 2,
        "warnings": 1,
        "bytes_read": samples * 110000,
        "bytes_delivered": samples * 150528,
        "waits": samples // 256,
        "wait_seconds": went * 0.4,
        "wait_p50_seconds": 0.021,
        "wait_p99_seconds": 0.094,
        "rate_now": rate * wave,
        "stall_now": max(0, 0.42 * wave - 0.3 * (number - 1)),
        "waiting_seconds": 0,
        "ready": 2 + number,
        "ready_depth": 8,
        "preparations": int(samples * 0.7),
        "shared": int(samples * 0.2),
        "adopted": 12,
        "substitutions": 0,
        "hits": {
            "encoded": int(samples * 0.15),
            "decoded": int(samples * 0.4),
            "augmented": int(samples * 0.05),
            "disk": int(samples * 0.1),
            "remote": 0,
        },
        "misses": int(samples * 0.3),
        "stages": [
            {"name": n, "runs": samples, "seconds": (s + away) * samples, "away_seconds": away * samples, "buckets": []}
            for n, s, away in stages
        ],
        "lanes": {
            "slow": samples // 40,
            "parked": samples // 90,
            "early": samples // 44,
            "stragglers": 31,
            "cutoff_seconds": 0.0123 * number,
            "prediction_error": 0.11,
            "cost_buckets": [
                int(samples * p)
                for p in (0, 0, 0.001, 0.02, 0.31, 0.42, 0.17, 0.05, 0.02, 0.006, 0.002, 0.001, 0, 0.0004, 0, 0)
            ],
        },
        "verdict": (
            verdict("decode", DECODE, 0.42)
            if number == 1
            else verdict("gpu", "GPU-bound: the consumer takes %d samples/s and never waits" % rate, 0.0)
        ),
    }


def jobs_of(scene, now):
    if scene == "none":
        return []
    if scene == "many":
        return [job(i, "/data/set-%d" % i, 500 + 100 * i, now) for i in range(1, 13)]
    names = ("/data/imagenet/train", "s3://bucket/laion-subset") if scene != "hostile" else (EVIL[0], EVIL[2])
    return [job(1, names[0], 2960, now), job(2, names[1], 1280, now)]


def bad_of(scene, now):
    if scene == "none":
        return []
    reasons = [
        ("train/n0144/photo_0231.jpg", "decode", "the JPEG ends early: 12288 of 30211 bytes"),
        ("train/n0291/photo_1104.png", "read", "no such file"),
    ]
    if scene == "hostile":
        reasons = [(key, "decode", "message of " + key) for key in EVIL]
    return [
        {"time": START - 20 * i, "job": 1 + i % 2, "key": key, "stage": stage, "message": why}
        for i, (key, stage, why) in enumerate(reasons)
    ]


def sentence(scene, now):
    """Of many words and of few by turns, a second each, where that is the scene."""
    return DECODE if scene != "wordy" else "decode-bound: " + "many more cores " * (20 if int(now) % 2 else 1)


def view_of(scene, instance, first):
    now = time.time()
    jobs = jobs_of(scene, now)
    view = {
        "time": now,
        "instance": instance,
        "version": "0.1.0",
        "engine": {
            "seconds": now - START,
            "workers": 8,
            "active_workers": 8,
            "cpus": 8,
            "cpu_seconds": 100,
            "cpu_share_now": 0.97,
            "memory_bytes": 16 << 30,
            "used_bytes": int(9.4e9),
            "peak_bytes": int(9.9e9),
        },
        "verdict": (
            verdict("decode", sentence(scene, now), 0.42)
            if jobs
            else dict(verdict("idle", "idle: no job is connected", 0), numbers={})
        ),
        "jobs": jobs,
        "stage_bounds": BOUNDS,
        "cache": {
            "limit_bytes": 8 << 30,
            "bytes": int(6.9e9),
            "evictions": 5120,
            "forms": {
                "encoded": {"entries": 9000, "bytes": int(1.0e9), "hits": 120000, "inserts": 9000, "evictions": 120},
                "decoded": {"entries": 14000, "bytes": int(5.2e9), "hits": 410220, "inserts": 18000, "evictions": 5000},
                "augmented": {"entries": 4000, "bytes": int(0.7e9), "hits": 40100, "inserts": 4100, "evictions": 0},
            },
        },
        "model": (
            {
                "predicted": 4480.0,
                "measured_now": 4240 + 90 * math.sin(now),
                "binding": "cpu",
                "split": {"encoded": 0.15, "decoded": 0.75, "augmented": 0.1},
                "triangle": triangle(),
            }
            if jobs
            else None
        ),
        "sources": (
            [
                {
                    "kind": "files",
                    "requests": 812000,
                    "bytes": int(8.9e10),
                    "retries": 0,
                    "errors": 2,
                    "bytes_per_second_now": 3.1e8,
                },
                {
                    "kind": "s3",
                    "requests": 91200,
                    "bytes": int(1.1e10),
                    "retries": 14,
                    "errors": 0,
                    "bytes_per_second_now": 1.2e8,
                },
            ]
            if jobs
            else []
        ),
        "tiers": (
            {
                "disk": {
                    "entries": 51000,
                    "bytes": int(4.1e10),
                    "limit_bytes": 100 << 30,
                    "written": 51200,
                    "evicted": 200,
                    "damaged": 0,
                    "dropped": 31,
                    "errors": 0,
                    "off": False,
                },
                "remote": {"hits": 0, "misses": 210, "errors": 12, "open": True, "bytes_per_second": 0},
            }
            if jobs
            else {"disk": None, "remote": None}
        ),
        "bad": bad_of(scene, now),
    }
    if first:
        view["history"] = [
            {
                "time": now - i,
                "cpu_share": 0.9,
                "jobs": {str(j["id"]): [j["rate_now"], j["stall_now"], j["ready"]] for j in jobs_of(scene, now - i)},
            }
            for i in range(280, 0, -1)
        ]
    return view


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, kind, body, headers=()):
        self.send_response(200)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # pylint: disable=invalid-name
        own = self.server
        if self.path == "/":
            self.answer(
                "text/html; charset=utf-8",
                own.html.read_bytes(),
                (("Content-Security-Policy", own.csp.read_text(encoding="utf-8")),),
            )
        elif self.path.startswith("/v1/watch"):
            self.answer("application/json", json.dumps(view_of(own.scene, own.instance, False)).encode())
        elif self.path == "/v1/stream":
            self.stream()
        else:
            self.send_error(404)

    def stream(self):
        if self.server.busy > 0:
            self.server.busy -= 1
            return self.send_error(503)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        first = True
        try:
            while True:
                data = json.dumps(view_of(self.server.scene, self.server.instance, first))
                self.wfile.write(("retry: 500\nevent: view\ndata: %s\n\n" % data).encode())
                first = False
                time.sleep(0.5)
        except OSError:
            self.close_connection = True
        return None

    def log_message(self, *args):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--html", required=True, type=pathlib.Path)
    parser.add_argument("--csp", required=True, type=pathlib.Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--scene", default="two", choices=["two", "none", "hostile", "many", "wordy"])
    parser.add_argument("--busy", type=int, default=0)
    args = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    server.daemon_threads = True
    server.html, server.csp, server.scene, server.instance = args.html, args.csp, args.scene, os.urandom(8).hex()
    server.busy = args.busy
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
