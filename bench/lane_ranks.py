#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks that step together, one of which has twice the slow samples: how long a step takes.

    bench/lane_ranks.py --build DIR [--python PYTHON] [--rounds 3] [--steps 240] [--scale 0.1] [--runs 0 16]
                        [--only WORDS] [--out FILE]

Every sample takes 50 ms, a fifth of them 3 s more, asleep in 10 stages, times --scale; which ones nobody can tell ahead
(`hidden`). The order of the epoch is made so that the last rank's share has twice the slow samples of each other share,
either spread at random over the share or in runs of 16. 12 workers in all; a rank takes batches of 4, may have 8 ready,
and asks for 90 % of what the workers can give it: a step is the next batch, time asleep for the model, and an
all-reduce of 1,000 numbers by gloo over the loopback device, both together as long as 90 % allow. Contenders, in turn
within a round:

one rank           one process loads, world 1 on a served engine, batches of 16, the same order and the same steps;
                   three that load nothing take part in the all-reduce, which then takes what it takes the others
shared             four processes on one served engine of 12 workers
one queue a rank   four processes, each with an engine of its own of 3 workers
PyTorch            four processes with a DistributedSampler and a DataLoader of 3 workers each, in_order both ways
                   (torch 2.6 or later); the k-th sample of each rank costs what it does for Penstock
nothing            four processes that load nothing: what step and all-reduce take by themselves

Told: the mean step time without the first and the last --skip steps (16: those that fill up, and those in which an
epoch has nothing left to overlap), and over all steps; the first as a multiple of one rank's in the same round.
Medians over rounds.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common
import lanes
import paper_schedulers as papers

WORLD, BATCH, DEPTH, WORKERS, STAGES, ASKS = 4, 4, 8, 12, 10, 0.9
LIGHT_S, HEAVY_S, PERIOD = 0.05, 3.0, 5  # ids that PERIOD divides are slow
REDUCED = 1000
MOST = 1.05
KINDS = {"one rank": "penstock", "shared": "penstock", "one queue a rank": "penstock", "PyTorch, in order": "torch",
         "PyTorch, any order": "torch", "nothing": "nothing"}


def order_of(steps: int, runs: int, seed: int) -> list[int]:
    """Ids in the order of the epoch, dealt batch after batch to rank 0, 1, 2, 3; all ids of a range, each once.

    A fifth of all is slow; of five parts of these two are the last rank's."""
    dice, share = random.Random(seed), steps * BATCH
    slow = [share * WORLD // PERIOD * part // 5 for part in (1, 1, 1, 2)]
    shares = []
    for count in slow:
        if not runs:
            marks = [True] * count + [False] * (share - count)
            dice.shuffle(marks)
        else:
            period, first = share * runs // count, dice.randrange(share)
            marks = [(i + first) % period < runs for i in range(share)]
        shares.append(marks)
    total = sum(map(sum, shares))
    slow_ids, fast_ids = iter(range(0, PERIOD * total, PERIOD)), iter(i for i in range(10**9) if i % PERIOD)
    return [next(slow_ids if shares[rank][step * BATCH + i] else fast_ids)
            for step in range(steps) for rank in range(WORLD) for i in range(BATCH)]


def step_s(order: list[int], scale: float) -> float:
    slow = sum(i % PERIOD == 0 for i in order)
    work = (len(order) * LIGHT_S + slow * HEAVY_S) * scale
    return work / WORKERS / ASKS / (len(order) / (BATCH * WORLD))


def spec_of(name: str, order: list[int], data: str, args: argparse.Namespace) -> dict:
    light, heavy = LIGHT_S * args.scale, HEAVY_S * args.scale
    one = name == "one rank"
    workers = WORKERS if name in ("one rank", "shared") else WORKERS // WORLD
    return {"kind": KINDS[name], "ranks": WORLD, "data": data, "order": order, "world": 1 if one else WORLD,
            "batch": BATCH * WORLD if one else BATCH, "depth": DEPTH, "workers": workers,
            "window": lanes.WINDOW * (WORLD if one else 1),
            "step_s": step_s(order, args.scale), "steps": len(order) // (BATCH * WORLD), "reduced": REDUCED,
            "socket": "", "without": ["past", *args.without], "prefetch": papers.prefetch_factor(DEPTH, workers),
            "in_order": name == "PyTorch, in order", "light_s": light, "heavy_s": heavy, "stages": STAGES,
            "period": PERIOD,
            "pipeline": f"decode | center_crop({lanes.SIDE}) | delay({1000 * light:.6g}, sleep) | "
                        f"delay({1000 * heavy:.6g}, share={1 / PERIOD:g}, runs=1, stages={STAGES}, hidden, sleep) | "
                        "to(f32, nchw)"}


# ---- runs ------------------------------------------------------------------------------------------------------------


class Daemon:
    """`penstock serve` in a folder of its own."""

    def __init__(self, args: argparse.Namespace, folder: str) -> None:
        self.where = os.path.join(folder, "engine")
        command = [os.path.join(args.build, "penstock"), "serve", "--socket", self.where, "--cache", "0", "--memory",
                   "512M", "--workers", str(WORKERS)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        self.child.stdout.readline()

    def end(self) -> None:
        self.child.terminate()
        self.child.communicate()


def run_ranks(spec: dict, args: argparse.Namespace, folder: str) -> list[dict]:
    """What each rank tells."""
    env = common.env_of(args.build, GLOO_SOCKET_IFNAME="lo")
    spec["meeting"] = os.path.join(folder, "meeting")
    ranks = []
    for rank in range(WORLD):
        command = [args.python, os.path.join(common.ROOT, "bench", "lane_ranks_run.py"), str(rank)]
        ranks.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert ranks[-1].stdin is not None
        ranks[-1].stdin.write(json.dumps(spec))
        ranks[-1].stdin.close()
        ranks[-1].stdin = None
    told = [one.communicate(timeout=600)[0] for one in ranks]
    if any(one.returncode for one in ranks):
        sys.exit("a rank of %s ended with status %s" % (spec["kind"], [one.returncode for one in ranks]))
    return [json.loads(text.splitlines()[-1]) for text in told]


def figures(found: list[dict], spec: dict, skip: int) -> dict:
    ends = found[0]["ends"]
    kept = ends[skip - 1: len(ends) - skip]
    waits = [sum(one["waits"][skip: len(ends) - skip]) / (len(kept) - 1) for one in found[:spec["world"]]]
    return {"step_s": (kept[-1] - kept[0]) / (len(kept) - 1), "all_s": (ends[-1] - ends[0]) / (len(ends) - 1),
            "wait_s": waits, "reduce_s": found[0]["reduce_s"],
            "parked": [one.get("stats", {}).get("slow_parked", 0) for one in found]}


def run_one(name: str, order: list[int], data: str, args: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(name, order, data, args)
        daemon = Daemon(args, folder) if name in ("one rank", "shared") else None
        try:
            spec["socket"] = "unix:" + daemon.where if daemon else ""
            found = run_ranks(spec, args, folder)
        finally:
            if daemon:
                daemon.end()
    ids = [number for one in found for number in one["ids"]]
    if spec["kind"] != "nothing" and sorted(ids) != sorted(order):
        sys.exit("%s: %d samples came, %d of them different, of %d" % (name, len(ids), len(set(ids)), len(order)))
    return figures(found, spec, args.skip)


def workload(runs: int, data: str, args: argparse.Namespace) -> dict:
    where = "in runs of %d" % runs if runs else "at random"
    rounds: list[dict[str, dict]] = []
    for number in range(args.rounds):
        order = order_of(args.steps, runs, number)
        rounds.append({name: run_one(name, order, data, args) for name in KINDS if name in args.contenders})
        print("round %d: " % (number + 1) + ", ".join("%s %.1f ms" % (name, 1000 * one["step_s"])
                                                      for name, one in rounds[-1].items()), flush=True)
    print("\nslow ones %s: %d steps of %.1f ms when nobody waits" % (
        where, args.steps, 1000 * step_s(order, args.scale)))
    print("%-20s %10s %10s %12s   %s" % ("", "step ms", "all, ms", "/ one rank", "waits of the ranks, ms a step"))
    table = {}
    for name in rounds[0]:
        table[name] = {"step_s": common.median([one[name]["step_s"] for one in rounds]),
                       "all_s": common.median([one[name]["all_s"] for one in rounds]),
                       "wait_s": [common.median(list(one)) for one in zip(*(each[name]["wait_s"] for each in rounds))]}
        if "one rank" in rounds[0]:
            table[name]["of_one"] = common.spread([one[name]["step_s"] / one["one rank"]["step_s"] for one in rounds])
            table[name]["all_of_one"] = common.spread([one[name]["all_s"] / one["one rank"]["all_s"]
                                                       for one in rounds])
        print("%-20s %10.1f %10.1f %12.3f   %s" % (
            name, 1000 * table[name]["step_s"], 1000 * table[name]["all_s"],
            table[name].get("of_one", {}).get("median", float("nan")),
            " ".join("%.1f" % (1000 * wait) for wait in table[name]["wait_s"])), flush=True)
    return {"slow": where, "step_s": step_s(order, args.scale), "table": table, "rounds": rounds}


def judge(results: list[dict]) -> list[dict]:
    found = []
    for one in results:
        if "of_one" in one["table"].get("shared", {}):
            value = one["table"]["shared"]["of_one"]["median"]
            found.append(lanes.verdict("shared: a step takes at most %g of one rank's, slow ones %s" % (
                MOST, one["slow"]), value, value <= MOST))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with penstock and python/ in it")
    parser.add_argument("--python", default=sys.executable, help="one with torch, 2.6 or later for in_order")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--skip", type=int, default=16)
    parser.add_argument("--scale", type=float, default=0.1, help="of all times")
    parser.add_argument("--runs", type=int, nargs="*", default=[0, 16], help="of slow samples in a share; 0: at random")
    parser.add_argument("--only", nargs="*", dest="contenders", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--without", nargs="*", default=[], help="parts of the schedule to leave out")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    common.need_program(os.path.join(args.build, "penstock"), "build it: ninja penstock")
    with tempfile.TemporaryDirectory() as folder:
        data = lanes.make_pictures(os.path.join(folder, "pictures"), args.steps * BATCH * WORLD * 2)
        results = [workload(runs, data, args) for runs in args.runs]
    print()
    verdicts = judge(results)
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "rounds": args.rounds, "steps": args.steps,
                                     "skip": args.skip, "scale": args.scale, "asks": ASKS, "workers": WORKERS,
                                     "workloads": results, "verdicts": verdicts})
    return 0 if all(one["met"] for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
