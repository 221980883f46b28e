#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Decoding is bit-exact with Pillow: generated JPEGs, PNGs and WebPs of every kind, and the photos in $PENSTOCK_PHOTOS.

Arguments: path of decode_tool. Prints what was compared; exits 1 at the end if anything differed.
"""
import os
import random
import subprocess
import sys
import tempfile

import numpy
from PIL import Image, ImageOps

sys.dont_write_bytecode = True
SEED = 7
failures = []
counts = {}


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def decode(self, path, mode="rgb", window=(0, 0, 0, 0)):
        """(array, damaged row, detail), or the error line."""
        self.process.stdin.write(("%s\t%s\t%d %d %d %d\n" % ((path, mode) + tuple(window))).encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().decode().rstrip("\n")
        if head.startswith("error"):
            return head
        rows, cols, channels, size, damaged, detail = head.split(" ", 5)
        shape = (int(rows), int(cols), int(channels))
        raw = self.process.stdout.read(shape[0] * shape[1] * shape[2] * int(size))
        kind = numpy.uint8 if size == "1" else numpy.uint16
        return numpy.frombuffer(raw, kind).reshape(shape), int(damaged), detail


def compare(what, name, got, want):
    want = numpy.asarray(want)
    if want.ndim == 2:
        want = want[:, :, None]
    counts[what] = counts.get(what, 0) + 1
    if isinstance(got, str):
        failures.append("%s %s: %s" % (what, name, got))
    elif got[0].shape != want.shape or not numpy.array_equal(got[0], want):
        far = numpy.abs(got[0].astype(int) - want).max() if got[0].shape == want.shape else "shape"
        failures.append("%s %s (%s): differs, %s" % (what, name, got[2], far))
    elif got[1] < want.shape[0]:
        failures.append("%s %s: damage in row %d of a sound file" % (what, name, got[1]))


def random_window(rng, rows, cols):
    height, width = rng.randint(1, rows), rng.randint(1, cols)
    return rng.randint(0, rows - height), rng.randint(0, cols - width), height, width


def picture(rng, width, height, channels):
    """Smooth colours with edges and some noise: every coefficient gets used."""
    gen = numpy.random.RandomState(rng.randrange(1 << 30))
    y, x = numpy.mgrid[0:height, 0:width]
    planes = []
    for _ in range(channels):
        a, b, c = gen.uniform(0.02, 0.4, 3)
        plane = 128 + 90 * numpy.sin(a * x + b * y) + 40 * ((x * c + y).astype(int) % 2)
        planes.append(plane + gen.normal(0, 8, (height, width)))
    return numpy.clip(numpy.stack(planes, 2), 0, 255).astype(numpy.uint8)


def check_file(tool, what, path, rng, windows):
    with Image.open(path) as image:
        rgb, gray = numpy.asarray(image.convert("RGB")), numpy.asarray(image.convert("L"))
    compare(what + " rgb", path, tool.decode(path), rgb)
    compare(what + " gray", path, tool.decode(path, "gray"), gray)
    for _ in range(windows):
        top, left, rows, cols = window = random_window(rng, *gray.shape)
        mode, want = rng.choice([("rgb", rgb), ("gray", gray)])
        compare(what + " windows", "%s %s" % (path, (window,)), tool.decode(path, mode, window),
                want[top:top + rows, left:left + cols])


def jpegs(rng):
    """Name, array, mode and Pillow's save options, over all that Pillow can write."""
    sizes = [(w, h) for w in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 40) for h in (1, 8, 17, 40)]
    sizes += [(rng.randint(1, 40), rng.randint(1, 40)) for _ in range(20)] + [(257, 130), (96, 301)]
    for width, height in sizes:
        for mode, channels in (("RGB", 3), ("L", 1), ("CMYK", 4)):
            for sampling in (0, 1, 2) if mode == "RGB" else (0,):
                for progressive in (False, True):
                    options = {"quality": rng.choice([30, 75, 90, 98]), "subsampling": sampling,
                               "progressive": progressive, "optimize": rng.random() < 0.5}
                    data = picture(rng, width, height, channels)
                    yield (Image.fromarray(data[:, :, 0] if channels == 1 else data, mode), options)


def check_jpegs(tool, folder, rng):
    path = os.path.join(folder, "x.jpg")
    for image, options in jpegs(rng):
        image.save(path, "JPEG", **options)
        check_file(tool, "jpeg " + image.mode, path, rng, 4)


def check_made(tool, program, folder, rng):
    """What Pillow cannot write: other samplings, restarts, separate scans, arithmetic coding, YCCK."""
    made = os.path.join(folder, "made")
    os.mkdir(made)
    subprocess.run([program, "--make", made], check=True)
    for name in sorted(os.listdir(made)):
        path = os.path.join(made, name)
        with Image.open(path) as image:
            if image.mode == "I":
                continue  # 16-bit grey: Pillow clips, we take the high byte
        check_file(tool, "made " + name.rpartition(".")[2], path, rng, 8)


def check_orientation(tool, folder, rng):
    path = os.path.join(folder, "o")
    for orientation in range(0, 10):
        for kind in ("JPEG", "PNG", "WEBP"):
            for mode in ("RGB", "L"):
                data = picture(rng, 37, 21, 3)
                exif = Image.Exif()
                exif[0x0112] = orientation
                image = Image.fromarray(data).convert(mode)
                image.save(path, kind, exif=exif)
                with Image.open(path) as back:
                    want = ImageOps.exif_transpose(back).convert("RGB")
                    plain = back.convert("RGB")
                compare("orientation", "%s %d" % (kind, orientation), tool.decode(path, "orient"), want)
                compare("orientation off", "%s %d" % (kind, orientation), tool.decode(path), plain)


def check_pngs(tool, folder, rng):
    path = os.path.join(folder, "x.png")
    for number in range(60):
        width, height = rng.randint(1, 70), rng.randint(1, 70)
        data = picture(rng, width, height, 4)
        palette = Image.fromarray(data[:, :, :3]).quantize(rng.choice([2, 4, 16, 200]))
        images = [Image.fromarray(data[:, :, 0]), Image.fromarray(data[:, :, 0]).convert("1"),
                  Image.fromarray(data[:, :, :3]), Image.fromarray(data), palette,
                  Image.fromarray(data[:, :, :2], "LA")]
        for image in images:
            options = {"bits": rng.choice([1, 2, 4, 8])} if image.mode == "P" else {}
            if image.mode == "P" and 1 << options["bits"] < len(image.getcolors()):
                options = {}
            if image.mode == "P" and rng.random() < 0.5:
                options["transparency"] = bytes([0, 128, 255])
            image.save(path, optimize=rng.random() < 0.3, **options)
            check_file(tool, "png " + image.mode, path, rng, 1)
            if image.mode in ("P", "L"):
                compare("png mask", path, tool.decode(path, "mask"), numpy.asarray(Image.open(path)))
            if image.mode in ("L", "RGB", "RGBA"):
                compare("png keep", path, tool.decode(path, "keep"), numpy.asarray(Image.open(path)))
    for number in range(10):
        data = numpy.random.RandomState(number).randint(0, 65536, (rng.randint(1, 40), rng.randint(1, 40)))
        Image.fromarray(data.astype(numpy.uint16)).save(path)
        compare("png 16-bit mask", path, tool.decode(path, "mask"), data.astype(numpy.uint16))
        compare("png 16-bit grey", path, tool.decode(path, "gray"), (data >> 8).astype(numpy.uint8))


def check_webps(tool, folder, rng):
    """Still pictures with and without alpha, and animations whose frames Pillow's encoder makes as small as it can."""
    path = os.path.join(folder, "x.webp")
    for number in range(120):
        width, height = rng.randint(1, 90), rng.randint(1, 90)
        data = picture(rng, width, height, 4)
        if rng.random() < 0.3:
            data[:, :, 3] = numpy.where(data[:, :, 3] > 128, 255, 0)
        image = Image.fromarray(data if number % 2 else data[:, :, :3])
        options = {"quality": rng.choice([0, 30, 75, 90, 100]), "lossless": number % 3 == 0, "method": rng.randint(0, 6),
                   "exact": rng.random() < 0.5}
        if number % 5 == 4:
            later = [Image.fromarray(picture(rng, width, height, image.mode == "RGBA" and 4 or 3)) for _ in range(2)]
            options.update(save_all=True, append_images=later, duration=50, background=(9, 120, 200, 128))
        image.save(path, "WEBP", **options)
        with Image.open(path) as back:
            kept = numpy.asarray(back)
        what = "webp animated" if options.get("save_all") else "webp " + image.mode
        check_file(tool, what, path, rng, 1)
        compare("webp keep", path, tool.decode(path, "keep"), kept)


def check_own_pngs(tool, folder, rng):
    """All colour types, depths and interlacing, from PNGs written by hand."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from write_png import every_png
    path = os.path.join(folder, "own.png")
    for name, data, rgb, sixteen in every_png(rng):
        with open(path, "wb") as out:
            out.write(data)
        if not sixteen or "grey" not in name:
            with Image.open(path) as image:
                pillow = numpy.asarray(image.convert("RGB"))
            compare("png written by hand, Pillow", name, (pillow, 1 << 40, ""), rgb)
        compare("png written by hand", name, tool.decode(path), rgb)


def check_photos(tool, rng):
    root = os.environ.get("PENSTOCK_PHOTOS", "")
    if not os.path.isdir(root):
        print("skip: PENSTOCK_PHOTOS is not set, no photos compared")
        return
    for folder, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            if name.lower().endswith((".jpg", ".jpeg", ".png")):
                check_file(tool, "photo", os.path.join(folder, name), rng, 6)


def main():
    tool = Tool(sys.argv[1])
    rng = random.Random(SEED)
    print("seed", SEED)
    with tempfile.TemporaryDirectory() as folder:
        check_jpegs(tool, folder, rng)
        check_made(tool, sys.argv[1], folder, rng)
        check_orientation(tool, folder, rng)
        check_pngs(tool, folder, rng)
        check_own_pngs(tool, folder, rng)
        check_webps(tool, folder, rng)
        check_photos(tool, rng)
    for what in sorted(counts):
        print("%6d  %s" % (counts[what], what))
    for line in failures[:40]:
        print("FAIL", line)
    print(len(failures), "differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
