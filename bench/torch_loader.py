#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The baseline: PyTorch's DataLoader on a folder of class folders, in steady state.

Workers are persistent and the sampler never ends, so there is no start-up and no end of an epoch inside a measurement. Each line
`run SECONDS` on standard input gives one measurement as a JSON line: batches are taken and dropped until that many seconds
have passed, after as many as could have been prepared ahead. Between measurements bench/run.py stops the whole session.

    torch_loader.py --data DIR --workers N [--decode pil|io] [--prefetch P] [--batch B] [--warm BATCHES]
"""
import argparse
import json
import sys
import time

import torch
import torchvision
from torchvision import io, transforms

sys.dont_write_bytecode = True
import common

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Endless(torch.utils.data.Sampler):
    """A new permutation whenever the last one is used up."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        while True:
            yield from torch.randperm(self.count).tolist()

    def __len__(self):
        return 1 << 40


def read_tensor(path):
    try:
        return io.read_image(path, io.ImageReadMode.RGB)
    except RuntimeError:  # CMYK, in some versions
        return transforms.functional.pil_to_tensor(torchvision.datasets.folder.pil_loader(path))


class SmoothCrop(transforms.RandomResizedCrop):
    """RandomResizedCrop that smooths on tensors too, as on pictures and as newer versions do by default: torchvision before
    0.15 would otherwise give other, cheaper pixels than its Pillow path and than Penstock."""

    def forward(self, image):
        top, left, rows, cols = self.get_params(image, self.scale, self.ratio)
        image = transforms.functional.crop(image, top, left, rows, cols)
        return transforms.functional.resize(image, self.size, self.interpolation, antialias=True)


def dataset(folder, decode, bytes_only=False):
    """What a training script does: crop, resize, flip, to float, normalise; or the bytes alone, where the GPU does the rest."""
    normal = [] if bytes_only else [transforms.Normalize(MEAN, STD)]
    if decode == "pil":
        last = transforms.PILToTensor() if bytes_only else transforms.ToTensor()
        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), last, *normal]
        return torchvision.datasets.ImageFolder(folder, transforms.Compose(steps))
    floats = [] if bytes_only else [transforms.ConvertImageDtype(torch.float32)]
    steps = [SmoothCrop(224), transforms.RandomHorizontalFlip(), *floats, *normal]
    return torchvision.datasets.ImageFolder(folder, transforms.Compose(steps), loader=read_tensor)


def measure(batches, ahead, workers, batch, seconds):
    """Batches come from the workers in turn, often several at once: only whole turns are counted."""
    for _ in range(ahead):
        next(batches)
    start, cpu, count = time.perf_counter(), common.cpu_seconds(), 0
    while True:
        for _ in range(workers):
            next(batches)
        count += workers
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            break
    samples = count * batch
    return {"samples": samples, "seconds": elapsed, "samples_per_s": samples / elapsed, "cpu_s": common.cpu_seconds() - cpu}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--decode", choices=["pil", "io"], default="pil")
    parser.add_argument("--prefetch", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--warm", type=int, default=0, help="batches before the first measurement (0 = an epoch)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = dataset(args.data, args.decode)
    loader = torch.utils.data.DataLoader(
        data, batch_size=args.batch, sampler=Endless(len(data)), num_workers=args.workers,
        prefetch_factor=args.prefetch, persistent_workers=True)
    batches = iter(loader)
    ahead = args.prefetch * args.workers + args.workers
    warm = args.warm or -(-len(data) // args.batch)
    for _ in range(warm):
        next(batches)
    print(json.dumps({"ready": True, "torch": torch.__version__, "torchvision": torchvision.__version__}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words and words[0] == "run":
            print(json.dumps(measure(batches, ahead, args.workers, args.batch, float(words[1]))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
