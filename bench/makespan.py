#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makespan of twelve jobs of different rates that arrive at random and are let in a few at a time.

    PYTHONPATH=BUILD/python LD_LIBRARY_PATH=BUILD bench/makespan.py --photos DIR [--samples 600] [--epochs 2]
        [--at-once 2,4] [--bandwidth 33e6] [--excess 2] [--rounds 1] [--seed 1] [--out FILE]

Data. `samples` photos (hard copies in the memory of one serving process) come over a Unix socket whose bytes are let through at
--bandwidth bytes a second in all, first come, first served: a stand-in for a file server, the same for every contender and without
need of rights on the machine. There is no cgroup. In its place every contender has the same bytes to keep things in, a third of the
encoded bytes: Penstock as its cache, PyTorch as an LRU in the serving process that costs no bandwidth (the page cache that its
processes share). Rings and queues come on top for both.

Jobs. Job k takes a batch, works batch / rate_k seconds, takes the next; `epochs` epochs. Rates are drawn between 0.5 and 1.5 times
their mean, which is such that `at once` jobs ask for --excess times (1.5 to 3) what one engine prepares without sharing; this is
measured first, through the same socket. Arrivals have exponential gaps, a quarter of a mean job's own length in the mean. A job
starts when it has arrived and fewer than `at once` run, in order of arrival. Seeded.

Contenders, one after the other in each round: `shared`, one engine, opportunistic sampling; `plain`, the same engine and cache
without sharing; `torch`, a process for each job with DataLoader and --torch-workers workers each, Pillow and torchvision. Told are
makespans and their ratios, and the slowest job of `shared` against itself in `plain`. A cache that never evicts is no
setting of the engine; bench/share_sim has it.
"""
import argparse
import collections
import glob
import io
import multiprocessing
import os
import random
import socket
import socketserver
import struct
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
import common

JOBS, BATCH = 12, 32
PIPELINE = common.PIPELINE


# ---- the source ------------------------------------------------------------------------------------------------


class Link:
    """Lets bytes through at a rate; keeps the last used ones where it may."""

    def __init__(self, bandwidth):
        self.bandwidth, self.free, self.lock = bandwidth, 0.0, threading.Lock()
        self.kept, self.room, self.passed = collections.OrderedDict(), 0, 0

    def reset(self, room):
        with self.lock:
            self.kept.clear()
            self.room, self.passed = room, 0

    def admit(self, number, size):
        """Returns when the bytes are through."""
        with self.lock:
            if number in self.kept:
                self.kept.move_to_end(number)
                return 0.0
            self.passed += size
            self.free = max(self.free, time.monotonic()) + size / self.bandwidth
            if self.room:
                self.kept[number] = size
                while sum(self.kept.values()) > self.room:
                    self.kept.popitem(last=False)
            return self.free


def serve(path, samples, bandwidth, ready):
    """The serving process. A request is a number; -1 - R empties the LRU and gives it R bytes; the answer is the bytes."""
    link = Link(bandwidth)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            while (raw := self.request.recv(8, socket.MSG_WAITALL)) and len(raw) == 8:
                number = struct.unpack("<q", raw)[0]
                if number < 0:
                    answer = b"%d" % link.passed
                    link.reset(-1 - number)
                else:
                    answer = samples[number]
                    time.sleep(max(0.0, link.admit(number, len(answer)) - time.monotonic()))
                self.request.sendall(struct.pack("<q", len(answer)) + answer)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads, request_queue_size = True, 256

    server = Server(path, Handler)
    ready.set()
    server.serve_forever()


class Remote:
    """Samples by number through the socket: one connection for each thread of each process."""

    def __init__(self, path, count):
        self.path, self.count, self.local = path, count, threading.local()

    def __len__(self):
        return self.count

    def __getstate__(self):
        return self.path, self.count

    def __setstate__(self, state):
        self.__init__(*state)

    def ask(self, number):
        if getattr(self.local, "pid", None) != os.getpid():
            self.local.socket = socket.socket(socket.AF_UNIX)
            self.local.socket.connect(self.path)
            self.local.pid = os.getpid()
        self.local.socket.sendall(struct.pack("<q", number))
        size = struct.unpack("<q", self.local.socket.recv(8, socket.MSG_WAITALL))[0]
        return self.local.socket.recv(size, socket.MSG_WAITALL)

    def read(self, number):
        return self.ask(number), number % 10

    def reset(self, room):
        """Bytes that went over the link since the last time."""
        return int(self.ask(-1 - int(room)))


# ---- jobs ------------------------------------------------------------------------------------------------------


def consume(batches, rate, epochs):
    for _ in range(epochs):
        for batch in batches:
            time.sleep(len(batch[0]) / rate)


class Penstock:
    """All jobs in this process, on one engine."""

    def __init__(self, args, remote, cache, sampling):
        import penstock

        self.args, self.sampling, self.module = args, sampling, penstock
        self.data = penstock.Dataset(remote, name="makespan", threads=4)
        self.engine = penstock.Engine(workers=args.workers, memory=int(cache) + (512 << 20), cache=int(cache))
        self.threads = []

    def start(self, number, rate, done):
        def run():
            with self.module.Loader(self.data, PIPELINE, BATCH, engine=self.engine, seed=number, order="ready",
                                    sampling=self.sampling, ready_depth=2) as loader:
                consume(loader, rate, self.args.epochs)
            done(number)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def close(self):
        for thread in self.threads:
            thread.join()
        self.engine.close()


class Decoded:
    """The same samples as a training script for PyTorch has them."""

    def __init__(self, remote):
        from torchvision import transforms

        self.remote = remote
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

    def __len__(self):
        return len(self.remote)

    def __getitem__(self, number):
        import PIL.Image

        data, label = self.remote.read(number)
        return self.transform(PIL.Image.open(io.BytesIO(data)).convert("RGB")), label


def torch_job(args, remote, number, rate):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(number)
    loader = torch.utils.data.DataLoader(Decoded(remote), BATCH, shuffle=True, num_workers=args.torch_workers,
                                         prefetch_factor=2, persistent_workers=True)
    consume(loader, rate, args.epochs)


class Torch:
    """A process for each job, forked with torch loaded."""

    def __init__(self, args, remote):
        import torch  # noqa: F401
        import torchvision  # noqa: F401

        self.args, self.remote, self.threads = args, remote, []

    def start(self, number, rate, done):
        process = multiprocessing.get_context("fork").Process(target=torch_job, args=(self.args, self.remote, number, rate))
        process.start()

        def wait():
            process.join()
            if process.exitcode:
                print("a PyTorch job ended with status %d" % process.exitcode, file=sys.stderr)
                os._exit(1)
            done(number)

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()

    def close(self):
        for thread in self.threads:
            thread.join()


# ---- the schedule ----------------------------------------------------------------------------------------------


def plan(args, capacity, at_once):
    """[(arrival, rate)] of the jobs."""
    draw = random.Random(args.seed)
    mean = args.excess * capacity / at_once
    rates = [mean * (0.5 + (k + 0.5) / JOBS) for k in range(JOBS)]
    draw.shuffle(rates)
    at, jobs = 0.0, []
    for rate in rates:
        jobs.append((at, rate))
        at += draw.expovariate(4 * mean / (args.epochs * args.samples))
    return jobs


def schedule(contender, jobs, at_once):
    """Runs all jobs; returns the makespan and each job's time from its start to its end."""
    begun, ended, change = {}, {}, threading.Condition()

    def done(number):
        with change:
            ended[number] = time.monotonic()
            change.notify_all()

    first = time.monotonic()
    for number, (arrival, rate) in enumerate(jobs):
        time.sleep(max(0.0, first + arrival - time.monotonic()))
        with change:
            change.wait_for(lambda: len(begun) - len(ended) < at_once)
            begun[number] = time.monotonic()
        contender.start(number, rate, done)
    contender.close()
    return max(ended.values()) - first, [ended[number] - begun[number] for number in range(len(jobs))]


def make(name, args, remote, cache):
    if name == "torch":
        return Torch(args, remote)
    return Penstock(args, remote, cache, "opportunistic" if name == "shared" else "plain")


def capacity_of(args, remote, cache):
    """Samples a second that one job as fast as it can gets without sharing, caches filled."""
    remote.reset(0)
    engine = Penstock(args, remote, cache, "plain")
    with engine.module.Loader(engine.data, PIPELINE, BATCH, engine=engine.engine, order="ready") as loader:
        consume(loader, 1e9, 1)
        start = time.monotonic()
        consume(loader, 1e9, 2)
        rate = 2 * args.samples / (time.monotonic() - start)
    engine.close()
    return rate


def compare(args, remote, cache, jobs, at_once):
    found = {}
    for name in args.contenders.split(","):
        remote.reset(cache if name == "torch" else 0)
        makespan, times = schedule(make(name, args, remote, cache), jobs, at_once)
        found[name] = {"makespan": makespan, "jobs": times, "bytes": remote.reset(0)}
        print("%d at once  %-7s %7.1f s  %6.0f MB read" % (at_once, name, makespan, found[name]["bytes"] / 1e6), flush=True)
    if "shared" in found and "plain" in found:
        found["slowest_job"] = max(a / b for a, b in zip(found["shared"]["jobs"], found["plain"]["jobs"]))
    for other in ("torch", "plain"):
        if other in found and "shared" in found:
            found["shared / " + other] = found["shared"]["makespan"] / found[other]["makespan"]
    return found


def load_photos(folder, count):
    paths = sorted(path for path in glob.glob(os.path.join(folder, "**", "*"), recursive=True)
                   if path.lower().endswith((".jpg", ".jpeg")))
    if not paths:
        sys.exit("%s: no JPEG files" % folder)
    photos = []
    for path in paths[:count]:
        with open(path, "rb") as handle:
            photos.append(handle.read())
    return [photos[number % len(photos)] for number in range(count)]


def run(args, remote, encoded):
    cache = encoded / 3
    capacity = capacity_of(args, remote, cache)
    print("%.1f MB encoded, a third to keep things in; without sharing %.0f samples/s are prepared" % (encoded / 1e6, capacity))
    results = []
    for at_once in [int(word) for word in args.at_once.split(",")]:
        jobs = plan(args, capacity, at_once)
        rounds = [compare(args, remote, cache, jobs, at_once) for _ in range(args.rounds)]
        result = {"at_once": at_once, "arrivals": [a for a, _ in jobs], "rates": [r for _, r in jobs], "rounds": rounds}
        for key, most in (("shared / torch", 0.55), ("shared / plain", None), ("slowest_job", 1.1)):
            if key not in rounds[0]:
                continue
            result[key] = common.spread([one[key] for one in rounds])
            print("%d at once: %-15s %.2f%s" % (at_once, key, result[key]["median"], "  (at most %g)" % most if most else ""))
        results.append(result)
    return {"capacity": capacity, "encoded_bytes": encoded, "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", default=os.environ.get("PENSTOCK_PHOTOS"))
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--at-once", default="2,4")
    parser.add_argument("--bandwidth", type=float, default=33e6)
    parser.add_argument("--excess", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--torch-workers", type=int, default=1)
    parser.add_argument("--contenders", default="shared,plain,torch")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out")
    args = parser.parse_args()
    if not args.photos:
        parser.error("--photos, or PENSTOCK_PHOTOS, names a folder of JPEG files")
    samples = load_photos(args.photos, args.samples)
    with tempfile.TemporaryDirectory(prefix="makespan-") as folder:
        path, ready = os.path.join(folder, "source"), multiprocessing.Event()
        server = multiprocessing.Process(target=serve, args=(path, samples, args.bandwidth, ready), daemon=True)
        server.start()
        ready.wait()
        found = run(args, Remote(path, len(samples)), sum(map(len, samples)))
        server.terminate()
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "settings": {
            key: value for key, value in vars(args).items() if key not in ("photos", "out")}, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
