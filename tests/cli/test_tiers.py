# SPDX-License-Identifier: Apache-2.0
"""--disk: samples kept in files. Nothing but speed and figures may differ; a second run finds what the first one kept."""
import shutil

import pytest
from conftest import CROP, read_ledger

SLOW = CROP.replace("decode", "decode | delay(0.5)", 1) + " | normalize(imagenet)"


def entries(tier):
    """Once the run has ended: what waits to be written when it reports is written before that."""
    return len(list(tier.glob("??/*")))


def test_a_second_epoch_and_a_second_run_come_from_the_disk(feed, photos, tmp_path):
    plain, cold, warm = (tmp_path / name for name in ("plain.tsv", "cold.tsv", "warm.tsv"))
    tier = tmp_path / "tier"
    count = len(list(photos.rglob("*.jpg")))
    feed(photos, "--epochs", 2, "--ledger", plain, pipeline=SLOW)
    feed(photos, "--epochs", 2, "--disk", f"{tier}:64M", "--ledger", cold, pipeline=SLOW)
    assert entries(tier) == count
    second = feed(photos, "--epochs", 2, "--disk", f"{tier}:64M", "--ledger", warm, pipeline=SLOW).report
    assert read_ledger(cold) == read_ledger(plain) and read_ledger(warm) == read_ledger(plain)
    assert second["disk_hits"] == 2 * count and second["disk_misses"] == 0 and second["bytes_read"] == 0
    assert second["settings"]["disk_limit_bytes"] == 64 << 20 and not second["disk_off"]


def test_the_report_for_people_has_a_line(penstock, photos, tmp_path):
    said = penstock("feed", photos, "--pipeline", SLOW, "--batch", 8, "--disk", f"{tmp_path / 'tier'}:64M")
    line = [line for line in said.out.splitlines() if line.startswith("  disk ")]
    assert len(line) == 1 and "of 64.0 MiB" in line[0]


@pytest.mark.parametrize("text", ["/tmp", "/tmp/x:", "/tmp/x:10K", "/no/such/dir/x:1G"])
def test_what_cannot_be_meant_is_refused(penstock, photos, text):
    said = penstock("feed", photos, "--pipeline", SLOW, "--batch", 8, "--disk", text, check=False)
    assert said.code != 0 and "disk tier" in said.err


def test_a_tier_that_is_gone_does_not_matter(feed, photos, tmp_path):
    tier = tmp_path / "tier"
    feed(photos, "--disk", f"{tier}:64M", pipeline=SLOW)
    shutil.rmtree(tier)
    report = feed(photos, "--disk", f"{tier}:64M", pipeline=SLOW).report
    assert report["disk_hits"] == 0 and entries(tier) > 0
