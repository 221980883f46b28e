# SPDX-License-Identifier: Apache-2.0
"""Views: several pictures of one sample, each a field of the batch."""

import numpy
import penstock
import pytest

ops = penstock.ops
VIEWS = ops.views((2, ops.random_resized_crop(16) | ops.hflip()), (3, ops.random_resized_crop(8, scale=(0.05, 0.25))))
PIPELINE = ops.decode() | VIEWS | ops.normalize("imagenet")
NAMES = ("image_0", "image_1", "image_2", "image_3", "image_4", "label")


def test_the_objects_print_as_the_text():
    assert str(PIPELINE) == (
        "decode | views(2: random_resized_crop(16) | hflip, 3: random_resized_crop(8, scale=(0.05, 0.25)))"
        " | normalize(imagenet)"
    )
    canonical = penstock.check_pipeline(PIPELINE)
    assert canonical == penstock.check_pipeline(canonical)
    assert "views" in ops.names()


def test_a_batch_unpacks_view_by_view(photos):
    for batch in penstock.Loader(photos, PIPELINE, 7, seed=3):
        assert batch.fields == NAMES
        *views, label = batch
        n = len(batch.ids)
        assert [v.shape for v in views] == 2 * [(n, 3, 16, 16)] + 3 * [(n, 3, 8, 8)]
        assert all(v.dtype == numpy.float32 and v.flags.c_contiguous for v in views) and label.shape == (n,)
        assert batch.image_4 is batch[4] and batch["image_1"] is batch[1]
        assert (views[0] != views[1]).any() and (views[2] != views[3]).any()


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}, {"workers": 2, "memory": "128M", "cache": "16M"}])
def test_views_are_the_same_whoever_makes_them(photos, options):
    wanted = [[v.copy() for v in batch] for batch in penstock.Loader(photos, PIPELINE, 7, seed=3)]
    loader = penstock.Loader(photos, PIPELINE, 7, seed=3, **options)
    for again in range(2):
        loader.set_epoch(0)
        for want, batch in zip(wanted, loader, strict=True):
            assert all((a == b).all() for a, b in zip(want, batch, strict=True)), again


def test_a_view_may_have_a_finish_of_its_own(photos):
    text = "decode | views(1: resize((8, 8)) | normalize(half), 1: resize((8, 8)))"
    batch = next(iter(penstock.Loader(photos, text, 5)))
    assert batch.image_0.dtype == numpy.float32 and batch.image_0.shape == (5, 3, 8, 8)
    assert batch.image_1.dtype == numpy.uint8 and batch.image_1.shape == (5, 8, 8, 3)
    same = batch.image_1.transpose(0, 3, 1, 2) / 255.0 * 2 - 1
    assert abs(same - batch.image_0).max() < 1e-6


def test_views_of_many_sizes_come_as_lists(photos):
    batch = next(iter(penstock.Loader(photos, "decode | views(2: hflip(1), 1: resize((8, 8)))", 5)))
    assert isinstance(batch.image_0, list) and batch.image_2.shape == (5, 8, 8, 3)
    assert all((a == b).all() for a, b in zip(batch.image_0, batch.image_1))


def test_a_state_goes_on_with_the_same_views(photos):
    whole = [[v.copy() for v in batch] for batch in penstock.Loader(photos, PIPELINE, 7, seed=3)]
    loader = penstock.Loader(photos, PIPELINE, 7, seed=3)
    for _ in zip(range(3), loader):
        pass
    later = penstock.Loader(photos, PIPELINE, 7, seed=3)
    later.load_state_dict(loader.state_dict())
    rest = [[v.copy() for v in batch] for batch in later]
    for want, got in zip(whole[3:], rest, strict=True):
        assert all((a == b).all() for a, b in zip(want, got, strict=True))


def halved(picture):
    return picture[::2, ::2]


@pytest.mark.parametrize("options", [{"workers": 2}, {"workers": 2, "memory": "128M", "cache": "16M"}])
def test_functions_run_inside_and_before_views(photos, options):
    """Their results have sizes that are known only then, and what follows is decided late."""
    half, small = penstock.python(halved, shape="any"), ops.resize((8, 8))
    inside = penstock.Loader(photos, ops.decode() | ops.views((2, half | small), (1, small)), 7, shuffle=False, **options)
    before = penstock.Loader(photos, ops.decode() | half | ops.views((2, small)), 7, shuffle=False, **options)
    alone = penstock.Loader(photos, ops.decode() | half | small, 7, shuffle=False)
    plain = penstock.Loader(photos, ops.decode() | small, 7, shuffle=False)
    for _ in range(2):
        for a, b, want, whole in zip(inside, before, alone, plain, strict=True):
            assert (a.image_0 == want.image).all() and (a.image_1 == want.image).all()
            assert (a.image_2 == whole.image).all() and (a.image_2 != want.image).any()
            assert (b.image_0 == want.image).all() and (b.image_1 == want.image).all()
    assert "halved 0-1" in [name for name, _, _ in inside.stats()["stages"]]
