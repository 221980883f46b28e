#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/pictures/*.jpg: what each op does to one made-up picture. Run after an op was added or changed.

    PYTHONPATH=build/python tools/pictures.py docs/pictures
"""
import os
import pathlib
import sys
import tempfile

import penstock
from PIL import Image, ImageDraw, ImageFilter

SIDE, ACROSS, LABEL = 112, 6, 250
SHEETS = {
    "geometry": [
        "random_resized_crop(112)",
        "resize((112, 112)) | hflip",
        "resize((112, 112)) | random_rotation((-40, 40), bilinear)",
        "resize((112, 112)) | random_affine(20, translate=(0.2, 0.2), scale=(0.7, 1.2), shear=(-15, 15))",
        "random_crop(112, padding=60, pad_if_needed=true, padding_mode=reflect)",
        "resize((112, 112)) | random_erasing(1)",
    ],
    "colour": [
        "color_jitter(0.5, 0.5, 0.5, 0.2)",
        "random_grayscale(0.5)",
        "gaussian_blur(15, sigma=(0.1, 5))",
        "random_posterize(2, p=0.7)",
        "random_solarize(110, p=0.7)",
        "random_equalize(0.7)",
        "random_autocontrast(0.7)",
        "random_adjust_sharpness(8, p=0.7)",
        "random_invert(0.4)",
    ],
    "policies": ["auto_augment", "rand_augment(2, 12)", "trivial_augment_wide", "augmix"],
}


def scene(size=(360, 270)):
    """Sky, hill, sun and a house: edges, gradients, flat colours and something that has an up and a left."""
    picture = Image.new("RGB", size)
    draw = ImageDraw.Draw(picture)
    width, height = size
    for y in range(height):
        draw.line([(0, y), (width, y)], fill=(90 + y // 3, 150 + y // 4, 235 - y // 5))
    draw.ellipse((255, 25, 320, 90), fill=(250, 215, 80))
    draw.ellipse((-120, 165, 300, 420), fill=(70, 140, 70))
    draw.ellipse((140, 190, 520, 420), fill=(95, 165, 80))
    picture = picture.filter(ImageFilter.GaussianBlur(1))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((90, 120, 180, 200), fill=(205, 90, 70))
    draw.polygon([(80, 120), (135, 70), (190, 120)], fill=(110, 55, 50))
    draw.rectangle((105, 150, 130, 200), fill=(60, 40, 35))
    draw.rectangle((145, 140, 168, 162), fill=(235, 235, 190))
    draw.line((145, 151, 168, 151), fill=(90, 70, 60), width=2)
    return picture


def row(folder, ops):
    """ACROSS draws of the ops, each from another epoch."""
    end = "" if "crop" in ops or "resize" in ops else " | resize((112, 112))"
    loader = penstock.Loader(folder, f"decode | {ops}{end}", 1, seed=11, cache=0)
    return [Image.fromarray(next(iter(loader)).image[0]) for _ in range(ACROSS)]


def sheet(folder, rows):
    picture = Image.new("RGB", (LABEL + ACROSS * (SIDE + 4), len(rows) * (SIDE + 4)), "white")
    draw = ImageDraw.Draw(picture)
    for place, ops in enumerate(rows):
        top = place * (SIDE + 4)
        text = ops.replace("resize((112, 112)) | ", "").replace(", ", ",\n  ") if len(ops) > 60 else ops.replace(
            "resize((112, 112)) | ", "")
        draw.multiline_text((6, top + 8), text, fill="black")
        for number, drawn in enumerate(row(folder, ops)):
            picture.paste(drawn, (LABEL + number * (SIDE + 4), top + 2))
    return picture


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "scene"))
        scene().save(os.path.join(folder, "scene", "scene.png"))
        for name, rows in SHEETS.items():
            sheet(folder, rows).save(out / f"{name}.jpg", quality=85)
            print(out / f"{name}.jpg")


if __name__ == "__main__":
    main()
