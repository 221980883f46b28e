#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Slow samples: how long an epoch takes beside what no schedule can go below, and how often the consumer waits.

    bench/lanes.py --build DIR [--torch-python PYTHON] [--rounds 3] [--scale 0.1] [--burn-scale 0.5] [--only WORDS]
                   [--contenders NAMES] [--quick] [--out FILE]

Workloads: every sample takes a light step of 50 ms, a fifth of them a heavy one more, of 0.3, 1 or 3 s; heavy samples
are spread evenly, at random, or come in runs of 16 and 48. The op `delay` makes both, in Penstock's pipelines;
PyTorch's dataset and the simulated schedulers (bench/paper_schedulers.py) get the same costs for the same samples.
`sleep`: 12 workers, times by --scale. `burn`: as many workers as cores, a tenth of the times, and these by
--burn-scale. `share`: heavy steps of 3 s for 0 to 100 % of the samples, in runs of 3, sleeping. Samples come in order
of their numbers, so that runs stay runs, from half way between two runs on. An epoch is long enough for --periods,
--seconds and --batches.

All may have the same bytes ready: 8 batches of 4, or 2 of 24 (48 samples instead of 32: one batch would leave nothing
to overlap). PyTorch cannot have fewer than a batch a worker: prefetch_factor is 2, its default, or more where that is
less than the others have. The consumer takes a batch and then sleeps for as long as it would need at 90 % of what the
workers can supply.

Columns: seconds against the bound (bound() in paper_schedulers.py), the share of the time that the consumer worked,
and the 99th percentile of its waits after the first. Where workers burn every core, the machine has its say: `as it
ran` is the bound with the CPU that so many burning processes got before or after the run, the more of both, and with
the consumer's own steps as long as they took, since a sleeper comes late to a busy core. `drawn` lets a schedule know
heavy samples ahead; `hidden` does not: the op decides while it runs, in 10 stages, and the samples' own past is not
used. Contenders take turns within a round; medians over rounds are told. Each run is a process of its own. At the
default scales a round of everything takes about 80 minutes on two cores, three quarters of that for `burn`.
"""
from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass, replace

sys.dont_write_bytecode = True
import common
import lanes_run
import paper_schedulers as papers

STAGES, WINDOW, ASKS = 10, 512, 0.9
SIDE = 32
BURNT_S = 0.5
ENGINE = {"penstock, drawn": ("penstock", True), "penstock, hidden": ("penstock", False), "plain": ("plain", False),
          "inorder": ("inorder", False), "batch-per-worker": ("batch-per-worker", False)}
TORCH = {"PyTorch, in order": True, "PyTorch, any order": False}
SIMULATED = tuple(papers.SCHEDULES)
OURS = ("penstock, drawn", "penstock, hidden")


@dataclass(frozen=True)
class Workload:
    """Times are full ones; a run scales them."""

    kind: str  # sleep, burn or share
    heavy_s: float
    share: float
    runs: int  # 0: at random
    batch: int
    light_s: float = 0.05

    @property
    def name(self) -> str:
        where = {0: "at random", 1: "evenly"}.get(self.runs, f"runs of {self.runs}")
        return f"{self.kind} {self.heavy_s:g} s x {self.share:g}, {where}, batch {self.batch}"

    @property
    def depth(self) -> int:
        return max(2, 32 // self.batch)

    def samples(self, least: "Least", machine: "Machine") -> int:
        """Whole periods of runs and whole batches, and enough of them."""
        period = int(self.runs / self.share + 0.5) if self.runs > 1 and self.share else 80
        mean_s = (self.light_s + self.share * self.heavy_s) * machine.scale
        count = max(least.batches * self.batch, least.seconds * machine.workers * ASKS / mean_s)
        periods = max(least.periods, int(count / period) + 1)
        return -(-periods * period // self.batch) * self.batch


@dataclass(frozen=True)
class Least:
    """An epoch is at least so long."""

    periods: int
    seconds: float
    batches: int


@dataclass(frozen=True)
class Machine:
    """What a workload runs with."""

    workers: int
    scale: float
    burns: bool


def machine_of(workload: Workload, args: argparse.Namespace) -> Machine:
    cores = len(os.sched_getaffinity(0))
    return Machine(cores, 0.1 * args.burn_scale, True) if workload.kind == "burn" else Machine(12, args.scale, False)


def all_workloads(args: argparse.Namespace) -> list[Workload]:
    found = [Workload(kind, heavy, 0.2, runs, batch) for kind in ("sleep", "burn") for batch in (4, 24)
             for heavy in (0.3, 1.0, 3.0) for runs in (1, 0, 16, 48)]
    found += [Workload("share", 3.0, share, 3, 4) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    if args.quick:
        found = [Workload("sleep", 3.0, 0.2, 16, 4)]
    return [one for one in found if all(word in one.name for word in args.only)]


# ---- costs -----------------------------------------------------------------------------------------------------------


def hits_of(workload: Workload, numbers: range, drawn: bool) -> list[bool]:
    """The samples that the op hits, computed as the engine computes it: seed 0, epoch 0, the fourth op of the text."""
    if workload.share in (0.0, 1.0):
        return [workload.share > 0] * len(numbers)
    if workload.runs:
        return [papers.is_hit(i, workload.share, workload.runs) for i in numbers]
    return [papers.drawn_unit(i, place=3) < workload.share if drawn else papers.hashed_unit(i) < workload.share
            for i in numbers]


def pipeline_of(workload: Workload, machine: Machine, drawn: bool) -> str:
    how = "burn" if machine.burns else "sleep"
    light, heavy = workload.light_s * machine.scale * 1000, workload.heavy_s * machine.scale * 1000
    return (f"decode | center_crop({SIDE}) | delay({light:.6g}, {how}) | delay({heavy:.6g}, share={workload.share:g}, "
            f"runs={workload.runs}, stages={STAGES}, {'drawn' if drawn else 'hidden'}, {how}) | to(f32, nchw)")


@dataclass
class Case:
    """A workload with the costs of one way of choosing heavy samples."""

    workload: Workload
    machine: Machine
    numbers: range  # of the samples, in order
    hits: list[bool]
    costs: list[list[float]]
    setup: papers.Setup
    bound_s: float


def case_of(workload: Workload, machine: Machine, least: Least, drawn: bool, first: int | None = None) -> Case:
    """From the number `first` on, or from half way between two runs."""
    count = workload.samples(least, machine)
    numbers = papers.between_runs(count, workload.share, workload.runs)
    if first is not None:
        numbers = range(first, first + count)
    hits = hits_of(workload, numbers, drawn)
    costs = papers.made_costs(count, workload.light_s * machine.scale, workload.heavy_s * machine.scale, hits, STAGES)
    totals = [sum(stages) for stages in costs]
    supply = machine.workers * count / sum(totals)
    setup = papers.Setup(machine.workers, workload.batch, workload.depth, workload.batch / (ASKS * supply), drawn,
                         machine.workers if machine.burns else 0, machine.scale)
    return Case(workload, machine, numbers, hits, costs, setup, papers.bound(totals, setup))


# ---- runs ------------------------------------------------------------------------------------------------------------


def make_pictures(folder: str, count: int) -> str:
    """Small PNG files, in order of their names."""
    pixels = [[(x * 7 + y * 3 + c * 50) & 255 for x in range(SIDE) for c in range(3)] for y in range(SIDE)]
    rows = b"".join(b"\0" + bytes(row) for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
           + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    os.makedirs(os.path.join(folder, "all"))
    for number in range(count):
        with open(os.path.join(folder, "all", "%06d.png" % number), "wb") as handle:
            handle.write(png)
    return folder


def spec_of(case: Case, data: str, schedule: str, drawn: bool, overlap: bool) -> dict:
    """What bench/lanes_run.py is told."""
    workload, machine = case.workload, case.machine
    return {"data": data, "pipeline": pipeline_of(workload, machine, drawn), "batch": workload.batch,
            "depth": workload.depth, "prefetch": papers.prefetch_factor(workload.depth, machine.workers),
            "workers": machine.workers, "first": case.numbers.start, "samples": len(case.costs),
            "step_s": case.setup.step_s, "window": WINDOW, "schedule": schedule, "without": [] if drawn else ["past"],
            "light_s": workload.light_s * machine.scale, "heavy_s": workload.heavy_s * machine.scale, "stages": STAGES,
            "epochs": 0 if overlap else 1, "burns": machine.burns, "hits": "".join("01"[hit] for hit in case.hits)}


class Stuck(Exception):
    """A run that did not end."""


def run_one(python: str, kind: str, spec: dict, env: dict[str, str], limit_s: float) -> dict | None:
    """None where the build has no such schedule."""
    command = [python, os.path.join(common.ROOT, "bench", "lanes_run.py"), kind, json.dumps(spec)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, check=False,
                              timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Stuck from None
    if done.returncode == lanes_run.ABSENT:
        return None
    if done.returncode != 0 or not done.stdout.strip():
        sys.exit("%s %s, %s\nended with status %d\n%s%s" % (kind, spec["schedule"], spec["pipeline"], done.returncode,
                                                           done.stdout, done.stderr))
    return json.loads(done.stdout.splitlines()[-1])


def slowdown(machine: Machine) -> float:
    """Seconds that a second of CPU takes each of as many processes as there are workers."""
    if not machine.burns:
        return 1.0
    burners = [multiprocessing.Process(target=lanes_run.burn, args=(BURNT_S,)) for _ in range(machine.workers)]
    begin = time.perf_counter()
    for one in burners:
        one.start()
    for one in burners:
        one.join()
    return max(1.0, (time.perf_counter() - begin) / BURNT_S)


def figures(found: dict, case: Case, slower: float) -> dict:
    waits, seconds = found["waits"], found["seconds"]
    setup = replace(case.setup, step_s=found["busy_s"] / len(waits))
    as_it_ran = papers.bound([sum(stages) * slower for stages in case.costs], setup)
    return {"seconds": seconds, "of_bound": seconds / case.bound_s, "as_it_ran": seconds / as_it_ran,
            "busy": len(waits) * case.setup.step_s / seconds, "first_wait": waits[0],
            "p99_wait": papers.percentile(waits[1:], 0.99), "slower": slower, "step_s": setup.step_s}


class Bench:
    """Runs of every contender on a workload."""

    def __init__(self, args: argparse.Namespace, data: str) -> None:
        self.args, self.data = args, data
        self.env = common.env_of(args.build)
        self.absent: set[str] = set()
        self.stuck: list[dict] = []

    def contenders(self) -> list[str]:
        named = [*ENGINE, *(TORCH if self.args.torch_python else ())]
        return [name for name in named if name not in self.absent
                and (not self.args.contenders or any(word in name for word in self.args.contenders))]

    def real(self, name: str, cases: dict[bool, Case]) -> dict | None:
        if name in TORCH:
            spec = {**spec_of(cases[False], self.data, name, False, False), "in_order": TORCH[name]}
            python, kind, case = self.args.torch_python, "torch", cases[False]
        else:
            schedule, drawn = ENGINE[name]
            python, kind, case = self.args.python, "penstock", cases[drawn]
            spec = spec_of(case, self.data, schedule, drawn, self.args.overlap)
        slower = slowdown(case.machine)
        try:
            found = run_one(python, kind, spec, self.env, 60 + 10 * case.bound_s)
        except Stuck:
            print("STUCK: %s, %s" % (name, spec["pipeline"]), flush=True)
            self.stuck.append({"contender": name, "spec": spec})
            return None
        if found is None:
            print("(this build has no schedule %s: left out)" % name)
            self.absent.add(name)
            return None
        return figures(found, case, min(slower, slowdown(case.machine)))

    def simulated(self, cases: dict[bool, Case]) -> dict[str, dict]:
        found = {}
        for name in SIMULATED:
            for drawn in (True, False) if name == "speedy" else (False,):
                case, shown = cases[drawn], name + (", drawn" if drawn else ", hidden" if name == "speedy" else "")
                outcome = papers.simulate(name, case.costs, case.setup)
                found["simulated: " + shown] = {**outcome.as_dict(), "of_bound": outcome.seconds / case.bound_s}
        return found

    def workload(self, workload: Workload) -> dict:
        machine = machine_of(workload, self.args)
        least = Least(self.args.periods, self.args.seconds, self.args.batches)
        cases = {drawn: case_of(workload, machine, least, drawn) for drawn in (True, False)}
        rounds: dict[str, list[dict]] = {}
        for _ in range(self.args.rounds):
            for name in self.contenders():
                found = self.real(name, cases)
                if found:
                    rounds.setdefault(name, []).append(found)
        table = {name: {key: common.median([one[key] for one in found]) for key in found[0]}
                 for name, found in rounds.items()}
        table.update(self.simulated(cases))
        case = cases[False]
        print("\n%s: %d samples, %d workers, %d batches ready, bound %.2f s" % (
            workload.name, len(case.costs), machine.workers, workload.depth, case.bound_s))
        print("%-28s %8s %10s %7s %11s" % ("", "/ bound", "as it ran", "busy", "p99 wait s"))
        for name, row in table.items():
            print("%-28s %8.3f %10.3f %7.3f %11.3f" % (name, row["of_bound"], row.get("as_it_ran", row["of_bound"]),
                                                      row["busy"], row["p99_wait"]), flush=True)
        return {"workload": vars(workload), "samples": len(case.costs), "workers": machine.workers,
                "depth": workload.depth, "scale": machine.scale,
                "bound_s": {"drawn": cases[True].bound_s, "hidden": case.bound_s},
                "step_s": case.setup.step_s, "table": table, "rounds": rounds}


# ---- verdicts --------------------------------------------------------------------------------------------------------


def verdict(text: str, value: float, met: bool) -> dict:
    print("%-86s %6.3f  %s" % (text, value, "met" if met else "MISSED"))
    return {"what": text, "value": value, "met": met}


def judge(results: dict[str, dict]) -> list[dict]:
    """What is asked of Penstock, as far as it was run."""
    found = []
    for name in OURS:
        for kind, column in (("sleep", "of_bound"), ("burn", "as_it_ran")):
            ratios = {key: one["table"][name][column] for key, one in results.items()
                      if name in one["table"] and one["workload"]["kind"] == kind}
            if ratios:
                worst = max(ratios, key=ratios.__getitem__)
                found.append(verdict("%s: at most 1.05 of the bound everywhere (worst: %s)" % (name, worst),
                                     ratios[worst], ratios[worst] <= 1.05))
    key = Workload("sleep", 3.0, 0.2, 16, 4).name
    table = results[key]["table"] if key in results else {}
    found += [verdict("%s: busy at least 0.95, %s" % (name, key), table[name]["busy"], table[name]["busy"] >= 0.95)
              for name in OURS if name in table]
    if "plain" in table:
        found.append(verdict("plain: busy under 0.85, %s" % key, table["plain"]["busy"], table["plain"]["busy"] < 0.85))
    for name in OURS:
        behind = {key: one["table"][name]["seconds"] / min(row["seconds"] for other, row in one["table"].items()
                                                           if other not in OURS and not other.startswith("simulated"))
                  for key, one in results.items() if name in one["table"] and one["workload"]["kind"] == "share"
                  and len(one["table"]) > len(OURS)}
        if behind:
            worst = max(behind, key=behind.__getitem__)
            found.append(verdict("%s: at most 1.02 of the best other (worst: %s)" % (name, worst), behind[worst],
                                 behind[worst] <= 1.02))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with python/ in it")
    parser.add_argument("--python", default=sys.executable, help="the interpreter for Penstock's runs")
    parser.add_argument("--torch-python", help="one with torch 2.6 or later; without it PyTorch is only simulated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--periods", type=int, default=8, help="of runs, at least")
    parser.add_argument("--seconds", type=float, default=3.0, help="that an epoch takes at its best, at least")
    parser.add_argument("--batches", type=int, default=80, help="of an epoch, at least")
    parser.add_argument("--scale", type=float, default=0.1, help="of all times that are slept")
    parser.add_argument("--burn-scale", type=float, default=0.5, help="of all times that are burnt, beyond the tenth")
    parser.add_argument("--only", nargs="*", default=[], help="workloads whose names have all of these: 'runs of 16'")
    parser.add_argument("--contenders", nargs="*", help="those whose names have one of these: penstock plain")
    parser.add_argument("--overlap", action="store_true", help="Penstock goes on to the next epoch while this one ends")
    parser.add_argument("--quick", action="store_true", help="one workload: sleep, 3 s, runs of 16, batch 4")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    workloads = all_workloads(args)
    if not workloads:
        sys.exit("no workload has all of: %s" % ", ".join(args.only))
    least = Least(args.periods, args.seconds, args.batches)
    counts = {one: one.samples(least, machine_of(one, args)) for one in workloads}
    most = max(papers.between_runs(count, one.share, one.runs).stop for one, count in counts.items())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, make_pictures(os.path.join(folder, "pictures"), most))
        results = {one.name: bench.workload(one) for one in workloads}
    print()
    verdicts = judge(results)
    verdicts.append(verdict("runs that did not end", len(bench.stuck), not bench.stuck))
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "rounds": args.rounds, "scale": args.scale,
                                     "burn_scale": args.burn_scale, "asks": ASKS, "reorder_window": WINDOW,
                                     "workloads": results, "verdicts": verdicts,
                                     "stuck": bench.stuck})
    return 0 if all(one["met"] for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
