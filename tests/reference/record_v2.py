#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what torchvision's transforms v2 do to an image and its mask together, for CI to compare with.

Run it where torchvision has transforms v2 and tv_tensors (0.16 or later); it needs torch, torchvision and numpy:

    python3 tests/reference/record_v2.py [tests/reference/v2_masks.npz]

Pictures are made by formulas, so the file holds nothing but numbers this script can make again. Each case names the op and
its parameters in Penstock's words; `window` is the crop that a random op is told to take. test_v2_masks.py replays them.
"""
import json
import os
import sys

import numpy

SIZES = {"wide": (37, 53), "tall": (51, 40)}


def picture(rows, cols):
    """Gradients, edges and texture; every formula is in integers."""
    y, x = numpy.mgrid[0:rows, 0:cols]
    red = (y * 7 + x * 3) % 256
    green = ((x // 8 + y // 8) % 2) * 180 + (x * y) % 61
    blue = (x * x + y * 11) % 256
    return numpy.stack([red, green, blue], axis=2).astype(numpy.uint8)


def labels(rows, cols):
    """Patches of 21 classes, one of them the customary 255."""
    y, x = numpy.mgrid[0:rows, 0:cols]
    classes = ((y // 5) * 3 + x // 7 + (x + y) // 19) % 21
    return numpy.where(classes == 20, 255, classes).astype(numpy.uint8)


def case(op, params=None, window=None, **call):
    return {"op": op, "params": params or {}, "window": window, "call": call}


def cases():
    """Every case but its picture: op in Penstock's words, and the arguments of the v2 function."""
    made = [case("hflip", {"p": 1}), case("vflip", {"p": 1})]
    for size in ([20], [60], [20, 31], [45, 60], [37, 53], [1, 1]):
        made.append(case("resize", {"size": size}, size=size))
    made.append(case("resize", {"size": [30], "max_size": 38}, size=[30], max_size=38))
    for size in ([24, 24], [30, 20], [31, 17], [60, 60], [37, 70]):
        made.append(case("center_crop", {"size": size}, output_size=size))
    for sides, fill in (([3], 0), ([1, 2], 0), ([1, 2, 3, 4], 0), ([5], 117)):
        made.append(case("pad", {"padding": sides, "fill": fill}, padding=sides, fill=fill))
    for mode in ("edge", "reflect", "symmetric"):
        made.append(case("pad", {"padding": [4, 2, 1, 3], "padding_mode": mode}, padding=[4, 2, 1, 3], padding_mode=mode))
    windows = ([3, 5, 20, 30], [0, 0, 37, 40], [10, 1, 7, 9], [1, 2, 36, 5], [16, 20, 1, 1])
    for window in windows:
        for size in ([24, 24], [40, 20]):
            top, left, height, width = window
            made.append(case("random_resized_crop", {"size": size}, window, top=top, left=left, height=height,
                             width=width, size=size))
    return made


def apply(spec, image, mask):
    """The v2 function on both; uint8 arrays in rows, columns[, channels]."""
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms.v2 import functional
    name = {"hflip": "horizontal_flip", "vflip": "vertical_flip", "random_resized_crop": "resized_crop"}.get(
        spec["op"], spec["op"])
    function = getattr(functional, name)
    whole = tv_tensors.Image(torch.from_numpy(image).permute(2, 0, 1).contiguous())
    parts = tv_tensors.Mask(torch.from_numpy(mask).contiguous())
    # A border of a mask is class 0, whatever colour the image's has: v2's fill={Image: colour, "others": 0}.
    mask_call = {name: 0 if name == "fill" else value for name, value in spec["call"].items()}
    try:
        out = function(whole, **spec["call"])
    except RuntimeError:
        # torch 2.11 trips over an assertion of its own on some uint8 resizes; its other path goes through floats.
        smooth = tv_tensors.Image(whole.to(torch.float32))
        out = function(smooth, **spec["call"]).round().clamp(0, 255).to(torch.uint8)
    both = out, function(parts, **mask_call)
    return both[0].permute(1, 2, 0).numpy(), both[1].numpy()


def versions():
    import torch
    import torchvision
    return {"torch": torch.__version__, "torchvision": torchvision.__version__}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "v2_masks.npz")
    arrays, specs = {}, []
    for picture_name, (rows, cols) in SIZES.items():
        image, mask = picture(rows, cols), labels(rows, cols)
        for spec in cases():
            number = len(specs)
            out_image, out_mask = apply(spec, image, mask)
            arrays["image%03d" % number] = numpy.ascontiguousarray(out_image)
            arrays["mask%03d" % number] = numpy.ascontiguousarray(out_mask)
            specs.append({"op": spec["op"], "params": spec["params"], "window": spec["window"], "picture": picture_name})
    about = json.dumps({"made_by": versions(), "cases": specs})
    arrays["about"] = numpy.frombuffer(about.encode(), dtype=numpy.uint8)
    numpy.savez_compressed(target, **arrays)
    print("%s: %d cases, %d bytes" % (target, len(specs), os.path.getsize(target)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
