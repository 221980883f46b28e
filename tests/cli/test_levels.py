# SPDX-License-Identifier: Apache-2.0
"""Every instruction set, either way of reading, the same bytes: the ledgers of whole runs are compared line by line."""
import pytest

PIPELINES = [
    "decode | random_resized_crop(33) | hflip | normalize(imagenet)",
    "decode | random_resized_crop((31, 47), interpolation=bicubic) | vflip | normalize(half) | to(f16, nhwc)",
    "decode | resize(40) | random_crop(32, padding=4) | normalize(clip) | to(bf16, nchw)",
    "decode | resize(37) | center_crop(32) | hflip",
    "decode | random_resized_crop(33) | normalize(imagenet) || choice(1: mixup, 1: cutmix)",
    "decode | random_resized_crop(33) | normalize(imagenet) | to(f16) || mixup(0.8)",
]


def lines(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("number", range(len(PIPELINES)))
def test_levels_and_readers_give_the_same_bytes(penstock, photos, tmp_path, number):
    ledgers = {}
    for level in ("c", "avx2", "avx512"):
        for io in ("uring", "threads"):
            path = tmp_path / f"{level}-{io}.tsv"
            penstock("feed", photos, "--pipeline", PIPELINES[number], "--batch", 7, "--epochs", 2, "--workers", 3,
                     "--seed", 5, "--ledger", path, "--quiet", env={"PENSTOCK_CPU": level, "PENSTOCK_IO": io})
            ledgers[level, io] = lines(path)
    first = ledgers["c", "threads"]
    assert first and len({line.split("\t")[6] for line in first}) > len(first) // 2
    for which, got in ledgers.items():
        assert got == first, which
