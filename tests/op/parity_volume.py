# SPDX-License-Identifier: Apache-2.0
"""The ops on volumes against torch and numpy: what comes out of each within 1e-5 of max(1, |x|), masks equal; from plain memory, in
place, and from views that lie mirrored and with gaps; the same bytes at every level of kernels. Random ops with what they drew, read
back from the tool, and how often they draw what.

usage: parity_volume.py OP_TOOL
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from parity import Score, Tool

LEVELS = ("c", "avx2", "avx512")
SHAPES = [(1, 7, 9, 11), (2, 5, 1, 33), (1, 1, 1, 1), (1, 40, 3, 17), (3, 2, 30, 4), (1, 12, 41, 1)]
TYPES = ("float32", "int16", "uint8")
NEAR = 1e-5


class Levels:
    """The tool at every level; answers of one, once all agree."""

    def __init__(self, path, score):
        self.tools = [Tool(path, level) for level in LEVELS]
        self.score = score

    def field(self, name, array, **given):
        answers = [tool.field(name, array, **given) for tool in self.tools]
        first = answers[0]
        self.drawn = self.tools[0].drawn
        for level, other in zip(LEVELS[1:], answers[1:]):
            if (first[0] is None) != (other[0] is None) or first[1] != other[1] or (
                    first[0] is not None and first[0].tobytes() != other[0].tobytes()):
                self.score.fail(f"{name}: {level} gives other bytes than {LEVELS[0]}")
        return first


def compare(score, name, want, got, dtype, note="", scale=1.0):
    """Within NEAR of max(scale, |x|), and of the type."""
    if got is None or got.dtype != np.dtype(dtype):
        score.fail(f"{name}: {'an error' if got is None else got.dtype} where {dtype} is wanted {note}")
        return
    apart = np.maximum(scale, np.abs(np.asarray(want, np.float64)))
    score.compare(name, want / apart, got / apart, NEAR, note)


def volumes(rng):
    for shape in SHAPES:
        for dtype in TYPES:
            low, high = (0, 256) if dtype == "uint8" else (-1024, 3000)
            array = rng.uniform(low, high, shape)
            yield (array if dtype == "float32" else np.floor(array)).astype(dtype)


def words(numbers):
    return ",".join(repr(number) for number in numbers)


def check_spacing(tools, score, rng):
    for number, array in enumerate(volumes(rng)):
        for case in range(4):
            units = [float(n) for n in rng.uniform(0.4, 5, 3)]
            target = [float(n) for n in rng.uniform(0.4, 5, 3)] if case else [1.6, 1.2, 1.2]
            if case == 2:
                target = [units[0], units[1] / 3, units[2]]
            size = [int(unit / to * n) for unit, to, n in zip(units, target, array.shape[1:])]
            how = ("plain", "view")[number % 2]
            got, said = tools.field("spacing", array, units=units, how=how, target=words(target))
            if 0 in size:
                if got is not None:
                    score.fail(f"spacing to no voxels gave {got.shape}")
                continue
            note = f"{array.shape} {units} {target}"
            wide = torch.from_numpy(array.astype(np.float32))[None]
            want = F.interpolate(wide, size=size, mode="trilinear", align_corners=True)[0].numpy()
            if said["act"]:
                # Blends of thousands that end near zero are right to what float32 has of thousands.
                compare(score, "spacing, images", want, got, "float32", note, max(1.0, np.abs(wide.numpy()).max() / 16))
                score.compare("spacing, units", target, said["units"])
            else:
                compare(score, "spacing, same size", array, got, array.dtype, note)
            mask = rng.integers(0, 3, (1, *array.shape[1:])).astype(np.uint8)
            got, _ = tools.field("spacing", mask, kind="mask", units=units, how=how, target=words(target))
            want = F.interpolate(torch.from_numpy(mask.astype(np.float32))[None], size=size, mode="nearest")[0].numpy()
            if got.dtype != np.uint8:
                score.fail(f"spacing makes {got.dtype} of a mask")
            score.compare("spacing, masks", want.astype(np.uint8), got, 0, note)
        small = rng.normal(0, 1, array.shape).astype(np.float32)
        got, said = tools.field("spacing", small, units=(2, 2, 2), target="1.3,1.1,0.7")
        want = F.interpolate(torch.from_numpy(small)[None], size=got.shape[1:], mode="trilinear", align_corners=True)
        compare(score, "spacing, small values", want[0].numpy(), got, "float32")
    got, text = tools.field("spacing", np.zeros((1, 3, 3, 3), np.float32), target="1")
    if got is not None or "not known" not in text:
        score.fail(f"spacing without units: {text}")


def check_values(tools, score, rng):
    for number, array in enumerate(volumes(rng)):
        how = ("plain", "inplace", "view")[number % 3]
        wide = array.astype(np.float32)
        got, _ = tools.field("clip", array, how=how, low=-79, high=304)
        compare(score, "clip", np.clip(wide, -79, 304), got, "float32")
        got, said = tools.field("intensity", array, how=how, units=(1, 2, 3), mean=101, std=76.9)
        compare(score, "intensity", (wide - np.float32(101)) / np.float32(76.9), got, "float32")
        score.compare("intensity, units", (1, 2, 3), said["units"])
        for dtype, to in (("f32", "float32"), ("i16", "int16"), ("u8", "uint8")):
            ends = (np.finfo if to == "float32" else np.iinfo)(to)
            got, said = tools.field("cast", array, how=how, dtype=dtype)
            compare(score, "cast", np.clip(wide, ends.min, ends.max).astype(to), got, to, f"{array.dtype}")
            score.compare("cast, whether it acts", array.dtype != to, said["act"])
    odd = np.array([np.nan, np.inf, -np.inf, -0.9, 255.9, 1e30, -1e30], np.float32).reshape(1, 1, 1, 7)
    score.compare("cast, odd values", [0, 255, 0, 0, 255, 255, 0], tools.field("cast", odd, dtype="u8")[0].ravel())
    score.compare("cast, odd values", [0, 32767, -32768, 0, 255, 32767, -32768], tools.field("cast", odd, dtype="i16")[0].ravel())


def check_pads(tools, score, rng):
    for number, array in enumerate(volumes(rng)):
        size = [int(n) for n in rng.integers(1, 20, 3)]
        bounds = [max(0, least - n) for least, n in zip(size, array.shape[1:])]
        border = [(0, 0)] + [(b // 2, b - b // 2) for b in bounds]
        how = ("plain", "view")[number % 2]
        got, _ = tools.field("pad_min", array, how=how, size=words(size))
        compare(score, "pad_min, edge", np.pad(array, border, mode="edge"), got, array.dtype)
        got, _ = tools.field("pad_min", array, how=how, size=words(size), mode="constant", fill=7)
        compare(score, "pad_min, constant", np.pad(array, border, constant_values=7), got, array.dtype)
        mask = rng.integers(0, 3, array.shape).astype(np.uint8)
        got, _ = tools.field("pad_min", mask, kind="mask", how=how, size=words(size), mode="constant", fill=7)
        compare(score, "pad_min, masks", np.pad(mask, border), got, "uint8")


def check_views(tools, score, rng):
    for number, array in enumerate(volumes(rng)):
        for seed in range(6):
            how = ("plain", "view")[seed % 2]
            got, _ = tools.field("random_flip", array, how=how, seed=seed, p=0.5)
            axes = [axis + 1 for axis in range(3) if tools.drawn[axis]]
            compare(score, "random_flip", np.flip(array, axes), got, array.dtype)
        size = [int(rng.integers(1, n + 1)) for n in array.shape[1:]]
        starts = [(n - s) // 2 for n, s in zip(array.shape[1:], size)]
        part = tuple(slice(a, a + s) for a, s in zip(starts, size))
        got, _ = tools.field("center_crop3", array, how=("plain", "view")[number % 2], size=words(size))
        compare(score, "center_crop3", array[(slice(None), *part)], got, array.dtype)
    got, text = tools.field("center_crop3", array, size=100)
    if got is not None or "pad_min" not in text:
        score.fail(f"center_crop3 of what is too small: {text}")


def check_random(tools, score, rng):
    for number, array in enumerate(volumes(rng)):
        how = ("plain", "inplace", "view")[number % 3]
        wide = array.astype(np.float32)
        got, _ = tools.field("random_brightness", array, how=how, seed=number, factor="1.7,2.3", p=1)
        compare(score, "random_brightness", wide * np.float32(tools.drawn[0]), got, "float32")
        got, _ = tools.field("gaussian_noise", array, how=how, seed=number, std=100, p=1, mean=3)
        compare(score, "gaussian_noise, all views", tools.field("gaussian_noise", array, seed=number, std=100, p=1, mean=3)[0],
                got, "float32")


def share(score, name, hits, count, p):
    """A count of hits within four deviations of what it should be."""
    away = abs(hits - count * p) / math.sqrt(count * p * (1 - p))
    score.compare(name, 0, away, 4, f"{hits} of {count}, {p} expected")


def uniform(score, name, values, low, high):
    """Kolmogorov's distance, in the units in which 1.95 is passed once in a thousand."""
    values = np.sort((np.asarray(values) - low) / (high - low))
    steps = np.arange(len(values) + 1) / len(values)
    away = max(np.abs(values - steps[1:]).max(), np.abs(values - steps[:-1]).max()) * math.sqrt(len(values))
    score.compare(name, 0, away, 1.95)


def check_distributions(tool, score):
    count, tiny = 3000, np.ones((1, 1, 1, 1), np.float32)
    flips, gains, deviations = [], [], []
    for seed in range(count):
        tool.field("random_flip", tiny, seed=seed)
        flips.append(tool.drawn[:3])
        _, said = tool.field("random_brightness", tiny, seed=seed, factor="1.7,2.3")
        gains += tool.drawn[:1] if said["act"] else []
        _, said = tool.field("gaussian_noise", tiny, seed=count + seed, std=0.1)
        deviations += tool.drawn[:1] if said["act"] else []
    for axis, hits in enumerate(np.sum(flips, axis=0)):
        share(score, f"flips along axis {axis}", hits, count, 1 / 3)
    share(score, "flips along all axes", sum(map(all, flips)), count, 1 / 27)
    share(score, "brightness acts", len(gains), count, 0.1)
    share(score, "noise acts", len(deviations), count, 0.1)
    uniform(score, "gains", gains, 1.7, 2.3)
    uniform(score, "deviations", deviations, 0, 0.1)
    for seed in range(5):
        volume = np.zeros((1, 40, 40, 40), np.float32)
        noise = tool.field("gaussian_noise", volume, seed=seed, std=50, p=1, mean=-4)[0].ravel()
        z = (noise.astype(np.float64) + 4) / tool.drawn[0]
        ranks = np.sort(torch.special.ndtr(torch.from_numpy(z)).numpy())
        uniform(score, "noise is normal", ranks, 0, 1)
        score.compare("noise, neighbours", 0, np.corrcoef(z[:-1], z[1:])[0, 1], 0.02)


def main():
    score = Score()
    tools = Levels(sys.argv[1], score)
    rng = np.random.default_rng(17)
    check_spacing(tools, score, rng)
    check_values(tools, score, rng)
    check_pads(tools, score, rng)
    check_views(tools, score, rng)
    check_random(tools, score, rng)
    check_distributions(tools.tools[0], score)
    return score.report()


if __name__ == "__main__":
    sys.exit(main())
