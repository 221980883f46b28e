#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What each part of the schedule is good for: lanes, prediction, early start, the samples' past and the tuner, each left
out.

    bench/lane_parts.py --build DIR [--parts lanes prediction early past tuner] [--never tuner] [--rounds 3] [--scale 0.1]
                        [--only WORDS] [--out FILE]

Workloads: those of bench/lanes.py that sleep, `hidden` (the past is off in these) and `drawn`; some whose epoch ends
with a run of slow samples; some that are gone through three times, of which the last pass counts: hidden, so that only
the past can tell, and drawn anew in each, so that the past tells nothing; and uniform ones: 50 ms, taken one by one or
twelve batches at once with a rest after them (the ready depth is left to the engine there), and 2 ms taken as fast as
they come. Times are scaled by --scale, those of quick samples by more, so that no run takes over --rate samples
a second and the work of loading itself is not felt: then the whole schedule and those without a part run side by side.
What is as fast as it comes runs alone, in turn.

Told: the share of the time after the first batch in which the consumer waited, with everything and without the part;
and the time with everything as a multiple of the time without. A part earns its place with at least 10 % less stall
where there was stall (2 % of the time or more without it), and may lose 1 % of the time nowhere. Where batches are
taken as fast as they come, CPU seconds are compared as well. Medians over rounds, ratios within a round; for what is
lost, the best round with by the best without, since what disturbs a run only adds. In the first pass of `drawn` the
past is never asked: what shows there is what the machine adds.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace

sys.dont_write_bytecode = True
import common
import lanes
from lanes import Workload

PARTS = ("lanes", "prediction", "early", "past", "tuner")
LESS_STALL, LOSS, SOME_STALL = 0.10, 0.01, 0.02


@dataclass(frozen=True)
class Setting:
    """A workload and how it is run."""

    workload: Workload
    drawn: bool
    what: str = ""
    ends_slow: bool = False
    passes: int = 1
    paced: bool = True
    burst: int = 1

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.workload.name, "drawn" if self.drawn else "hidden", self.what)))

    @property
    def base(self) -> list[str]:
        """What is left out in any case: hidden samples are to be unknown, unless the past is what is tried."""
        return [] if self.drawn or self.passes > 1 else ["past"]


def all_settings(args: argparse.Namespace) -> list[Setting]:
    args.quick, only, args.only = False, args.only, ["sleep"]
    found = [Setting(one, drawn) for one in lanes.all_workloads(args) for drawn in (False, True)]
    args.only = only
    runs = Workload("sleep", 3.0, 0.2, 16, 4)
    found += [Setting(runs, True, "slow ones last", ends_slow=True),
              Setting(runs, False, "slow ones last", ends_slow=True),
              Setting(runs, False, "third pass", passes=3),
              Setting(runs, False, "slow ones last, third pass", ends_slow=True, passes=3),
              Setting(Workload("sleep", 3.0, 0.2, 0, 4), True, "third pass", passes=3),
              Setting(Workload("sleep", 0.0, 0.0, 0, 4), False, "uniform"),
              Setting(Workload("sleep", 0.0, 0.0, 0, 24), True, "uniform"),
              Setting(Workload("sleep", 0.0, 0.0, 0, 4), False, "uniform, in bursts", burst=12),
              Setting(Workload("sleep", 0.0, 0.0, 0, 24, light_s=0.002), False, "uniform and cheap", paced=False)]
    return [one for one in found if all(word in one.name for word in args.only)]


def case_of(setting: Setting, args: argparse.Namespace) -> lanes.Case:
    least = lanes.Least(args.periods, args.seconds, args.batches)
    one, machine = setting.workload, lanes.machine_of(setting.workload, args)
    rate = lanes.ASKS * machine.workers / (one.light_s + one.share * one.heavy_s)
    if setting.paced:
        machine = replace(machine, scale=max(args.scale, rate / args.rate))
    else:
        least = replace(least, seconds=0.1 * least.seconds)  # cores bind long before the sleeping does
    return lanes.case_of(one, machine, least, setting.drawn, one.runs if setting.ends_slow else None)


# ---- runs ------------------------------------------------------------------------------------------------------------


def figures(found: dict) -> dict:
    """Without the first batch, which every schedule waits for."""
    seconds = found["seconds"] - found["waits"][0]
    return {"seconds": found["seconds"], "stall": sum(found["waits"][1:]) / seconds, "cpu_s": found["cpu_s"],
            "parked": found["stats"].get("slow_parked", 0)}


class Bench:
    """Runs of the schedule with parts left out."""

    def __init__(self, args: argparse.Namespace, data: str) -> None:
        self.args, self.data = args, data
        self.env = common.env_of(args.build)

    def spec_of(self, setting: Setting, case: lanes.Case, without: str) -> dict:
        spec = lanes.spec_of(case, self.data, "penstock", setting.drawn, False)
        spec.update(gated=True, passes=setting.passes, epochs=setting.passes,
                    without=sorted({*setting.base, *self.args.never, *([without] if without else [])}))
        if not setting.paced:
            spec["step_s"] = 0.0
        if setting.burst > 1:
            spec.update(burst=setting.burst, depth=0)
        return spec

    def side_by_side(self, specs: dict[str, dict]) -> dict[str, dict]:
        """Those that stand begin together."""
        program = os.path.join(common.ROOT, "bench", "lanes_run.py")
        running = {name: subprocess.Popen([sys.executable, program, "penstock", json.dumps(spec)], env=self.env,
                                          text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                   for name, spec in specs.items()}
        for one in running.values():
            assert one.stdout is not None
            if not one.stdout.readline():
                sys.exit("%s, %s: did not start" % (one.args, one.wait()))
        for one in running.values():
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        found = {}
        for name, one in running.items():
            told = one.communicate(timeout=600)[0].splitlines()
            if one.returncode != 0 or not told:
                sys.exit("%s, %s: ended with status %d" % (name, specs[name]["pipeline"], one.returncode))
            found[name] = figures(json.loads(told[-1]))
        return found

    def round(self, setting: Setting, case: lanes.Case, names: list[str]) -> dict[str, dict]:
        at_once = len(names) if setting.paced and not self.args.in_turn else 1
        found: dict[str, dict] = {}
        for first in range(0, len(names), at_once):
            some = names[first: first + at_once]
            found.update(self.side_by_side({name: self.spec_of(setting, case, name) for name in some}))
        return found

    def setting(self, setting: Setting) -> dict:
        case = case_of(setting, self.args)
        parts = [part for part in self.args.parts if part not in setting.base]
        rounds = []
        for number in range(self.args.rounds):
            names = ["", *parts]
            rounds.append(self.round(setting, case, names[number % len(names):] + names[: number % len(names)]))
        whole = {key: common.median([one[""][key] for one in rounds]) for key in rounds[0][""]}
        table = {part: compared(rounds, part) for part in parts}
        lines = ["\n%s: %d samples, times by %.2g, %.2f s, stall %.2f %%, put aside %d" % (
            setting.name, len(case.costs), case.machine.scale, whole["seconds"], 100 * whole["stall"], whole["parked"])]
        lines += ["  without %-10s stall %6.2f %%  time with / without %6.4f (%.4f to %.4f), best %6.4f  CPU %6.3f" % (
            part, 100 * row["stall"], row["time"]["median"], row["time"]["min"], row["time"]["max"], row["best"],
            row["cpu"]["median"]) for part, row in table.items()]
        print("\n".join(lines), flush=True)
        return {"setting": {**vars(setting), "workload": vars(setting.workload)}, "whole": whole, "without": table,
                "rounds": rounds}


def compared(rounds: list[dict[str, dict]], part: str) -> dict:
    return {"stall": common.median([one[part]["stall"] for one in rounds]),
            "stall_with": common.median([one[""]["stall"] for one in rounds]),
            "time": common.spread([one[""]["seconds"] / one[part]["seconds"] for one in rounds]),
            "best": min(one[""]["seconds"] for one in rounds) / min(one[part]["seconds"] for one in rounds),
            "cpu": common.spread([one[""]["cpu_s"] / one[part]["cpu_s"] for one in rounds])}


# ---- verdicts --------------------------------------------------------------------------------------------------------


def judge(results: dict[str, dict], parts: list[str]) -> list[dict]:
    found = []
    for part in parts:
        rows = {name: one["without"][part] for name, one in results.items() if part in one["without"]}
        if not rows:
            continue
        less = {name: 1 - row["stall_with"] / row["stall"] if row["stall"] >= SOME_STALL else 0.0
                for name, row in rows.items()}
        best = max(less, key=less.__getitem__)
        found.append(lanes.verdict("%s: at least 10 %% less stall (most: %s)" % (part, best), less[best],
                                   less[best] >= LESS_STALL))
        loss = {name: row["best"] - 1 for name, row in rows.items()}
        worst = max(loss, key=loss.__getitem__)
        found.append(lanes.verdict("%s: at most 1 %% of the time lost (most: %s)" % (part, worst), loss[worst],
                                   loss[worst] <= LOSS))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with python/ in it")
    parser.add_argument("--parts", nargs="*", default=list(PARTS))
    parser.add_argument("--never", nargs="*", default=[], help="parts that are left out in all runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--periods", type=int, default=8, help="of runs, at least")
    parser.add_argument("--seconds", type=float, default=3.0, help="that an epoch takes at its best, at least")
    parser.add_argument("--batches", type=int, default=40, help="of an epoch, at least")
    parser.add_argument("--scale", type=float, default=0.1, help="of all times")
    parser.add_argument("--rate", type=float, default=250, help="samples a second of a run, at most")
    parser.add_argument("--in-turn", action="store_true", help="nothing side by side")
    parser.add_argument("--only", nargs="*", default=[], help="settings whose names have all of these: 'runs of 16'")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    settings = all_settings(args)
    if not settings:
        sys.exit("no setting has all of: %s" % ", ".join(args.only))
    most = max(case_of(one, args).numbers.stop for one in settings)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, lanes.make_pictures(os.path.join(folder, "pictures"), most))
        results = {one.name: bench.setting(one) for one in settings}
    print()
    verdicts = judge(results, args.parts)
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "rounds": args.rounds, "scale": args.scale,
                                     "never": args.never, "settings": results, "verdicts": verdicts})
    return 0 if all(one["met"] for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
