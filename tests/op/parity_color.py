# SPDX-License-Identifier: Apache-2.0
"""The colour ops against torchvision: on Pillow images to the bit, on uint8 tensors within one, blur within one.
On generated pictures of one and three channels, and on the photos under $PENSTOCK_PHOTOS where it is set.

usage: parity_color.py OP_TOOL [LEVEL ...]
"""
import itertools
import sys

import numpy as np
import torch
import torchvision.transforms.functional as F
from parity import Score, Tool, generated, photos
from PIL import Image

FACTORS = (0, 0.1, 0.4, 0.5, 0.73, 0.999, 1, 1.001, 1.2, 1.6, 2, 5, 40)
HUES = (-0.5, -0.31, -0.1, -0.003, 0, 0.002, 0.07, 0.1, 0.25, 0.5)
THRESHOLDS = (0, 1, 100, 127.5, 128, 255, 256)


def cases():
    """Op, its parameters in Penstock's words, what torchvision does, whether the op knows tensors' arithmetic."""
    for name in ("brightness", "contrast", "saturation", "sharpness"):
        change = getattr(F, f"adjust_{name}")
        for factor in FACTORS:
            yield f"adjust_{name}", {"factor": factor}, lambda x, change=change, factor=factor: change(x, factor), True
    for factor in HUES:
        yield "adjust_hue", {"factor": factor}, lambda x, factor=factor: F.adjust_hue(x, factor), True
    for bits in range(9):
        yield "posterize", {"bits": bits}, lambda x, bits=bits: F.posterize(x, bits), False
        yield "random_posterize", {"bits": bits, "p": 1}, lambda x, bits=bits: F.posterize(x, bits), False
    for threshold in THRESHOLDS:
        yield "solarize", {"threshold": threshold}, lambda x, threshold=threshold: F.solarize(x, threshold), False
    yield "random_solarize", {"threshold": 99, "p": 1}, lambda x: F.solarize(x, 99), False
    for name in ("autocontrast", "equalize", "invert"):
        change = getattr(F, name)
        yield name, {}, change, name == "autocontrast"
        yield f"random_{name}", {"p": 1}, change, name == "autocontrast"
    yield "random_adjust_sharpness", {"factor": 1.7, "p": 1}, lambda x: F.adjust_sharpness(x, 1.7), True


def tensor_of(image):
    return F.pil_to_tensor(image)


def array_of(tensor):
    """Rows, columns[, channels], as Pillow's arrays are."""
    array = tensor.permute(1, 2, 0).numpy()
    return array[:, :, 0] if array.shape[2] == 1 else array


def check_cases(tool, score, image, label, tensors, chosen):
    pixels = tensor_of(image)
    for name, params, change, knows in chosen:
        got, _ = tool.op(name, image, **params)
        score.compare(name + label, change(image), got, note=f"{image.mode} {image.size} {params}")
        if not tensors or params.get("threshold", 0) > 255:
            continue
        if knows:
            got, _ = tool.op(name, image, like="tensor", **params)
        score.compare(name + ", tensors" + label, array_of(change(pixels)), got, most=1, note=f"{image.size} {params}")


def check_gray(tool, score, image, label):
    pixels = tensor_of(image)
    for channels in (1, 3):
        want = F.to_grayscale(image, channels)
        got, _ = tool.op("grayscale", np.atleast_3d(np.asarray(image)), channels=channels)
        score.compare("grayscale" + label, np.atleast_3d(np.asarray(want)), got)
        if image.mode == "RGB":
            got, _ = tool.op("grayscale", image, channels=channels, like="tensor")
            want = F.rgb_to_grayscale(pixels, channels).permute(1, 2, 0)
            score.compare("grayscale, tensors" + label, want, got, most=1)
    got, _ = tool.op("random_grayscale", image, p=1)
    channels = len(image.getbands())
    score.compare("random_grayscale" + label, F.rgb_to_grayscale(image, channels), got)


def jittered(picture, drawn):
    """torchvision's functions with the factors and in the order that were drawn."""
    changes = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    for part in drawn[4:8]:
        if part >= 0:
            picture = changes[int(part)](picture, drawn[int(part)])
    return picture


def check_jitter(tool, score, image, label, seeds):
    pixels = tensor_of(image)
    for seed in seeds:
        params = {"brightness": 0.4, "contrast": 0.4, "saturation": "0.5,1.7", "hue": 0.1 if seed % 2 else 0}
        got, _ = tool.op("color_jitter", image, seed=seed, **params)
        score.compare("color_jitter" + label, jittered(image, tool.drawn), got, note=f"{tool.drawn}")
        if image.mode == "L":
            continue
        got, _ = tool.op("color_jitter", image, seed=seed, like="tensor", **params)
        score.compare("color_jitter, tensors" + label, array_of(jittered(pixels, tool.drawn)), got, most=1)


def distorted(picture, drawn, reorder):
    """RandomPhotometricDistort of torchvision's detection reference with what was drawn."""
    what = int(drawn[4])
    for bit, change, part in ((1, F.adjust_brightness, 0), (2, F.adjust_contrast, 1), (4, F.adjust_saturation, 2),
                              (8, F.adjust_hue, 3), (16, F.adjust_contrast, 1)):
        if what & bit:
            picture = change(picture, drawn[part])
    order = list(itertools.permutations(range(3)))[int(drawn[5])]
    return reorder(picture, order) if order != (0, 1, 2) else picture


def check_distort(tool, score, image, label, seeds):
    for seed in seeds:
        got, _ = tool.op("photometric_distort", image, seed=seed)
        want = distorted(image, tool.drawn, lambda picture, order: np.asarray(picture)[:, :, list(order)])
        score.compare("photometric_distort" + label, want, got, note=f"{tool.drawn}")
        if image.mode == "L":
            continue
        got, _ = tool.op("photometric_distort", image, seed=seed, like="tensor", p=0.8)
        want = distorted(tensor_of(image), tool.drawn, lambda picture, order: picture[list(order)])
        score.compare("photometric_distort, tensors" + label, array_of(want), got, most=1)
    if image.mode == "RGB":
        got, _ = tool.op("bgr", image)
        score.compare("bgr" + label, np.asarray(image)[:, :, ::-1], got)


def check_chances(tool, score, image):
    """Every change with probability p, contrast early as often as late, every order of channels equally often."""
    count, seen = 4000, np.zeros(11)
    for seed in range(count):
        tool.op("photometric_distort", image, seed=seed, p=0.4)
        what = int(tool.drawn[4])
        seen[:5] += [bool(what & bit) for bit in (1, 2, 4, 8, 16)]
        seen[5 + int(tool.drawn[5])] += 1
    want = np.array([0.4, 0.2, 0.4, 0.4, 0.2, 0.6 + 0.4 / 6] + [0.4 / 6] * 5)
    off = np.abs(seen / count - want) / np.sqrt(want * (1 - want) / count)
    if off.max() > 4:
        score.fail(f"photometric_distort: {seen / count} where {want} is to be expected")


def check_blur(tool, score, image, rng, label):
    for across, down in ((1, 1), (3, 3), (5, 9), (23, 23), (int(rng.integers(0, 15)) * 2 + 1, 7)):
        sigma = float(rng.uniform(0.1, 5))
        got, text = tool.op("gaussian_blur", image, kernel=f"{across},{down}", sigma=repr(sigma))
        if image.width <= across // 2 or image.height <= down // 2:
            if got is not None:
                score.fail(f"gaussian_blur {across}x{down} of {image.size} was not refused")
            continue
        want = np.asarray(F.gaussian_blur(image, [across, down], [sigma, sigma]))
        score.compare("gaussian_blur" + label, want, got, most=1, note=f"{image.size} {across}x{down} {sigma}")
        off = int((want != got).sum())
        if off > 2 + want.size * 2e-4:
            score.fail(f"gaussian_blur {image.size} {across}x{down} {sigma}: {off} of {want.size} values differ")


def check_all_hues(tool, score, factor):
    """Every colour there is."""
    n = np.arange(1 << 24, dtype=np.uint32)
    cube = np.stack([n & 255, (n >> 8) & 255, n >> 16], axis=1).astype(np.uint8).reshape(4096, 4096, 3)
    image = Image.fromarray(cube)
    got, _ = tool.op("adjust_hue", image, factor=factor)
    score.compare("adjust_hue, all colours", F.adjust_hue(image, factor), got)


def main():
    torch.set_num_threads(1)
    score = Score()
    every = list(cases())
    for number, level in enumerate(sys.argv[2:] or ("c", "avx512")):
        rng = np.random.default_rng(1)
        tool = Tool(sys.argv[1], level)
        for index, image in enumerate(generated(rng)):
            large = image.width * image.height > 100000
            check_cases(tool, score, image, "", True, every[number::2] if large else every)
            check_gray(tool, score, image, "")
            check_jitter(tool, score, image, "", range(index, index + 6))
            check_distort(tool, score, image, "", range(8 * index, 8 * index + 8))
            check_blur(tool, score, image, rng, "")
        check_chances(tool, score, Image.new("RGB", (3, 2), (9, 99, 199)))
        check_all_hues(tool, score, (0.1, -0.27, 0.5)[number % 3])
    for index, image in enumerate(photos()):
        check_cases(tool, score, image, " (photos)", index % 10 == 0, every[index % 10 :: 10])
        if index % 4 == 0:
            check_gray(tool, score, image, " (photos)")
        check_jitter(tool, score, image, " (photos)", [index])
        if index % 8 == 0:
            check_blur(tool, score, image, rng, " (photos)")
    return score.report()


if __name__ == "__main__":
    sys.exit(main())
