#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a detector on pictures with COCO annotations, through SSD's augmentations.

    python examples/detection.py                             # a small net on made-up pictures, under a minute on a CPU
    python examples/detection.py --data coco/ --split train2017/annotated --model ssd300_vgg16   # torchvision's, on a GPU

Boxes follow the pictures through every op of the pipeline; the loop gets torchvision's target dictionaries.
"""
import argparse
import json
import pathlib
import tempfile
import time

import torch

import penstock
from penstock.torch import detection_collate

AUGMENT = "decode | photometric_distort | zoom_out((1, {zoom})) | iou_crop | hflip | resize(({size}, {size}))"
PLAIN = "decode | resize(({size}, {size}))"
FIELDS = ("image", "boxes", "labels", "image_id")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="COCO folder with annotations/ (default: made-up pictures)")
    parser.add_argument("--split", default=None, help="of the data, for training; made-up data: train and val")
    parser.add_argument("--model", default="small", help="small, or one of torchvision's detection models")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=None, help="side of the pictures the model sees")
    parser.add_argument("--lr", type=float, default=None)
    args = parser.parse_args()
    args.size = args.size or (96 if args.model == "small" else 300)
    args.lr = args.lr or (2e-3 if args.model == "small" else 2e-4)
    return args


def make_up(root: pathlib.Path) -> pathlib.Path:
    """Noise with one to three boxes: plain, or with stripes across or down. Colours tell nothing, for they are distorted."""
    import numpy
    from PIL import Image

    rng = numpy.random.default_rng(0)
    stripes = (numpy.arange(160) // 6 % 2 * 170 + 40).astype("uint8")
    patterns = [numpy.full((120, 160), 230, "uint8"), stripes[:120, None].repeat(160, 1), stripes[None].repeat(120, 0)]
    (root / "annotations").mkdir(parents=True)
    for part, count in (("train", 240), ("val", 60)):
        (root / part).mkdir()
        images, notes = [], []
        for number in range(count):
            pixels = rng.integers(90, 160, (120, 160, 1)).repeat(3, 2).astype("uint8")
            images.append({"id": number, "file_name": f"{number}.jpg", "width": 160, "height": 120})
            for _ in range(rng.integers(1, 4)):
                (width, height), category = (int(side) for side in rng.integers(24, 64, 2)), int(rng.integers(0, 3))
                left, top = int(rng.integers(0, 160 - width)), int(rng.integers(0, 120 - height))
                box = (slice(top, top + height), slice(left, left + width))
                pixels[box] = patterns[category][box][..., None]
                notes.append({"id": len(notes) + 1, "image_id": number, "category_id": category + 1, "iscrowd": 0,
                              "bbox": [left, top, width, height], "area": width * height})
            Image.fromarray(pixels).save(root / part / f"{number}.jpg")
        categories = [{"id": 1, "name": "plain"}, {"id": 2, "name": "across"}, {"id": 3, "name": "down"}]
        made = {"images": images, "annotations": notes, "categories": categories}
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(made))
    return root


class Small(torch.nn.Module):
    """One prediction for each 8 x 8 pixels: what is there, and how far the sides of its box are."""

    STRIDE = 8

    def __init__(self, classes: int) -> None:
        super().__init__()
        nn, layers = torch.nn, []
        for before, after, step in ((3, 16, 2), (16, 32, 2), (32, 48, 2), (48, 48, 1)):
            layers += [nn.Conv2d(before, after, 3, step, 1), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.what, self.sides = nn.Conv2d(48, classes, 3, padding=1), nn.Conv2d(48, 4, 3, padding=1)

    def predict(self, images: list[torch.Tensor]):
        seen = self.body(torch.stack(images).sub(0.45).div(0.25))
        return self.what(seen), self.sides(seen).exp() * self.STRIDE

    def wanted(self, target: dict, cells: int, device: torch.device):
        """Class and sides for each cell: of the smallest box that its middle lies in; 0: of none."""
        at = (torch.arange(cells, device=device) + 0.5) * self.STRIDE
        what = torch.zeros(cells, cells, dtype=torch.int64, device=device)
        sides = torch.ones(4, cells, cells, device=device)
        boxes = target["boxes"].to(device)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        for number in areas.argsort(descending=True).tolist():
            left, top, right, bottom = boxes[number]
            inside = ((at > top) & (at < bottom))[:, None] & ((at > left) & (at < right))[None]
            what[inside] = target["labels"][number].to(device)
            x, y = at[None].expand(cells, -1), at[:, None].expand(-1, cells)
            sides[:, inside] = torch.stack((x - left, y - top, right - x, bottom - y))[:, inside]
        return what, sides

    def forward(self, images, targets):
        logits, sides = self.predict(images)
        made = [self.wanted(target, logits.shape[-1], logits.device) for target in targets]
        what, far = torch.stack([one for one, _ in made]), torch.stack([one for _, one in made])
        there = (what > 0)[:, None].expand_as(sides)
        far_off = (sides[there].log() - far[there].clamp(min=0.5).log()).abs().mean() if there.any() else sides.sum() * 0
        return {"classes": torch.nn.functional.cross_entropy(logits, what), "boxes": far_off}

    @torch.no_grad()
    def best(self, images):
        """The surest box of each class and picture, and how sure it is."""
        logits, sides = self.predict(images)
        sure = logits.softmax(1)
        for scores, far in zip(sure, sides):
            found = {}
            for label in range(1, scores.shape[0]):
                score, place = scores[label].flatten().max(0)
                row, col = divmod(int(place), scores.shape[-1])
                x, y = (col + 0.5) * self.STRIDE, (row + 0.5) * self.STRIDE
                left, top, right, bottom = far[:, row, col].tolist()
                found[label] = (float(score), [x - left, y - top, x + right, y + bottom])
            yield found


def overlap(a, b) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inside = max(width, 0) * max(height, 0)
    return inside / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside)


def evaluate(model: Small, loader) -> float:
    """Of the classes in each picture, how many have their surest box on an object of that class."""
    right = total = 0
    model.eval()
    for images, targets in loader:
        for found, target in zip(model.best(images), targets):
            for label in target["labels"].unique().tolist():
                total += 1
                boxes = target["boxes"][target["labels"] == label].tolist()
                right += max(overlap(found[label][1], box) for box in boxes) >= 0.5
    model.train()
    return right / total


def make_model(name: str, classes: int, size: int) -> torch.nn.Module:
    if name == "small":
        return Small(classes)
    import torchvision

    return torchvision.models.detection.__dict__[name](num_classes=classes)


def main():
    args = arguments()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    scratch = tempfile.TemporaryDirectory() if args.data is None else None
    made_up = scratch is not None
    data = penstock.Dataset(make_up(pathlib.Path(scratch.name)) if made_up else args.data)
    shared = dict(fields=FIELDS, device=device, collate=detection_collate)
    text = AUGMENT.format(size=args.size, zoom=1.5 if made_up else 4) + " | to(f32, nchw)"
    split = args.split or ("train" if made_up else None)
    train = penstock.Loader(data, text, args.batch, split=split, drop_last=True, **shared)
    val = None
    if made_up:
        val = penstock.Loader(data, PLAIN.format(size=args.size) + " | to(f32, nchw)", args.batch, split="val", ends="short",
                              shuffle=False, engine=train.engine, **shared)

    model = make_model(args.model, len(data.classes), args.size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        begin, seen, total = time.perf_counter(), 0, 0.0
        for images, targets in train:
            loss = sum(model(images, targets).values())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            seen, total = seen + len(images), total + loss.detach() * len(images)
        rate = seen / (time.perf_counter() - begin)
        found = f", found {evaluate(model, val):.1%}" if val is not None and args.model == "small" else ""
        print(f"epoch {epoch}: loss {float(total) / max(seen, 1):.3f}{found}, {rate:.0f} images/s", flush=True)
    print(train.stats()["bound"])


if __name__ == "__main__":
    main()
