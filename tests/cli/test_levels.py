# SPDX-License-Identifier: Apache-2.0
"""Every instruction set, either way of reading, the same bytes: the ledgers of whole runs are compared line by line."""
import array
import math
import random
import shutil
import subprocess
import wave

import pytest

PIPELINES = [
    "decode | random_resized_crop(33) | hflip | normalize(imagenet)",
    "decode | random_resized_crop((31, 47), interpolation=bicubic) | vflip | normalize(half) | to(f16, nhwc)",
    "decode | resize(40) | random_crop(32, padding=4) | normalize(clip) | to(bf16, nchw)",
    "decode | resize(37) | center_crop(32) | hflip",
    "decode | random_resized_crop(33) | normalize(imagenet) || choice(1: mixup, 1: cutmix)",
    "decode | random_resized_crop(33) | normalize(imagenet) | to(f16) || mixup(0.8)",
]
SPEECH = "decode | resample(11025) | trim(30) | speed | dither | preemphasis | log_mel(40) | feature_norm | spec_augment | stack"


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


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """20 recordings of noise that grows and fades."""
    root = tmp_path_factory.mktemp("sounds")
    for number in range(20):
        rng = random.Random(number)
        n = 3000 + 577 * number
        samples = array.array("h", (int(rng.gauss(0, 3000) * math.sin(math.pi * i / n) ** 4) for i in range(n)))
        with wave.open(str(root / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(samples.tobytes())
    return root


@pytest.mark.parametrize("padding", ["audio=padded", "audio"])
def test_levels_make_the_same_features(penstock, sounds, tmp_path, padding):
    ledgers = []
    for number, level in enumerate(("c", "avx2", "avx512")):
        path = tmp_path / f"{level}.tsv"
        penstock("feed", sounds, "--pipeline", SPEECH, "--fields", padding, "--batch", 7, "--epochs", 2, "--workers", 1 + number,
                 "--seed", 5, "--ledger", path, "--quiet", env={"PENSTOCK_CPU": level})
        ledgers.append(lines(path))
    assert len({line.split("\t")[6] for line in ledgers[0]}) == 40
    assert ledgers[0] == ledgers[1] == ledgers[2]


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
