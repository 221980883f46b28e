# SPDX-License-Identifier: Apache-2.0
"""penstock feed: report, ledger, samplers, ranks, errors."""
import collections
import io
import json
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image

from conftest import CROP, comments, read_ledger

KEYS = {"samples": int, "seconds": float, "samples_per_s": float, "cpu_s": float, "batches": int, "stall_share": float,
        "wait_p50_us": float, "wait_p99_us": float, "first_batch_s": float, "peak_bytes": int, "stages": list, "skipped": int}


def ids(path):
    return [row[4] for row in read_ledger(path)]


def test_json_report(feed, photos):
    report = feed(photos).report
    for key, kind in KEYS.items():
        assert isinstance(report[key], (int, float) if kind is float else kind), key
    assert report["samples"] == 48 and report["batches"] == 6 and report["skipped"] == 0
    assert report["samples_per_s"] == pytest.approx(48 / report["seconds"], rel=1e-3)
    assert 0 <= report["stall_share"] <= 1 and 0 < report["first_batch_s"] < 10
    stages = {stage["name"]: stage for stage in report["stages"]}
    assert stages["decode"]["runs"] == 48 and stages["decode"]["seconds"] > 0
    assert 0 < report["peak_bytes"] <= report["settings"]["memory_bytes"]


def test_table_for_people(penstock, photos):
    out = penstock("feed", photos, "--pipeline", CROP, "--batch", 8).out
    for words in ["48 samples in 6 batches", "samples/s", "first batch", "p99", "decode", "memory"]:
        assert words in out, words
    assert penstock("feed", photos, "--pipeline", CROP, "--quiet").out == ""


def test_ledger(feed, photos, tmp_path):
    path = tmp_path / "l.tsv"
    feed(photos, "--ledger", path, "--seed", 4)
    text = path.read_text()
    assert text.startswith("# penstock ledger 1\n# seed\t4\n# pipeline\t" + CROP + "\n")
    assert "# epoch\tstep\trank\tslot\tid\tkey\tcrc32c\n" in text
    rows = read_ledger(path)
    assert sorted(row[4] for row in rows) == list(range(48))
    assert [row[:4] for row in rows] == [(0, i // 8, 0, i % 8) for i in range(48)]
    keys = sorted(str(p.relative_to(photos)) for p in photos.rglob("*.jpg"))
    assert sorted(row[5] for row in rows) == keys
    assert all(len(row[6]) == 8 and int(row[6], 16) >= 0 for row in rows)


def test_crc_covers_the_delivered_bytes(penstock, feed, photos, tmp_path):
    feed(photos, "--ledger", tmp_path / "l.tsv", "--fields", "image", "--max-batches", 1, batch=1)
    row = read_ledger(tmp_path / "l.tsv")[0]
    penstock("run", photos / row[5], "--pipeline", CROP, "--npy", tmp_path / "a.npy", "--id", row[4])
    data = np.load(tmp_path / "a.npy").tobytes()
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    assert f"{crc ^ 0xFFFFFFFF:08x}" == row[6]


def test_strict_ledgers_are_identical_for_any_worker_count(feed, photos, tmp_path):
    texts = []
    for workers in (1, 2, 7):
        feed(photos, "--ledger", tmp_path / "l.tsv", "--workers", workers, "--epochs", 2)
        texts.append((tmp_path / "l.tsv").read_text())
    assert texts[0] == texts[1] == texts[2]


def test_ready_order_delivers_the_same_samples(feed, photos, tmp_path):
    feed(photos, "--ledger", tmp_path / "s.tsv", "--epochs", 2)
    feed(photos, "--ledger", tmp_path / "r.tsv", "--epochs", 2, "--order", "ready", "--workers", 3)
    pick = lambda path: sorted((row[0], row[4], row[6]) for row in read_ledger(path))
    assert pick(tmp_path / "s.tsv") == pick(tmp_path / "r.tsv")


def test_packing_does_not_change_the_crc(feed, photos, tmp_path):
    """Padding belongs to the batch, not to the sample."""
    found = []
    for i, (packing, batch) in enumerate([("padded", 8), ("ragged", 8), ("padded", 1), ("padded(32)", 8), ("padded(32)", 1)]):
        feed(photos, "--ledger", tmp_path / f"{i}.tsv", "--fields", f"image={packing}", pipeline="decode | resize(24)", batch=batch)
        found.append({row[4]: row[6] for row in read_ledger(tmp_path / f"{i}.tsv")})
    assert all(one == found[0] for one in found) and len(found[0]) == 48


# ---- samplers

def test_sequential(feed, photos, tmp_path):
    feed(photos, "--ledger", tmp_path / "l.tsv", "--sampler", "sequential")
    assert ids(tmp_path / "l.tsv") == list(range(48))


def test_shuffle_differs_by_epoch_and_seed(feed, photos, tmp_path):
    feed(photos, "--ledger", tmp_path / "l.tsv", "--epochs", 2)
    feed(photos, "--ledger", tmp_path / "m.tsv", "--seed", 1)
    first = ids(tmp_path / "l.tsv")
    assert sorted(first[:48]) == sorted(first[48:]) == list(range(48))
    assert first[:48] != first[48:] and first[:48] != ids(tmp_path / "m.tsv")


def test_subset_by_ids_and_by_keys(feed, photos, tmp_path):
    feed(photos, "--ledger", tmp_path / "l.tsv", "--sampler", "subset:3,17,4")
    assert sorted(ids(tmp_path / "l.tsv")) == [3, 4, 17]
    keys = [row[5] for row in read_ledger(tmp_path / "l.tsv")]
    (tmp_path / "list.txt").write_text("# wanted\n" + "\n".join(keys) + "\n\n9\n")
    feed(photos, "--ledger", tmp_path / "m.tsv", "--sampler", f"subset:{tmp_path / 'list.txt'}")
    assert sorted(ids(tmp_path / "m.tsv")) == [3, 4, 9, 17]


def test_given_keeps_the_order(feed, photos, tmp_path):
    (tmp_path / "list.txt").write_text("5\n2\n2\n40\n")
    feed(photos, "--ledger", tmp_path / "l.tsv", "--sampler", f"given:{tmp_path / 'list.txt'}")
    assert ids(tmp_path / "l.tsv") == [5, 2, 2, 40]


def test_weighted(feed, photos, tmp_path):
    weights = tmp_path / "w.txt"
    weights.write_text("".join("1\n" if i in (7, 9) else "0\n" for i in range(48)))
    feed(photos, "--ledger", tmp_path / "l.tsv", "--sampler", f"weighted:{weights},draws=30")
    got = read_ledger(tmp_path / "l.tsv")
    assert len(got) == 30 and {row[4] for row in got} == {7, 9}
    assert len({row[6] for row in got}) == 30, "every draw of a sample has its own crop"
    feed(photos, "--ledger", tmp_path / "m.tsv", "--sampler", f"weighted-once:{weights}", "--draws", 2)
    assert sorted(ids(tmp_path / "m.tsv")) == [7, 9]


def test_weighted_balanced(feed, photos, tmp_path):
    folder = tmp_path / "p"
    shutil.copytree(photos / "class_000", folder / "many")
    (folder / "one").mkdir()
    shutil.copy(next((photos / "class_001").iterdir()), folder / "one")
    feed(folder, "--ledger", tmp_path / "l.tsv", "--sampler", "weighted:balanced,draws=200", pipeline="decode | center_crop(8)")
    share = collections.Counter(row[5].split("/")[0] for row in read_ledger(tmp_path / "l.tsv"))["one"]
    assert 60 < share < 140


def test_repeat(feed, photos, tmp_path):
    feed(photos, "--ledger", tmp_path / "l.tsv", "--sampler", "subset:1,2,3+repeat:4")
    rows = read_ledger(tmp_path / "l.tsv")
    assert collections.Counter(row[4] for row in rows) == {1: 4, 2: 4, 3: 4}
    assert all(len({row[4] for row in rows[i:i + 4]}) == 1 for i in (0, 4, 8))
    assert len({row[6] for row in rows}) == 12


@pytest.mark.parametrize("spec, words", [
    ("shufle", "did you mean shuffle?"),
    ("repeat:0", "from 1 to 1024"),
    ("shuffle:0", "from 1 to 65536"),
    ("shuffle:many", "from 1 to 65536"),
    ("sequential+shuffle:4+sequential", "shuffle alone"),
    ("weighted", "weighted:FILE"),
    ("subset:999", "999"),
    ("subset:/nonexistent/list", "/nonexistent/list"),
    ("weighted:WEIGHTS", "3 weights, but the dataset has 48"),
    ("sequential:5", "takes nothing"),
])
def test_wrong_samplers(penstock, photos, tmp_path, spec, words):
    (tmp_path / "w").write_text("1\n2\n3\n")
    done = penstock("feed", photos, "--pipeline", CROP, "--sampler", spec.replace("WEIGHTS", str(tmp_path / "w")), check=False)
    assert done.code in (1, 2) and words in done.err


@pytest.fixture
def shard(photos, tmp_path):
    """A tar file of 12 samples with picture, mask, label and text."""
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as tar:
        for i, file in enumerate(sorted(photos.rglob("*.jpg"))[:12]):
            with Image.open(file) as image:
                mask = io.BytesIO()
                Image.new("L", image.size, 3).save(mask, "PNG")
            members = {"jpg": file.read_bytes(), "mask.png": mask.getvalue(), "cls": b"%d" % (i >= 9), "txt": b"number %d" % i}
            for suffix, data in members.items():
                info = tarfile.TarInfo(f"s{i:03}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def test_tar_with_masks_and_labels_without_names(penstock, feed, shard, tmp_path):
    found = json.loads(penstock("inspect", shard, "--json").out)
    assert found["kind"] == "tar" and found["count"] == 12
    assert {"image", "mask", "label"} <= {field["name"] for field in found["fields"]}
    assert (found["classes"]["count"], found["classes"]["min"], found["classes"]["max"]) == (2, 3, 9)
    feed(shard, "--ledger", tmp_path / "l.tsv", "--sampler", "weighted:balanced,draws=100", pipeline="decode | center_crop(8)")
    share = sum(row[4] >= 9 for row in read_ledger(tmp_path / "l.tsv"))
    assert 30 < share < 70
    penstock("preview", shard, "--pipeline", CROP, "--out", tmp_path / "s.png", "--count", 4, "--columns", 2)
    with Image.open(tmp_path / "s.png") as image:
        assert image.size == (4 * 36 + 4, 2 * 36 + 4)


# ---- ranks and ends

@pytest.mark.parametrize("ends", ["drop", "pad", "short"])
def test_ranks(feed, photos, tmp_path, ends):
    rows, pads, steps = [], [], []
    for rank in range(3):
        path = tmp_path / f"{rank}.tsv"
        report = feed(photos, "--ledger", path, "--rank", f"{rank}/3", "--ends", ends, batch=5).report
        rows += read_ledger(path)
        pads += comments(path, "pad")
        steps.append(report["batches"])
        assert report["pads"] == len(comments(path, "pad"))
    got = sorted(row[4] for row in rows)
    if ends == "drop":
        assert len(set(got)) == len(got) and len(got) == 45 and len(set(steps)) == 1 and not pads
    elif ends == "pad":
        assert got == list(range(48)) and len(set(steps)) == 1 and len(pads) == 60 - 48
        assert all(len(pad) == 8 for pad in pads)
    else:
        assert got == list(range(48)) and not pads


def test_max_batches_and_step_time(feed, photos):
    report = feed(photos, "--max-batches", 4, "--step-ms", 50).report
    assert report["batches"] == 4 and report["samples"] == 32
    assert report["seconds"] >= 0.2


def test_split(feed, penstock, photos, tmp_path):
    shutil.copytree(photos / "class_000", tmp_path / "d" / "train" / "a")
    shutil.copytree(photos / "class_001", tmp_path / "d" / "val" / "a")
    found = json.loads(penstock("inspect", tmp_path / "d", "--json").out)
    if "val" not in found["splits"]:
        pytest.fail(f"no splits: {found['splits']}")
    report = feed(tmp_path / "d", "--split", "val").report
    assert report["samples"] == 12
    done = penstock("feed", tmp_path / "d", "--pipeline", CROP, "--split", "tset", check=False)
    assert done.code == 1 and "tset" in done.err


# ---- bad samples

@pytest.fixture
def damaged(photos, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(photos, folder)
    (folder / "class_000" / "zz_text.jpg").write_text("no picture at all")
    (folder / "class_001" / "zz_empty.jpg").write_bytes(b"")
    return folder


def test_raise_is_the_default(penstock, damaged):
    done = penstock("feed", damaged, "--pipeline", CROP, "--json", check=False)
    assert done.code == 1
    assert "zz_" in done.err and done.err.startswith("penstock: ")
    report = json.loads(done.out.splitlines()[-1])
    assert "zz_" in report["error"]["key"] and report["error"]["message"]


def test_skip_lists_what_it_left_out(feed, damaged, tmp_path):
    done = feed(damaged, "--on-error", "skip:5", "--ledger", tmp_path / "l.tsv")
    assert done.report["skipped"] == 2 and done.report["samples"] == 48
    assert {bad["key"].split("/")[-1] for bad in done.report["skipped_samples"]} == {"zz_text.jpg", "zz_empty.jpg"}
    assert len(comments(tmp_path / "l.tsv", "bad")) == 2


def test_skip_has_a_limit(penstock, damaged):
    done = penstock("feed", damaged, "--pipeline", CROP, "--on-error", "skip:1", check=False)
    assert done.code == 1 and "zz_" in done.err


def test_table_shows_what_was_skipped(penstock, damaged):
    out = penstock("feed", damaged, "--pipeline", CROP, "--on-error", "skip:5,retry:2").out
    assert "skipped      2 samples" in out and "zz_text.jpg" in out


@pytest.mark.parametrize("make", ["missing", "empty", "text"])
def test_no_data(penstock, tmp_path, make):
    path = tmp_path / "x"
    if make == "empty":
        path.mkdir()
    elif make == "text":
        path.write_text("hello")
    done = penstock("feed", path, "--pipeline", CROP, check=False)
    assert done.code == 1 and done.err.startswith("penstock: ") and "x" in done.err


def test_outputs_that_cannot_be_written_are_refused_at_once(penstock, photos, tmp_path):
    for option in ("--ledger", "--save-state"):
        for where in (tmp_path, tmp_path / "no" / "file"):
            done = penstock("feed", photos, "--pipeline", CROP, option, where, check=False)
            assert done.code == 1 and "cannot write" in done.err and done.out == ""


def test_budget_too_small_is_refused_with_the_needed_figure(penstock, photos):
    done = penstock("feed", photos, "--pipeline", "decode | resize(2048)", "--batch", 64, "--memory", "16M",
                    "--fields", "image=padded", check=False)
    assert done.code == 1 and ("MiB" in done.err or "bytes" in done.err)


def test_full_disk_for_the_ledger(penstock, photos):
    done = penstock("feed", photos, "--pipeline", CROP, "--ledger", "/dev/full", check=False)
    assert done.code == 1 and "No space left" in done.err and done.err.count("/dev/full") == 1


def test_keys_with_odd_characters_keep_the_ledger_in_lines(penstock, feed, photo, tmp_path):
    """Such keys may be refused when listing; where they are taken, the ledger's lines stay whole."""
    (tmp_path / "d" / "a").mkdir(parents=True)
    shutil.copy(photo, tmp_path / "d" / "a" / "tab\there.jpg")
    shutil.copy(photo, tmp_path / "d" / "a" / "back\\slash.jpg")
    done = penstock("feed", tmp_path / "d", "--pipeline", CROP, "--ledger", tmp_path / "l.tsv", check=False)
    if done.code != 0:
        assert "tab" in done.err
        return
    for row in read_ledger(tmp_path / "l.tsv"):
        assert row[5] in ("a/tab\\there.jpg", "a/back\\\\slash.jpg")
