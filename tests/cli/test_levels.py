# SPDX-License-Identifier: Apache-2.0
"""Every instruction set, either way of reading, the same bytes: the ledgers of whole runs are compared line by line."""
import shutil
import subprocess

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


@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
@pytest.mark.parametrize("cpu, level", [("Nehalem", "c"), ("Haswell", "avx2")])
def test_it_runs_on_lesser_cpus(binary, environment, penstock, photos, tmp_path, cpu, level):
    """PENSTOCK_CPU holds the kernels down; only a CPU without the instructions shows whether something else uses them."""
    def command(path):
        return [str(word) for word in ("feed", photos, "--pipeline", PIPELINES[0], "--batch", 7, "--workers", 1, "--epochs", 1,
                                       "--ledger", path, "--quiet")]

    emulated, real = tmp_path / "emulated.tsv", tmp_path / "real.tsv"
    done = subprocess.run(["qemu-x86_64", "-cpu", cpu, binary, *command(emulated)], env=dict(environment, PENSTOCK_IO="threads"),
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    penstock(*command(real), env={"PENSTOCK_CPU": level})
    assert lines(emulated) == lines(real) and lines(real)
