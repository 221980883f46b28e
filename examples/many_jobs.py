#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small sweep on one engine: several runs train on the same pictures, each with its own learning rate, and do each
other's decoding.

    examples/many_jobs.py [DATA] [--jobs 3] [--epochs 3] [--cache-mib 256] [--apart]

DATA: a folder with one sub-folder per class; without it, some pictures are made up. --apart: each run prepares everything for
itself, for comparison. The model is a linear one in numpy, so that nothing but penstock and numpy is needed.
"""
import argparse
import pathlib
import sys
import tempfile
import threading
import time

import numpy

import penstock

SIDE = 64
PIPELINE = f"decode | random_resized_crop({SIDE}) | hflip"


class Run(threading.Thread):
    """One training run: a softmax regression on pixels."""

    def __init__(self, loader: penstock.Loader, classes: int, rate: float, epochs: int) -> None:
        super().__init__()
        self.loader, self.rate, self.epochs = loader, rate, epochs
        self.weights = numpy.zeros((SIDE * SIDE * 3, classes), numpy.float32)
        self.loss, self.samples = 0.0, 0

    def step(self, images: numpy.ndarray, labels: numpy.ndarray) -> None:
        x = images.reshape(len(images), -1).astype(numpy.float32) / 255
        scores = x @ self.weights
        scores = numpy.exp(scores - scores.max(1, keepdims=True))
        chance = scores / scores.sum(1, keepdims=True)
        rows = numpy.arange(len(labels))
        self.loss = float(-numpy.log(chance[rows, labels] + 1e-9).mean())
        chance[rows, labels] -= 1
        self.weights -= self.rate * (x.T @ chance) / len(labels)

    def run(self) -> None:
        for _ in range(self.epochs):
            for images, labels in self.loader:
                self.step(images, labels)
                self.samples += len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cache-mib", type=int, default=256)
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = penstock.Dataset(args.data or made_up(folder))
        with penstock.Engine(cache=args.cache_mib << 20) as engine:
            sweep(data, engine, args)


def made_up(folder: str) -> str:
    """300 pictures in three classes that differ in their mean colour."""
    from PIL import Image

    random = numpy.random.default_rng(1)
    for number in range(300):
        kind = number % 3
        place = pathlib.Path(folder, "data", f"class{kind}")
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 200, (240, 320, 3), dtype=numpy.uint8)
        pixels[..., kind] += 55
        Image.fromarray(pixels).save(place / f"{number}.jpg")
    return str(pathlib.Path(folder, "data"))


def sweep(data: penstock.Dataset, engine: penstock.Engine, args: argparse.Namespace) -> None:
    how = "plain" if args.apart else "opportunistic"
    runs = []
    for number in range(args.jobs):
        loader = penstock.Loader(data, PIPELINE, 32, engine=engine, seed=number, order="ready", sampling=how)
        runs.append(Run(loader, len(data.classes), 0.01 * 3**number, args.epochs))
    began = time.perf_counter()
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    seconds = time.perf_counter() - began
    prepared = delivered = 0
    for run in runs:
        stats = run.loader.stats()
        prepared += stats["preparations"]
        delivered += run.samples
        print(f"rate {run.rate:.2f}: loss {run.loss:.3f}, {stats['augmented_hits']:,} samples prepared by others")
    print(f"{delivered:,} samples in {seconds:.1f} s; {prepared / delivered:.2f} prepared for each")


if __name__ == "__main__":
    sys.exit(main())
