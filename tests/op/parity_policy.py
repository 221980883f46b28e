# SPDX-License-Identifier: Apache-2.0
"""Augmentation policies against torchvision: what they drew is read back from the tool, looked for in torchvision's own
tables and carried out by its own functions. Every change, every strength and both signs; the frequencies of the draws.

usage: parity_policy.py OP_TOOL
"""
import math
import sys
from collections import Counter

import numpy as np
import torch
from parity import MODES, Score, Tool, generated, photos
from PIL import Image
from torchvision.transforms import AugMix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op

NAMES = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
         "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"]


def fused(a, b, c):
    """a * b + c of float32 with one rounding: the product is exact in double."""
    return (a.double() * b.double() + c.double()).float()


def grid_of_wheels(product=torch.Tensor.bmm):
    """torch's product of a sampling grid, in the order of operations of its wheels.

    Debian's torch multiplies matrices with one rounding more, which moves sources by some 1e-5 pixels. That product alone
    is replaced, and only where it is found to differ: what is compared is the arithmetic of what people install.
    """

    def bmm(one, other):
        if one.shape[0] != 1 or one.shape[2] != 3 or other.shape[2] != 2:
            return product(one, other)
        u, v, a, b, c = one[0, :, 0:1], one[0, :, 1:2], other[0, 0:1], other[0, 1:2], other[0, 2:3]
        return (fused(v, b, u * a) + c)[None]

    generator = torch.Generator().manual_seed(1)
    probe = torch.rand((1, 5000, 3), generator=generator), torch.rand((1, 3, 2), generator=generator)
    probe[0][..., 2] = 1
    same = torch.equal(product(*probe), bmm(*probe))
    print("sampling grid: torch's own" if same else "sampling grid: in the wheels' order; torch here rounds once more")
    return product if same else bmm


def picks_of(tool):
    return [(NAMES[int(change)], float(magnitude), int(chain)) for change, chain, magnitude in tool.picks]


def torchvisions(picks, image, word, fill):
    for name, magnitude, _ in picks:
        image = _apply_op(image, name, magnitude, MODES[word], fill)
    return image


def table_of(space):
    """Every (name, magnitude) that can be drawn."""
    out = set()
    for name, (magnitudes, signed) in space.items():
        for value in magnitudes.tolist() if magnitudes.ndim else [0.0]:
            out |= {(name, float(value)), (name, -float(value))} if signed else {(name, float(value))}
    return out


def picture(rng, mode, rows=41, cols=58):
    y, x = np.mgrid[0:rows, 0:cols]
    waves = np.stack([127 + 120 * np.sin(x / (5 + c) + y / (9 - c)) for c in range(3)], axis=2)
    noise = rng.integers(0, 256, (rows, cols, 3))
    array = np.where(((x // 8 + y // 8) % 3 == 0)[:, :, None], noise, waves).astype(np.uint8)
    return Image.fromarray(array if mode == "RGB" else array[:, :, 0])


def check_rand(tool, score, rng):
    """Every change at every strength; which were seen is counted."""
    seen, wanted = set(), set()
    for bins in (31, 10, 17):
        for magnitude in range(bins):
            image = picture(rng, "L" if magnitude % 4 == 3 else "RGB")
            space = RandAugment()._augmentation_space(bins, (image.height, image.width))
            space = {name: (m[magnitude : magnitude + 1] if m.ndim else m, signed) for name, (m, signed) in space.items()}
            able = table_of(space)
            wanted |= {(bins, magnitude, *entry) for entry in able}
            word = ("nearest", "bilinear", "bicubic")[magnitude % 3]
            for seed in range(60):
                got, _ = tool.op("rand_augment", image, seed=1000 * magnitude + seed, num_ops=1, magnitude=magnitude,
                                 bins=bins, interpolation=word, fill=9)
                picks = picks_of(tool)
                entry = picks[0][:2]
                if entry not in able:
                    score.fail(f"rand_augment drew {entry}, which torchvision has not: {sorted(able)}")
                    continue
                if (bins, magnitude, *entry) in seen:
                    continue
                seen.add((bins, magnitude, *entry))
                score.compare(f"change {entry[0]}", torchvisions(picks, image, word, 9), got,
                              note=f"{entry} {word} {image.mode}")
    print(f"rand_augment: {len(seen)} of {len(wanted)} changes with strength and sign seen")
    if len(seen) < 0.9 * len(wanted):
        score.fail("too few changes seen")


def check_tensors(tool, score, rng):
    """Changes as on tensors: every pixel the same."""
    for seed in range(300):
        image = picture(rng, "RGB", 61, 83)
        word, fill = ("nearest", "bilinear")[seed % 2], (None, [40.0, 40.0, 40.0])[seed % 3 == 0]
        given = {"fill": 40} if fill else {}
        got, _ = tool.op("trivial_augment_wide", image, seed=seed, interpolation=word, like="tensor", **given)
        name, magnitude, _ = picks_of(tool)[0]
        want = _apply_op(F.pil_to_tensor(image), name, magnitude, MODES[word], fill).permute(1, 2, 0).numpy()
        score.compare(f"tensor {name}, {word}", want, got, note=f"{name} {magnitude} seed {seed}")


def check_chains(tool, score, image, seeds, label=""):
    for seed in seeds:
        word = ("nearest", "bilinear")[seed % 2]
        for name, given in (("rand_augment", {"num_ops": 3}), ("trivial_augment_wide", {}), ("auto_augment", {})):
            got, _ = tool.op(name, image, seed=seed, interpolation=word, **given)
            want = torchvisions(picks_of(tool), image, word, None)
            score.compare(name + label, want, got, note=f"{image.size} {picks_of(tool)}")


def far(counts, total, chances):
    """The largest distance from what is expected, in standard deviations."""
    worst = 0.0
    for entry in set(counts) | set(chances):
        p = chances.get(entry, 0.0)
        spread = math.sqrt(max(total * p * (1 - p), 1e-9))
        worst = max(worst, abs(counts.get(entry, 0) - total * p) / spread)
    return worst


def check_frequency(score, name, counts, total, chances):
    worst = far(counts, total, chances)
    print(f"{name}: {total} draws, {len(chances)} outcomes, at most {worst:.1f} standard deviations off")
    if worst > 5:
        score.fail(f"{name}: {worst} standard deviations from the expected frequency")


def spread_of(space, share=1.0):
    """Probability of each (name, magnitude) when the change, then the strength, then the sign is drawn."""
    chances = Counter()
    for name, (magnitudes, signed) in space.items():
        values = magnitudes.tolist() if magnitudes.ndim else [0.0]
        for value in values:
            for sign in (1, -1) if signed else (1,):
                chances[(name, sign * float(value))] += share / len(space) / len(values) / (2 if signed else 1)
    return chances


def check_draws(tool, score):
    image = np.zeros((30, 40, 3), np.uint8)
    total = 4000
    counts = Counter()
    for seed in range(total):
        tool.op("trivial_augment_wide", image, seed=seed, bins=5)
        counts[picks_of(tool)[0][:2]] += 1
    check_frequency(score, "trivial_augment_wide", counts, total, spread_of(TrivialAugmentWide()._augmentation_space(5)))
    for policy in AutoAugmentPolicy:
        pairs = AutoAugment(policy).policies
        space = AutoAugment()._augmentation_space(10, (30, 40))
        chances, counts = Counter(), Counter()
        for pair in pairs:
            for place, (name, p, level) in enumerate(pair):
                magnitudes, signed = space[name]
                value = float(magnitudes[level]) if level is not None else 0.0
                for sign in (1, -1) if signed else (1,):
                    chances[(name, sign * value)] += p / 25 / (2 if signed else 1)
        for seed in range(total):
            tool.op("auto_augment", image, seed=seed, policy=policy.value)
            for entry in picks_of(tool):
                counts[entry[:2]] += 1
        check_frequency(score, f"auto_augment {policy.value}", counts, total, chances)


def check_augmix(tool, score, image, seeds, word, fill, label=""):
    """The same chains on torchvision's tensors, mixed with the weights that were drawn."""
    given = {} if fill is None else {"fill": fill[0]}
    for seed in seeds:
        got, _ = tool.op("augmix", image, seed=seed, interpolation=word, **given)
        picks, weights = picks_of(tool), [torch.tensor(w, dtype=torch.float32) for w in tool.drawn]
        batch = F.pil_to_tensor(image)[None]
        mix = weights[0] * batch
        at = 0
        for chain in range(3):
            length = picks[at][2]
            aug = torchvisions(picks[at : at + length], batch, word, fill)
            mix.add_(weights[chain + 1] * aug)
            at += length
        want = mix[0].to(torch.uint8).permute(1, 2, 0).numpy()
        want = want[:, :, 0] if want.shape[2] == 1 else want
        score.compare(f"augmix, {word}{label}", want, got, note=f"seed {seed} {picks}")
        if len(picks) != at or abs(sum(float(w) for w in weights[:4]) - 1) > 1e-5:
            score.fail(f"augmix: {picks} {weights}")


def check_augmix_draws(tool, score):
    """Weights of Beta and Dirichlet, depths of 1 to 3, changes and strengths evenly."""
    image = np.zeros((30, 40, 3), np.uint8)
    for alpha in (1.0, 0.4, 3.0):
        own, depths, counts, chains, seconds = [], Counter(), Counter(), 0, []
        for seed in range(1500):
            tool.op("augmix", image, seed=seed, alpha=alpha)
            own.append(tool.drawn[0])
            seconds.append(tool.drawn[1] / max(1 - tool.drawn[0], 1e-9))
            for name, magnitude, chain in picks_of(tool):
                counts[(name, magnitude)] += 1
                depths[chain] += chain > 0
        spread = 1 / (4 * (2 * alpha + 1))
        third = (1 / 3) * (2 / 3) / (3 * alpha + 1)
        for name, values, mean, variance in (("own", own, 0.5, spread), ("chain", seconds, 1 / 3, third)):
            off = abs(np.mean(values) - mean) / math.sqrt(variance / len(values))
            ratio = np.var(values) / variance
            print(f"augmix alpha {alpha}, weight {name}: mean {off:.1f} standard errors off, variance {ratio:.3f} of expected")
            if off > 5 or not 0.85 < ratio < 1.15:
                score.fail(f"augmix alpha {alpha}: weights {name} {off} {ratio}")
        check_frequency(score, "augmix depth", {k: v for k, v in depths.items() if k}, 4500, {1: 1 / 3, 2: 1 / 3, 3: 1 / 3})
        space = AugMix()._augmentation_space(10, (30, 40))
        space = {name: (m[:3] if m.ndim else m, signed) for name, (m, signed) in space.items()}
        check_frequency(score, "augmix changes", counts, sum(counts.values()), spread_of(space))


def main():
    score = Score()
    rng = np.random.default_rng(3)
    torch.Tensor.bmm = grid_of_wheels()
    tool = Tool(sys.argv[1], "avx512")
    check_rand(tool, score, rng)
    check_tensors(tool, score, rng)
    for index, image in enumerate(generated(rng)):
        if image.mode == "RGB" or image.mode == "L":
            check_chains(tool, score, image, range(10 * index, 10 * index + 10))
    for word in ("bilinear", "nearest"):
        for fill in (None, [40.0]):
            image = picture(rng, "RGB", 120, 150)
            check_augmix(tool, score, image, range(20), word, fill and fill * 3, ", fill" if fill else "")
        check_augmix(tool, score, picture(rng, "L", 90, 80), range(5), word, None, ", grey")
    check_draws(tool, score)
    check_augmix_draws(tool, score)
    for index, image in enumerate(photos()):
        check_chains(tool, score, image, [index, index + 1000], " (photos)")
        if index % 8 == 0:
            check_augmix(tool, score, image, [index], "bilinear", None, " (photos)")
    return score.report()


if __name__ == "__main__":
    sys.exit(main())
