#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A served engine beside an embedded one: CPU seconds per sample, and what a batch waits longer.

    bench/served.py DATA --penstock BINARY [--pairs 10] [--epochs 3] [--batch 32] [--json]

CPU: jobs run as fast as they can, embedded and served in turn; the client's and the daemon's CPU seconds are counted together.
Latency: a consumer that is slower than the engine, so that the next batch is always ready; what is left of its waits is the way
from the engine to the caller. Neither keeps anything: the cache of a daemon would outlive the runs. Prints the median of the pairs with their spread.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common


def feed(args, *more):
    """The report, and the CPU seconds of the process."""
    command = [args.penstock, "feed", args.data, "--pipeline", args.pipeline, "--batch", str(args.batch), "--json", "--quiet", *more]
    before = os.times()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(done.stdout.splitlines()[-1]), used


class Daemon:
    def __init__(self, args):
        self.dir = tempfile.mkdtemp(prefix="penstock-bench-")
        self.child = subprocess.Popen([args.penstock, "serve", "--socket", self.dir, "--cache", "0"], stdout=subprocess.PIPE, text=True)
        self.child.stdout.readline()

    def end(self):
        self.child.terminate()
        self.child.wait()


def measure_cpu(args, daemon):
    """Per pair: CPU microseconds per sample, embedded and served."""
    pairs = []
    for _ in range(args.pairs):
        report, here = feed(args, "--epochs", str(args.epochs))
        before = common.cpu_seconds([daemon.child.pid])
        other, there = feed(args, "--epochs", str(args.epochs), "--engine", f"unix:{daemon.dir}")
        there += common.cpu_seconds([daemon.child.pid]) - before
        pairs.append((here / report["samples"] * 1e6, there / other["samples"] * 1e6))
    return pairs


def measure_waits(args, daemon):
    """Per pair: p50 and p99 of waits in microseconds, embedded and served."""
    pairs = []
    slow = ("--epochs", str(args.epochs), "--step-ms", str(args.step_ms))
    for _ in range(args.pairs):
        here, _ = feed(args, *slow)
        there, _ = feed(args, *slow, "--engine", f"unix:{daemon.dir}")
        pairs.append(tuple(report[name] for report in (here, there) for name in ("wait_p50_us", "wait_p99_us")))
    return pairs


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g}..{max(values):.4g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--penstock", default="penstock")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--step-ms", type=float, default=150)
    parser.add_argument("--pipeline", default=common.PIPELINE)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    daemon = Daemon(args)
    try:
        cpu, waits = measure_cpu(args, daemon), measure_waits(args, daemon)
    finally:
        daemon.end()
    ratios = [there / here for here, there in cpu]
    added = [there99 - here99 for _, here99, _, there99 in waits]
    print(f"CPU us a sample      embedded {spread([p[0] for p in cpu])}, served {spread([p[1] for p in cpu])}")
    print(f"served / embedded    {spread(ratios)}")
    print(f"wait p50 us          embedded {spread([p[0] for p in waits])}, served {spread([p[2] for p in waits])}")
    print(f"wait p99 us          embedded {spread([p[1] for p in waits])}, served {spread([p[3] for p in waits])}; added {spread(added)}")
    if args.json:
        print(json.dumps({"cpu": cpu, "ratio": statistics.median(ratios), "waits": waits, "added_p99_us": statistics.median(added)}))


if __name__ == "__main__":
    main()
