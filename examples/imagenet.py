#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains an image classifier on class folders, on one GPU, on several, or on the CPU.

    python examples/imagenet.py --data imagenet/             # imagenet/train/<class>/*.jpg and imagenet/val/<class>/*.jpg
    torchrun --nproc-per-node 8 examples/imagenet.py --data imagenet/
    python examples/imagenet.py                              # a small made-up dataset, under a minute on a CPU
    python examples/imagenet.py --resume checkpoint.pt       # goes on with exactly the samples that are left

Ranks are found by the loader itself. Evaluation pads the last batches and counts the valid slots only, so the accuracy is the
same for any number of ranks.
"""
import argparse
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist

import penstock

TRAIN = "decode | random_resized_crop({size}) | hflip | normalize(imagenet)"
EVAL = "decode | resize({short}) | center_crop({size}) | normalize(imagenet)"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="folder with train/ and val/ (default: a made-up dataset)")
    parser.add_argument("--model", default=None, help="any of torchvision's classifiers (default: resnet50, or a small net)")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--batch", type=int, default=None, help="samples a step and rank")
    parser.add_argument("--size", type=int, default=None, help="side of the pictures the model sees")
    parser.add_argument("--lr", type=float, default=None)
    parser.add_argument("--cache", default="auto", help="memory for decoded pictures: 0, 16G, auto")
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("checkpoint.pt"))
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS")
    parser.add_argument("--resume", type=pathlib.Path)
    args = parser.parse_args()
    defaults = ("small", 3, 32, 48, 0.1) if args.data is None else ("resnet50", 90, 256, 224, 0.1)
    for name, value in zip(("model", "epochs", "batch", "size", "lr"), defaults):
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


def make_up(root: pathlib.Path, classes: int = 4, each: int = 60) -> pathlib.Path:
    """Pictures whose class is the colour that shines through the noise."""
    import numpy
    from PIL import Image

    rng = numpy.random.default_rng(0)
    for part, count in (("train", each), ("val", each // 3)):
        for label in range(classes):
            folder = root / part / f"class{label}"
            folder.mkdir(parents=True)
            tint = numpy.eye(4, 3)[label] * 90
            for number in range(count):
                noise = rng.integers(0, 160, (12, 16, 3)) + tint
                Image.fromarray(noise.astype("uint8")).resize((160, 120)).save(folder / f"{number:04}.jpg")
    return root


def make_model(name: str, classes: int) -> torch.nn.Module:
    if name != "small":
        import torchvision

        return torchvision.models.get_model(name, num_classes=classes)
    nn = torch.nn
    layers = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def evaluate(model, loader) -> float:
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=next(model.parameters()).device)
    with torch.no_grad():
        for batch in loader:
            right = (model(batch.image).argmax(1) == batch.label) & batch.valid
            counts += torch.stack((right.sum(), batch.valid.sum()))
    if dist.is_initialized():
        dist.all_reduce(counts)
    model.train()
    return counts[0].item() / counts[1].item()


def main():
    args = arguments()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if "RANK" in os.environ:
        if cuda:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if cuda else "gloo")
    first = not dist.is_initialized() or dist.get_rank() == 0

    scratch = tempfile.TemporaryDirectory() if args.data is None and first else None
    if args.data is None:
        where = [make_up(pathlib.Path(scratch.name)) if first else None]
        if dist.is_initialized():
            dist.broadcast_object_list(where)
        args.data = where[0]

    shared = dict(device=device, channels_last=cuda)
    train = penstock.Loader(args.data / "train", TRAIN.format(size=args.size), args.batch, cache=args.cache, **shared)
    val = penstock.Loader(args.data / "val", EVAL.format(short=args.size * 8 // 7, size=args.size), args.batch,
                          train=False, engine=train.engine, **shared)

    model = make_model(args.model, len(train.dataset.classes)).to(device)
    if cuda:
        model = model.to(memory_format=torch.channels_last)
    if dist.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    loss_of = torch.nn.CrossEntropyLoss()

    start = 0
    if args.resume:
        saved = torch.load(args.resume, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["loader"])
        start = saved["epoch"]

    def save(epoch):
        if first:  # strict order, the default: any one rank's state is enough
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch,
                        "loader": train.state_dict()}, args.checkpoint)

    for epoch in range(start, args.epochs):
        begin, seen, total = time.perf_counter(), 0, 0.0
        for step, (images, labels) in enumerate(train, 1):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cuda):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            seen, total = seen + len(labels), total + loss.detach()
            if args.save_every and step % args.save_every == 0:
                save(epoch)
        rate = seen / (time.perf_counter() - begin)
        accuracy = evaluate(model, val)
        save(epoch + 1)
        if first:
            print(f"epoch {epoch}: loss {float(total) / max(step, 1):.3f}, accuracy {accuracy:.1%}, {rate:.0f} images/s a rank")
    if first:
        print(train.stats()["bound"])
    if dist.is_initialized():
        dist.barrier()  # the made-up dataset goes with the first rank
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
