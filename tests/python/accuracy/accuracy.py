#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Nets trained through Penstock, in strict order, in ready order, with slow samples put aside and beside jobs that
share preparations, against nets trained through torch's DataLoader, on pictures whose cost depends on the class.

    tests/python/accuracy/accuracy.py [--only LOADER,...] [--seeds 5] [--most 30] [--half 0.5] [--out FILE]

Seeds are added until half the width of every loader's confidence interval is at most --half points (what the
differences are plays no part in stopping), --most at the most. Then the check of check.py is made, once. Two controls,
loaders that drop the slow class or half of it, take the place of `ready` in the same check (with --only, of the first
one named if that is not there), and have to fail it. Exit status 1 if the check fails, if a control passes, or if
nothing was reordered or put aside; 77 where torch or torchvision is missing.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
from typing import Any, Mapping

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))

import check
import common
import pictures

try:
    import torch
    import torchvision  # noqa: F401
except ImportError as missing:
    print(f"{missing}: nothing is trained")
    sys.exit(77)
import training
from check import Finding, Score

TRAINED, HELD_OUT = 192, 400  # pictures of each class
LATER = 1.0  # deliveries by which ready order has to put off the slow class: less, and nothing was tested
Runs = dict[str, list[training.Run]]


def scores(runs: list[training.Run]) -> list[Score]:
    return [Score(run.accuracy, tuple(run.by_class)) for run in runs]


def checked(runs: Runs) -> list[str]:
    return [name for name in training.CHECKED if name in runs]


def widest(runs: Runs) -> float:
    base = scores(runs[training.BASELINE])
    return max(check.overall(scores(runs[name]), base).half for name in checked(runs))


def run_seed(runs: Runs, names: list[str], folder: pathlib.Path, held_out: Any, seed: int) -> None:
    for name in names:
        runs.setdefault(name, []).append(training.train(name, folder, held_out, seed))
    line = "  ".join(f"{name} {runs[name][-1].accuracy:.2f}" for name in names)
    print(f"seed {seed}: {line}   ({sum(runs[name][-1].seconds for name in names):.0f} s)", flush=True)


def collect(args: argparse.Namespace, scratch: pathlib.Path) -> Runs:
    folder = pictures.make_folder(scratch / "train", TRAINED, part=0)
    held_out = training.evaluation_set(pictures.make_folder(scratch / "held_out", HELD_OUT, part=1))
    runs: Runs = {}
    for seed in range(args.most):
        names = [training.BASELINE, *args.only, *(training.CONTROLS if seed < args.seeds else ())]
        run_seed(runs, names, folder, held_out, seed)
        if seed + 1 >= args.seeds and widest(runs) <= args.half:
            break
    return runs


def slow_later(runs: Runs) -> float | None:
    """How many deliveries later than in strict order samples of the slow class came, less the same of the others."""
    if not {"strict", "ready"} <= runs.keys():
        return None
    moved: dict[bool, list[int]] = {True: [], False: []}
    for strict, ready in zip(runs["strict"], runs["ready"]):
        for planned, delivered in zip(strict.ids, ready.ids):
            place = {number: at for at, number in enumerate(planned)}
            for at, number in enumerate(delivered):
                moved[number // TRAINED == pictures.SLOW].append(at - place[number])
    return sum(moved[True]) / len(moved[True]) - sum(moved[False]) / len(moved[False])


def uneven(runs: Runs) -> list[str]:
    """Every epoch of every loader has each sample once: as many of each class."""
    wanted = [TRAINED] * pictures.CLASSES
    return [
        f"{name}: seed {seed}, epoch {epoch} delivered {seen} of the classes, not {wanted}"
        for name in (training.BASELINE, *checked(runs))
        for seed, run in enumerate(runs[name])
        for epoch, seen in enumerate(run.seen)
        if seen != wanted
    ]


def try_controls(runs: Runs, base: list[Score]) -> tuple[dict[str, Finding], list[str]]:
    """Each control in the place of one loader: the check has to find it out; `drops slow` by both questions."""
    findings, passed, names = {}, [], checked(runs)
    instead = "ready" if "ready" in names else names[0]
    for control in training.CONTROLS:
        loaders = {name: scores(runs[control if name == instead else name]) for name in names}
        findings[control] = found = check.compare(loaders, base)[instead]
        caught = [not found.close, pictures.SLOW in found.apart]
        if not (all(caught) if control == "drops slow" else any(caught)):
            passed.append(f"the control {control!r} passes: the check would not find such a loader out")
    return findings, passed


def print_table(runs: Runs, findings: Mapping[str, Finding]) -> None:
    print(f"\n{'loader':16}{'seeds':>6}{'accuracy':>10}{'difference':>12}{'90 % interval':>18}{'slow class':>12}"
          f"{'least p':>10}  of class")
    for name, column in runs.items():
        mean = sum(run.accuracy for run in column) / len(column)
        slow = sum(run.by_class[pictures.SLOW] for run in column) / len(column)
        line = f"{name:16}{len(column):6}{mean:10.2f}"
        if name in findings:
            found = findings[name]
            gap, least = found.overall, min(found.chances)
            line += f"{gap.mean:+12.2f}{f'{gap.mean - gap.half:+.2f} .. {gap.mean + gap.half:+.2f}':>18}{slow:12.2f}"
            line += f"{least:10.2g}  {found.chances.index(least)}"
        else:
            line += f"{'':30}{slow:12.2f}"
        print(line)


def row(column: list[training.Run], found: Finding | None) -> dict[str, Any]:
    """One loader for the summary."""
    classes = list(zip(*(run.by_class for run in column)))
    out: dict[str, Any] = {
        "accuracy": [round(run.accuracy, 4) for run in column],
        "mean": sum(run.accuracy for run in column) / len(column),
        "mean_by_class": [sum(values) / len(values) for values in classes],
        "seconds": common.spread([run.seconds for run in column]),
    }
    if found is not None:
        gap = found.overall
        out["difference"] = {"mean": gap.mean, "interval": [gap.mean - gap.half, gap.mean + gap.half]}
        out["difference_by_class"] = [one.mean for one in found.classes]
        out["p_by_class_adjusted"] = list(found.chances)
    return out


def summary(
    args: argparse.Namespace, runs: Runs, findings: Mapping[str, Finding], failures: list[str]
) -> dict[str, Any]:
    return {
        "machine": common.machine(),
        "torch": torch.__version__,
        "settings": {
            "batch": training.BATCH,
            "epochs": training.EPOCHS,
            "workers": training.WORKERS,
            "classes": pictures.CLASSES,
            "slow": pictures.SLOW,
            "trained": TRAINED * pictures.CLASSES,
            "held_out": HELD_OUT * pictures.CLASSES,
            "bound_points": check.BOUND,
            "confidence": check.CONFIDENCE,
            "level": check.LEVEL,
            "seeds": args.seeds,
            "most": args.most,
            "half": args.half,
        },
        "slow_later": slow_later(runs),
        "failures": failures,
        "put_aside": {name: common.spread(counts) for name, counts in training.put_aside.items()},
        "loaders": {name: row(column, findings.get(name)) for name, column in runs.items()},
    }


def judge(args: argparse.Namespace, runs: Runs) -> tuple[dict[str, Finding], list[str]]:
    base = scores(runs[training.BASELINE])
    findings = check.compare({name: scores(runs[name]) for name in checked(runs)}, base)
    controls, failures = try_controls(runs, base)
    failures = check.complaints(findings) + uneven(runs) + failures
    if widest(runs) > args.half:
        failures.append(f"after {args.most} seeds an interval still has +-{widest(runs):.2f} points, not {args.half:g}")
    later = slow_later(runs)
    if later is not None and later < LATER:
        failures.append(f"ready order put the slow class off by {later:.2f} deliveries: nothing was tested")
    return {**findings, **controls}, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(training.CHECKED), help="these loaders beside torch's, with commas")
    parser.add_argument("--seeds", type=int, default=5, help="at least so many")
    parser.add_argument("--most", type=int, default=30, help="at most so many")
    parser.add_argument("--half", type=float, default=0.5, help="half the widest interval wanted, in points")
    parser.add_argument("--out", help="writes the summary there")
    args = parser.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(training.CHECKED):
        parser.error(f"--only has {', '.join(sorted(unknown))}; loaders are {', '.join(training.CHECKED)}")
    if not 2 <= args.seeds <= args.most:
        parser.error("--seeds is at least 2 and at most --most")
    torch.set_num_threads(1)  # sums in one order: a seed gives the same net each time
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        runs = collect(args, pathlib.Path(scratch))
    findings, failures = judge(args, runs)
    print_table(runs, findings)
    later = slow_later(runs)
    print("" if later is None else f"\nready order put the slow class off by {later:.1f} deliveries on average")
    if args.out:
        common.write_json(args.out, summary(args, runs, findings, failures))
    for line in failures:
        print(f"FAILED: {line}")
    print("failed" if failures else "passed: no difference; both controls were found out")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
