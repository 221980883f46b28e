#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One job on a dataset three times the memory of its cgroup: does reading keep the disk busy, and how long does a training loop wait?

    PYTHONPATH=BUILD/python LD_LIBRARY_PATH=BUILD bench/cold_data.py --photos DIR [--samples 14000] [--bandwidth 20e6] [--folder DIR]
        [--pace RATE] [--epochs 4] [--rounds 2] [--only ready,strict,torch] [--out FILE]

Data. `samples` real photos, each a file of its own bytes, on a file system whose reads are let through at --bandwidth bytes a
second (bench/limited.py); with --folder, in a folder made there, on whatever disk that is, at its own speed. 20 MB/s are some
180 photos a second, which 2 cores prepare with ease under every contender: reading is the limit.

Memory. Every run is a process tree in a cgroup of its own, limited to a third of the encoded bytes, page cache, shared memory,
interpreter and prefetched batches included, and starts without any page cache.

The limit is what plain programs read in such a cgroup: whole files in order of their names and in random order, by 1 and by 16
threads, each for some seconds. The best of the four is "the disk". Bytes are those that came from the device, by the cgroup's
own count.

Runs. The epochs of a run take turns: in the first a consumer takes batches of 32 as fast as they come, in the second it works
32 / rate seconds for each, where the rate is nine tenths of what the disk gives in photos a second, and so on. Told are, of the
fast ones, bytes from the device a second against the disk, and samples a second; of the paced ones, the share of the time that
the consumer waited. The wait for the very first batch counts in neither. Contenders, one after the other in each round: Penstock
in ready and in strict order, given MEMORY of the cgroup and otherwise left to itself; PyTorch's DataLoader, whichever of Pillow
and torchvision.io and of 1, 2 and 4 workers gives most in some seconds.
"""
import argparse
import concurrent.futures
import glob
import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import common
import limited

BATCH, TRY_S, PACE = 32, 6, 0.9
MEMORY = 0.6  # of the cgroup for Penstock; its default, a quarter, is less than the batches need here
LEAST_SHARE = 0.95
UNLIMITED = 1e12  # bytes a second; where there is no limit at all nothing is counted either
ORDERS = ("ready", "strict")


# ---- data ------------------------------------------------------------------------------------------------------------


class Folder:
    """The same photos in a folder on a disk at its own speed; like limited.Source."""

    def __init__(self, photos, samples, where):
        paths = limited.photos_in(photos)
        self.top = tempfile.mkdtemp(prefix="penstock-cold-", dir=where)
        self.data, self.bytes = os.path.join(self.top, "data"), 0
        number = os.stat(self.top).st_dev
        self.device = "%d:%d" % (os.major(number), os.minor(number))
        for label in range(limited.CLASSES):
            os.makedirs(os.path.join(self.data, "c%03d" % label))
        for at in range(samples):
            path = os.path.join(self.data, "c%03d" % (at % limited.CLASSES), "%06d.jpg" % at)
            shutil.copyfile(paths[at % len(paths)], path)
            self.bytes += os.path.getsize(path)
        os.sync()

    def fresh(self):
        for path in glob.glob(os.path.join(self.data, "*", "*")):
            with open(path, "rb") as handle:
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self):
        shutil.rmtree(self.top, ignore_errors=True)


# ---- inside the cgroup -----------------------------------------------------------------------------------------------


def read_plainly(group, data, shuffled, threads, seconds):
    """Bytes a second from the device while whole files are read and dropped."""
    paths = sorted(glob.glob(os.path.join(data, "*", "*")))
    if shuffled:
        random.Random(1).shuffle(paths)
    until = time.monotonic() + seconds

    def read(path):
        if time.monotonic() < until:
            with open(path, "rb", buffering=0) as handle:
                handle.readall()

    since, before = time.monotonic(), group.figures()["bytes_read"]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, paths))
    return (group.figures()["bytes_read"] - before) / (time.monotonic() - since)


def pass_over(group, batches, step_s, first_counts):
    """One epoch: its seconds, samples, seconds waited, and bytes from the device."""
    taken = waited = 0
    begun = asked = time.monotonic()
    before = group.figures()["bytes_read"]
    for batch in batches:
        got = time.monotonic()
        if not taken and not first_counts:
            begun, before = got, group.figures()["bytes_read"]
        else:
            waited += got - asked
        taken += len(batch[0])
        del batch
        left = got + step_s - time.monotonic()
        if left > 0:
            time.sleep(left)
        asked = time.monotonic()
    return {"paced": step_s > 0, "samples": taken, "seconds": asked - begun, "waited_s": waited,
            "bytes_read": group.figures()["bytes_read"] - before}


def over_epochs(group, loader, epochs, step_s):
    return [pass_over(group, loader, step_s if number % 2 else 0.0, number > 0) for number in range(epochs)]


def run_penstock(group, data, order, limit, epochs, step_s):
    import penstock

    with penstock.Loader(data, common.PIPELINE, BATCH, seed=1, order=order, memory=int(MEMORY * limit)) as loader:
        found = over_epochs(group, loader, epochs, step_s)
        stats, settings = loader.stats(), loader.engine.settings
        return {"epochs": found, "settings": {key: value for key, value in settings.items() if isinstance(value, (int, float))},
                "stats": {key: value for key, value in stats.items() if isinstance(value, (int, float))}}


def torch_loader_of(data, setting):
    import torch
    import torch_loader

    torch.set_num_threads(1)
    torch.manual_seed(1)
    return torch.utils.data.DataLoader(torch_loader.dataset(data, setting["decode"]), BATCH, shuffle=True,
                                       num_workers=setting["workers"], prefetch_factor=2, persistent_workers=True)


def run_torch(group, data, setting, epochs, step_s):
    return {"epochs": over_epochs(group, torch_loader_of(data, setting), epochs, step_s), "settings": setting}


def try_torch(data, setting, seconds):
    """Samples a second, from the second batch of every worker on."""
    taken, batches = 0, iter(torch_loader_of(data, setting))
    for _ in range(2 * setting["workers"]):
        next(batches)
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        taken += len(next(batches)[0])
    return taken / (time.monotonic() - begun)


# ---- the comparison --------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, args, source):
        self.args, self.source = args, source
        self.limit = source.bytes // 3
        self.photo_bytes = source.bytes / args.samples

    def inside(self, function, *args, with_group=True):
        """Runs a function in a cgroup of its own; returns its answer and the cgroup's figures."""
        self.source.fresh()
        group = limited.Group(self.source.device, UNLIMITED if self.args.folder else self.args.bandwidth, self.limit)
        try:
            answer = limited.run_inside(group, function, *((group,) if with_group else ()), self.source.data, *args)
            return answer, group.figures()
        finally:
            group.close()

    def disk(self):
        """What the disk gives, in bytes a second, by way of reading."""
        found = {}
        for shuffled in (False, True):
            for threads in (1, 16):
                name = "%s, %d threads" % ("random" if shuffled else "in order", threads)
                found[name] = self.inside(read_plainly, shuffled, threads, TRY_S)[0]
                print("disk: whole files, %-20s %7.2f MB/s" % (name, found[name] / 1e6), flush=True)
        return found

    def best_torch(self):
        tried = []
        for decode in self.args.torch_decode.split(","):
            for workers in [int(word) for word in self.args.torch_workers.split(",")]:
                setting = {"decode": decode, "workers": workers}
                try:
                    rate, figures = self.inside(try_torch, setting, TRY_S, with_group=False)
                except SystemExit:  # the cgroup has too little memory for it
                    rate, figures = 0, {"most_beside_page_cache": {"all": self.limit}}
                tried.append({**setting, "samples_per_s": rate, "held_bytes": figures["most_beside_page_cache"]["all"]})
                print("PyTorch, %s, %d workers: %.0f samples/s, %.0f MB beside the page cache" % (
                    decode, workers, rate, tried[-1]["held_bytes"] / 1e6), flush=True)
        return max(tried, key=lambda one: one["samples_per_s"]), tried

    def measure(self, name, best, step_s):
        if name == "torch":
            answer, figures = self.inside(run_torch, best, self.args.epochs, step_s)
        else:
            answer, figures = self.inside(run_penstock, name, self.limit, self.args.epochs, step_s)
        return {**answer, **figures}


def judged(run, disk):
    """The figures of one run: read, delivered and waited."""
    fast = [one for one in run["epochs"] if not one["paced"]]
    paced = [one for one in run["epochs"] if one["paced"]]
    seconds = sum(one["seconds"] for one in fast)
    return {"read_of_disk": sum(one["bytes_read"] for one in fast) / seconds / disk,
            "samples_per_s": sum(one["samples"] for one in fast) / seconds,
            "stall": sum(one["waited_s"] for one in paced) / sum(one["seconds"] for one in paced),
            "paced_samples_per_s": sum(one["samples"] for one in paced) / sum(one["seconds"] for one in paced)}


def verdicts(table, throttled):
    """Lines that say whether what is wanted holds."""
    lines = []
    for order in ORDERS:
        if order not in table:
            continue
        share, stall = table[order]["read_of_disk"]["median"], table[order]["stall"]["median"]
        if throttled:
            lines.append("%s: reads at %.3f of the disk's limit (at least %g: %s)" % (
                order, share, LEAST_SHARE, "met" if share >= LEAST_SHARE else "MISSED"))
        if "torch" in table:
            theirs = table["torch"]["stall"]["median"]
            lines.append("%s: the consumer waits %.1f %% of its time, with PyTorch %.1f %% (no more: %s)" % (
                order, 100 * stall, 100 * theirs, "met" if stall <= theirs else "MISSED"))
    return lines


def compare(bench, names, best, step_s, disk):
    """One round of all contenders; who the kernel killed for want of memory is left out."""
    rows = {}
    for name in names:
        try:
            found = bench.measure(name, best, step_s)
        except SystemExit as end:
            print("%-7s %s" % (name, end), flush=True)
            continue
        rows[name] = found = {**found, **judged(found, disk)}
        print("%-7s read %.3f of the disk, %.0f samples/s; paced: %.0f samples/s, waits %.1f %%; at most %.0f MB, %.0f beside the "
              "page cache" % (name, found["read_of_disk"], found["samples_per_s"], found["paced_samples_per_s"],
                              100 * found["stall"], found["most"] / 1e6, found["most_beside_page_cache"]["all"] / 1e6), flush=True)
    return rows


def summed_up(rounds, name):
    return {key: common.spread([one[name][key] for one in rounds if name in one])
            for key in ("read_of_disk", "samples_per_s", "stall", "paced_samples_per_s")}


def run(args, source):
    bench = Bench(args, source)
    print("%d photos, %.0f MB encoded, cgroup of %.0f MB" % (args.samples, source.bytes / 1e6, bench.limit / 1e6), flush=True)
    disks = bench.disk()
    disk = max(disks.values())
    step_s = BATCH / (args.pace or PACE * disk / bench.photo_bytes)
    best, tried = bench.best_torch() if "torch" in args.only else (None, [])
    rounds = [compare(bench, args.only, best, step_s, disk) for _ in range(args.rounds)]
    table = {name: summed_up(rounds, name) for name in args.only if any(name in one for one in rounds)}
    lines = verdicts(table, not args.folder)
    print("\n".join(lines))
    return {"encoded_bytes": source.bytes, "cgroup_bytes": bench.limit, "disk": disks, "asked_samples_per_s": BATCH / step_s,
            "torch": {"best": best, "tried": tried}, "table": table, "verdicts": lines, "rounds": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", default=os.environ.get("PENSTOCK_PHOTOS"))
    parser.add_argument("--samples", type=int, default=14000)
    parser.add_argument("--bandwidth", type=float, default=20e6)
    parser.add_argument("--folder", help="makes the files there, on a disk of its own speed, instead of a throttled one")
    parser.add_argument("--pace", type=float, help="samples a second that the paced consumer asks for (0.9 of the disk)")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*ORDERS, "torch"])
    parser.add_argument("--torch-workers", default="1,2,4")
    parser.add_argument("--torch-decode", default="pil,io")
    parser.add_argument("--out")
    args = parser.parse_args()
    if not args.photos:
        parser.error("--photos, or PENSTOCK_PHOTOS, names a folder of JPEG files")
    if set(args.only) - {*ORDERS, "torch"} or args.epochs < 2:
        parser.error("--only has ready, strict and torch; --epochs is at least 2")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # mounts and cgroups are taken away
    begun = time.monotonic()
    source = Folder(args.photos, args.samples, args.folder) if args.folder else limited.Source(args.photos, args.samples)
    try:
        found = run(args, source)
    finally:
        source.close()
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "settings": {
            key: value for key, value in vars(args).items() if key not in ("photos", "out", "folder")},
            "throttled": not args.folder, **found, "seconds": time.monotonic() - begun})
    return 0


if __name__ == "__main__":
    sys.exit(main())
