# SPDX-License-Identifier: Apache-2.0
"""--cache: decoded samples kept by an engine. Nothing but speed and figures may differ."""
import io
import json
import os
import pathlib
import tarfile

import pytest
from conftest import CROP, read_ledger
from PIL import Image

SIZES = ("300K", "2M", "auto")
MIXED = "decode | resize(40) | random_crop(32) | hflip ; image: normalize(imagenet)"


@pytest.fixture(scope="module")
def shard(photos, tmp_path_factory):
    """A tar file of 24 samples: picture, mask, label, and a text that is stored as a member."""
    path = tmp_path_factory.mktemp("tar") / "mixed.tar"
    with tarfile.open(path, "w") as tar:
        for i, file in enumerate(sorted(photos.rglob("*.jpg"))[:24]):
            with Image.open(file) as image, io.BytesIO() as mask:
                image.convert("L").point(lambda v: v // 32).save(mask, "PNG")
                members = {"jpg": file.read_bytes(), "mask.png": mask.getvalue(), "cls": b"%d" % (i % 3), "txt": b"%d" % i}
            for suffix, data in members.items():
                info = tarfile.TarInfo(f"{i:03}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def compare(feed, data, tmp_path, *args, pipeline, hits):
    plain = tmp_path / "plain.tsv"
    feed(data, "--epochs", 3, "--seed", 3, "--ledger", plain, *args, pipeline=pipeline)
    for size in SIZES:
        cached = tmp_path / f"{size}.tsv"
        report = feed(data, "--epochs", 3, "--seed", 3, "--memory", "256M", "--cache", size, "--ledger", cached, *args,
                      pipeline=pipeline).report
        assert read_ledger(cached) == read_ledger(plain), size
        assert report["cache_hits"] + report["cache_misses"] == report["samples"]
        assert report["cache_bytes"] <= report["settings"]["cache_bytes"]
        if size == "auto":
            assert report["cache_hits"] >= hits and report["peak_bytes"] <= 256 << 20


def test_photos_come_out_the_same(feed, photos, tmp_path):
    compare(feed, photos, tmp_path, pipeline=CROP + " | normalize(imagenet)", hits=2 * 48 - 8)


def test_images_and_masks_come_out_the_same(feed, shard, tmp_path):
    compare(feed, shard, tmp_path, "--fields", "image,mask,label,txt", pipeline=MIXED, hits=2 * 24 - 8)
    compare(feed, shard, tmp_path, "--fields", "mask", pipeline="decode | random_crop(32)", hits=2 * 24 - 8)


def test_a_mask_decoded_after_a_random_op_is_no_form(feed, shard):
    report = feed(shard, "--epochs", 2, "--memory", "256M", "--cache", "auto", "--fields", "image,mask",
                  pipeline="image: decode | random_crop(32) ; mask: decode | resize(32) | center_crop(32)").report
    assert report["samples"] == 48 and report["cache_hits"] == report["cache_misses"] == report["cache_entries"] == 0


def test_real_photos_come_out_the_same(feed, tmp_path):
    photos = os.environ.get("PENSTOCK_PHOTOS")
    if not photos or not pathlib.Path(photos).is_dir():
        pytest.skip("PENSTOCK_PHOTOS names no folder of photos")
    ledgers = []
    for size in ("0", "100M", "auto"):
        ledgers.append(tmp_path / size)
        feed(photos, "--epochs", 2, "--memory", "1GiB", "--cache", size, "--ledger", ledgers[-1],
             pipeline="decode | random_resized_crop(224) | hflip | normalize(imagenet)", batch=64, timeout=120)
    assert read_ledger(ledgers[0]) == read_ledger(ledgers[1]) == read_ledger(ledgers[2])


def test_what_it_is_is_told(penstock, photos):
    said = penstock("settings", "--memory", "512M", "--cache", "auto").out
    assert "at most 224 MiB" in said
    assert json.loads(penstock("settings", "--json").out)["cache_bytes"] == 0
    out = penstock("feed", photos, "--pipeline", CROP, "--epochs", 2, "--memory", "256M", "--cache", "auto").out
    assert "cache        48 samples in " in out
    for size, why in (("250M", "leaves less than 16 MiB"), ("1K", "at least 64 KiB"), ("much", "or auto")):
        refused = penstock("settings", "--memory", "256M", "--cache", size, check=False)
        assert refused.code != 0 and why in refused.err, refused.err
