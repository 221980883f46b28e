# SPDX-License-Identifier: Apache-2.0
"""A folder of WebP files gives the pixels that Pillow gives."""

import numpy
import PIL.Image
import pytest
from conftest import noise_image

import penstock

KINDS = {
    "lossy": {"quality": 70},
    "lossless": {"lossless": True},
    "alpha": {"quality": 70},
    "moving": {"quality": 70, "save_all": True},
}


@pytest.fixture(scope="module")
def webps(tmp_path_factory):
    root = tmp_path_factory.mktemp("webps")
    for number, (name, options) in enumerate(KINDS.items()):
        (root / name).mkdir()
        for i in range(5):
            image = noise_image(number * 5 + i)
            if name == "alpha":
                image.putalpha(image.convert("L"))
            extra = {"append_images": [noise_image(99).resize(image.size)]} if name == "moving" else {}
            image.save(root / name / f"{i}.webp", **options, **extra)
    return root


def test_pixels_are_pillows(webps):
    seen = set()
    for batch in penstock.Loader(webps, "decode | center_crop(16)", 4):
        for key, image in zip(batch.keys, batch.image):
            with PIL.Image.open(webps / key) as file:
                rgb = numpy.asarray(file.convert("RGB"))
            top, left = round((rgb.shape[0] - 16) / 2), round((rgb.shape[1] - 16) / 2)
            assert numpy.array_equal(image, rgb[top : top + 16, left : left + 16]), key
            seen.add(key)
    assert len(seen) == 5 * len(KINDS)


def test_a_cut_file_is_named(webps, tmp_path):
    whole = (webps / "lossy" / "0.webp").read_bytes()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cut.webp").write_bytes(whole[:-9])
    with pytest.raises(penstock.DataError, match="cut off") as caught:
        list(penstock.Loader(tmp_path, "decode | center_crop(16)", 1))
    assert caught.value.key == "a/cut.webp" and caught.value.offset == len(whole) - 9
