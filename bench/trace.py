#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a trace costs: CPU seconds per sample of a run with --trace and of one without. Both run all the time and take turns, the other
being stopped, so that whatever else the machine does falls on both alike; what counts is the median over the rounds of each round's
ratio. Beside it, what the writer's thread takes of the traced run's CPU time, which is most of it and does not hang on the pairs: putting an
event takes some nanoseconds. Photos that are decoded each time, and the same photos out of the cache, where a sample is shortest.

    bench/trace.py PENSTOCK DATA [--rounds 20] [--seconds 0.5] [--workers 2] [--out FILE.json]
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
import common

PIPELINE = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"
CASES = {"decoded each time": [], "from the cache": ["--cache", "1G", "--memory", "2G"]}
LIMIT, WARM = 0.02, 2000


class Run:
    """A feed without end that can be looked at."""

    def __init__(self, args, extra, place):
        self.place, self.costs = place, []
        self.child = subprocess.Popen([args.binary, "feed", args.data, "--pipeline", PIPELINE, "--batch", "64", "--workers", args.workers, "--epochs",
                                       "1000000", "--quiet", "--watch", str(place), *extra], stdout=subprocess.DEVNULL)
        while not (place / "control.sock").exists() or self.samples() < WARM:
            assert self.child.poll() is None
            time.sleep(0.05)
        self.child.send_signal(signal.SIGSTOP)

    def cpu(self, only=""):
        """CPU seconds of all its threads, the trace's writer among them, or of one by its name."""
        tasks = Path(f"/proc/{self.child.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks if only in (task / "comm").read_text()) / 1e9

    def samples(self):
        try:
            jobs = common.ask(self.place, "/v1/watch")["jobs"]
        except ConnectionRefusedError:
            return 0
        return jobs[0]["samples"] if jobs else 0

    def turn(self, seconds):
        self.child.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        cpu, count = self.cpu(), self.samples()
        time.sleep(seconds)
        cpu, count = self.cpu() - cpu, self.samples() - count
        self.child.send_signal(signal.SIGSTOP)
        self.costs.append(cpu / max(1, count))

    def end(self):
        self.child.send_signal(signal.SIGCONT)
        self.child.send_signal(signal.SIGINT)
        self.child.wait()


def measure(args, name):
    with tempfile.TemporaryDirectory() as top:
        trace, runs = Path(top, "t.json"), {}
        try:
            runs["plain"] = Run(args, CASES[name], Path(top, "plain"))
            runs["traced"] = Run(args, [*CASES[name], "--trace", str(trace)], Path(top, "traced"))
            for index in range(args.rounds):
                for kind in ("plain", "traced") if index % 2 else ("traced", "plain"):
                    runs[kind].turn(args.seconds)
            writer = runs["traced"].cpu("pst-trace") / runs["traced"].cpu()
        finally:
            for run in runs.values():
                run.end()
        lines = trace.read_text().splitlines()
        placed = sum('"then":"placed"' in line for line in lines)
        size, lost = trace.stat().st_size, json.loads(lines[-2])["args"]["dropped"]
    ratios = [traced / plain - 1 for traced, plain in zip(runs["traced"].costs, runs["plain"].costs)]
    return {"extra": round(statistics.median(ratios), 5), "quartiles": [round(q, 5) for q in statistics.quantiles(ratios, n=4)], "limit": LIMIT,
            "writer_share": round(writer, 5),
            "cpu_us_per_sample": {kind: round(1e6 * statistics.median(run.costs), 2) for kind, run in runs.items()},
            "bytes_per_sample": round(size / placed), "dropped": lost}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("data")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--out")
    args = parser.parse_args()
    found = {"cores": os.cpu_count(), "rounds": args.rounds, "seconds": args.seconds, "workers": int(args.workers), "pipeline": PIPELINE}
    for name in [args.only] if args.only else CASES:
        found[name] = one = measure(args, name)
        print("%-18s %+.2f %% CPU per sample (quartiles %+.2f to %+.2f), limit %.0f %%; the writer's share %.2f %%; %.0f us plain, %d bytes of trace per sample, %d events lost" %
              (name, 100 * one["extra"], 100 * one["quartiles"][0], 100 * one["quartiles"][2], 100 * LIMIT, 100 * one["writer_share"],
               one["cpu_us_per_sample"]["plain"], one["bytes_per_sample"], one["dropped"]), flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
