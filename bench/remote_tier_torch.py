#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One PyTorch loader that keeps decoded samples in Redis as Seneca's code does; see remote_tier.py. Prints a line of JSON."""
import argparse
import io
import json
import pickle
import sys
import time

import redis
import torch
from PIL import Image
from torchvision import datasets, transforms
from torchvision.transforms import functional


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Shared(torch.utils.data.Dataset):
    """Key = number of the sample, value = pickle of a tensor."""

    def __init__(self, args):
        self.args, self.files, self.server = args, datasets.ImageFolder(args.data), None
        self.after = transforms.Compose([
            transforms.RandomCrop(224, pad_if_needed=True) if args.resize else transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(), transforms.ConvertImageDtype(torch.float32),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])

    def __len__(self):
        return len(self.files)

    def decode(self, path):
        with open(path, "rb") as handle:
            image = Image.open(io.BytesIO(handle.read())).convert("RGB")
        if self.args.resize:
            image = functional.resize(image, self.args.resize)
        burn(self.args.cost_ms / 1000)
        return functional.pil_to_tensor(image)

    def __getitem__(self, index):
        if self.server is None:
            self.server = redis.Redis(port=self.args.port)
        path, label = self.files.samples[index]
        value, made = self.server.get(index), 0
        if value is None:
            tensor, made = self.decode(path), 1
            self.server.set(index, pickle.dumps(tensor))
        else:
            tensor = pickle.loads(value)
        return self.after(tensor), label, made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--resize", type=int)
    parser.add_argument("--cost-ms", type=float, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    loader = torch.utils.data.DataLoader(Shared(args), args.batch, shuffle=True, num_workers=args.workers, persistent_workers=True)
    samples = made = 0
    begin = time.monotonic()
    for _ in range(args.epochs):
        for _, labels, fresh in loader:
            samples += len(labels)
            made += int(fresh.sum())
    print(json.dumps({"samples": samples, "decoded": made, "seconds": time.monotonic() - begin}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
