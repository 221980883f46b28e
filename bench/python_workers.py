#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Python datasets in worker processes, beside PyTorch's DataLoader with as many workers.

    PYTHONPATH=build/python bench/python_workers.py [--pairs 10] [--only uniform|stall|runs] [--out FILE]

uniform: every sample costs the same, default_collate, two workers that live on; seconds and CPU seconds of an epoch that
is taken as fast as it comes. stall: one sample in five costs ten times the others (asleep, or burning CPU), batches of 4,
four workers, a consumer whose steps take what 90 % of the supply needs; seconds it waited for batches, after the first few.
Supply is workers over the mean cost of a sample; where samples burn CPU, cores over it if there are fewer of them.
runs: one in five is slow (asleep, in ten transforms of a Compose), sixteen of them one after the other; stall is the share of
the time from the 17th batch to the end in which the consumer waited. torch, and ours with and without lanes, in ready order.

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
RUN, STEPS, LIGHT_S, HEAVY_S = 16, 10, 0.005, {"0.1 s": 0.1, "0.3 s": 0.3}


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


class Step:
    """One of the transforms of a sample (its index), asleep."""

    def __init__(self, heavy_s):
        self.heavy_s = heavy_s

    def __call__(self, index):
        time.sleep((LIGHT_S if index % ONE_IN else self.heavy_s) / STEPS)
        return index


class Compose:
    """As torchvision's."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


class Stepwise(Dataset):
    """Every fifth sample is slow, in several transforms."""

    def __init__(self, count, heavy_s):
        self.count, self.transform = count, Compose([Step(heavy_s) for _ in range(STEPS)])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((8,), float(self.transform(index)))


class Runs(torch.utils.data.Sampler):
    """As many fast samples around each run of slow ones, for the seed that the bench sets; the first run is not at once."""

    def __init__(self, count):
        self.count, self.seed = count, 0

    def __iter__(self):
        rng, slow = numpy.random.default_rng(self.seed), numpy.arange(0, self.count, ONE_IN)
        fast = rng.permutation(numpy.setdiff1d(numpy.arange(self.count), slow)).tolist()
        part = RUN * (ONE_IN - 1)
        order = []
        for number in range(len(slow) // RUN):
            at = int(rng.integers(part // 2, part))
            mine = fast[number * part : (number + 1) * part]
            order += mine[:at] + slow[number * RUN : (number + 1) * RUN].tolist() + mine[at:]
        return iter(order)

    def __len__(self):
        return self.count


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
    """Seconds that a consumer with steps of that length waited, and their share."""
    waits, iterator = [], iter(loader)
    while True:
        start = time.perf_counter()
        if next(iterator, None) is None:
            break
        waits.append(time.perf_counter() - start)
        time.sleep(step_s)
        if len(waits) == SKIPPED:
            began = time.perf_counter()
    wait = sum(waits[SKIPPED:])
    return {"wait": wait, "stall": wait / (time.perf_counter() - began), "batches": len(waits)}


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


def runs(args, table):
    """The stall of each loader; a round has all of them on the same order of samples."""
    for name, heavy_s in HEAVY_S.items():
        data = Stepwise(int(400 * args.scale) // 80 * 80, heavy_s)
        step_s = BATCH * (LIGHT_S + (heavy_s - LIGHT_S) / ONE_IN) / WORKERS / DEMAND
        order = Runs(len(data))
        options = {"batch_size": BATCH, "num_workers": WORKERS, "persistent_workers": True, "sampler": order,
                   "in_order": False}
        loaders = {"lanes": OurLoader(data, **options), "without": OurLoader(data, **options, without="lanes")}
        if HAS_ORDER:
            loaders["torch"] = TorchLoader(data, **options)
        stalls = {who: [] for who in loaders}
        for number in range(max(args.pairs // 2, 1)):
            order.seed = number
            for who in list(loaders)[:: 1 if number % 2 else -1]:
                stalls[who].append(waited(loaders[who], step_s)["stall"])
        table["runs of %d, %s" % (RUN, name)] = {who: common.spread(values) for who, values in stalls.items()}
        print("%-52s %s" % ("runs of %d, slow ones %s: stall" % (RUN, name), ", ".join(
            "%s %.1f %% (%.1f to %.1f)" % (who, 100 * common.median(values), 100 * min(values), 100 * max(values))
            for who, values in stalls.items())), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", choices=("uniform", "stall", "runs"))
    parser.add_argument("--scale", type=float, default=1.0, help="times the number of samples; for trying it out")
    parser.add_argument("--out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = {}
    print("%-52s %10s %10s   ratio, median of %d pairs (spread)" % ("", "penstock", "torch", args.pairs))
    for part in (uniform, stall, runs):
        if args.only in (None, part.__name__):
            part(args, table)
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "torch": torch.__version__, "pairs": args.pairs,
                                     "load": os.getloadavg()[0], "rows": table})


if __name__ == "__main__":
    main()
