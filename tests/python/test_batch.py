# SPDX-License-Identifier: Apache-2.0
"""What a batch looks like from numpy, and how long its memory lives."""

import ctypes
import gc

import numpy
import penstock
import PIL.Image
import pytest
from conftest import CLASSES, CROP


def first_batch(photos, pipeline=CROP, size=8, **options) -> penstock.Batch:
    return next(iter(penstock.Loader(photos, pipeline, size, **options)))


def test_arrays_lie_inside_the_batch_and_are_read_only(photos):
    batch = first_batch(photos)
    begin, end = batch.raw.address, batch.raw.address + batch.raw.nbytes
    for array in (batch.image, batch.label, batch.ids, batch.valid):
        address, read_only = array.__array_interface__["data"]
        assert begin < address and address + array.nbytes <= end
        assert read_only and not array.flags.writeable and not array.flags.owndata
    with pytest.raises(ValueError):
        batch.image[0] = 0
    with pytest.raises(ValueError):
        batch.image.flags.writeable = True


def test_array_interface_says_the_same_as_the_buffer(photos):
    view = first_batch(photos).raw.view("image")
    face = view.__array_interface__
    array = numpy.asarray(view)
    assert face["data"] == (array.__array_interface__["data"][0], True)
    assert face["shape"] == array.shape and face["strides"] == array.strides
    assert numpy.dtype(face["typestr"]) == array.dtype


def test_writable_buffers_are_refused(photos):
    view = first_batch(photos).raw.view("image")
    with pytest.raises((BufferError, TypeError)):
        ctypes.c_char.from_buffer(view)
    assert memoryview(view).readonly


def test_two_asks_give_the_same_array(photos):
    batch = first_batch(photos)
    assert batch.image is batch["image"] is batch[0]


def test_images_and_labels_unpack_into_two(photos):
    batch = first_batch(photos)
    x, y = batch
    assert len(batch) == 2 and batch.fields == ("image", "label")
    assert x.shape == (8, 16, 16, 3) and x.dtype == numpy.uint8
    assert y.shape == (8,) and y.dtype == numpy.int64
    assert batch.ids.dtype == numpy.int64 and batch.valid.dtype == bool and batch.valid.all()
    assert (batch.epoch, batch.step, batch.size) == (0, 0, 8)
    for label, key in zip(y, batch.keys):
        assert CLASSES[label] in key


def test_unknown_fields_are_named(photos):
    batch = first_batch(photos)
    with pytest.raises(AttributeError, match="image, label"):
        batch.mask
    with pytest.raises(KeyError):
        batch["mask"]


def test_fields_can_be_chosen(photos):
    batch = first_batch(photos, fields=["image"])
    assert batch.fields == ("image",)
    (x,) = batch
    assert x is batch.image


@pytest.mark.parametrize(
    "pipeline, dtype, name, shape",
    [
        (CROP, numpy.uint8, "u8", (8, 16, 16, 3)),
        (CROP + " | normalize(imagenet)", numpy.float32, "f32", (8, 3, 16, 16)),
        (CROP + " | normalize(imagenet) | to(f16)", numpy.float16, "f16", (8, 3, 16, 16)),
        (CROP + " | normalize(imagenet) | to(bf16)", numpy.uint16, "bf16", (8, 3, 16, 16)),
        (CROP + " | normalize(imagenet) | to(f32, nhwc)", numpy.float32, "f32", (8, 16, 16, 3)),
    ],
)
def test_dtypes_and_layouts(photos, pipeline, dtype, name, shape):
    batch = first_batch(photos, pipeline)
    assert batch.image.dtype == dtype and batch.image.shape == shape
    assert batch.dtypes["image"] == name


def test_bf16_bits_are_the_rounded_upper_half_of_f32(photos):
    exact = first_batch(photos, CROP + " | normalize(imagenet)").image
    bits = first_batch(photos, CROP + " | normalize(imagenet) | to(bf16)").image
    rounded = (bits.astype(numpy.uint32) << 16).view(numpy.float32)
    assert numpy.allclose(rounded, exact, rtol=2**-8, atol=0)


def test_ragged_images_are_exactly_what_pillow_decodes(photos):
    batch = first_batch(photos, "decode", fields={"image": "ragged", "label": ""})
    assert isinstance(batch.image, list) and len({image.shape for image in batch.image}) > 1
    for image, key, true in zip(batch.image, batch.keys, batch.lengths("image")):
        expected = numpy.asarray(PIL.Image.open(photos / key))
        assert numpy.array_equal(image, expected)
        assert tuple(true) == image.shape
        assert not image.flags.owndata and not image.flags.writeable


def test_padded_images_carry_their_true_sizes(photos):
    batch = first_batch(photos, "decode", fields={"image": "padded", "label": ""})
    sizes = batch.lengths("image")
    assert batch.image.shape[1:] == tuple(sizes.max(axis=0))
    for image, key, (height, width, _) in zip(batch.image, batch.keys, sizes):
        expected = numpy.asarray(PIL.Image.open(photos / key))
        assert numpy.array_equal(image[:height, :width], expected)
        assert not image[height:].any() and not image[:, width:].any()


def test_padded_sizes_may_be_multiples(photos):
    batch = first_batch(photos, "decode | normalize(imagenet)", fields={"image": "padded(32)", "label": ""})
    sizes = batch.lengths("image")
    assert batch.image.shape[1] == 3
    assert batch.image.shape[2:] == tuple(-(-sizes.max(axis=0)[1:] // 32) * 32)
    for image, (_, height, width) in zip(batch.image, sizes):
        assert image[:, :height, :width].all(axis=0).any()
        assert not image[:, height:].any() and not image[:, :, width:].any()


def test_lengths_of_a_dense_field_is_a_type_error(photos):
    with pytest.raises(TypeError, match="dense"):
        first_batch(photos).lengths("image")


def test_kept_batches_stay_as_they_were(photos):
    loader = penstock.Loader(photos, CROP, 4)
    kept, copies = [], []
    for _ in range(2):
        for x, y in loader:
            kept.append((x, y))
            copies.append((x.copy(), y.copy()))
    loader.close()
    del loader
    gc.collect()
    for (x, y), (x_then, y_then) in zip(kept, copies):
        assert numpy.array_equal(x, x_then) and numpy.array_equal(y, y_then)


def test_an_array_alone_keeps_the_memory(photos):
    loader = penstock.Loader(photos, CROP, 4)
    batch = next(iter(loader))
    row = batch.image[1][2:5]
    then = row.copy()
    del batch, loader
    gc.collect()
    junk = [first_batch(photos, seed=i) for i in range(3)]
    assert numpy.array_equal(row, then) and len(junk) == 3


def test_memory_of_batches_that_are_let_go_is_used_again(photos):
    loader = penstock.Loader(photos, CROP, 10)
    addresses = {batch.raw.address for _ in range(12) for batch in loader}
    assert len(addresses) < 36
