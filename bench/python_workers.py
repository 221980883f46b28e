#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Python datasets in worker processes, beside PyTorch's DataLoader with as many workers.

    PYTHONPATH=build/python bench/python_workers.py [--pairs 10] [--only uniform|stall] [--out FILE]

uniform: every sample costs the same, default_collate, two workers that live on; seconds and CPU seconds of an epoch that
is taken as fast as it comes. stall: one sample in five costs ten times the others (asleep, or burning CPU), batches of 4,
four workers, a consumer whose steps take what 90 % of the supply needs; seconds it waited for batches, after the first few.
Supply is workers over the mean cost of a sample; where samples burn CPU, cores over it if there are fewer of them.

The two run in turns inside one process, each first as often as second, each pair on the same order of samples. A ratio is
taken within a pair; what counts is the median of at least ten. The rows of in_order=False need torch 2.6 or later.
"""
import argparse
import inspect
import os
import sys
import time

sys.dont_write_bytecode = True
import common
import numpy
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from penstock.torch import DataLoader as OurLoader

HAS_ORDER = "in_order" in inspect.signature(TorchLoader.__init__).parameters
UNIFORM = {
    "32x32x3, batch 64": {"side": 32, "batch": 64, "count": 30000},
    "224x224x3 f32, batch 32": {"side": 224, "batch": 32, "count": 3000},
}
FAST_S, SLOW_S, ONE_IN = 0.003, 0.030, 5
BATCH, WORKERS, DEMAND, SKIPPED = 4, 4, 0.9, 16  # SKIPPED: batches before the waiting counts


class Pixels(Dataset):
    """8-bit pictures in memory, to float."""

    def __init__(self, side, count):
        self.count = count
        self.pictures = numpy.random.default_rng(1).integers(0, 256, (64, 3, side, side)).astype(numpy.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.from_numpy(self.pictures[index % 64]).float().div_(255), index % 10


class Uneven(Dataset):
    """Every fifth sample is slow; the sampler decides where those are."""

    def __init__(self, count, burn):
        self.count, self.burn = count, burn

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        cost = FAST_S if index % ONE_IN else SLOW_S
        if self.burn:
            end = time.thread_time() + cost  # CPU time: the work does not shrink when others run
            while time.thread_time() < end:
                pass
        else:
            time.sleep(cost)
        return torch.full((8,), float(index))


class Order(torch.utils.data.Sampler):
    """A permutation for the seed that the bench sets before each epoch."""

    def __init__(self, count):
        self.count, self.seed = count, 0

    def __iter__(self):
        return iter(numpy.random.default_rng(self.seed).permutation(self.count).tolist())

    def __len__(self):
        return self.count


def cpu_seconds():
    """Of this process and its descendants, threads included; finer than common.cpu_seconds."""
    total = 0
    for pid in common.family():
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task), encoding="ascii") as handle:
                total += int(handle.read().split()[0])
    return total / 1e9


def drained(loader):
    """Seconds and CPU seconds of an epoch taken as fast as it comes."""
    cpu, start, batches = cpu_seconds(), time.perf_counter(), 0
    for _ in loader:
        batches += 1
    return {"wall": time.perf_counter() - start, "cpu": cpu_seconds() - cpu, "batches": batches}


def waited(loader, step_s):
    """Seconds that a consumer with steps of that length waited."""
    waits, iterator = [], iter(loader)
    while True:
        start = time.perf_counter()
        if next(iterator, None) is None:
            break
        waits.append(time.perf_counter() - start)
        time.sleep(step_s)
    return {"wait": sum(waits[SKIPPED:]), "batches": len(waits)}


def alternated(pairs, ours, theirs, measure, before):
    """`pairs` measurements of each, next to each other, after one of each that does not count."""
    results = []
    for number in range(-1, pairs):
        pair = {}
        for name, loader in (("ours", ours), ("torch", theirs))[:: 1 if number % 2 else -1]:
            before(loader, number + 1)
            pair[name] = measure(loader)
        if pair["ours"]["batches"] != pair["torch"]["batches"]:
            sys.exit("ours gave %(ours)s and torch %(torch)s" % pair)
        if number >= 0:
            results.append(pair)
    return results


def row(table, name, results, what):
    ours, theirs = ([pair[who][what] for pair in results] for who in ("ours", "torch"))
    ratios = [a / max(b, 1e-9) for a, b in zip(ours, theirs)]
    table[name] = {"ours_s": common.spread(ours), "torch_s": common.spread(theirs), "ratio": common.spread(ratios)}
    print("%-52s %8.3f s %8.3f s   %5.2f  (%.2f to %.2f)" % (
        name, common.median(ours), common.median(theirs), common.median(ratios), min(ratios), max(ratios)), flush=True)


def uniform(args, table):
    for name, case in UNIFORM.items():
        data = Pixels(case["side"], int(case["count"] * args.scale))
        options = {"batch_size": case["batch"], "num_workers": 2, "persistent_workers": True}
        results = alternated(args.pairs, OurLoader(data, **options), TorchLoader(data, **options), drained,
                             lambda loader, number: None)
        row(table, name + ", wall", results, "wall")
        row(table, name + ", CPU", results, "cpu")


def stall(args, table):
    mean_s = FAST_S + (SLOW_S - FAST_S) / ONE_IN
    for burn in (False, True):
        parallel = min(WORKERS, len(os.sched_getaffinity(0))) if burn else WORKERS
        step_s = BATCH * mean_s / parallel / DEMAND
        for in_order in (True, False):
            name = "stall, %s, %s" % ("CPU" if burn else "asleep", "strict" if in_order else "ready")
            if not in_order and not HAS_ORDER:
                print("%-52s torch %s has no in_order" % (name, torch.__version__))
                continue
            data = Uneven(int(800 * args.scale) // 20 * 20, burn)
            order = Order(len(data))
            options = {"batch_size": BATCH, "num_workers": WORKERS, "persistent_workers": True, "sampler": order}
            chosen = {"in_order": in_order} if HAS_ORDER else {}
            ours, theirs = OurLoader(data, in_order=in_order, **options), TorchLoader(data, **options, **chosen)
            results = alternated(args.pairs, ours, theirs, lambda loader: waited(loader, step_s),
                                 lambda loader, number: setattr(loader.sampler, "seed", number))
            row(table, name, results, "wait")
            del ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", choices=("uniform", "stall"))
    parser.add_argument("--scale", type=float, default=1.0, help="times the number of samples; for trying it out")
    parser.add_argument("--out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = {}
    print("%-52s %10s %10s   ratio, median of %d pairs (spread)" % ("", "penstock", "torch", args.pairs))
    if args.only != "stall":
        uniform(args, table)
    if args.only != "uniform":
        stall(args, table)
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "torch": torch.__version__, "pairs": args.pairs,
                                     "load": os.getloadavg()[0], "rows": table})


if __name__ == "__main__":
    main()
