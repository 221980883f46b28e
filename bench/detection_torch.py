#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The baseline of bench/detection.py: torchvision's detection reference in PyTorch's DataLoader, in steady state.

What references/detection and the models' own transform do before the network sees a batch: Mask R-CNN (flip, resize to 800 within
1333, normalise, pad to a multiple of 32, masks resized along) and SSD (photometric distort, zoom out, IoU crop, flip, and
for ssd300 the fixed size and normalise). The classes are the reference's, written here again because Debian's torchvision
does not have them; polygons are filled by Pillow where the reference uses pycocotools. Prints one JSON line.

    detection_torch.py --data DIR --pipeline maskrcnn|maskrcnn-boxes|ssd|ssd300 [--workers 2] [--seconds 15] [--decode pil|io]
"""
import argparse
import json
import os
import random
import sys
import time

import numpy
import torch
import torchvision
from PIL import Image, ImageDraw
from torchvision import io
from torchvision.ops import box_iou
from torchvision.transforms import functional as F

sys.dont_write_bytecode = True
import common
from torch_loader import MEAN, STD, Endless

SSD_FILL = (123, 117, 104)


class Coco(torch.utils.data.Dataset):
    """CocoDetection with ConvertCocoPolysToMask."""

    def __init__(self, root, transforms, masks, decode):
        with open(os.path.join(root, "annotations", "instances_train.json"), encoding="utf-8") as handle:
            notes = json.load(handle)
        self.root, self.transforms, self.masks, self.decode = root, transforms, masks, decode
        self.images = sorted(notes["images"], key=lambda image: image["id"])
        self.notes = {image["id"]: [] for image in self.images}
        for note in notes["annotations"]:
            if not note["iscrowd"]:
                self.notes[note["image_id"]].append(note)

    def __len__(self):
        return len(self.images)

    def target(self, image, cols, rows):
        own = self.notes[image["id"]]
        boxes = torch.as_tensor([note["bbox"] for note in own], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        boxes[:, 0::2].clamp_(min=0, max=cols)
        boxes[:, 1::2].clamp_(min=0, max=rows)
        keep = (boxes[:, 3] > boxes[:, 1]) & (boxes[:, 2] > boxes[:, 0])
        target = {"boxes": boxes[keep], "image_id": torch.tensor([image["id"]]),
                  "labels": torch.tensor([note["category_id"] for note in own], dtype=torch.int64)[keep]}
        if self.masks:
            masks = numpy.zeros((len(own), rows, cols), numpy.uint8)
            for place, note in enumerate(own):
                drawn = Image.new("L", (cols, rows))
                for polygon in note["segmentation"]:
                    ImageDraw.Draw(drawn).polygon(polygon, fill=1)
                masks[place] = numpy.asarray(drawn)
            target["masks"] = torch.from_numpy(masks)[keep]
        return target

    def __getitem__(self, index):
        image = self.images[index]
        path = os.path.join(self.root, "train", image["file_name"])
        if self.decode == "pil":
            picture = Image.open(path).convert("RGB")
        else:
            picture = io.read_image(path, io.ImageReadMode.RGB)
        return self.transforms(picture, self.target(image, image["width"], image["height"]))


def size_of(picture):
    """Columns and rows."""
    return picture.size if isinstance(picture, Image.Image) else (picture.shape[-1], picture.shape[-2])


def to_floats(picture):
    if isinstance(picture, Image.Image):
        picture = F.pil_to_tensor(picture)
    return F.convert_image_dtype(picture, torch.float32)


def flip(picture, target):
    if random.random() >= 0.5:
        return picture, target
    picture = F.hflip(picture)
    target["boxes"][:, [0, 2]] = size_of(picture)[0] - target["boxes"][:, [2, 0]]
    if "masks" in target:
        target["masks"] = target["masks"].flip(-1)
    return picture, target


def resize(picture, target, size):
    """Rows and columns. On tensors smoothed, as on Pillow's pictures."""
    cols, rows = size_of(picture)
    if isinstance(picture, Image.Image):
        picture = F.resize(picture, size)
    else:
        picture = F.resize(picture, size, antialias=True)
    ratios = torch.tensor([size[1] / cols, size[0] / rows] * 2)
    target["boxes"] = target["boxes"] * ratios
    if "masks" in target:
        target["masks"] = torch.nn.functional.interpolate(target["masks"][:, None], size)[:, 0] if len(
            target["masks"]) else target["masks"].new_zeros((0, *size))
    return picture, target


class MaskRcnn:
    def __call__(self, picture, target):
        cols, rows = size_of(picture)
        scale = min(800 / min(rows, cols), 1333 / max(rows, cols))
        picture, target = flip(*resize(picture, target, [int(rows * scale), int(cols * scale)]))
        return F.normalize(to_floats(picture), MEAN, STD, inplace=True), target


class Ssd:
    """The reference's presets for SSD; size: what the model's transform does, if the loader is to do it."""

    def __init__(self, size=None):
        self.size = size

    def distort(self, picture):
        draws, late = torch.rand(7), bool(torch.rand(1) < 0.5)
        if draws[0] < 0.5:
            picture = F.adjust_brightness(picture, random.uniform(0.875, 1.125))
        if not late and draws[1] < 0.5:
            picture = F.adjust_contrast(picture, random.uniform(0.5, 1.5))
        if draws[2] < 0.5:
            picture = F.adjust_saturation(picture, random.uniform(0.5, 1.5))
        if draws[3] < 0.5:
            picture = F.adjust_hue(picture, random.uniform(-0.05, 0.05))
        if late and draws[4] < 0.5:
            picture = F.adjust_contrast(picture, random.uniform(0.5, 1.5))
        if draws[5] < 0.5:
            order = torch.randperm(3)
            if isinstance(picture, Image.Image):  # the reference goes through floats here; bytes are moved instead
                bands = picture.split()
                picture = Image.merge("RGB", [bands[channel] for channel in order])
            else:
                picture = picture[order]
        return picture

    def zoom_out(self, picture, target):
        if random.random() >= 0.5:
            return picture, target
        cols, rows = size_of(picture)
        by = random.uniform(1, 4)
        left, top = int((int(cols * by) - cols) * random.random()), int((int(rows * by) - rows) * random.random())
        right, bottom = int(cols * by) - left - cols, int(rows * by) - top - rows
        if isinstance(picture, Image.Image):
            picture = F.pad(picture, [left, top, right, bottom], fill=SSD_FILL)
        else:
            canvas = torch.tensor(SSD_FILL, dtype=torch.uint8)[:, None, None].repeat(1, int(rows * by), int(cols * by))
            canvas[:, top:top + rows, left:left + cols] = picture
            picture = canvas
        target["boxes"] += torch.tensor([left, top, left, top])
        return picture, target

    def crop(self, picture, target):
        cols, rows = size_of(picture)
        boxes = target["boxes"]
        while len(boxes):
            least = random.choice((0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0))
            if least >= 1:
                break
            for _ in range(40):
                by = 0.3 + 0.7 * torch.rand(2)
                width, height = int(cols * by[0]), int(rows * by[1])
                if not 0.5 <= width / height <= 2:
                    continue
                by = torch.rand(2)
                left, top = int((cols - width) * by[0]), int((rows - height) * by[1])
                middle_x, middle_y = 0.5 * (boxes[:, 0] + boxes[:, 2]), 0.5 * (boxes[:, 1] + boxes[:, 3])
                within = (left < middle_x) & (middle_x < left + width) & (top < middle_y) & (middle_y < top + height)
                if not within.any():
                    continue
                window = torch.tensor([[left, top, left + width, top + height]], dtype=boxes.dtype)
                if box_iou(boxes[within], window).max() < least:
                    continue
                boxes = boxes[within]
                boxes[:, 0::2] = (boxes[:, 0::2] - left).clamp(0, width)
                boxes[:, 1::2] = (boxes[:, 1::2] - top).clamp(0, height)
                target["boxes"], target["labels"] = boxes, target["labels"][within]
                return F.crop(picture, top, left, height, width), target
        return picture, target

    def __call__(self, picture, target):
        picture, target = flip(*self.crop(*self.zoom_out(self.distort(picture), target)))
        if self.size:
            picture, target = resize(picture, target, self.size)
            return F.normalize(to_floats(picture), MEAN, STD, inplace=True), target
        return to_floats(picture), target


def padded(samples):
    """The models' batch_images: zeros up to a multiple of 32 of the largest."""
    images, targets = zip(*samples)
    rows, cols = (-(-max(image.shape[side] for image in images) // 32) * 32 for side in (1, 2))
    batch = images[0].new_zeros((len(images), 3, rows, cols))
    for image, slot in zip(images, batch):
        slot[:, :image.shape[1], :image.shape[2]].copy_(image)
    return batch, targets


def stacked(samples):
    images, targets = zip(*samples)
    return torch.stack(images), targets


def listed(samples):
    return tuple(zip(*samples))


PIPELINES = {  # transforms, masks, collate, batch
    "maskrcnn": (MaskRcnn, True, padded, 2),
    "maskrcnn-boxes": (MaskRcnn, False, padded, 2),
    "ssd": (Ssd, False, listed, 32),
    "ssd300": (lambda: Ssd([300, 300]), False, stacked, 32),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pipeline", choices=PIPELINES, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--decode", choices=["pil", "io"], default="pil")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transforms, masks, collate, batch = PIPELINES[args.pipeline]
    data = Coco(args.data, transforms(), masks, args.decode)
    loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=Endless(len(data)), num_workers=args.workers,
                                         collate_fn=collate, persistent_workers=True, prefetch_factor=4)
    batches, count = iter(loader), 0
    for _ in range(6 * args.workers):
        next(batches)
    start, cpu = time.perf_counter(), common.cpu_seconds()
    while time.perf_counter() - start < args.seconds:
        for _ in range(args.workers):
            count += len(next(batches)[0])
    elapsed = time.perf_counter() - start
    print(json.dumps({"samples_per_s": count / elapsed, "cpu_ms_a_sample": 1e3 * (common.cpu_seconds() - cpu) / count,
                      "torch": torch.__version__, "torchvision": torchvision.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
