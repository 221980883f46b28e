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
import os
import sys

sys.dont_write_bytecode = True
import beside_torch

RESIZED = "decode | resize(800, max_size=1333) | hflip | normalize(imagenet)"
SSD = "decode | photometric_distort | zoom_out | iou_crop | hflip"
OURS = {  # pipeline, fields, batch
    "maskrcnn": (RESIZED, {"image": "padded(32)", "boxes": "", "labels": "", "masks": ""}, 2),
    "maskrcnn-boxes": (RESIZED, {"image": "padded(32)", "boxes": "", "labels": ""}, 2),
    "ssd": (f"{SSD} | to(f32, nchw)", {"image": "", "boxes": "", "labels": ""}, 32),
    "ssd300": (f"{SSD} | resize((300, 300)) | normalize(imagenet)", {"image": "", "boxes": "", "labels": ""}, 32),
}


def feed(name, args):
    import penstock

    pipeline, fields, batch = OURS[name]
    data = penstock.Dataset(args.data)
    loader = penstock.Loader(data, pipeline, batch, fields={**fields, "image_id": ""}, device="cpu", workers=args.workers,
                             cache=0, seed=1, sampler="weighted", weights=[1.0] * len(data), draws=1 << 20)  # no end in between
    return loader, iter(loader), lambda taken: len(taken.targets())


if __name__ == "__main__":
    sys.exit(beside_torch.main(beside_torch.Bench(
        file=os.path.abspath(__file__), text=__doc__, names=list(OURS), synth=["detection"], more=["--classes", "80"], count=400,
        theirs="detection_torch.py", decodes=["pil", "io"], feed=feed)))
