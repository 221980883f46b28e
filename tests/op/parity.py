# SPDX-License-Identifier: Apache-2.0
"""The ops against Pillow and torchvision: sizes, windows and pixels of every op, masks against torch's nearest interpolation,
finish against ToTensor and Normalize. On generated pictures, and on the photos under $PENSTOCK_PHOTOS where it is set.

usage: parity.py OP_TOOL
"""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode as Mode

MODES = {"nearest": Mode.NEAREST, "bilinear": Mode.BILINEAR, "bicubic": Mode.BICUBIC}
PRESETS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5,) * 3, (0.5,) * 3),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}


class Tool:
    """The tool at one level of kernels, kept running."""

    def __init__(self, path, level):
        env = dict(os.environ, PENSTOCK_CPU=level)
        self.drawn = []  # what the op of the last request keeps for itself
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

    def ask(self, line, data):
        self.process.stdin.write(line.encode() + b"\n" + np.ascontiguousarray(data).tobytes())
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        if words[0] == b"error":
            return None, b" ".join(words).decode()
        numbers = [int(word) for word in words[:9]]
        self.acted = bool(numbers[3])
        self.drawn = [float(word) for word in words[9:17]]
        self.picks = [word.decode().split(":") for word in words[17:]]
        return numbers, self.process.stdout.read(numbers[8])

    def op(self, name, picture, seed=0, kind="image", **params):
        """Result as an array, and the window that was drawn (top, left, rows, columns)."""
        array = np.asarray(picture)
        rows, cols = array.shape[:2]
        channels = array.shape[2] if array.ndim == 3 else 1
        given = " ".join(f"{key}={value}" for key, value in params.items())
        dtype = {1: "u8", 2: "u16"}[array.dtype.itemsize]
        numbers, data = self.ask(f"op {name} {kind} {dtype} {rows} {cols} {channels} {seed} {given}", array)
        if numbers is None:
            return None, data
        shape = (numbers[0], numbers[1]) if array.ndim == 2 else tuple(numbers[:3])
        return np.frombuffer(data, array.dtype).reshape(shape), numbers[4:8]

    def field(self, name, array, axes="volume", kind="volume", units=(0, 0, 0), how="plain", seed=0, **params):
        """An op on a volume {channels, planes, rows, columns}, a wave {samples} or {samples, channels}, or frames {moments,
        features}. The result in the same order of dimensions, and a dictionary of what was said of it; None and the message of an
        error. how: plain, inplace, view (see op_tool.c)."""
        array = np.asarray(array)
        last = array.shape[-1] if array.ndim > 1 else 1
        channels, depth, rows, cols = {
            "volume": array.shape,
            "wave": (last, 0, array.shape[0], 1),
            "frames": (1, 0, array.shape[0], last),
            "picture": (last, 0, *array.shape[:2]),
        }[axes]
        given = " ".join(f"{key}={value}" for key, value in params.items())
        dtype = array.dtype.kind.replace("b", "u") + str(8 * array.dtype.itemsize)
        line = f"field {name} {kind} {axes} {dtype} {depth} {rows} {cols} {channels} {','.join(map(repr, units))} {how} {seed} {given}"
        self.process.stdin.write(line.encode() + b"\n" + np.ascontiguousarray(array).tobytes())
        self.process.stdin.flush()
        words = self.process.stdout.readline().decode().split()
        if words[0] == "error":
            return None, " ".join(words)
        depth, rows, cols, channels, act, *window, size = map(int, words[2:14])
        self.drawn = [float(word) for word in words[17:25]]
        said = {"axes": words[0], "act": bool(act), "window": window, "units": [float(word) for word in words[14:17]]}
        shape = {"volume": (channels, depth, rows, cols), "frames": (rows, cols), "picture": (rows, cols, channels)}.get(
            words[0], (rows,) if channels == 1 else (rows, channels)
        )
        kinds = {"u": "uint", "i": "int", "f": "float"}
        return np.frombuffer(self.process.stdout.read(size), kinds[words[1][0]] + words[1][1:]).reshape(shape), said

    def finish(self, preset, dtype, layout, picture):
        array = np.asarray(picture)
        rows, cols, channels = array.shape
        numbers, data = self.ask(f"finish {preset} {dtype} {layout} {rows} {cols} {channels}", array)
        return data


class Score:
    """Differences of one kind of case: how many, the largest, the mean."""

    def __init__(self):
        self.table = {}
        self.failed = 0

    def compare(self, name, want, got, most=0, note=""):
        want, got = np.asarray(want), np.asarray(got)
        row = self.table.setdefault(name, [0, 0.0, 0.0, 0])
        row[0] += 1
        if want.shape != got.shape:
            self.fail(f"{name}: shape {got.shape}, expected {want.shape} {note}")
            return
        apart = np.abs(want.astype(np.float64) - got.astype(np.float64))
        row[1] = max(row[1], float(apart.max(initial=0)))
        row[2] += float(apart.sum())
        row[3] += apart.size
        if apart.max(initial=0) > most:
            self.fail(f"{name}: {apart.max()} apart, at most {most} allowed {note}")

    def fail(self, text):
        self.failed += 1
        if self.failed < 20:
            print("FAIL", text)

    def report(self):
        for name, (cases, largest, total, size) in sorted(self.table.items()):
            print(f"{name:36} {cases:5} cases   max {largest:.3g}   mean {total / max(size, 1):.3g}")
        return 1 if self.failed else 0


def generated(rng):
    """Pictures with soft and hard parts, of odd sizes and all modes."""
    sizes = [(1, 1), (1, 50), (50, 1), (3, 5), (37, 61), (224, 224), (300, 280), (375, 500), (500, 333), (97, 640), (700, 900)]
    for index, (rows, cols) in enumerate(sizes):
        y, x = np.mgrid[0:rows, 0:cols]
        waves = [127 + 127 * np.sin(x / (3 + c) + y / (7 - c) + c) for c in range(3)]
        picture = np.stack(waves, axis=2)
        noise = rng.integers(0, 256, (rows, cols, 3))
        picture = np.where(((x // 16 + y // 16) % 2 == 0)[:, :, None], picture, noise).astype(np.uint8)
        yield Image.fromarray(picture)
        if index % 2:
            yield Image.fromarray(picture[:, :, 0])


def photos():
    root = os.environ.get("PENSTOCK_PHOTOS")
    if not root or not Path(root).is_dir():
        print("PENSTOCK_PHOTOS is not set: photos skipped")
        return
    paths = sorted(path for path in Path(root).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    for path in paths[:: int(os.environ.get("PENSTOCK_PHOTOS_STEP", "4"))]:
        with Image.open(path) as image:
            yield image.convert("RGB")


def sizes_of(rng, count):
    return [tuple(int(n) for n in rng.integers(1, 300, 2)) for _ in range(count)]


def check_resize(tool, score, image, rng, label=""):
    for size in [224, 64, int(rng.integers(1, 400))]:
        got, _ = tool.op("resize", image, size=size)
        score.compare("resize, shorter side" + label, F.resize(image, size), got, note=f"{image.size} to {size}")
    size = int(rng.integers(10, 200))
    most = size + int(rng.integers(1, 100))
    try:
        want = F.resize(image, size, max_size=most)
        got, _ = tool.op("resize", image, size=size, max_size=most)
        score.compare("resize, max_size" + label, want, got)
    except (ValueError, ZeroDivisionError):  # a side of no pixels
        got, text = tool.op("resize", image, size=size, max_size=most)
        if got is not None:
            score.fail(f"resize to no pixels gave {got.shape}")
    for rows, cols in sizes_of(rng, 2) + [(image.height, 77), (55, image.width)]:
        for word, mode in MODES.items():
            got, _ = tool.op("resize", image, size=f"{rows},{cols}", interpolation=word)
            want = F.resize(image, [rows, cols], interpolation=mode)
            score.compare(f"resize, {word}" + label, want, got, note=f"{image.size} to {cols}x{rows}")


def check_crops(tool, score, image, rng, label=""):
    for rows, cols in sizes_of(rng, 2) + [(224, 224)]:
        got, _ = tool.op("center_crop", image, size=f"{rows},{cols}")
        score.compare("center_crop" + label, F.center_crop(image, [rows, cols]), got, note=f"{image.size} to {cols}x{rows}")
    for seed in range(3):
        word = ("bilinear", "bicubic", "nearest")[seed]
        got, window = tool.op("random_resized_crop", image, seed=seed, size=224, interpolation=word)
        want = F.resized_crop(image, *window, [224, 224], MODES[word])
        score.compare(f"random_resized_crop, {word}" + label, want, got, note=f"{image.size} {window}")
    rows, cols = (int(rng.integers(1, n + 1)) for n in (image.height, image.width))
    got, window = tool.op("random_crop", image, seed=5, size=f"{rows},{cols}")
    score.compare("random_crop" + label, F.crop(image, *window), got)


def check_moves(tool, score, image, rng):
    got, _ = tool.op("hflip", image, p=1)
    score.compare("hflip", F.hflip(image), got)
    got, _ = tool.op("vflip", image, p=1)
    score.compare("vflip", F.vflip(image), got)
    for mode in ("constant", "edge", "reflect", "symmetric"):
        for count in (1, 2, 4):
            # Further out than the picture is wide numpy continues it in a way of its own.
            room = {"reflect": min(image.size) - 1, "symmetric": min(image.size)}.get(mode, 40)
            padding = [int(n) for n in rng.integers(0, min(40, room) + 1, count)]
            got, _ = tool.op("pad", image, padding=",".join(map(str, padding)), fill=7, padding_mode=mode)
            fill = 7 if mode == "constant" else 0
            score.compare(f"pad, {mode}", F.pad(image, padding, fill, mode), got, note=f"{image.size} {padding}")


def check_masks(tool, score, rng):
    """u8 and u16 masks against torch's nearest interpolation, which has no 16-bit type: float32 stands for it."""
    for _ in range(60):
        rows, cols = (int(n) for n in rng.integers(1, 400, 2))
        size = [int(n) for n in rng.integers(1, 400, 2)]
        for dtype, most in ((np.uint8, 256), (np.uint16, 65536)):
            mask = rng.integers(0, most, (rows, cols)).astype(dtype)
            wide = torch.from_numpy(mask.astype(np.float32) if most > 256 else mask)[None, None]
            want = torch.nn.functional.interpolate(wide, size=size, mode="nearest")[0, 0].numpy()
            got, _ = tool.op("resize", mask, kind="mask", size=f"{size[0]},{size[1]}")
            score.compare("mask resize", want, got, note=f"{rows}x{cols} to {size}")
            got, (top, left, height, width) = tool.op("random_resized_crop", mask, kind="mask", seed=3, size=60)
            part = wide[:, :, top : top + height, left : left + width]
            want = torch.nn.functional.interpolate(part, size=[60, 60], mode="nearest")[0, 0].numpy()
            score.compare("mask random_resized_crop", want, got)
            got, _ = tool.op("hflip", mask, kind="mask", p=1)
            score.compare("mask hflip", mask[:, ::-1], got)
            got, _ = tool.op("pad", mask, kind="mask", padding="1,2,3,4", fill=9)
            score.compare("mask pad", np.pad(mask, ((2, 4), (1, 3))), got)


def check_finish(tool, score, image):
    array = np.asarray(image)
    tensor = F.to_tensor(image)
    for preset, (mean, std) in PRESETS.items():
        want = F.normalize(tensor, mean, std).numpy()
        got = np.frombuffer(tool.finish(preset, "f32", "nchw", array), np.float32).reshape(want.shape)
        score.compare("finish f32 nchw", want, got, most=1e-6)
        rows = np.frombuffer(tool.finish(preset, "f32", "nhwc", array), np.float32).reshape(array.shape)
        score.compare("finish f32 nhwc = nchw", got, rows.transpose(2, 0, 1))
        half = np.frombuffer(tool.finish(preset, "f16", "nchw", array), np.float16).reshape(want.shape)
        score.compare("finish f16 = f32 rounded", got.astype(np.float16), half)
        brain = np.frombuffer(tool.finish(preset, "bf16", "nchw", array), np.uint16).reshape(want.shape)
        rounded = torch.from_numpy(got.copy()).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        score.compare("finish bf16 = f32 rounded", rounded, brain)
    got = np.frombuffer(tool.finish("none", "f32", "nchw", array), np.float32).reshape(tensor.shape)
    score.compare("finish f32, not normalised", tensor.numpy(), got, most=1e-6)
    got = np.frombuffer(tool.finish("none", "u8", "nchw", array), np.uint8).reshape(tensor.shape)
    score.compare("finish u8 nchw", array.transpose(2, 0, 1), got)


def check_fields(tool, score, rng):
    """What an op leaves alone comes back as it was, whatever it is and however it lies in memory."""
    fields = [("volume", (1, 3, 5, 7), "int16"), ("volume", (2, 4, 1, 6), "float32"), ("volume", (1, 6, 9, 33), "uint8")]
    fields += [("wave", (50,), "int16"), ("wave", (20, 2), "float32"), ("frames", (9, 4), "float32")]
    for axes, shape, dtype in fields:
        array = (rng.random(shape) * 200).astype(dtype)
        for how in ("plain", "inplace", "view"):
            got, said = tool.field("delay", array, axes, units=(2.5, 1, 0.75), how=how, ms=0)
            score.compare("fields that stay", array, got)
            score.compare("fields that stay, units", [2.5, 1, 0.75], said["units"])
    picture = (rng.random((20, 30, 3)) * 256).astype("uint8")
    want, _ = tool.op("resize", picture, size=9)
    score.compare("a picture's op, by field", want, tool.field("resize", picture, "picture", "image", size=9)[0])


def main():
    score = Score()
    for level in ("c", "avx2", "avx512"):
        rng = np.random.default_rng(1)
        tool = Tool(sys.argv[1], level)
        for image in generated(rng):
            check_resize(tool, score, image, rng)
            check_crops(tool, score, image, rng)
            check_moves(tool, score, image, rng)
            if image.mode == "RGB":
                check_finish(tool, score, image)
        check_masks(tool, score, rng)
        check_fields(tool, score, rng)
        if level == "c":
            continue
        for image in photos():
            check_crops(tool, score, image, rng, " (photos)")
            got, _ = tool.op("resize", image, size=256)
            score.compare("resize, shorter side (photos)", F.resize(image, 256), got)
    return score.report()


if __name__ == "__main__":
    sys.exit(main())
