# SPDX-License-Identifier: Apache-2.0
"""Memory of a daemon, seen from outside, while jobs with pictures of very different sizes come and go."""
import os
import random
import re
import time

import numpy
from PIL import Image

BUDGET, CACHE = 256 << 20, 176 << 20
SECONDS = float(os.environ.get("PENSTOCK_CHURN_S", "20"))
AT_ONCE = 4
FIELD = re.compile(r"^(RssAnon|RssShmem|VmHWM):\s+(\d+) kB", re.MULTILINE)
PIPELINES = [
    "decode | random_resized_crop(224) | hflip | normalize(imagenet)",
    "decode | random_resized_crop(32) | hflip",
    "decode | resize(256) | center_crop(224)",
    "decode | resize(160) | hflip",
    "decode | hflip | random_resized_crop(300)",
]


def make_pictures(path):
    """160 in 4 classes, from 60 x 40 to 4 megapixels: decoded, more than the cache holds."""
    dice = numpy.random.default_rng(8)
    for i in range(160):
        width = int(60 * (2400 / 60) ** (dice.random() ** 0.6))
        height = int(width * dice.uniform(0.5, 0.9)) + 8
        noise = dice.integers(0, 256, (23, 34, 3), dtype=numpy.uint8)
        folder = path / f"c{i % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise).resize((width, height), Image.BILINEAR).save(folder / f"{i:03}.jpg", progressive=i % 5 == 0)
    return path


def memory(pid):
    """What is the process's own, without pages of files, which the kernel can take back; and the peak with them."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as handle:
        found = dict(FIELD.findall(handle.read()))
    return (int(found["RssAnon"]) + int(found["RssShmem"])) << 10, int(found["VmHWM"]) << 10


def arguments(dice):
    args = ["--batch", dice.choice([1, 4, 8]), "--epochs", dice.choice([1, 2, 4]), "--seed", dice.randrange(3)]
    kind = dice.choice(["strict", "ready", "opportunistic"])
    if kind == "opportunistic":
        args += ["--sampling", "opportunistic"]
    return [*args, "--order", "strict" if kind == "strict" else "ready", "--step-ms", dice.choice([0, 1, 5])]


def test_churn(serve, client, tmp_path, capsys):
    data = make_pictures(tmp_path / "pictures")
    daemon = serve("--memory", BUDGET, "--cache", CACHE)
    dice = random.Random(31)
    running, most, began, refused = [], 0, 0, 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        while len(running) < AT_ONCE:
            running.append(client("--engine", daemon.address, *arguments(dice), data=data, pipeline=dice.choice(PIPELINES)))
            began += 1
        if dice.random() < 0.01:
            running.pop(dice.randrange(AT_ONCE)).kill()
        for feed in [feed for feed in running if feed.child.poll() is not None]:
            running.remove(feed)
            out, err = feed.child.communicate()
            assert feed.child.returncode == 0 or err.startswith("penstock: memory: "), err
            refused += feed.child.returncode != 0  # as many jobs as there is memory for
        most = max(most, memory(daemon.child.pid)[0])
        time.sleep(0.003)
    for feed in running:
        feed.kill()
    daemon.until(lambda jobs: not jobs)
    daemon.fsck()
    engine = daemon.get("/v1/engine")
    with capsys.disabled():
        print(f"\n{began} jobs, {refused} refused, in {SECONDS:.0f} s: budget {BUDGET >> 20} MiB, seen {most / 2**20:.1f} MiB, "
              f"with pages of files {memory(daemon.child.pid)[1] / 2**20:.1f} MiB; by its own count "
              f"{engine['peak_bytes'] / 2**20:.1f} MiB")
    assert engine["peak_bytes"] <= BUDGET and refused < began / 2
    assert most <= 1.01 * BUDGET
    assert most > 0.5 * BUDGET, "the budget was never under pressure"
