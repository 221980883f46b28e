# SPDX-License-Identifier: Apache-2.0
"""Volumes from every layout and format to batches, held against numpy."""

import gzip
import struct

import numpy
import penstock
import pytest

COUNT = 5


def volume(seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """An image of i16 and a mask of two boxes, 20 to 30 voxels a side."""
    rng = numpy.random.default_rng(seed)
    shape = tuple(rng.integers(20, 31, 3))
    mask = numpy.zeros(shape, numpy.uint8)
    mask[2:9, 3:12, 4:15] = 1
    mask[12:15, 13:18, 14:17] = 2
    return rng.integers(-1000, 1500, shape).astype(numpy.int16), mask


def nifti(array: numpy.ndarray, spacing=(3.0, 1.5, 1.5)) -> bytes:
    """A NIfTI-1 file whose array, read by nibabel, is this one: the first dimension is the fastest."""
    head = bytearray(352)
    struct.pack_into("<i", head, 0, 348)
    struct.pack_into("<8h", head, 40, 3, *array.shape, 1, 1, 1, 1)
    struct.pack_into("<2h", head, 70, {"uint8": 2, "int16": 4}[array.dtype.name], array.itemsize * 8)
    struct.pack_into("<8f", head, 76, 1.0, *spacing, 0, 0, 0, 0)
    struct.pack_into("<f", head, 108, 352.0)
    head[344:348] = b"n+1\0"
    return bytes(head) + array.tobytes(order="F")


def make_cases(root, i, image, mask):
    (root / f"case_{i}").mkdir(parents=True)
    (root / f"case_{i}/imaging.nii.gz").write_bytes(gzip.compress(nifti(image)))
    (root / f"case_{i}/segmentation.nii.gz").write_bytes(gzip.compress(nifti(mask)))


def make_pairs(root, i, image, mask):
    for folder, name, array in (("imagesTr", f"c{i}_0000.nii", image), ("labelsTr", f"c{i}.nii", mask)):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / name).write_bytes(nifti(array))


def make_npy(root, i, image, mask):
    root.mkdir(exist_ok=True)
    numpy.save(root / f"case_{i}_x.npy", image.astype(numpy.float32)[None])
    numpy.save(root / f"case_{i}_y.npy", mask[None])


def make_npz(root, i, image, mask):
    root.mkdir(exist_ok=True)
    numpy.savez_compressed(root / f"case_{i}.npz", image=image, mask=mask)


LAYOUTS = {"cases": make_cases, "pairs": make_pairs, "npy": make_npy, "npz": make_npz}


@pytest.fixture(scope="module", params=LAYOUTS)
def volumes(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("volumes") / request.param
    for i in range(COUNT):
        LAYOUTS[request.param](root, i, *volume(i))
    return root


def test_whole_volumes_come_as_they_are_stored(volumes):
    loader = penstock.Loader(volumes, "decode", 1, sampler="sequential", fields={"image": "padded", "mask": "padded"})
    seen = 0
    for batch in loader:
        image, mask = batch
        wanted, labels = volume(int(batch.ids[0]))
        assert image.dtype == numpy.float32 and mask.dtype == numpy.uint8
        assert numpy.array_equal(image[0, 0], wanted) and numpy.array_equal(mask[0, 0], labels)
        seen += 1
    assert seen == COUNT


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"cache": "64M"}])
def test_crops_and_flips_move_image_and_mask_together(volumes, options):
    pipeline = "decode | clip(-500, 500) | intensity(10, 4) | center_crop3((16, 12, 18)) | random_flip"
    loader = penstock.Loader(volumes, pipeline, 2, seed=4, **options)
    for _ in range(2):
        turned = 0
        for batch in loader:
            image, mask = batch
            assert image.shape[1:] == mask.shape[1:] == (1, 16, 12, 18)
            for k, i in enumerate(batch.ids):
                whole, labels = volume(int(i))
                at = tuple(slice((n - m) // 2, (n - m) // 2 + m) for n, m in zip(whole.shape, (16, 12, 18)))
                wanted = (whole[at].clip(-500, 500).astype(numpy.float32) - numpy.float32(10)) / numpy.float32(4)
                axes = [a for a in range(8) if numpy.array_equal(turn(wanted, a), image[k, 0])]
                assert len(axes) == 1 and numpy.array_equal(turn(labels[at], axes[0]), mask[k, 0])
                turned += axes[0] != 0
        assert turned


def turn(array: numpy.ndarray, which: int) -> numpy.ndarray:
    return numpy.flip(array, [axis for axis in range(3) if which >> axis & 1])


def test_a_volume_of_several_channels_must_be_asked_for(tmp_path):
    numpy.save(tmp_path / "a_x.npy", numpy.zeros((2, 4, 5, 6), numpy.float32))
    numpy.save(tmp_path / "a_y.npy", numpy.zeros((4, 5, 6), numpy.uint8))
    with pytest.raises(penstock.Error, match="2 channels.*decode\\(keep\\)"):
        list(penstock.Loader(tmp_path, "decode | center_crop3(4)", 1))
    image, mask = next(iter(penstock.Loader(tmp_path, "decode(keep) | center_crop3(4)", 1)))
    assert image[0].shape == (2, 4, 4, 4) and mask[0].shape == (1, 4, 4, 4)
