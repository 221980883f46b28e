#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python package costs beside the command line, and a read(i) source beside files.

Interleaved pairs, CPU seconds per sample: a Python loop over a Loader against `penstock feed` doing the same epochs, and the same loop
over an object whose read(i) returns a file's bytes. Also the time to the first batch in a warm interpreter, from making the
Loader on.

    bench/python_native.py --data DIR --penstock build/penstock --package build/python [--pairs 10] [--epochs 5] [--out FILE]
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

PIPELINE = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"


class Files:
    """What a user's own source would do for files."""

    def __init__(self, root):
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.pairs = [(os.path.join(root, name, file), label) for label, name in enumerate(names)
                      for file in sorted(os.listdir(os.path.join(root, name)))]

    def __len__(self):
        return len(self.pairs)

    def read(self, i):
        path, label = self.pairs[i]
        with open(path, "rb") as file:
            return file.read(), label


def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def loop(args, source):
    """One run in this process: CPU seconds and wall seconds per sample, seconds to the first batch."""
    import penstock

    cpu, begin, first, count = spent(), time.perf_counter(), None, 0
    with penstock.Loader(source, PIPELINE, args.batch, workers=args.workers, cache=0) as loader:
        for _ in range(args.epochs):
            for images, labels in loader:
                first = first or time.perf_counter() - begin
                count += len(labels)
    return {"cpu": (spent() - cpu) / count, "wall": (time.perf_counter() - begin) / count, "first": first}


def feed(args, samples):
    """The command line's run of the same epochs, as a child of its own."""
    command = [args.penstock, "feed", args.data, "--pipeline", PIPELINE, "--batch", str(args.batch), "--epochs",
               str(args.epochs), "--workers", str(args.workers)]
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with status {child.returncode}")
    count = samples * args.epochs
    return {"cpu": (usage.ru_utime + usage.ru_stime) / count, "wall": (time.perf_counter() - begin) / count}


def spread(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--package", required=True, help="folder that holds the built penstock package")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out")
    args = parser.parse_args()
    sys.path.insert(0, os.path.abspath(args.package))
    files = Files(args.data)
    loop(args, args.data)  # warms the interpreter and the page cache
    rounds = [{"feed": feed(args, len(files)), "loader": loop(args, args.data), "read": loop(args, files)}
              for _ in range(args.pairs)]
    result = {
        "python / feed, CPU per sample": spread([r["loader"]["cpu"] / r["feed"]["cpu"] for r in rounds]),
        "read(i) / files, throughput": spread([r["loader"]["wall"] / r["read"]["wall"] for r in rounds]),
        "read(i) / files, CPU per sample": spread([r["read"]["cpu"] / r["loader"]["cpu"] for r in rounds]),
        "first batch, ms": spread([r["loader"]["first"] * 1e3 for r in rounds]),
        "img/s": spread([1 / r["loader"]["wall"] for r in rounds]),
    }
    for name, value in result.items():
        print(f"{name:<34} {value['median']:>9.3f} ({value['low']:.3f}-{value['high']:.3f})")
    if args.out:
        with open(args.out, "w", encoding="ascii") as handle:
            json.dump({"cores": args.workers, "pairs": args.pairs, **result}, handle, indent=1)


if __name__ == "__main__":
    main()
