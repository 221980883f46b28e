# SPDX-License-Identifier: Apache-2.0
"""Penstock beside a reference in PyTorch's DataLoader, on data made by `penstock synth`: bench/detection.py and
bench/speech.py say what. Each measurement is a process of its own; the two take turns, a ratio is taken within a pair of
runs, and the median of the pairs counts.
"""
import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

sys.dont_write_bytecode = True
import common

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclasses.dataclass
class Bench:
    file: str  # the script that describes it, called again with --ours NAME for a measurement
    text: str  # its help
    names: list[str]
    synth: list[str]  # arguments of `penstock synth` before the folder, and after it
    more: list[str]
    count: int
    theirs: str  # the reference: a script beside this one
    decodes: list[str]  # what it can read with; the fastest in a first run is used
    # Loads NAME endlessly: the loader, its batches, how many samples a batch has.
    feed: Callable[[str, argparse.Namespace], tuple[object, Iterator, Callable]]


def measure_ours(bench: Bench, args: argparse.Namespace) -> int:
    """One measurement of Penstock; prints a JSON line."""
    loader, batches, samples_of = bench.feed(args.ours, args)
    for _ in range(12):
        next(batches)
    start, cpu, count = time.perf_counter(), common.cpu_seconds(), 0
    while time.perf_counter() - start < args.seconds:
        count += samples_of(next(batches))
    elapsed = time.perf_counter() - start
    print(json.dumps({"samples_per_s": count / elapsed, "cpu_ms_a_sample": 1e3 * (common.cpu_seconds() - cpu) / count,
                      "stages_ms": {name: round(1e3 * seconds / max(runs, 1), 3)
                                    for name, runs, seconds in loader.stats()["stages"]}}))
    return 0


def measure(command: list[str], build: str) -> dict:
    done = subprocess.run(command, env=common.env_of(build), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(bench: Bench, name: str, data: str, args: argparse.Namespace) -> dict:
    theirs = [sys.executable, os.path.join(HERE, bench.theirs), "--data", data, "--pipeline", name]
    mine = [sys.executable, bench.file, "--ours", name, "--data", data, "--build", args.build]
    more = ["--workers", str(args.workers), "--seconds", str(args.seconds)]
    first = {decode: measure([*theirs, *more, "--decode", decode], args.build)["samples_per_s"]
             for decode in bench.decodes}
    best = max(first, key=first.get)
    pairs = []
    for turn in range(args.pairs):
        both = {}
        for which in ("torch", "penstock") if turn % 2 else ("penstock", "torch"):
            command = [*theirs, "--decode", best] if which == "torch" else mine
            both[which] = measure([*command, *more], args.build)
        pairs.append(both)
        print("%-15s torch (%s) %7.1f/s, penstock %7.1f/s: %.2f times" % (
            name, best, both["torch"]["samples_per_s"], both["penstock"]["samples_per_s"],
            both["penstock"]["samples_per_s"] / both["torch"]["samples_per_s"]), flush=True)
    rates = [p["penstock"]["samples_per_s"] / p["torch"]["samples_per_s"] for p in pairs]
    costs = [p["torch"]["cpu_ms_a_sample"] / p["penstock"]["cpu_ms_a_sample"] for p in pairs]
    return {"decode": best, "decode_rates": first, "pairs": pairs, "ratio": common.spread(rates),
            "cpu_ratio": common.spread(costs)}


def parse(bench: Bench) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=bench.text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", help="a folder made by penstock synth %s; made here unless given" % bench.synth[0])
    parser.add_argument("--count", type=int, default=bench.count)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default=",".join(bench.names))
    parser.add_argument("--ours", choices=bench.names, help=argparse.SUPPRESS)
    parser.add_argument("--out")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    return args


def main(bench: Bench) -> int:
    args = parse(bench)
    if args.ours:
        return measure_ours(bench, args)
    program = common.need_program(os.path.join(args.build, "penstock"), "build it first, or give --build")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        data = args.data
        if not data:
            data = os.path.join(scratch, "data")
            subprocess.run([program, "synth", *bench.synth, data, "--count", str(args.count), *bench.more], check=True)
        result = {"machine": common.machine(), "workers": args.workers,
                  "rows": {name: row(bench, name, data, args) for name in args.only.split(",")}}
    for name, made in result["rows"].items():
        print("%-15s %.2f times torch (%.2f to %.2f), %.2f of its CPU time" % (
            name, made["ratio"]["median"], made["ratio"]["min"], made["ratio"]["max"], 1 / made["cpu_ratio"]["median"]))
    if args.out:
        common.write_json(args.out, result)
    return 0
