#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what the functions of torchvision's transforms v2 give for each op, on Pillow images and on uint8 tensors.

Run it where torchvision has transforms v2 (0.16 or later); it needs torch, torchvision, Pillow and numpy:

    python3 tests/reference/record_ops.py [tests/reference/v2_ops.npz]

Each case names the op and its parameters in Penstock's words, and the function with its arguments in torchvision's.
test_v2_ops.py replays them. `like` is the kind of input: "pil" or "tensor".
"""
import json
import os
import sys

import numpy

sys.dont_write_bytecode = True
import record_v2

SIZE = (24, 31)
BOTH = ("pil", "tensor")
# On tensors v2 rounds otherwise than v1, whose arithmetic these ops have.
V1_ON_TENSORS = ("adjust_saturation", "adjust_hue", "autocontrast")


def case(op, params, function, arguments, likes=BOTH, allowed=0):
    made = []
    for like in likes:
        most = 1 if like == "tensor" and op in V1_ON_TENSORS else allowed
        made.append({"op": op, "params": params, "function": function, "arguments": arguments, "like": like, "allowed": most})
    return made


def geometry():
    made = case("hflip", {"p": 1}, "horizontal_flip", {}) + case("vflip", {"p": 1}, "vertical_flip", {})
    made += case("center_crop", {"size": [15, 40]}, "center_crop", {"output_size": [15, 40]})
    for mode in ("constant", "edge", "reflect", "symmetric"):
        made += case("pad", {"padding": [4, 2, 1, 3], "padding_mode": mode}, "pad",
                     {"padding": [4, 2, 1, 3], "padding_mode": mode})
    for word in ("nearest", "bilinear", "bicubic"):
        for size in ([17], [13, 40]):
            likes = ("pil",) if word == "nearest" else BOTH
            made += case("resize", {"size": size, "interpolation": word}, "resize", {"size": size, "interpolation": word},
                         likes, 0 if word == "nearest" else 1)
        common = {"interpolation": word, "fill": [7, 130, 255]}
        made += case("rotate", {"angle": 33.5, **common}, "rotate", {"angle": 33.5, **common}, ("pil",))
        made += case("rotate", {"angle": -70, "expand": "true", **common}, "rotate",
                     {"angle": -70, "expand": True, **common}, ("pil",))
        moved = {"angle": 20.0, "translate": [3, -2], "scale": 1.25, "shear": [8.0, -5.0], **common}
        made += case("affine", moved, "affine", moved, ("pil",))
    return made


def colour():
    made = case("grayscale", {"channels": 3}, "rgb_to_grayscale", {"num_output_channels": 3})
    for name in ("brightness", "contrast", "saturation", "sharpness"):
        for factor in (0.0, 0.4, 1.7):
            made += case(f"adjust_{name}", {"factor": factor}, f"adjust_{name}", {f"{name}_factor": factor})
    for factor in (-0.31, 0.1, 0.5):
        made += case("adjust_hue", {"factor": factor}, "adjust_hue", {"hue_factor": factor})
    for bits in (1, 4):
        made += case("posterize", {"bits": bits}, "posterize", {"bits": bits})
    for threshold in (0, 100):
        made += case("solarize", {"threshold": threshold}, "solarize", {"threshold": threshold})
    for name in ("autocontrast", "equalize", "invert"):
        made += case(name, {}, name, {})
    for kernel, sigma in (([5, 5], 1.5), ([3, 7], 0.4)):
        made += case("gaussian_blur", {"kernel": kernel, "sigma": sigma}, "gaussian_blur",
                     {"kernel_size": kernel, "sigma": [sigma, sigma]}, BOTH, 1)
    return made


def picture():
    """Without the darkest and the brightest values, so that stretching a channel has something to do."""
    return 20 + record_v2.picture(*SIZE) // 2


def reference(spec, image):
    import PIL.Image
    import torch
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional
    arguments = dict(spec["arguments"])
    if "interpolation" in arguments:
        arguments["interpolation"] = InterpolationMode(arguments["interpolation"])
    pil = spec["like"] == "pil"
    given = PIL.Image.fromarray(image) if pil else torch.from_numpy(image).permute(2, 0, 1).contiguous()
    out = getattr(functional, spec["function"])(given, **arguments)
    return numpy.asarray(out) if pil else out.permute(1, 2, 0).numpy()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "v2_ops.npz")
    import PIL
    specs = geometry() + colour()
    arrays = {"out%03d" % number: numpy.ascontiguousarray(reference(spec, picture())) for number, spec in enumerate(specs)}
    for spec in specs:
        del spec["arguments"]
    about = json.dumps({"made_by": {**record_v2.versions(), "pillow": PIL.__version__}, "cases": specs})
    arrays["about"] = numpy.frombuffer(about.encode(), dtype=numpy.uint8)
    numpy.savez_compressed(target, **arrays)
    print("%s: %d cases, %d bytes" % (target, len(specs), os.path.getsize(target)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
