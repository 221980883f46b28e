# SPDX-License-Identifier: Apache-2.0
"""penstock inspect: counts, fields, formats, classes, sizes, unreadable samples, a pipeline to start with."""
import json
import shutil

import pytest
from PIL import Image


def test_text_says_what_is_there(penstock, photos):
    out = penstock("inspect", photos).out
    for words in ["48 samples", "image", "label", "jpeg", "class_000", "width", "height", "unreadable   0",
                  "suggested_pipeline   decode | random_resized_crop(224)"]:
        assert words in out, words


def test_json(penstock, photos):
    out = penstock("inspect", photos, "--json").out
    assert len(out.splitlines()) == 1
    found = json.loads(out)
    files = sorted(photos.rglob("*.jpg"))
    assert found["count"] == 48 and found["kind"] == "folder"
    assert found["bytes"] == sum(f.stat().st_size for f in files)
    assert found["formats"] == {"jpeg": 48}
    assert found["classes"]["count"] == 4 and found["classes"]["min"] == found["classes"]["max"] == 12
    assert found["classes"]["names"] == ["class_000", "class_001", "class_002", "class_003"]
    assert {"image", "label"} <= {f["name"] for f in found["fields"]}
    assert found["unreadable"] == [] and found["unreadable_count"] == 0 and found["probed"] == 48
    assert len(found["revision"]) == 32
    widths = []
    for f in files:
        with Image.open(f) as image:
            widths.append(image.size[0])
    assert found["width"]["min"] == min(widths) and found["width"]["max"] == max(widths)
    for b in found["width"]["histogram"]:
        assert b["count"] == sum(b["from"] <= width < b["to"] for width in widths)
    assert sum(b["count"] for b in found["file_bytes"]["histogram"]) == 48


def test_suggested_pipeline_runs(penstock, photos, feed):
    pipeline = json.loads(penstock("inspect", photos, "--json").out)["suggested_pipeline"]
    assert feed(photos, pipeline=pipeline).report["samples"] == 48


def test_small_pictures_get_a_pipeline_that_runs(penstock, feed, tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(5):
        Image.new("RGB", (32, 32), (i * 40, 9, 9)).save(tmp_path / "a" / f"{i}.png")
    found = json.loads(penstock("inspect", tmp_path, "--json").out)
    assert found["formats"] == {"png": 5}
    assert "random_crop(32, padding=4)" in found["suggested_pipeline"]
    assert feed(tmp_path, pipeline=found["suggested_pipeline"]).report["samples"] == 5
    Image.new("RGB", (40, 36)).save(tmp_path / "a" / "9.png")
    found = json.loads(penstock("inspect", tmp_path, "--json").out)
    assert "resize((32, 32))" in found["suggested_pipeline"]
    assert feed(tmp_path, pipeline=found["suggested_pipeline"]).report["samples"] == 6


def test_revision_follows_the_data(penstock, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "p")
    before = json.loads(penstock("inspect", tmp_path / "p", "--json").out)["revision"]
    again = json.loads(penstock("inspect", tmp_path / "p", "--json").out)["revision"]
    assert before == again
    next((tmp_path / "p").rglob("*.jpg")).unlink()
    assert json.loads(penstock("inspect", tmp_path / "p", "--json").out)["revision"] != before


def test_unreadable_samples_are_listed(penstock, photos, tmp_path):
    folder = tmp_path / "p"
    shutil.copytree(photos / "class_000", folder / "a")
    (folder / "a" / "zz_text.jpg").write_text("this is no picture\n")
    (folder / "a" / "zz_empty.jpg").write_bytes(b"")
    done = penstock("inspect", folder, "--json")
    found = json.loads(done.out)
    assert found["unreadable_count"] == 2
    keys = [bad["key"] for bad in found["unreadable"]]
    assert any("zz_text" in key for key in keys) and any("zz_empty" in key for key in keys)
    assert all(bad["message"] for bad in found["unreadable"])
    assert "zz_text.jpg" in penstock("inspect", folder).out


def test_deep_finds_damage_behind_the_header(penstock, photos, photo, tmp_path):
    (tmp_path / "a").mkdir()
    shutil.copy(photo, tmp_path / "a" / "good.jpg")
    whole = photo.read_bytes()
    (tmp_path / "a" / "half.jpg").write_bytes(whole[:len(whole) // 2])
    assert json.loads(penstock("inspect", tmp_path, "--json").out)["unreadable_count"] == 0
    found = json.loads(penstock("inspect", tmp_path, "--deep", "--json").out)
    assert [bad["key"].endswith("half.jpg") for bad in found["unreadable"]] == [True]


def test_probe_looks_into_a_few(penstock, photos):
    found = json.loads(penstock("inspect", photos, "--json", "--probe", 10).out)
    assert found["probed"] == 10 and found["count"] == 48


@pytest.mark.parametrize("make", ["missing", "empty"])
def test_nothing_there(penstock, tmp_path, make):
    path = tmp_path / "x"
    if make == "empty":
        path.mkdir()
    done = penstock("inspect", path, check=False)
    assert done.code == 1 and str(path) in done.err and done.out == ""
