# SPDX-License-Identifier: Apache-2.0
"""Crops of .npy volumes are read by ranges. Voxels hold their own place, so a byte that was not read would show."""

import os

import numpy
import penstock
import pytest

SHAPE, PATCH, COUNT = (64, 48, 56), (12, 10, 14), 6
PIPELINE = f"decode | balanced_crop({PATCH}) | random_flip(p=0)"
EPOCHS = 4
MOST = 0.13  # of the stored bytes: crops and headers, and masks whole when they are searched


def volume(i: int, dtype="f4", order="C"):
    image = (numpy.arange(numpy.prod(SHAPE)).reshape(SHAPE) + i * 7).astype(dtype, order=order)
    mask = (numpy.arange(numpy.prod(SHAPE)).reshape(SHAPE) % 251 == 0).astype(numpy.uint8)
    mask[40:50, 30 + i : 44, 20:40] = 3
    return image, mask


def make(root, **kinds):
    for i in range(COUNT):
        image, mask = volume(i, **kinds)
        numpy.save(root / f"{i}_x.npy", image)
        numpy.save(root / f"{i}_y.npy", mask[None])
    return root


def chill(root):
    """Asks the system to forget the files, so that reading them would wait."""
    for path in root.iterdir():
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def collect(root, before_epoch=None, **options):
    """What came by (epoch, id), every voxel checked, and the bytes that were read."""
    found = {}
    with penstock.Loader(root, PIPELINE, 2, seed=6, epochs=EPOCHS, **options) as loader:
        for epoch in range(EPOCHS):
            if before_epoch:
                before_epoch(root)
            for batch in loader:
                for i, image, mask in zip(batch.ids, batch.image[:, 0], batch.mask[:, 0]):
                    whole, labels = volume(int(i))
                    z, y, x = numpy.unravel_index(int(image[0, 0, 0]) - int(i) * 7, SHAPE)
                    at = (slice(z, z + PATCH[0]), slice(y, y + PATCH[1]), slice(x, x + PATCH[2]))
                    assert numpy.array_equal(image, whole[at]) and numpy.array_equal(mask, labels[at])
                    found[epoch, int(i)] = (z, y, x)
        read = loader.stats()["bytes_read"]
    assert len(found) == EPOCHS * COUNT
    return found, read


def stored(root):
    return sum(path.stat().st_size for path in root.iterdir())


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}, {"workers": 2, "order": "ready"}])
@pytest.mark.parametrize("cold", [False, True])
def test_only_what_is_used_is_read(tmp_path, options, cold):
    root = make(tmp_path)
    whole, _ = collect(root, workers=1, memory="256M", cache="64M")  # kept decoded, so read whole
    parts, read = collect(root, chill if cold else None, cache=0, **options)
    assert parts == whole
    assert 0 < read < MOST * EPOCHS * stored(root), read / EPOCHS / stored(root)


def test_reading_threads_bring_parts_too(tmp_path, monkeypatch):
    root = make(tmp_path)
    wanted, _ = collect(root, cache=0)
    monkeypatch.setenv("PENSTOCK_IO", "threads")
    found, _ = collect(root, chill, cache=0)
    assert found == wanted


@pytest.mark.parametrize("kinds", [{"dtype": "f8"}, {"dtype": ">f4"}, {"order": "F"}, {"dtype": "i4"}])
def test_what_must_be_converted_is_read_whole(tmp_path, kinds):
    root = make(tmp_path, **kinds)
    plain = tmp_path / "plain"
    plain.mkdir()
    assert collect(root, cache=0)[0] == collect(make(plain), cache=0)[0]


def test_a_cut_file_is_bad_whatever_the_crop(tmp_path):
    root = make(tmp_path)
    os.truncate(root / "3_x.npy", (root / "3_x.npy").stat().st_size - 1)
    with pytest.raises(penstock.Error, match="3"):
        list(penstock.Loader(root, PIPELINE, 2, cache=0))


def test_a_file_that_changes_is_read_and_searched_anew(tmp_path):
    root, corner = make(tmp_path), numpy.zeros(SHAPE, numpy.uint8)
    corner[:4, :4, :4] = 5
    with penstock.Loader(root, PIPELINE.replace("balanced_crop(", "balanced_crop(foreground=1, size="), 2, cache=0) as loader:
        for _ in range(2):
            list(loader)
        for i in range(COUNT):  # each at once: it may be being read
            for name, array in ((f"{i}_x.npy", volume(i)[0] + 1e6), (f"{i}_y.npy", corner)):
                numpy.save(tmp_path / "new.npy", array)
                os.replace(tmp_path / "new.npy", root / name)
        for _ in range(6):  # what was prepared ahead may still be the old one
            list(loader)
        for image, mask in loader:
            assert (image >= 1e6).all() and (mask == 5).any((1, 2, 3, 4)).all()
