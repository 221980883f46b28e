#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a trace costs: CPU seconds of a whole run per sample, with --trace and without, in pairs that take turns; the median over
the pairs of each pair's ratio. Photos that are decoded, and the same photos out of the cache, where a sample is shortest.

    bench/trace.py PENSTOCK DATA [--pairs 12] [--epochs 4] [--out FILE.json]
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

PIPELINE = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"
CASES = {"decoded each time": (1, []), "from the cache": (12, ["--cache", "3G", "--memory", "4G"])}
LIMIT = 0.02


def cpu_of(args, extra, epochs, trace):
    """CPU seconds per sample of one run, all threads, the writer's included."""
    command = [args.binary, "feed", args.data, "--pipeline", PIPELINE, "--batch", "64", "--workers", "2", "--epochs", str(epochs), "--seed", "1",
               "--json", *extra, *(["--trace", str(trace)] if trace else [])]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    samples = json.loads(done.stdout.splitlines()[-1])["samples"]
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / samples, samples


def measure(args, name):
    times, extra = CASES[name]
    epochs, costs, sizes = args.epochs * times, {"plain": [], "traced": []}, []
    with tempfile.TemporaryDirectory() as top:
        trace = Path(top, "t.json")
        for index in range(args.pairs + 1):
            pair = {}
            for kind in ("plain", "traced") if index % 2 else ("traced", "plain"):
                pair[kind], samples = cpu_of(args, extra, epochs, trace if kind == "traced" else None)
            if index == 0:  # the first one has everything still to find
                continue
            for kind, cost in pair.items():
                costs[kind].append(cost)
            end = json.loads(trace.read_text().splitlines()[-2])["args"]
            sizes.append((trace.stat().st_size / samples, end["dropped"]))
    ratios = [traced / plain - 1 for traced, plain in zip(costs["traced"], costs["plain"])]
    return {"extra": round(statistics.median(ratios), 5), "quartiles": [round(q, 5) for q in statistics.quantiles(ratios, n=4)], "limit": LIMIT,
            "cpu_us_per_sample": {kind: round(1e6 * statistics.median(each), 2) for kind, each in costs.items()},
            "bytes_per_sample": round(statistics.median(size for size, _ in sizes)), "dropped": sum(lost for _, lost in sizes)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--out")
    args = parser.parse_args()
    found = {"cores": os.cpu_count(), "pairs": args.pairs, "epochs": args.epochs, "pipeline": PIPELINE}
    for name in [args.only] if args.only else CASES:
        found[name] = one = measure(args, name)
        print("%-18s %+.2f %% CPU per sample (quartiles %+.2f to %+.2f), limit %.0f %%; %.0f us plain, %d bytes of trace per sample, %d events lost" %
              (name, 100 * one["extra"], 100 * one["quartiles"][0], 100 * one["quartiles"][2], 100 * LIMIT, one["cpu_us_per_sample"]["plain"],
               one["bytes_per_sample"], one["dropped"]), flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
