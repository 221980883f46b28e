# SPDX-License-Identifier: Apache-2.0
"""MixUp and CutMix in a collate_fn become batch ops: torchvision's arithmetic on torch's batches, with draws of our own."""

import pytest
import torch
import torch.utils.data
from dropin_tools import CLOSE, folder, seed_all
from torch.utils.data import default_collate
from torchvision import transforms

from penstock.torch import DataLoader

v2 = pytest.importorskip("torchvision.transforms.v2")
if not hasattr(v2, "MixUp"):
    pytest.skip("torchvision has no MixUp here", allow_module_level=True)


def collate_with(mix):
    def collate_fn(batch):
        return mix(*default_collate(batch))

    return collate_fn


def runs(dataset, mix, **options):
    """Plain batches of torch and mixed ones of ours, in the same order."""
    seed_all(4)
    plain = list(torch.utils.data.DataLoader(dataset, 8, True, **options))
    seed_all(4)
    loader = DataLoader(dataset, 8, True, collate_fn=collate_with(mix), **options)
    return loader, plain, list(loader)


def blended(x, lam):
    return x.roll(1, 0).mul_(1 - lam).add_(x.mul(lam))


def share_of(labels, soft, classes):
    """What a slot keeps of its own label: from a slot whose neighbour has another one."""
    at = next(i for i in range(len(labels)) if labels[i] != labels[i - 1])
    lam = soft[at, labels[at]].item()
    one_hot = torch.nn.functional.one_hot(labels, classes).float()
    assert torch.allclose(soft, blended(one_hot, lam), atol=1e-6)
    return lam


def is_mixup(x, mixed, lam):
    return torch.allclose(mixed, blended(x, lam), rtol=0, atol=2 * CLOSE)


def is_cutmix(x, mixed, lam):
    """Every place is the slot's own or its neighbour's, in a share of them that the labels tell."""
    other = x.roll(1, 0)
    own = torch.isclose(mixed, x, rtol=0, atol=CLOSE).all(1).all(0)
    theirs = torch.isclose(mixed, other, rtol=0, atol=CLOSE).all(1).all(0)
    return bool((own | theirs).all()) and abs(1 - (~own).float().mean().item() - lam) < 1e-6


@pytest.mark.parametrize("workers", [0, 2])
def test_mixup(photos, workers):
    loader, plain, got = runs(folder(photos), v2.MixUp(alpha=0.4, num_classes=5), num_workers=workers)
    lams = []
    for (x, y), batch in zip(plain, got, strict=True):
        assert type(batch) is tuple and batch[1].shape == (len(y), 5) and batch[1].dtype == torch.float32
        lams.append(share_of(y, batch[1], 5))
        assert is_mixup(x, batch[0], lams[-1])
    assert len(set(lams)) == len(lams)
    assert "mixup(0.4, classes=5)" in loader.explain() and loader.stats()["path"] == "native"


def test_cutmix(photos):
    loader, plain, got = runs(folder(photos), v2.CutMix(num_classes=3))
    for (x, y), (mixed, soft) in zip(plain, got, strict=True):
        assert is_cutmix(x, mixed, share_of(y, soft, 3))
    assert "|| cutmix(1, classes=3)" in loader.explain()


def test_a_choice_of_both(photos):
    mix = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=3), v2.CutMix(num_classes=3)], p=[0.25, 0.75])
    loader, plain, got = runs(folder(photos), mix)
    kinds = set()
    for (x, y), (mixed, soft) in zip(plain, got, strict=True):
        lam = share_of(y, soft, 3)
        kinds.add("mixup" if is_mixup(x, mixed, lam) else "cutmix" if is_cutmix(x, mixed, lam) else "neither")
    assert "neither" not in kinds
    assert "choice(1: mixup(0.2, classes=3), 3: cutmix(1, classes=3))" in loader.explain()


@pytest.mark.parametrize(
    "weights, text",
    [(None, "1: mixup(1, classes=3), 1: cutmix"), ([2, 6], "1: mixup(1, classes=3), 3: cutmix")],
)
def test_a_choice_of_the_first_version(photos, weights, text):
    """Its weights may be left out and may have any sum."""
    mix = transforms.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)], p=weights)
    loader, _, got = runs(folder(photos), mix)
    assert text in loader.explain() and got[0][1].shape[1] == 3


def test_draws_follow_torchs_seed(photos):
    def once(seed):
        torch.manual_seed(seed)
        return next(iter(DataLoader(folder(photos), 8, collate_fn=collate_with(v2.MixUp(num_classes=3)))))

    assert torch.equal(once(1)[0], once(1)[0]) and not torch.equal(once(1)[0], once(2)[0])


class OwnMixUp(v2.MixUp):
    pass


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: OwnMixUp(num_classes=3), "no MixUp"),
        (lambda: v2.MixUp(num_classes=3, labels_getter=lambda batch: batch[1]), "labels_getter"),
        (lambda: v2.RandomChoice([v2.MixUp(num_classes=3), OwnMixUp(num_classes=3)]), "no MixUp"),
        (lambda: transforms.RandomChoice([OwnMixUp(num_classes=3), OwnMixUp(num_classes=3)]), "no MixUp"),
        (lambda: v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=4)]), "different num_classes"),
        (lambda: v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)], p=[0.123456789, 1]), "fractions"),
    ],
)
def test_what_stays_python(photos, make, why):
    loader, plain, got = runs(folder(photos), make())
    assert "Python, in the caller's thread" in loader.explain() and why in loader.explain()
    assert loader.stats()["path"] == "native" and got[0][1].shape[1] >= 3


def test_labels_beyond_num_classes_raise_as_in_torch(photos):
    with pytest.raises(RuntimeError, match="num_classes"):
        runs(folder(photos), v2.MixUp(num_classes=2))


def test_target_transform_comes_first(photos):
    dataset = folder(photos, target_transform=lambda y: 2 - y)
    loader, plain, got = runs(dataset, v2.MixUp(num_classes=3))
    for (x, y), (mixed, soft) in zip(plain, got, strict=True):
        assert is_mixup(x, mixed, share_of(y, soft, 3))
    assert "target_transform comes before it" in loader.explain()


def test_files_for_pillow_are_mixed_in_python(own_photos):
    import PIL.Image

    dataset = folder(own_photos)
    PIL.Image.open(dataset.samples[6][0]).save(dataset.samples[6][0], format="BMP")
    loader, plain, got = runs(dataset, v2.MixUp(num_classes=3))
    for (x, y), (mixed, soft) in zip(plain, got, strict=True):
        assert is_mixup(x, mixed, share_of(y, soft, 3))
    assert "Python, in the caller's thread" in loader.explain()


def test_pictures_of_several_shapes(photos):
    """The engine needs one shape; torch's stack then says what it says."""
    with pytest.raises(RuntimeError, match="equal size"):
        runs(folder(photos, transforms.ToTensor()), v2.MixUp(num_classes=3))
    seed_all(4)
    loader = DataLoader(
        folder(photos, transforms.ToTensor()), batch_size=1, collate_fn=collate_with(v2.MixUp(num_classes=3))
    )
    assert len(list(loader)) == 60
