#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""DLCache's experiment: a training loop over a source of set bandwidth, end to end, for many batch sizes and compute times.

    PYTHONPATH=BUILD/python LD_LIBRARY_PATH=BUILD bench/lookahead.py [--batches 20] [--rate 10e6] [--sizes 128,512,2048]
        [--computes 0.05,0.1,...] [--workers 4,8] [--rounds 1] [--out FILE [--resume]]

The source is a server on loopback that speaks as much S3 as is needed and gives out so many bytes a second in all, first come,
first served, each answer --delay seconds after it was asked for at the earliest: small JPEGs, each object with a key of its own.
Compute is a sleep, a tenth of DLCache's 0.5 to 3.0 seconds, after each batch; batches are DLCache's for its two datasets, 128 to 2,048
samples. Both loaders have 4 or 8 workers, threads here, processes there. Told is the time from the first request for a batch to the
end of the last compute, and beside it what computing alone takes.

PyTorch's side is what one writes: a Dataset whose __getitem__ asks the server over a connection that its worker keeps, Pillow,
torchvision's transforms, prefetch_factor as it is. Every run is a process of its own, with everything imported before the clock starts.

--out is written after each cell. With --resume what it holds is kept, and cells that are there (workers, batch, compute and batches) are
not run again, so a grid can be completed in parts; rate, delay and objects must be those of the file.

A cell has a stall where PyTorch's loop waited for more than a hundredth of its time after the first batch. There Penstock must take less
time; in the others at most a hundredth more.
"""
import argparse
import hashlib
import http.client
import io
import json
import multiprocessing
import os
import random
import socket
import sys
import threading
import time
import warnings

sys.dont_write_bytecode = True
import common

FORK = multiprocessing.get_context("fork")
SIDE, CROP, PICTURES = 112, 64, 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIPELINE = "decode | random_crop(%d) | normalize(imagenet)" % CROP
WITHIN, STALL = 0.01, 0.01


# ---- the source ------------------------------------------------------------------------------------------------------


def pictures():
    """JPEGs of some eight thousand bytes: noise over a smooth ground."""
    import numpy
    import PIL.Image
    rng, made = numpy.random.default_rng(1), []
    for _ in range(PICTURES):
        coarse = PIL.Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=numpy.uint8), "RGB").resize((SIDE, SIDE), PIL.Image.BICUBIC)
        noisy = numpy.clip(numpy.asarray(coarse).astype(int) + rng.normal(0, 18, (SIDE, SIDE, 1)), 0, 255).astype(numpy.uint8)
        out = io.BytesIO()
        PIL.Image.fromarray(noisy).save(out, "JPEG", quality=88)
        made.append(out.getvalue())
    return made


def key_of(number):
    return "c%02d/%06d.jpg" % (number % 10, number)


class Pipe:
    """So many bytes a second for all together, in the order in which they were asked for."""

    def __init__(self, rate, delay):
        self.rate, self.delay = rate, delay
        self.lock, self.free = threading.Lock(), 0.0

    def wait(self, size):
        now = time.monotonic()
        with self.lock:
            self.free = max(self.free, now) + size / self.rate
            due = max(self.free, now + self.delay)
        time.sleep(max(0.0, due - time.monotonic()))


def page(keys, made, etags, query):
    begin = int(query.get("continuation-token", "0"))
    part = keys[begin:begin + 1000]
    rows = "".join("<Contents><Key>%s</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified><ETag>&quot;%s&quot;</ETag><Size>%d</Size>"
                   "</Contents>" % (key, etags[n % PICTURES], len(made[n % PICTURES])) for key, n in part)
    more = begin + 1000 < len(keys)
    token = "<NextContinuationToken>%d</NextContinuationToken>" % (begin + 1000) if more else ""
    return ('<?xml version="1.0"?><ListBucketResult><Name>bench</Name><KeyCount>%d</KeyCount><IsTruncated>%s</IsTruncated>%s%s'
            "</ListBucketResult>" % (len(part), str(more).lower(), token, rows)).encode()


def serve(listener, count, rate, delay):
    made = pictures()
    etags = [hashlib.md5(one).hexdigest() for one in made]
    keys = sorted((key_of(number), number) for number in range(count))
    pipe = Pipe(rate, delay)

    def talk(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with sock, sock.makefile("rb") as lines:
            while True:
                request = lines.readline()
                if not request:
                    return
                while lines.readline() not in (b"\r\n", b""):
                    pass
                target = request.split()[1].decode()
                path, _, query = target.partition("?")
                if query:
                    words = dict(part.partition("=")[::2] for part in query.split("&"))
                    body, etag = page(keys, made, etags, words), ""
                else:
                    number = int(path[-10:-4]) % PICTURES
                    body, etag = made[number], 'ETag: "%s"\r\n' % etags[number]
                    pipe.wait(len(body))
                sock.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (etag.encode(), len(body)) + body)

    while True:
        threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


class Source:
    def __init__(self, count, rate, delay):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        self.port = listener.getsockname()[1]
        self.child = FORK.Process(target=serve, args=(listener, count, rate, delay), daemon=True)
        self.child.start()
        listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.join()


# ---- the loaders -----------------------------------------------------------------------------------------------------


def loop(batches, wanted, compute):
    """Seconds in all, and seconds waited after the first batch."""
    begun = asked = time.monotonic()
    waited, taken = 0.0, 0
    for batch in batches:
        got = time.monotonic()
        waited += got - asked if taken else 0.0
        del batch
        time.sleep(compute)
        taken += 1
        asked = time.monotonic()
        if taken == wanted:
            break
    return {"seconds": time.monotonic() - begun, "waited_s": waited, "batches": taken}


def run_penstock(port, count, cell):
    import penstock
    os.environ.update(AWS_ENDPOINT_URL_S3="http://127.0.0.1:%d" % port, AWS_REGION="us-east-1", AWS_CONFIG_FILE=os.devnull,
                      AWS_SHARED_CREDENTIALS_FILE=os.devnull)
    data = penstock.Dataset("s3://bench", index_dir="")
    with penstock.Loader(data, PIPELINE, cell["batch"], workers=cell["workers"], drop_last=True, seed=1) as loader:
        return loop(loader, cell["batches"], cell["compute"])


def run_torch(port, count, cell):
    import PIL.Image
    import torch
    from torchvision import transforms

    class Remote(torch.utils.data.Dataset):
        connection = None
        keys = [key_of(number) for number in range(count)]
        change = transforms.Compose([transforms.RandomCrop(CROP), transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

        def __len__(self):
            return count

        def __getitem__(self, number):
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", port)
            self.connection.request("GET", "/bench/" + self.keys[number])
            picture = PIL.Image.open(io.BytesIO(self.connection.getresponse().read())).convert("RGB")
            return self.change(picture), number % 10

    torch.set_num_threads(1)
    random.seed(1)
    loader = torch.utils.data.DataLoader(Remote(), cell["batch"], shuffle=True, num_workers=cell["workers"], drop_last=True)
    return loop(loader, cell["batches"], cell["compute"])


RUNS = {"penstock": run_penstock, "torch": run_torch}


def one(name, rate, delay, cell):
    count = cell["batch"] * cell["batches"]
    ours, theirs = FORK.Pipe(False)

    def work():
        theirs.send(RUNS[name](source.port, count, cell))
        theirs.close()
        os._exit(0)

    with Source(count, rate, delay) as source:
        child = FORK.Process(target=work)
        child.start()
        theirs.close()
        result = ours.recv()
        child.join()
    return result


def numbers(text, kind):
    return [kind(part) for part in text.split(",")]


def judge(cell):
    ours, theirs = cell["penstock"]["seconds"], cell["torch"]["seconds"]
    cell["stall"] = cell["torch"]["waited_s"] > STALL * theirs
    cell["ratio"] = ours / theirs
    cell["good"] = cell["ratio"] < 1 if cell["stall"] else cell["ratio"] <= 1 + WITHIN


def quiet():
    """Torch tells of worker counts above the cores and of NumPy versions, once a process: nothing that is measured here."""
    warnings.filterwarnings("ignore", module="torch")
    warnings.filterwarnings("ignore", category=UserWarning)


WHICH = ("workers", "batch", "compute", "batches")


def same_cell(cell, other):
    return all(cell[name] == other[name] for name in WHICH)


def cells_before(path, report):
    """Of a file that an earlier run has written; none where there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as handle:
        before = json.load(handle)
    for name in ("bench", "rate", "delay_s", "object_bytes", "rounds"):
        if before[name] != report[name]:
            sys.exit("%s has %s=%s, this run %s: not the same experiment" % (path, name, before[name], report[name]))
    return before["cells"]


def write(path, report):
    """Whole or not at all: a run that is interrupted leaves what was there."""
    report["cells"].sort(key=lambda cell: [cell[name] for name in WHICH])
    report["pass"] = all(cell["good"] for cell in report["cells"])
    if path:
        with open(path + ".new", "w", encoding="utf-8") as handle:
            json.dump(report, handle, indent=1)
        os.replace(path + ".new", path)


def print_cell(cell, note=""):
    print("%7d %7d %8.2f | %9.2f %9.2f %9.2f %7.3f  %s%s%s" % (
        cell["workers"], cell["batch"], cell["compute"], cell["compute"] * cell["batches"], cell["torch"]["seconds"],
        cell["penstock"]["seconds"], cell["ratio"], "stall" if cell["stall"] else "", "" if cell["good"] else "  <-- missed", note),
        flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rate", type=float, default=10e6)
    parser.add_argument("--delay", type=float, default=0.005)
    parser.add_argument("--sizes", default="128,256,512,1024,2048")
    parser.add_argument("--computes", default="0.05,0.1,0.15,0.2,0.25,0.3")
    parser.add_argument("--workers", default="4,8")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out")
    parser.add_argument("--resume", action="store_true", help="keep the cells that --out has, and run the others")
    args = parser.parse_args()
    if args.resume and not args.out:
        parser.error("--resume goes on with the file that --out names")
    quiet()
    import penstock, torch, torchvision, PIL.Image  # noqa: F401  imported before the clock starts
    torch.set_num_threads(1)
    size = sum(map(len, pictures())) / PICTURES
    report = {"bench": "lookahead", "machine": common.machine(), "object_bytes": size, "rate": args.rate, "delay_s": args.delay,
              "rounds": args.rounds, "cells": []}
    if args.resume:
        report["cells"] = cells_before(args.out, report)
    print("objects of %.1f KB at %.1f MB/s: %.0f a second" % (size / 1e3, args.rate / 1e6, args.rate / size))
    print("%7s %7s %8s | %9s %9s %9s %7s  %s" % ("workers", "batch", "compute", "alone", "torch", "penstock", "ratio", ""))
    for workers in numbers(args.workers, int):
        for batch in numbers(args.sizes, int):
            for compute in numbers(args.computes, float):
                cell = {"workers": workers, "batch": batch, "compute": compute, "batches": args.batches}
                there = [each for each in report["cells"] if same_cell(each, cell)]
                if there:
                    print_cell(there[0], "  (there)")
                    continue
                for name in ("torch", "penstock"):
                    results = [one(name, args.rate, args.delay, cell) for _ in range(args.rounds)]
                    cell[name] = min(results, key=lambda result: result["seconds"])
                judge(cell)
                cell["cpu"] = report["machine"]["cpu"]  # a grid may be completed elsewhere: ratios are of one machine each
                report["cells"].append(cell)
                print_cell(cell)
                write(args.out, report)
    write(args.out, report)
    cells = report["cells"]
    print("%d cells, %d with a stall, %d missed" % (len(cells), sum(cell["stall"] for cell in cells),
                                                    sum(not cell["good"] for cell in cells)))
    print(json.dumps({"bench": "lookahead", "cells": len(cells), "pass": report["pass"]}))
    return 0 if report["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())
