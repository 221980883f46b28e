# SPDX-License-Identifier: Apache-2.0
"""Batch ops beside torch: the same batch without them, and torch's own arithmetic."""

import numpy
import penstock
import pytest
from conftest import CLASSES, CROP

PLAIN = CROP + " | normalize(imagenet)"


def mixed_by_torch(torch, x, y, drawn):
    kind, lam, (y1, x1, y2, x2), done = drawn
    assert done
    soft = torch.nn.functional.one_hot(y, len(CLASSES)).float()
    soft = soft.roll(1, 0).mul_(1.0 - lam).add_(soft.mul(lam))
    if kind == "mixup":
        return x.roll(1, 0).mul_(1.0 - lam).add_(x.mul(lam)), soft
    mixed = x.clone()
    mixed[:, :, y1:y2, x1:x2] = x.roll(1, 0)[:, :, y1:y2, x1:x2]
    assert lam == 1.0 - (x2 - x1) * (y2 - y1) / (x.shape[2] * x.shape[3])
    return mixed, soft


@pytest.mark.parametrize("op", ["mixup(0.4)", "cutmix", "choice(1: mixup(0.8), 1: cutmix)"])
def test_batches_are_torch_s_to_1e_6(photos, op):
    torch = pytest.importorskip("torch")
    kinds = set()
    plain = penstock.Loader(photos, PLAIN, 7, seed=3)
    for (x, y), batch in zip(plain, penstock.Loader(photos, f"{PLAIN} || {op}", 7, seed=3)):
        want, soft = mixed_by_torch(torch, torch.tensor(x), torch.tensor(y), batch.raw.mix)
        assert batch.label.dtype == numpy.float32 and batch.label.shape == (len(batch.ids), len(CLASSES))
        assert abs(want.numpy() - batch.image).max() <= 1e-6
        assert abs(soft.numpy() - batch.label).max() <= 1e-6
        kinds.add(batch.raw.mix[0])
    assert kinds == {word for word in ("mixup", "cutmix") if word in op}


def test_batches_that_are_left_alone_say_so(photos):
    for batch in penstock.Loader(photos, f"{PLAIN} || mixup(p=0)", 7):
        assert batch.raw.mix is None
        assert set(numpy.unique(batch.label)) == {0, 1} and (batch.label.sum(1) == 1).all()


def test_bytes_cannot_be_blended(photos):
    with pytest.raises(penstock.PipelineError, match=r"normalize or to\(f32\)"):
        penstock.Loader(photos, f"{CROP} || mixup", 7)
    batch = next(iter(penstock.Loader(photos, f"{CROP} || cutmix", 7)))
    assert batch.image.dtype == numpy.uint8 and batch.raw.mix[0] == "cutmix"


def test_choices_are_written_as_objects(photos):
    ops = penstock.ops
    text = ops.decode() | ops.resize((16, 16)) | ops.normalize("half")
    text = text.then_batch(ops.choice((1, ops.mixup(0.4)), (2, ops.cutmix())))
    assert str(text).endswith("|| choice(1: mixup(0.4), 2: cutmix)")
    assert next(iter(penstock.Loader(photos, text, 7))).raw.mix[0] in ("mixup", "cutmix")
