#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what torchvision's MixUp and CutMix do to a batch, for CI to compare with.

Run it where torchvision has them (0.16 or later); it needs torch, torchvision and numpy:

    python3 tests/reference/record_mix.py [tests/reference/v2_mix.npz]

Batches are made by formulas. What the transforms would draw, lam and the centre of the box, is given to them; a case
names it, and test_v2_mix.py replays it.
"""
import json
import os
import sys

import numpy

SLOTS, CHANNELS, ROWS, COLS, CLASSES = 5, 3, 13, 18, 4
CASES = [("mixup", lam, 0, 0) for lam in (0.0, 0.0625, 0.3, 0.5, 0.987654321, 1.0)] + [
    ("cutmix", lam, y, x)
    for lam, y, x in ((0.5, 6, 9), (0.5, 0, 0), (0.1, 12, 17), (0.9, 3, 16), (0.999, 6, 6), (0.0, 7, 1), (1.0, 5, 5))
]


def batch():
    """f32 images on both sides of 0, and whole-numbered labels."""
    s, c, y, x = numpy.mgrid[0:SLOTS, 0:CHANNELS, 0:ROWS, 0:COLS]
    values = ((s * 131 + c * 37 + y * 17 + x * 7) % 251).astype(numpy.float32)
    images = values / numpy.float32(57) - numpy.float32(2.1)
    return images, numpy.array([1, 3, 3, 0, 2], dtype=numpy.int64)


def apply(kind, lam, y, x):
    import torch
    from torchvision.transforms import v2

    class Told:
        def sample(self, shape):
            return torch.tensor(lam, dtype=torch.float64)

    transform = (v2.MixUp if kind == "mixup" else v2.CutMix)(num_classes=CLASSES)
    transform._dist = Told()
    drawn = iter((x, y))
    ours, torch.randint = torch.randint, lambda high, size: torch.tensor([next(drawn)])
    try:
        images, labels = (torch.from_numpy(part) for part in batch())
        params = transform.make_params([images])
        drawn = iter((x, y))
        mixed, soft = transform(images, labels)
    finally:
        torch.randint = ours
    box = params.get("box", (0, 0, 0, 0))  # x1, y1, x2, y2
    told = [params.get("lam", params.get("lam_adjusted"))] + [int(box[i]) for i in (1, 0, 3, 2)]
    return mixed.numpy(), soft.numpy(), told


def main():
    import torch
    import torchvision
    here = os.path.dirname(os.path.abspath(__file__))
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "v2_mix.npz")
    arrays, cases = {}, []
    for number, case in enumerate(CASES):
        images, labels, told = apply(*case)
        arrays["image%02d" % number] = images
        arrays["label%02d" % number] = labels
        cases.append({"op": case[0], "drawn": case[1:], "told": told})
    made_by = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    about = json.dumps({"made_by": made_by, "cases": cases})
    arrays["about"] = numpy.frombuffer(about.encode(), dtype=numpy.uint8)
    numpy.savez_compressed(target, **arrays)
    print("%s: %d cases, %d bytes" % (target, len(cases), os.path.getsize(target)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
