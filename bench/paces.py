#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A consumer that changes its pace, 1 : 10 : 1: when the workers have settled after each change, and what it waits.

    bench/paces.py --build DIR [--photos DIR] [--rounds 3] [--seconds 8] [--out FILE]

The consumer takes a batch of 16 and sleeps until the next is due: at 0.085, 0.85 and 0.085 of what the same loader
supplies when batches are taken as fast as they come, measured first in the same process. Settings: samples of 20 ms,
asleep, 12 workers; samples that burn 2 ms, and photos (decode | random_resized_crop(224) | hflip | normalize), with the
workers that the engine chooses.

Told, for each pace: the workers that are active at its end; the seconds until they were last more than one away from
that, at most 2; the share of the time after the first 2 s in which the consumer waited, at most 3 %; and the threads of
the whole process beyond those of a process that loads nothing, as a multiple of the quota. Medians over rounds, in
which settings take turns; the figures at most are judged by the median.
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

PACES, SETTLE_S, STALL, BATCH = (0.085, 0.85, 0.085), 2.0, 0.03, 16
RUN = """
import json, sys, time
import numpy, penstock
spec = json.loads(sys.argv[1])

def threads():
    with open("/proc/self/status", encoding="ascii") as handle:
        return int(next(line for line in handle if line.startswith("Threads")).split()[1])

def supply(batches):
    for _ in range(8):
        next(batches)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < 3:
        next(batches)
        count += 1
    return count / (time.perf_counter() - begin)

def at_pace(batches, loader, rate):
    begin = due = time.perf_counter()
    waits, active = [], []
    while due - begin < spec["seconds"]:
        left = due - time.perf_counter()
        if left > 0:
            time.sleep(left)
        asked = time.perf_counter()
        next(batches)
        got = time.perf_counter()
        waits.append((asked - begin, got - asked))
        active.append((got - begin, loader.stats()["active_workers"]))
        due = got + 1 / rate
    return {"waits": waits, "active": active, "threads": threads()}

before = threads()
options = {"workers": spec["workers"]} if spec["workers"] else {}
with penstock.Engine(memory=512 << 20, cache=0, **options) as engine:
    with penstock.Loader(penstock.Dataset(spec["data"]), spec["pipeline"], spec["batch"], engine=engine, epochs=0,
                         order="ready") as loader:
        batches = (batch for _ in iter(int, 1) for batch in loader)
        rate = supply(batches)
        found = [at_pace(batches, loader, pace * rate) for pace in spec["paces"]]
print(json.dumps({"rate": rate, "before": before, "phases": found}))
"""


def figures(found: dict, seconds: float) -> list[dict]:
    rows = []
    for phase in found["phases"]:
        last = phase["active"][-1][1]
        off = [when for when, active in phase["active"] if abs(active - last) > 1]
        waited = sum(wait for when, wait in phase["waits"] if when > SETTLE_S)
        rows.append({"active": last, "settled_s": off[-1] if off else 0.0, "stall": waited / (seconds - SETTLE_S),
                     "threads": phase["threads"] - found["before"]})
    return rows


def settings(args: argparse.Namespace, made: str) -> dict[str, dict]:
    def of(data: str, pipeline: str, workers: int) -> dict:
        return {"data": data, "pipeline": pipeline, "workers": workers, "batch": BATCH, "paces": PACES,
                "seconds": args.seconds}

    head = "decode | center_crop(%d) | delay(" % lanes.SIDE
    found = {"asleep, 12 workers": of(made, head + "20, sleep) | to(f32, nchw)", 12),
             "burning": of(made, head + "2, burn) | to(f32, nchw)", 0)}
    if args.photos:
        found["photos"] = of(args.photos, common.PIPELINE, 0)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with python/ in it")
    parser.add_argument("--photos", help="a folder of photos")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="at each pace")
    parser.add_argument("--out")
    args = parser.parse_args()
    env = common.env_of(os.path.abspath(args.build))
    rounds: dict[str, list[list[dict]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        specs = settings(args, lanes.make_pictures(os.path.join(folder, "pictures"), 2000))
        for _ in range(args.rounds):
            for name, spec in specs.items():
                done = subprocess.run([sys.executable, "-c", RUN, json.dumps(spec)], env=env, check=True,
                                      stdout=subprocess.PIPE, text=True, timeout=600)
                rounds.setdefault(name, []).append(figures(json.loads(done.stdout.splitlines()[-1]), args.seconds))
    cores, verdicts = len(os.sched_getaffinity(0)), []
    for name, found in rounds.items():
        print("\n%-22s %8s %11s %8s %8s" % (name, "active", "settled s", "stall %", "threads"))
        for i, pace in enumerate(PACES):
            row = {key: common.median([one[i][key] for one in found]) for key in found[0][i]}
            print("%-22s %8g %11.2f %8.2f %8g" % ("pace %g" % pace, row["active"], row["settled_s"],
                                                 100 * row["stall"], row["threads"]), flush=True)
            verdicts.append(lanes.verdict("%s, pace %g: settled within 2 s" % (name, pace), row["settled_s"],
                                          row["settled_s"] <= SETTLE_S))
            verdicts.append(lanes.verdict("%s, pace %g: stall at most 3 %%" % (name, pace), row["stall"],
                                          row["stall"] <= STALL))
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "cores": cores, "paces": PACES, "rounds": rounds,
                                     "verdicts": verdicts})
    return 0 if all(one["met"] for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
