# SPDX-License-Identifier: Apache-2.0
"""penstock preview: a contact sheet that shows what a run would be fed."""
import numpy as np
from PIL import Image

from conftest import read_ledger

BORDER = 4


def tiles(path, side, columns, count):
    sheet = np.asarray(Image.open(path).convert("RGB"))
    for i in range(count):
        top = BORDER + i // columns * (side + BORDER)
        left = BORDER + i % columns * (side + BORDER)
        yield sheet[top:top + side, left:left + side]


def test_sheet_has_the_size_it_should(penstock, photos, tmp_path):
    penstock("preview", photos, "--pipeline", "decode | random_resized_crop(40) | hflip | normalize(imagenet)",
             "--out", tmp_path / "s.png")
    with Image.open(tmp_path / "s.png") as image:
        assert image.size == (4 * 44 + 4, 4 * 44 + 4)
    penstock("preview", photos, "--pipeline", "decode | random_resized_crop(40)", "--out", tmp_path / "s.png", "--count", 5,
             "--columns", 3)
    with Image.open(tmp_path / "s.png") as image:
        assert image.size == (3 * 44 + 4, 2 * 44 + 4)


def test_normalisation_is_undone_exactly(penstock, photos, tmp_path):
    plain, normal = tmp_path / "plain.png", tmp_path / "normal.png"
    penstock("preview", photos, "--pipeline", "decode | random_resized_crop(40) | hflip", "--out", plain)
    penstock("preview", photos, "--pipeline", "decode | random_resized_crop(40) | hflip | normalize(imagenet) | to(f16)",
             "--out", normal)
    np.testing.assert_array_equal(np.asarray(Image.open(plain)), np.asarray(Image.open(normal)))


def test_tiles_are_what_a_run_is_fed(penstock, photos, feed, tmp_path):
    pipeline = "decode | random_resized_crop(40) | hflip"
    penstock("preview", photos, "--pipeline", pipeline, "--out", tmp_path / "s.png", "--count", 4, "--columns", 2,
             "--seed", 3, "--epoch", 1)
    feed(photos, "--seed", 3, "--start-epoch", 1, "--max-batches", 1, "--ledger", tmp_path / "l.tsv", pipeline=pipeline, batch=4)
    for row, tile in zip(read_ledger(tmp_path / "l.tsv"), tiles(tmp_path / "s.png", 40, 2, 4)):
        penstock("run", photos / row[5], "--pipeline", pipeline, "--npy", tmp_path / "a.npy", "--seed", 3, "--epoch", 1,
                 "--id", row[4])
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), tile)


def test_pictures_of_many_sizes_are_shrunk(penstock, photos, tmp_path):
    penstock("preview", photos, "--pipeline", "decode", "--out", tmp_path / "s.png", "--count", 9, "--tile", 64, "--in-order")
    with Image.open(tmp_path / "s.png") as image:
        assert image.size[0] <= 3 * 68 + 4 and image.size[1] <= 3 * 68 + 4
        assert np.asarray(image).std() > 20


def test_refusals(penstock, photos, tmp_path):
    done = penstock("preview", photos, "--pipeline", "decode", "--out", tmp_path / "no" / "s.png", check=False)
    assert done.code == 1 and "cannot write" in done.err
    done = penstock("preview", tmp_path / "none", "--pipeline", "decode", "--out", tmp_path / "s.png", check=False)
    assert done.code == 1 and "none" in done.err
    assert not (tmp_path / "s.png").exists()


def test_views_stand_side_by_side(penstock, photos, tmp_path):
    plain, finished = tmp_path / "plain.png", tmp_path / "finished.png"
    for out, views in ((plain, "2: random_resized_crop(40) | hflip, 1: resize((20, 20))"),
                       (finished, "2: random_resized_crop(40) | hflip | normalize(half), 1: resize((20, 20)) | to(f32)")):
        penstock("preview", photos, "--pipeline", f"decode | views({views})", "--out", out, "--count", 4, "--columns", 2)
    with Image.open(plain) as image:
        assert image.size == (2 * 3 * 44 + 4, 2 * 44 + 4)
    first = list(tiles(plain, 40, 6, 6))
    assert (first[0] != first[1]).any() and (first[2][0] == first[2][0, 0]).all()  # the small one has a border
    np.testing.assert_array_equal(np.asarray(Image.open(plain)), np.asarray(Image.open(finished)))


def test_batch_ops_are_left_out(penstock, photos, tmp_path):
    plain, mixed = tmp_path / "plain.png", tmp_path / "mixed.png"
    penstock("preview", photos, "--pipeline", "decode | resize((40, 40))", "--out", plain)
    penstock("preview", photos, "--pipeline", "decode | resize((40, 40)) | normalize(half) || mixup", "--out", mixed)
    np.testing.assert_array_equal(np.asarray(Image.open(plain)), np.asarray(Image.open(mixed)))


def test_boxes_are_drawn_where_the_pipeline_put_them(penstock, tmp_path):
    penstock("synth", "detection", tmp_path / "data", "--count", 6, "--scale", 0.05)
    for pipeline in ("decode", "decode | zoom_out | iou_crop | hflip | normalize(imagenet)"):
        penstock("preview", tmp_path / "data", "--pipeline", pipeline, "--out", tmp_path / "sheet.png", "--count", 6, "--tile", 512)
        with Image.open(tmp_path / "sheet.png") as sheet:
            assert list(sheet.convert("RGB").getdata()).count((80, 255, 80)) > 100
