#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU each loader keeps busy: real training steps, fed by each contender in turn, against synthetic input.

The same model and optimiser run throughout; in each of --rounds rounds every contender feeds it for --seconds, after as many
steps as it could have prepared ahead. Ratios are taken within a round against the synthetic input of that round, the median is
reported with the spread. GPU busy is what the driver reports for the same windows, CPU seconds are those of the whole process
tree.

    bench/train.py --data DIR [--model resnet18] [--batch 256] [--rounds 10] [--seconds 3] [--rows a,b,…] [--out FILE]

Rows: synthetic, penstock (no cache), cache (decoded samples in memory; its first epoch is reported apart), torch-pil, torch-io
(PyTorch's DataLoader with Pillow or torchvision.io, f32 over the bus as scripts do it), torch-u8 (bytes over the bus and
normalize on the GPU, by hand), alone (Penstock from the cache with no model at all).
"""
import argparse
import json
import os
import signal
import statistics
import sys
import time

import torch
import torchvision
from torchvision.transforms import v2

sys.dont_write_bytecode = True
import common
from torch_loader import MEAN, STD, Endless, read_tensor

ROWS = {"synthetic": "synthetic input", "penstock": "Penstock", "cache": "Penstock, decoded cache, from the second epoch",
        "torch-pil": "PyTorch DataLoader, Pillow", "torch-io": "PyTorch DataLoader, torchvision.io",
        "torch-u8": "PyTorch DataLoader, bytes over the bus, normalize on the GPU", "alone": "Penstock, from the cache, no model"}


class Trainer:
    """One model, bf16, channels_last, SGD; `step` returns without waiting for the GPU."""

    def __init__(self, name, device):
        torch.backends.cudnn.benchmark = True
        self.model = torchvision.models.get_model(name).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.loss = torch.nn.CrossEntropyLoss()

    def step(self, images, labels):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.loss(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def synthetic(args, device):
    images = torch.randn(args.batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (args.batch,), device=device)
    while True:
        yield images, labels


def endless(loader):
    while True:
        for images, labels in loader:
            yield images, labels


def torch_loader(args, decode, as_bytes):
    first = [v2.ToImage()] if decode == "pil" and as_bytes else []
    last = [] if as_bytes else [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    steps = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), *first, *last]
    loader = torchvision.datasets.folder.default_loader if decode == "pil" else read_tensor
    data = torchvision.datasets.ImageFolder(args.data, v2.Compose(steps), loader=loader)
    return torch.utils.data.DataLoader(
        data, args.batch, sampler=Endless(len(data)), num_workers=args.workers or os.cpu_count(), pin_memory=True,
        persistent_workers=True, prefetch_factor=2, drop_last=True)


class TorchRow:
    """PyTorch's DataLoader as an endless row. Its workers stand still outside its turns: they would fill their queues at
    the next contender's cost."""

    def __init__(self, args, device, decode, as_bytes):
        self.device, self.as_bytes = device, as_bytes
        self.mean = torch.tensor(MEAN, device=device).mul(255).view(1, 3, 1, 1)
        self.std = torch.tensor(STD, device=device).mul(255).view(1, 3, 1, 1)
        self.loader = torch_loader(args, decode, as_bytes)
        self.batches = None
        self.ahead = self.loader.num_workers * self.loader.prefetch_factor + 2

    def __next__(self):
        if self.batches is None:
            self.batches = iter(self.loader)
        images, labels = next(self.batches)
        images = images.to(self.device, non_blocking=True)
        if self.as_bytes:
            images = images.float().sub_(self.mean).div_(self.std)
        return images.to(memory_format=torch.channels_last), labels.to(self.device, non_blocking=True)

    def signal(self, number):
        for worker in self.batches._workers if self.batches else ():
            os.kill(worker.pid, number)


def penstock_loader(args, cache):
    import penstock

    return penstock.Loader(args.data, common.PIPELINE, args.batch, device="cuda", channels_last=True, drop_last=True,
                           workers=args.workers, memory=args.memory if cache else "8G", cache=args.cache if cache else 0)


def make_rows(args, device):
    cached = endless(getattr(args, "cached", ()))  # one loader, so one pass, for both of its rows
    makers = {
        "synthetic": lambda: synthetic(args, device),
        "penstock": lambda: endless(penstock_loader(args, False)),
        "cache": lambda: cached,
        "torch-pil": lambda: TorchRow(args, device, "pil", False),
        "torch-io": lambda: TorchRow(args, device, "io", False),
        "torch-u8": lambda: TorchRow(args, device, "io", True),
        "alone": lambda: cached,
    }
    return {name: makers[name] for name in args.rows}


def first_batches(makers):
    """Makes each contender; seconds from nothing to its first batch on the GPU, in a warm interpreter."""
    rows, times = {}, {}
    for name, make in makers.items():
        begin = time.perf_counter()
        rows[name] = make()
        next(rows[name])
        torch.cuda.synchronize()
        times[name] = time.perf_counter() - begin
        pause(rows[name])
    return rows, times


def pause(batches):
    if isinstance(batches, TorchRow):
        batches.signal(signal.SIGSTOP)


def resume(batches):
    if isinstance(batches, TorchRow):
        batches.signal(signal.SIGCONT)


def window(trainer, batches, name, args, busy):
    """One contender's turn: images a second, busy share, CPU seconds per 1,000 images."""
    use = (lambda images, labels: None) if name == "alone" else trainer.step
    resume(batches)
    for _ in range(getattr(batches, "ahead", args.skip)):
        use(*next(batches))
    torch.cuda.synchronize()
    cpu, begin, count = common.cpu_seconds(), time.perf_counter(), 0
    while time.perf_counter() - begin < args.seconds:
        use(*next(batches))
        count += args.batch
        if count % (8 * args.batch) == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    end, cpu = time.perf_counter(), common.cpu_seconds() - cpu
    pause(batches)
    return {"rate": count / (end - begin), "busy": busy.between(begin, end),
            "cpu_per_1000": cpu / count * 1000}


def fill_cache(trainer, args):
    """The first epoch with the decoded cache, trained on like any other."""
    begin, count = time.perf_counter(), 0
    for images, labels in args.cached:
        trainer.step(images, labels)
        count += len(labels)
    torch.cuda.synchronize()
    return count / (time.perf_counter() - begin)


def spread(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summary(args, rounds, first, epoch):
    rows = {}
    for name in args.rows:
        turns = [r[name] for r in rounds]
        rows[name] = {"what": ROWS[name], **{key: spread([turn[key] for turn in turns]) for key in ("rate", "busy", "cpu_per_1000")}}
        rows[name]["of_synthetic"] = spread([r[name]["rate"] / r["synthetic"]["rate"] for r in rounds])
        rows[name]["first_batch_s"] = first.get(name)
    alone = rows.pop("alone", None)  # nothing is trained there
    return {"model": args.model, "batch": args.batch, "rounds": len(rounds), "seconds": args.seconds,
            "gpu": torch.cuda.get_device_name(), "cores": os.cpu_count(), "torch": torch.__version__,
            "cache_first_epoch_rate": epoch, "rows": rows, "alone": alone}


def print_table(result):
    print(f"{result['model']}, batch {result['batch']}, bf16, channels_last; {result['gpu']}, {result['cores']} cores, "
          f"torch {result['torch']}; median of {result['rounds']} rounds (low-high)")
    print(f"{'':<11} {'img/s':>22} {'of synthetic':>18} {'GPU busy':>9} {'CPU s/1000':>10} {'first batch':>11}")
    for name, row in {**result["rows"], **({"alone": result["alone"]} if result["alone"] else {})}.items():
        rate, ratio, first = row["rate"], row["of_synthetic"], row["first_batch_s"]
        print(f"{name:<11} {rate['median']:>8.0f} ({rate['low']:.0f}-{rate['high']:.0f})".ljust(34)
              + f" {ratio['median']:.3f} ({ratio['low']:.2f}-{ratio['high']:.2f})".rjust(19)
              + f" {row['busy']['median']:>8.0%} {row['cpu_per_1000']['median']:>10.2f}"
              + (f" {first:>10.2f}s" if first is not None else ""))
    if result["cache_first_epoch_rate"]:
        print(f"first epoch with the cache: {result['cache_first_epoch_rate']:.0f} img/s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--skip", type=int, default=12, help="steps of each window that are not counted")
    parser.add_argument("--rows", default="synthetic,penstock,torch-pil,torch-io,torch-u8")
    parser.add_argument("--memory", default="80G", help="of the loader with the cache")
    parser.add_argument("--cache", default="auto")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.rows = args.rows.split(",")
    unknown = set(args.rows) - set(ROWS)
    if unknown or "synthetic" not in args.rows:
        parser.error(f"rows are of {', '.join(ROWS)}, synthetic among them; not {', '.join(unknown)}")
    return args


def main():
    args = arguments()
    if not torch.cuda.is_available():
        sys.exit("bench/train.py needs a GPU; torch finds none")
    device = torch.device("cuda")
    trainer = Trainer(args.model, device)
    for images, labels in (next(synthetic(args, device)) for _ in range(10)):
        trainer.step(images, labels)
    torch.cuda.synchronize()
    epoch = None
    if {"cache", "alone"} & set(args.rows):
        args.cached = penstock_loader(args, True)
        epoch = fill_cache(trainer, args)
    rows, first = first_batches(make_rows(args, device))
    busy = common.BusyMeter()
    rounds = []
    for number in range(args.rounds):
        rounds.append({name: window(trainer, batches, name, args, busy) for name, batches in rows.items()})
        print(f"round {number + 1}: " + ", ".join(f"{n} {r['rate']:.0f}" for n, r in rounds[-1].items()), flush=True)
    busy.process.kill()
    result = summary(args, rounds, first, epoch)
    print_table(result)
    if args.out:
        with open(args.out, "w", encoding="ascii") as handle:
            json.dump(result, handle, indent=1)
    for batches in rows.values():
        resume(batches)
    os._exit(0)  # endless loaders have nothing left to say


if __name__ == "__main__":
    main()
