#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Volumes beside MLPerf's 3D U-Net reference in PyTorch (bench/volumes_torch.py), on made-up scans at a quarter of their size, with
the files in the page cache and two workers each.

    bench/volumes.py --build build [--work DIR] [--cases 24] [--scale 0.25] [--pairs 10] [--only npy,ram,nifti] [--out FILE]

Rows, each a ratio within pairs that follow each other, median and spread:
    npy    five epochs from prepared .npy files, nothing kept between them, from making the loader to the last batch
    ram    five epochs after a first one, samples decoded in RAM, against the reference's five epochs
    nifti  the first epoch from raw NIfTI, against the offline script (one process, as it is; and two) and its first epoch
The reference stands in two columns: as it is, and with the label search done beforehand and kept (`search cached`), so that what
the algorithm brings and what the loader brings are apart.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import common

ONLINE = "balanced_crop(128) | random_flip | cast(f32) | random_brightness((1.7, 2.3)) | gaussian_noise(0.1)"
RECIPES = {
    "npy": "decode | " + ONLINE,
    "nifti": "decode | spacing((1.6, 1.2, 1.2)) | clip(-79, 304) | intensity(101, 76.9) | pad_min(128) | " + ONLINE,
}


def measure(args):
    """One run of Penstock in this process."""
    import penstock

    form = "nifti" if args.measure == "nifti" else "npy"
    options = {"cache": 0} if args.measure == "npy" else {"memory": args.memory, "cache": args.cache}
    begin, cpu, samples = time.perf_counter(), common.cpu_seconds(), 0
    loader = penstock.Loader(args.data, RECIPES[form], args.batch, workers=args.workers, seed=args.seed, **options)
    epochs = 1 if args.measure == "nifti" else args.epochs
    if args.measure == "ram":
        for _ in loader:
            pass
        begin, cpu = time.perf_counter(), common.cpu_seconds()
    for _ in range(epochs):
        for image, mask in loader:
            samples += len(image)
    seconds, cpu = time.perf_counter() - begin, common.cpu_seconds() - cpu
    stages = {name: took / runs for name, runs, took in loader.stats()["stages"] if runs}
    return {"seconds": seconds, "samples": samples, "cpu": cpu, "stages": stages}


def warm(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as handle:
                while handle.read(1 << 24):
                    pass


class Bench:
    def __init__(self, args):
        self.args = args
        self.here = os.path.dirname(os.path.abspath(__file__))
        self.env = common.env_of(args.build)
        self.data = {form: os.path.join(args.work, form) for form in ("nifti", "npy")}
        for form, folder in self.data.items():
            if not os.path.isdir(folder):
                subprocess.run([common.need_program(os.path.join(args.build, "penstock"), "build first"), "synth", "volumes", folder,
                                "--count", str(args.cases), "--scale", str(args.scale), "--form", form], check=True)

    def python(self, *command):
        done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=self.env, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    def penstock(self, row, seed):
        return self.python(os.path.join(self.here, "volumes.py"), "--measure", row, "--seed", str(seed), "--data",
                           self.data["nifti" if row == "nifti" else "npy"], "--workers", str(self.args.workers), "--batch",
                           str(self.args.batch), "--epochs", str(self.args.epochs), "--memory", self.args.memory, "--cache",
                           self.args.cache)  # fmt: skip

    def torch(self, what, *more):
        return self.python(os.path.join(self.here, "volumes_torch.py"), what, *more)

    def train(self, folder, epochs, search):
        return self.torch("train", "--data", folder, "--epochs", str(epochs), "--workers", str(self.args.workers), "--batch",
                          str(self.args.batch), "--search", search)  # fmt: skip

    def row_online(self, row):
        warm(self.data["npy"])
        ratios, mine, theirs = {"anew": [], "cached": []}, [], {"anew": [], "cached": []}
        for pair in range(self.args.pairs):
            for search in ("anew", "cached"):
                reference = self.train(self.data["npy"], self.args.epochs, search)
                ours = self.penstock(row, pair)
                theirs[search].append(reference["seconds"] / reference["samples"])
                mine.append(ours["seconds"] / ours["samples"])
                ratios[search].append(theirs[search][-1] / mine[-1])
        return {"ratio": common.spread(ratios["anew"]), "ratio, search cached": common.spread(ratios["cached"]),
                "penstock, ms a sample": common.spread([1e3 * x for x in mine]),
                "torch, ms a sample": common.spread([1e3 * x for x in theirs["anew"]]),
                "torch, search cached, ms a sample": common.spread([1e3 * x for x in theirs["cached"]]),
                "penstock, CPU ms a sample": 1e3 * ours["cpu"] / ours["samples"],
                "torch, CPU ms a sample": 1e3 * reference["cpu"] / reference["samples"], "stages, s": ours["stages"]}

    def row_nifti(self):
        to = os.path.join(self.args.work, "prepared")
        result = {}
        for jobs in (1, 2):
            ratios, mine, scripts, firsts, cpus = [], [], [], [], []
            for pair in range(self.args.nifti_pairs):
                shutil.rmtree(to, ignore_errors=True)
                warm(self.data["nifti"])
                script = self.torch("prepare", "--data", self.data["nifti"], "--to", to, "--jobs", str(jobs))
                first = self.train(to, 1, "anew")
                ours = self.penstock("nifti", pair)
                scripts.append(script["seconds"])
                firsts.append(first["seconds"])
                mine.append(ours["seconds"])
                ratios.append((script["seconds"] + first["seconds"]) / ours["seconds"])
                cpus.append((script["cpu"] + first["cpu"]) / ours["cpu"])
            result["%d process%s" % (jobs, "es" * (jobs > 1))] = {
                "ratio": common.spread(ratios), "ratio of CPU seconds": common.spread(cpus),
                "penstock, s": common.spread(mine), "script, s": common.spread(scripts), "torch first epoch, s": common.spread(firsts), "stages, s": ours["stages"]}
        shutil.rmtree(to, ignore_errors=True)
        return result


def show(name, value, depth=0):
    if isinstance(value, dict) and "median" in value:
        print("%s%-36s %8.2f  (%.2f to %.2f, %d runs)" % ("  " * depth, name, value["median"], value["min"], value["max"], value["runs"]))
    elif isinstance(value, dict):
        print("%s%s" % ("  " * depth, name))
        for key, inner in value.items():
            show(key, inner, depth + 1)
    else:
        print("%s%-36s %8.4f" % ("  " * depth, name, value))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--work", default="/tmp/penstock-volumes")
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--nifti-pairs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--memory", default="6G")
    parser.add_argument("--cache", default="3G")
    parser.add_argument("--only", default="npy,ram,nifti")
    parser.add_argument("--out")
    parser.add_argument("--measure", choices=["npy", "ram", "nifti"], help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args)))
        return
    bench = Bench(args)
    result = {"machine": common.machine(), "cases": args.cases, "scale": args.scale, "batch": args.batch, "workers": args.workers,
              "rows": {}}
    for row in args.only.split(","):
        result["rows"][row] = bench.row_nifti() if row == "nifti" else bench.row_online(row)
        show(row, result["rows"][row])
    if args.out:
        common.write_json(args.out, result)


if __name__ == "__main__":
    main()
