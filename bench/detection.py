#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Mask R-CNN's and SSD's pipelines beside torchvision's reference in PyTorch's DataLoader (bench/detection_torch.py), on pictures
and annotations of COCO's sizes made by `penstock synth detection`, files in the page cache.

    bench/detection.py --build build [--count 400] [--pairs 5] [--seconds 15] [--only maskrcnn,…] [--out FILE]

maskrcnn: resize to 800 within 1333, flip, normalise, pad to a multiple of 32, with boxes, labels and masks, batches of 2;
maskrcnn-boxes: the same without masks; ssd: photometric distort, zoom out, IoU crop, flip, pictures of any size as a list,
batches of 32; ssd300: the same brought to 300 x 300 and normalised. Both give torch tensors on the CPU, with two workers; torch
reads with Pillow or with read_image, whichever was faster in a first run. They take turns; a ratio is taken
within a pair of runs, and the median of the pairs counts.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import common

HERE = os.path.dirname(os.path.abspath(__file__))
RESIZED = "decode | resize(800, max_size=1333) | hflip | normalize(imagenet)"
SSD = "decode | photometric_distort | zoom_out | iou_crop | hflip"
OURS = {  # pipeline, fields, batch
    "maskrcnn": (RESIZED, {"image": "padded(32)", "boxes": "", "labels": "", "masks": ""}, 2),
    "maskrcnn-boxes": (RESIZED, {"image": "padded(32)", "boxes": "", "labels": ""}, 2),
    "ssd": (f"{SSD} | to(f32, nchw)", {"image": "", "boxes": "", "labels": ""}, 32),
    "ssd300": (f"{SSD} | resize((300, 300)) | normalize(imagenet)", {"image": "", "boxes": "", "labels": ""}, 32),
}


def ours(args):
    """One measurement of Penstock; prints a JSON line."""
    import penstock

    pipeline, fields, batch = OURS[args.ours]
    data = penstock.Dataset(args.data)
    loader = penstock.Loader(data, pipeline, batch, fields={**fields, "image_id": ""}, device="cpu", workers=args.workers,
                             cache=0, seed=1, sampler="weighted", weights=[1.0] * len(data), draws=1 << 20)  # no end in between
    endless, count = iter(loader), 0
    for _ in range(12):
        next(endless)
    start, cpu = time.perf_counter(), common.cpu_seconds()
    while time.perf_counter() - start < args.seconds:
        taken = next(endless)
        count += len(taken.targets())
    elapsed = time.perf_counter() - start
    print(json.dumps({"samples_per_s": count / elapsed, "cpu_ms_a_sample": 1e3 * (common.cpu_seconds() - cpu) / count,
                      "stages_ms": {name: round(1e3 * seconds / max(runs, 1), 3)
                                    for name, runs, seconds in loader.stats()["stages"]}}))
    return 0


def measure(command, build):
    done = subprocess.run(command, env=common.env_of(build), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(name, data, args):
    theirs = [sys.executable, os.path.join(HERE, "detection_torch.py"), "--data", data, "--pipeline", name]
    mine = [sys.executable, os.path.abspath(__file__), "--ours", name, "--data", data, "--build", args.build]
    more = ["--workers", str(args.workers), "--seconds", str(args.seconds)]
    first = {decode: measure([*theirs, *more, "--decode", decode], args.build)["samples_per_s"] for decode in ("pil", "io")}
    best = max(first, key=first.get)
    pairs = []
    for turn in range(args.pairs):
        both = {}
        for which in ("torch", "penstock") if turn % 2 else ("penstock", "torch"):
            both[which] = measure([*theirs, *more, "--decode", best] if which == "torch" else [*mine, *more], args.build)
        pairs.append(both)
        print("%-15s torch (%s) %7.1f/s, penstock %7.1f/s: %.2f times" % (
            name, best, both["torch"]["samples_per_s"], both["penstock"]["samples_per_s"],
            both["penstock"]["samples_per_s"] / both["torch"]["samples_per_s"]), flush=True)
    return {"decode": best, "decode_rates": first, "pairs": pairs,
            "ratio": common.spread([p["penstock"]["samples_per_s"] / p["torch"]["samples_per_s"] for p in pairs]),
            "cpu_ratio": common.spread([p["torch"]["cpu_ms_a_sample"] / p["penstock"]["cpu_ms_a_sample"] for p in pairs])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", help="a folder made by penstock synth detection; made here unless given")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default=",".join(OURS))
    parser.add_argument("--ours", choices=OURS, help=argparse.SUPPRESS)
    parser.add_argument("--out")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.ours:
        return ours(args)
    program = common.need_program(os.path.join(args.build, "penstock"), "build it first, or give --build")
    with tempfile.TemporaryDirectory(prefix="penstock-detection-") as scratch:
        data = args.data
        if not data:
            data = os.path.join(scratch, "coco")
            subprocess.run([program, "synth", "detection", data, "--count", str(args.count), "--classes", "80"], check=True)
        result = {"machine": common.machine(), "workers": args.workers,
                  "rows": {name: row(name, data, args) for name in args.only.split(",")}}
    for name, made in result["rows"].items():
        print("%-15s %.2f times torchvision (%.2f to %.2f), %.2f of its CPU time" % (
            name, made["ratio"]["median"], made["ratio"]["min"], made["ratio"]["max"], 1 / made["cpu_ratio"]["median"]))
    if args.out:
        common.write_json(args.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
