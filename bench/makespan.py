#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makespan of twelve jobs of different rates that arrive at random and are let in a few at a time.

    PYTHONPATH=BUILD/python LD_LIBRARY_PATH=BUILD bench/makespan.py --build BUILD --photos DIR [--samples 1800] [--epochs 1]
        [--at-once 2,4] [--bandwidth 40e6] [--excess 2.15] [--rounds 3] [--seed 1] [--whole] [--u8] [--out FILE]

Data. `samples` real photos, each a file of its own bytes, on a file system whose reads are let through at --bandwidth bytes a second in
all (bench/limited.py: a loop device and the throttle of the cgroup blkio); what was read lies in the kernel's page cache. Mounted
anew before every run. The default is about what PyTorch's processes can take in on 2 cores without a page cache (340 photos of
110 KB a second); with less, sharing by 2 jobs, which can at most halve what is read, is worth less.

Memory. Every run is a process tree in a cgroup of its own, page cache, shared memory and the kernel's own included. Its limit is a
third of the encoded bytes; with --whole that is all there is. Otherwise, what the contender's processes hold beside the page cache while
as many jobs run (interpreters, prefetched batches, rings, without what a cache holds), measured first, comes on top for each, so that a
small set of photos will do: each then has a third of the encoded bytes to keep data in. --whole needs 20,000 samples and takes half an
hour for each of --at-once. With --u8 all contenders deliver bytes, as for jobs whose GPU normalises; without it, floats.

Jobs. Job k takes a batch of 32, works 32 / rate_k seconds, takes the next; `epochs` epochs. Rates lie evenly between 0.7 and 1.3
times their mean, which is such that `at once` jobs ask for --excess times what is prepared without sharing; so any of them
ask for 0.7 to 1.3 times --excess: 1.5 to 2.8. What is prepared without sharing is measured first: as many jobs as fast as they can, same limits.
Arrivals have exponential gaps; jobs come twice as fast in the mean as they would end if nothing held them up. A job starts when
it has arrived and fewer than `at once` run, in order of arrival. All seeded, the same for every contender.

Contenders, one after the other in each round. `shared`: `penstock serve` and a process for each job, opportunistic sampling; its
memory, rings included, comes out of the limit. `plain`: the same without sharing. `never evict`: without sharing, and only encoded
bytes are kept, filled once and never replaced. `torch`: a process for each job, forked with torch imported and files listed, with a
DataLoader, whichever of Pillow and torchvision.io and of 1 and 2 workers for a job gives more with as many jobs and, with --whole, fits;
they share the page cache.
Told are makespans, their ratios within a round, bytes read, and every job's time in `shared` against itself in `plain`.
"""
import argparse
import contextlib
import multiprocessing.connection
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import common
import limited

JOBS, BATCH, READY = 12, 32, 2
BATCH_VALUES = BATCH * 3 * 224 * 224
SPREAD = (0.7, 1.3)
CHANGE_S = 3
CONTENDERS = ("shared", "plain", "never evict", "torch")
MOST = {"shared / torch": 0.55, "slowest job": 1.1}
MIB = 1 << 20
IN_FLIGHT = 16 * MIB  # of Penstock's limit, for what is being read: it passes through the page cache, and is not to be taken
FILE_KEPT = 2500  # nor what the kernel keeps of every file that was opened, in bytes


# ---- contenders ------------------------------------------------------------------------------------------------


class Penstock:
    """`penstock serve`; every job is a client."""

    def __init__(self, args, at_once, cache=0, sampling="plain", forms=None):
        self.binary, self.workers, self.sampling = os.path.join(args.build, "penstock"), args.workers, sampling
        self.pipeline = common.PIPELINE.rpartition(" | ")[0] if args.u8 else common.PIPELINE
        self.options = ["--memory", str(int(cache) + self.beside(args, at_once)), "--cache", str(int(cache)),
                        *(("--forms", forms) if forms else ())]
        self.daemon = self.data = None

    @staticmethod
    def beside(args, at_once):
        """The least budget beside the cache: rings of seven batches, an eighth for samples on their way, listings, and the workers'."""
        return at_once * (8 * BATCH_VALUES * (1 if args.u8 else 4) + 80 * args.samples) + (8 + 4 * args.workers) * MIB

    def begin(self, data):
        import penstock  # noqa: F401

        self.data, self.folder = data, tempfile.mkdtemp(prefix="makespan-")
        self.daemon = subprocess.Popen([self.binary, "serve", "--socket", self.folder, "--workers", str(self.workers),
                                        *self.options], stdout=subprocess.PIPE, text=True)
        if not self.daemon.stdout.readline():
            sys.exit("penstock serve did not start")

    @contextlib.contextmanager
    def open(self, number):
        import penstock

        with penstock.Loader(self.data, self.pipeline, BATCH, engine="unix:" + self.folder, seed=number, order="ready",
                             sampling=self.sampling, ready_depth=READY) as loader:
            yield loader
            stats = loader.stats()
            if not loader.engine.settings["served"]:
                sys.exit("job %d went on without the daemon" % number)
            self.told = {key: stats[key] for key in ("preparations", "augmented_hits", "encoded_hits",
                                                     "decoded_hits", "evictions", "loop_wait_s", "start_s")}

    def end(self):
        self.daemon.terminate()
        if self.daemon.wait():
            sys.exit("penstock serve ended with status %d" % self.daemon.returncode)
        shutil.rmtree(self.folder)


class Torch:
    """A process for each job, forked with torch loaded and the files listed."""

    def __init__(self, args, decode, workers):
        self.decode, self.workers, self.bytes_only, self.told = decode, workers, args.u8, {}

    def begin(self, data):
        import torch_loader

        self.dataset = torch_loader.dataset(data, self.decode, self.bytes_only)

    @contextlib.contextmanager
    def open(self, number):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(number)
        yield torch.utils.data.DataLoader(self.dataset, BATCH, shuffle=True, num_workers=self.workers, prefetch_factor=2,
                                          persistent_workers=True)

    def end(self):
        pass


# ---- inside the cgroup -----------------------------------------------------------------------------------------


def work(contender, number, rate, epochs, tell):
    """A job: its process."""
    with contender.open(number) as batches:
        for _ in range(epochs):
            for batch in batches:
                time.sleep(len(batch[0]) / rate)
    tell.send(contender.told)


def rush(contender, number, begin, end, last, tell):
    """A job that takes what it can get until `last`; tells what it was between `begin` and `end`."""
    taken, now = 0, 0.0
    with contender.open(number) as batches:
        while now < last:
            for batch in batches:
                now = time.monotonic()
                if begin <= now < end:
                    taken += len(batch[0])
                if now >= last:
                    break
    tell.send(taken)


class Running:
    """A job under way."""

    def __init__(self, function, *args):
        self.answer, tell = limited.FORK.Pipe(duplex=False)
        self.begun = time.monotonic()
        self.process = limited.FORK.Process(target=function, args=(*args, tell))
        self.process.start()
        tell.close()

    def finish(self):
        """What it told, and how long it took."""
        self.process.join()
        took = time.monotonic() - self.begun
        if self.process.exitcode:
            sys.exit("a job ended with status %d (-9: the cgroup has too little memory for it)" % self.process.exitcode)
        return self.answer.recv(), took


def schedule(contender, data, jobs, at_once, epochs):
    """Runs all jobs; returns the makespan and, for each job, when it began, its time from its start to its end and its figures."""
    waiting, running, ended = list(enumerate(jobs)), {}, {}
    contender.begin(data)
    first = time.monotonic()
    while waiting or running:
        now = time.monotonic() - first
        if waiting and len(running) < at_once and waiting[0][1][0] <= now:
            number, (_, rate) = waiting.pop(0)
            running[number] = Running(work, contender, number, rate, epochs)
            continue
        until = waiting[0][1][0] - now if waiting and len(running) < at_once else None
        multiprocessing.connection.wait([job.process.sentinel for job in running.values()], until)
        for number in [number for number, job in running.items() if not job.process.is_alive()]:
            job = running.pop(number)
            told, took = job.finish()
            ended[number] = {"began": job.begun - first, "took": took, **told}
    makespan = time.monotonic() - first
    contender.end()
    return {"makespan": makespan, "jobs": [ended[number] for number in range(len(jobs))]}


def rate_of(contender, data, at_once, skip, seconds):
    """Samples a second that as many jobs get together. Afterwards one makes way for another, so that what is held is seen then, too."""
    contender.begin(data)
    begin = time.monotonic() + skip
    end = begin + seconds
    jobs = [Running(rush, contender, number, begin, end, end + (CHANGE_S if number else 0)) for number in range(at_once)]
    taken = jobs[0].finish()[0]
    jobs.append(Running(rush, contender, at_once, begin, end, end + CHANGE_S))
    taken += sum(job.finish()[0] for job in jobs[1:])
    contender.end()
    return taken / seconds


def inside(source, bandwidth, limit, function, *args):
    """Runs one of the two above in a cgroup of its own; returns its answer and the cgroup's figures."""
    source.fresh()
    group = limited.Group(source.device, bandwidth, limit)
    try:
        answer = limited.run_inside(group, function, *args)
        return answer, group.figures()
    finally:
        group.close()


# ---- what is measured first ------------------------------------------------------------------------------------


def best_torch(args, source, at_once):
    """Its best setting behind the source, from an empty page cache, and what its processes hold."""
    tried = []
    for decode in args.torch_decode.split(","):
        for workers in [int(word) for word in args.torch_workers.split(",")]:
            rate, figures = inside(source, args.bandwidth, None, rate_of, Torch(args, decode, workers), source.data, at_once, 3, 6)
            tried.append({"decode": decode, "workers": workers, "samples_per_s": rate,
                          "held_bytes": figures["most_beside_page_cache"]["all"]})
            print("%d at once: PyTorch, %s, %d workers a job: %.0f samples/s, %.0f MB" % (
                at_once, decode, workers, rate, tried[-1]["held_bytes"] / 1e6), flush=True)
    fits = [one for one in tried if not args.whole or one["held_bytes"] < 0.9 * source.bytes / 3]
    return max(fits or tried, key=lambda one: one["samples_per_s"]), tried


def held_by_penstock(args, source, at_once, third):
    """What its processes hold beside the page cache and what is in the cache, which is small enough to be full by then."""
    cache = min(third, 64 * MIB)
    _, figures = inside(source, None, None, rate_of, Penstock(args, at_once, cache), source.data, at_once, 2, 4)
    held = figures["most_beside_page_cache"]
    return {**held, "all": held["all"] - cache}


def rooms(args, source, at_once):
    """The limits of the contenders and the cache of Penstock."""
    third = source.bytes / 3
    best, tried = best_torch(args, source, at_once) if "torch" in args.contenders else (None, [])
    held = held_by_penstock(args, source, at_once, third)
    limit = third + (0 if args.whole else held["all"])
    cache = limit - max(held["all"] + IN_FLIGHT + source.samples * FILE_KEPT, Penstock.beside(args, at_once))
    room = {"penstock": {"limit": limit, "held": held, "cache": cache, "budget_beside_cache": Penstock.beside(args, at_once)}}
    if best:
        room["torch"] = {"limit": third + (0 if args.whole else best["held_bytes"]), **best, "tried": tried}
    print("%d at once: Penstock holds %.0f MB beside its cache; cache %.0f MB of a limit of %.0f MB" % (
        at_once, held["all"] / 1e6, cache / 1e6, limit / 1e6), flush=True)
    if cache < 0.1 * third or (args.whole and best and best["held_bytes"] > 0.9 * third):
        sys.exit("a third of %.0f MB is too little for the processes themselves; take more --samples" % (source.bytes / 1e6))
    return room


def make(name, args, at_once, room):
    """The contender and its limit."""
    if name == "torch":
        return Torch(args, room["torch"]["decode"], room["torch"]["workers"]), room["torch"]["limit"]
    ours = room["penstock"]
    return Penstock(args, at_once, ours["cache"], "opportunistic" if name == "shared" else "plain",
                    "100:0:0" if name == "never evict" else None), ours["limit"]


def capacity_of(args, source, at_once, room):
    """What is prepared without sharing, caches filled."""
    contender, limit = make("plain", args, at_once, room)
    fill = 1.5 * source.bytes / args.bandwidth
    rate, _ = inside(source, args.bandwidth, limit, rate_of, contender, source.data, at_once, fill, max(8, fill))
    return rate


def plan(args, capacity, at_once):
    """[(arrival, rate)] of the jobs."""
    draw = random.Random(args.seed)
    mean = args.excess * capacity / at_once
    low, high = SPREAD
    rates = [mean * (low + (high - low) * k / (JOBS - 1)) for k in range(JOBS)]
    draw.shuffle(rates)
    at, jobs = 0.0, []
    for rate in rates:
        jobs.append((at, rate))
        at += draw.expovariate(2 * at_once * mean / (args.epochs * args.samples))
    return jobs


# ---- the comparison --------------------------------------------------------------------------------------------


def compare(args, source, case):
    """One round of all contenders."""
    found = {}
    for name in args.contenders:
        contender, limit = make(name, args, case["at_once"], case["room"])
        answer, figures = inside(source, args.bandwidth, limit, schedule, contender, source.data, case["jobs"], case["at_once"],
                                 args.epochs)
        found[name] = {**answer, **figures}
        prepared = sum(job.get("preparations", args.samples * args.epochs) for job in answer["jobs"])
        print("%d at once  %-11s %7.1f s  %6.0f MB read  %.2f prepared a delivery  at most %.0f MB, %.0f beside the page cache" % (
            case["at_once"], name, answer["makespan"], figures["bytes_read"] / 1e6, prepared / (JOBS * args.samples * args.epochs),
            figures["most"] / 1e6, figures["most_beside_page_cache"]["all"] / 1e6), flush=True)
        if name == "never evict" and max(job["evictions"] for job in answer["jobs"]):
            sys.exit("the cache that never evicts did")
    return found


def sum_up(case, rounds):
    """Ratios within rounds, and each job's own."""
    result = {"makespan": {name: common.spread([one[name]["makespan"] for one in rounds]) for name in rounds[0]}}
    for other in ("torch", "plain", "never evict"):
        if "shared" in rounds[0] and other in rounds[0]:
            result["shared / " + other] = common.spread([one["shared"]["makespan"] / one[other]["makespan"] for one in rounds])
    if "shared" in rounds[0] and "plain" in rounds[0]:
        ratios = [common.median([one["shared"]["jobs"][k]["took"] / one["plain"]["jobs"][k]["took"] for one in rounds])
                  for k in range(JOBS)]
        result["jobs, shared / plain"] = ratios
        result["slowest job"] = {"median": max(ratios), "worst of all rounds": max(
            a["took"] / b["took"] for one in rounds for a, b in zip(one["shared"]["jobs"], one["plain"]["jobs"]))}
    for key in ("shared / torch", "shared / plain", "shared / never evict", "slowest job"):
        if key in result:
            print("%d at once: %-20s %.2f%s" % (case["at_once"], key, result[key]["median"], "" if key not in MOST else
                  "  (at most %g: %s)" % (MOST[key], "met" if result[key]["median"] <= MOST[key] else "MISSED")))
    return result


def prepare(args, source, at_once):
    room = rooms(args, source, at_once)
    capacity = args.capacity or capacity_of(args, source, at_once, room)
    jobs = plan(args, capacity, at_once)
    rates = sorted(rate for _, rate in jobs)
    demand = {"mean": args.excess, "least": sum(rates[:at_once]) / capacity, "most": sum(rates[-at_once:]) / capacity}
    print("%d at once: %.0f samples/s are prepared without sharing; jobs ask for %.2f times that (%.2f to %.2f)" % (
        at_once, capacity, demand["mean"], demand["least"], demand["most"]), flush=True)
    return {"at_once": at_once, "room": room, "capacity": capacity, "demand": demand, "jobs": jobs}


def run(args, source):
    print("%d photos, %.1f MB encoded, %.0f MB/s" % (args.samples, source.bytes / 1e6, args.bandwidth / 1e6), flush=True)
    cases = [prepare(args, source, int(word)) for word in args.at_once.split(",")]
    rounds = [[compare(args, source, case) for case in cases] for _ in range(args.rounds)]
    results = []
    for number, case in enumerate(cases):
        mine = [one[number] for one in rounds]
        jobs = case.pop("jobs")
        results.append({**case, "arrivals": [arrival for arrival, _ in jobs], "rates": [rate for _, rate in jobs],
                        **sum_up(case, mine), "rounds": mine})
    return {"encoded_bytes": source.bytes, "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with the program penstock")
    parser.add_argument("--photos", default=os.environ.get("PENSTOCK_PHOTOS"))
    parser.add_argument("--samples", type=int, default=1800)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--at-once", default="2,4")
    parser.add_argument("--bandwidth", type=float, default=40e6)
    parser.add_argument("--excess", type=float, default=2.15)
    parser.add_argument("--capacity", type=float, help="samples a second prepared without sharing, instead of measuring it")
    parser.add_argument("--whole", action="store_true", help="processes and prefetched batches have no memory of their own")
    parser.add_argument("--u8", action="store_true", help="all deliver bytes instead of normalised floats")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--torch-workers", default="1,2")
    parser.add_argument("--torch-decode", default="pil,io")
    parser.add_argument("--contenders", type=lambda text: text.split(","), default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out")
    args = parser.parse_args()
    if not args.photos:
        parser.error("--photos, or PENSTOCK_PHOTOS, names a folder of JPEG files")
    if set(args.contenders) - set(CONTENDERS):
        parser.error("contenders are %s" % ", ".join(CONTENDERS))
    common.need_program(os.path.join(args.build, "penstock"), "build it first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # mounts and cgroups are taken away
    begun = time.monotonic()
    source = limited.Source(args.photos, args.samples)
    try:
        found = run(args, source)
    finally:
        source.close()
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "settings": {
            key: value for key, value in vars(args).items() if key not in ("photos", "out", "build")}, **found,
            "seconds": time.monotonic() - begun})
    return 0


if __name__ == "__main__":
    sys.exit(main())
