# SPDX-License-Identifier: Apache-2.0
"""penstock bench: the table, the JSON and the limit beside it."""
import json

import pytest


def test_bench_json(penstock, photos):
    found = json.loads(penstock("bench", photos, "--seconds", 0.3, "--batch", 8, "--json").out)
    cpus = json.loads(penstock("settings", "--json").out)["cpus"]
    assert [row["workers"] for row in found["results"]][0] == 1
    assert [row["workers"] for row in found["results"]][-1] == cpus
    for row in found["results"]:
        assert row["samples_per_s"] > 0 and row["decode_limit_per_s"] > 0
        assert row["of_limit"] == pytest.approx(row["samples_per_s"] / row["decode_limit_per_s"], rel=1e-3)
        assert any(stage["name"] == "decode" for stage in row["stages"])
    assert found["limit_files"] == 48


def test_bench_table(penstock, photos):
    out = penstock("bench", photos, "--seconds", 0.2, "--batch", 8, "--workers", 1, "--pipeline", "decode | center_crop(32)").out
    assert "samples/s" in out and "of limit" in out and "decode" in out


def test_nothing_that_can_be_read_is_said_with_the_reason(penstock, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_text("no picture\n")
    done = penstock("bench", tmp_path, "--seconds", 0.2, check=False)
    assert done.code == 1 and "x.jpg" in done.err and "no sample could be read" in done.err
