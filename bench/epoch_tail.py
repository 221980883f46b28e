#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The end of an epoch: how long the last samples take once a worker has nothing left to do.

    bench/epoch_tail.py --build DIR [--rounds 3] [--scale 0.1] [--out FILE]

One epoch in ready order, a sample a batch, taken as soon as it is there, by 12 workers that sleep: then a sample began
as long before it came as it costs. The workers have run dry when the first of them is done after the last sample began;
the tail lasts from there to the end of the epoch. It should be no longer than one slow sample. Light samples of 50 ms, a
fifth of the samples has 0.3, 1 or 3 s more: at random, in runs of 16, and in a run that ends the epoch; known ahead
(`drawn`) or not (`hidden`). Times by --scale. The worst round is told.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common
import lanes

WORKERS, SAMPLES = 12, 480
RUN = """
import json, sys, time
import numpy, penstock
spec = json.loads(sys.argv[1])
with penstock.Engine(workers=spec["workers"], memory=256 << 20, cache=0) as engine:
    with penstock.Loader(penstock.Dataset(spec["data"]), spec["pipeline"], 1, engine=engine, epochs=1, order="ready",
                         sampler=range(spec["first"], spec["first"] + spec["samples"])) as loader:
        print(json.dumps([(int(batch.ids[0]), time.perf_counter()) for batch in loader]))
"""


def tail(came: list[tuple[int, float]], costs: dict[int, float]) -> float:
    last_begun = max(when - costs[number] for number, when in came)
    dry = min(when for _, when in came if when >= last_begun)
    return max(when for _, when in came) - dry


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with python/ in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.1, help="of all times")
    parser.add_argument("--out")
    args = parser.parse_args()
    env = common.env_of(os.path.abspath(args.build))
    machine = lanes.Machine(WORKERS, args.scale, False)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = lanes.make_pictures(os.path.join(folder, "pictures"), SAMPLES + 16)
        for heavy_s in (0.3, 1.0, 3.0):
            for runs, first, where in ((0, 0, "at random"), (16, 8, "runs of 16"), (16, 16, "a run at the end")):
                for drawn in (True, False):
                    work = lanes.Workload("sleep", heavy_s, 0.2, runs, 1)
                    numbers = range(first, first + SAMPLES)
                    slow_s = (work.light_s + heavy_s) * args.scale
                    costs = {number: slow_s if hit else work.light_s * args.scale
                             for number, hit in zip(numbers, lanes.hits_of(work, numbers, drawn))}
                    spec = {"workers": WORKERS, "data": data, "pipeline": lanes.pipeline_of(work, machine, drawn),
                            "first": first, "samples": SAMPLES}
                    tails = []
                    for _ in range(args.rounds):
                        done = subprocess.run([sys.executable, "-c", RUN, json.dumps(spec)], env=env, check=True,
                                              stdout=subprocess.PIPE, text=True, timeout=600)
                        tails.append(tail(json.loads(done.stdout), costs))
                    name = "%g s, %s, %s" % (heavy_s, where, "drawn" if drawn else "hidden")
                    rows.append({"what": name, "slow_s": slow_s, "tails_s": tails})
                    print("%-34s slow sample %6.1f ms, tail %6.1f ms, of it %.2f" % (
                        name, 1e3 * slow_s, 1e3 * max(tails), max(tails) / slow_s), flush=True)
    worst = max(max(row["tails_s"]) / row["slow_s"] for row in rows)
    verdict = lanes.verdict("tail at most one slow sample", worst, worst <= 1.0)
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "rows": rows, "verdicts": [verdict]})
    return 0 if verdict["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
