# SPDX-License-Identifier: Apache-2.0
"""Affine maps, rotations and random_erasing against torchvision on Pillow images: every op with parameters given, and
the random ones with what they drew, read back from the tool. On generated pictures, and on the photos under
$PENSTOCK_PHOTOS where it is set.

usage: parity_geometry.py OP_TOOL
"""
import math
import sys

import numpy as np
import torch
import torchvision.transforms.functional as F
from parity import MODES, PRESETS, Score, Tool, generated, photos
from PIL import Image
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import _get_inverse_affine_matrix

FILLS = {"RGB": ([0, 0, 0], [7, 130, 255]), "L": ([0], [9])}


def words(numbers):
    return ",".join(repr(number) for number in numbers)


def check_affine(tool, score, image, rng, word, label=""):
    """With any angle and with those whose matrix has zeros, halves and ones in it."""
    for case in range(4):
        angle = float(rng.choice([0, 90, 180, 45, 30, -60])) if case % 2 else float(rng.uniform(-400, 400))
        move = [int(n) for n in rng.integers(-30, 31, 2)]
        scale = float(rng.choice([1, 0.5, 2, rng.uniform(0.2, 3), 0.01]))
        shear = [float(n) for n in rng.uniform(-40, 40, 2)] if case > 1 else [0.0, 0.0]
        center = [int(n) for n in rng.integers(-10, 60, 2)] if case == 3 else None
        fill = FILLS[image.mode][case % 2]
        given = {"center": words(center)} if center else {}
        got, _ = tool.op("affine", image, angle=repr(angle), translate=words(move), scale=repr(scale),
                         shear=words(shear), interpolation=word, fill=words(fill), **given)
        want = F.affine(image, angle, move, scale, shear, MODES[word], fill, center)
        score.compare(f"affine, {word}{label}", want, got, note=f"{image.size} {angle} {move} {scale} {shear} {center}")


def check_rotate(tool, score, image, rng, word, label=""):
    for angle in (0.0, 90.0, -90.0, 180.0, 270.0, 45.0, 360.0, float(rng.uniform(-700, 700))):
        expand = bool(rng.integers(2))
        center = [int(n) for n in rng.integers(0, 60, 2)] if rng.integers(4) == 0 else None
        fill = FILLS[image.mode][1]
        given = {"center": words(center)} if center else {}
        got, _ = tool.op("rotate", image, angle=repr(angle), interpolation=word, expand=str(expand).lower(),
                         fill=words(fill), **given)
        want = F.rotate(image, angle, MODES[word], expand, center, fill)
        score.compare(f"rotate, {word}{label}", want, got, note=f"{image.size} {angle} {expand} {center}")


def check_shifts(tool, score, image, rng, word, label=""):
    for name, op in (("shear_x", "ShearX"), ("shear_y", "ShearY"), ("translate_x", "TranslateX"), ("translate_y", "TranslateY")):
        level = float(rng.uniform(-1, 1)) if "shear" in name else int(rng.integers(-60, 61))
        given = {"level": repr(level)} if "shear" in name else {"pixels": level}
        fill = FILLS[image.mode][1]
        got, _ = tool.op(name, image, interpolation=word, fill=words(fill), **given)
        want = _apply_op(image, op, level, MODES[word], fill)
        score.compare(f"{name}, {word}{label}", want, got, note=f"{image.size} {level}")


def check_random(tool, score, image, seed, word, label=""):
    """The matrix that was drawn gives the same picture in Pillow; and it is one that torchvision could have drawn."""
    fill = FILLS[image.mode][1]
    for name, given in (
        ("random_affine", {"degrees": "25", "translate": "0.1,0.2", "scale": "0.8,1.3", "shear": "-8,8,-4,4"}),
        ("random_rotation", {"degrees": "-170,170"}),
    ):
        got, _ = tool.op(name, image, seed=seed, interpolation=word, fill=words(fill), **given)
        want = image.transform(image.size, Image.Transform.AFFINE, tool.drawn[:6], F.pil_modes_mapping[MODES[word]],
                               fillcolor=tuple(fill) if len(fill) > 1 else fill[0])
        score.compare(f"{name}, {word}{label}", want, got, note=f"{image.size} seed {seed}")
    turned = math.degrees(math.atan2(tool.drawn[3], tool.drawn[0]))
    if not -170 <= turned <= 170:
        score.fail(f"random_rotation drew {turned} degrees")


def check_masks(tool, score, rng):
    for case in range(40):
        rows, cols = (int(n) for n in rng.integers(1, 200, 2))
        mask = rng.integers(0, 256, (rows, cols)).astype(np.uint8)
        angle = float(rng.uniform(-180, 180))
        got, _ = tool.op("affine", mask, kind="mask", angle=repr(angle), scale="1.2", interpolation="bilinear", fill="9")
        want = F.affine(Image.fromarray(mask), angle, [0, 0], 1.2, [0, 0])
        score.compare("mask affine", want, got, note=f"{rows}x{cols} {angle}")
        wide = mask.astype(np.uint16) * 256 + 7
        got, _ = tool.op("affine", wide, kind="mask", angle=repr(angle), scale="1.2", interpolation="bilinear")
        score.compare("mask affine, u16", np.asarray(want).astype(np.uint16), got // 256)


def check_matrices(tool, score, rng):
    """The matrices themselves: the same last bit nearly always, never more than the C library's own slip."""
    picture = np.zeros((40, 30, 3), np.uint8)
    equal = 0
    for case in range(400):
        angle, scale = float(rng.uniform(-360, 360)), float(rng.uniform(0.5, 2))
        shear = [float(n) for n in rng.uniform(-60, 60, 2)]
        move = [int(n) for n in rng.integers(-9, 10, 2)]
        tool.op("affine", picture, angle=repr(angle), translate=words(move), scale=repr(scale), shear=words(shear))
        want = _get_inverse_affine_matrix([15.0, 20.0], angle, move, scale, shear)
        equal += want == tool.drawn[:6]
        score.compare("matrix of affine", want, tool.drawn[:6], most=1e-13, note=f"{angle} {shear}")
    print(f"matrices equal to the last bit: {equal} of 400")
    if equal < 300:
        score.fail(f"only {equal} of 400 matrices are equal to the last bit")


def check_erasing(tool, score, image, seed):
    """After normalize: the value asked for inside, what normalize gives outside. Before: bytes."""
    array = np.asarray(image)
    rows, cols, channels = array.shape
    for preset, (mean, std) in PRESETS.items():
        plain = np.frombuffer(tool.finish(preset, "f32", "nchw", array), np.float32).reshape(channels, rows, cols)
        score.compare("normalised", F.normalize(F.to_tensor(image), mean, std).numpy(), plain, most=1e-6)
        for value in ("0", "0.25,-1,3e-3"):
            for layout in ("nchw", "nhwc"):
                numbers, data = tool.ask(f"erase {preset} f32 {layout} {rows} {cols} {channels} {seed} value={value}", array)
                got = np.frombuffer(data, np.float32)
                got = got.reshape(plain.shape) if layout == "nchw" else got.reshape(array.shape).transpose(2, 0, 1)
                top, left, height, width = (int(n) for n in tool.drawn[:4])
                numbers = torch.tensor([float(n) for n in value.split(",")])[:, None, None]
                want = torch.from_numpy(plain.copy())
                if tool.acted:
                    want = F.erase(want, top, left, height, width, numbers)
                score.compare("random_erasing after normalize", want, got, note=f"{image.size} {tool.drawn[:4]}")
    numbers, data = tool.ask(f"erase imagenet f16 nchw {rows} {cols} {channels} {seed} value=0.1 p=1", array)
    if tool.acted:
        top, left, height, width = (int(n) for n in tool.drawn[:4])
        half = np.frombuffer(data, np.float16).reshape(channels, rows, cols)[:, top : top + height, left : left + width]
        score.compare("random_erasing, f16", np.full(half.shape, 0.1, np.float16), half)
    got, _ = tool.op("random_erasing", image, seed=seed, p=1, value="3,200,77")
    want = torch.from_numpy(array.transpose(2, 0, 1).copy())
    if tool.acted:
        top, left, height, width = (int(n) for n in tool.drawn[:4])
        want = F.erase(want, top, left, height, width, torch.tensor([3, 200, 77], dtype=torch.uint8)[:, None, None])
    score.compare("random_erasing of bytes", want.numpy().transpose(1, 2, 0), got)


def main():
    score = Score()
    for level in ("c", "avx2"):
        rng = np.random.default_rng(2)
        tool = Tool(sys.argv[1], level)
        for seed, image in enumerate(generated(rng)):
            for word in MODES:
                check_affine(tool, score, image, rng, word)
                check_rotate(tool, score, image, rng, word)
                check_shifts(tool, score, image, rng, word)
                check_random(tool, score, image, seed, word)
            if image.mode == "RGB":
                check_erasing(tool, score, image, seed)
        check_masks(tool, score, rng)
        check_matrices(tool, score, rng)
        for index, image in enumerate(photos() if level != "c" else []):
            word = list(MODES)[index % 3]
            if index % 4 == 0:
                check_affine(tool, score, image, rng, word, " (photos)")
                check_rotate(tool, score, image, rng, word, " (photos)")
            check_random(tool, score, image, index, word, " (photos)")
    return score.report()


if __name__ == "__main__":
    sys.exit(main())
