# SPDX-License-Identifier: Apache-2.0
"""Batches equal torch's: values, labels, order, structure, and the draws left behind."""

import random
import warnings

import numpy
import PIL.Image
import pytest
import torch
import torch.utils.data
from dropin_tools import assert_equal_runs, assert_same, evaluation, folder, pairs, run, seed_all, training
from torch.utils.data import ConcatDataset, Subset, WeightedRandomSampler, random_split
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms

from penstock.torch import DataLoader


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"drop_last": True}], ids=str)
def test_deterministic_recipe(photos, options, workers):
    dataset = folder(photos)
    assert_equal_runs(lambda kind: kind(dataset, 8, num_workers=workers, **options))


@pytest.mark.parametrize(
    "steps",
    [
        [transforms.Resize((16, 20)), transforms.PILToTensor()],
        [transforms.CenterCrop(24), transforms.ToTensor()],
        [transforms.CenterCrop(64), transforms.ToTensor()],
        [transforms.Resize(16, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(16), transforms.ToTensor()],
        [transforms.Pad(2, fill=9), transforms.CenterCrop(30), transforms.PILToTensor()],
        [
            transforms.RandomHorizontalFlip(1.0),
            transforms.RandomVerticalFlip(0.0),
            transforms.CenterCrop(9),
            transforms.ToTensor(),
        ],
    ],
    ids=str,
)
def test_other_deterministic_transforms(photos, steps):
    dataset = folder(photos, transforms.Compose(steps))
    assert_equal_runs(lambda kind: kind(dataset, 8, num_workers=1), epochs=1)


def test_persistent_workers_draw_one_base_seed(photos):
    dataset = folder(photos)
    assert_equal_runs(
        lambda kind: kind(dataset, 8, True, num_workers=1, persistent_workers=True), epochs=3
    )


def test_generator_of_the_users_own(photos):
    dataset = folder(photos)
    assert_equal_runs(lambda kind: kind(dataset, 8, True, generator=torch.Generator().manual_seed(9)))


SAMPLERS = [
    lambda d: WeightedRandomSampler([1.0, 2.0, 3.0] * 20, 40),
    lambda d: torch.utils.data.RandomSampler(d, replacement=True, num_samples=50),
    lambda d: torch.utils.data.SubsetRandomSampler(range(5, 44)),
    lambda d: DistributedSampler(d, num_replicas=4, rank=1, seed=3),
    lambda d: [5, 3, 3, -1, 0, 59],
    lambda d: numpy.array([4, 2, 2, 8]),
    lambda d: torch.arange(12),
]


@pytest.mark.parametrize("at", range(len(SAMPLERS)))
def test_samplers(photos, at):
    dataset = folder(photos)
    assert_equal_runs(lambda kind: kind(dataset, 8, sampler=SAMPLERS[at](dataset)))


def test_distributed_sampler_follows_set_epoch(photos):
    dataset = folder(photos)

    def make(kind):
        sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
        loader = kind(dataset, 8, sampler=sampler)
        loader.sampler.set_epoch(3)
        return loader

    assert_equal_runs(make)


class Repeated(torch.utils.data.Sampler):
    """Each index three times, then dealt to ranks: repeated augmentation."""

    def __init__(self, dataset, rank, replicas, repetitions=3, seed=0):
        self.dataset, self.rank, self.replicas = dataset, rank, replicas
        self.repetitions, self.seed, self.epoch = repetitions, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.dataset) // self.replicas

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        order = [index for index in order for _ in range(self.repetitions)]
        return iter(order[self.rank :: self.replicas][: len(self)])


def test_repeated_augmentation_sampler(photos):
    dataset = folder(photos)
    assert_equal_runs(lambda kind: kind(dataset, 8, sampler=Repeated(dataset, 1, 2)))


def test_each_repetition_draws_anew(photos):
    dataset = folder(photos, training())
    loader = DataLoader(dataset, 6, sampler=[7, 7, 7, 7, 7, 7])
    (x, y) = next(iter(loader))
    assert loader.stats()["path"] == "native" and len(set(y.tolist())) == 1
    assert len({x[i].numpy().tobytes() for i in range(6)}) > 1


def test_batch_sampler_of_unequal_sizes(photos):
    dataset = folder(photos)
    batches = [[1, 2, 3], [4], list(range(5, 50)), [9, 9], [0]]
    assert_equal_runs(lambda kind: kind(dataset, batch_sampler=batches))


def test_batch_sampler_of_equal_sizes(photos):
    dataset = folder(photos)
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 7, False)
    assert_equal_runs(lambda kind: kind(dataset, batch_sampler=sampler))


class Eager:
    """A batch sampler that draws when it is asked for its iterator."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        order = torch.randperm(self.count).tolist()
        return iter([order[at : at + 8] for at in range(0, self.count, 8)])

    def __len__(self):
        return -(-self.count // 8)


@pytest.mark.parametrize("workers", [0, 1])
def test_batch_sampler_that_draws_at_once(photos, workers):
    dataset = folder(photos)
    assert_equal_runs(lambda kind: kind(dataset, batch_sampler=Eager(60), num_workers=workers))


def test_subset_split_and_concat(photos, own_photos):
    first = folder(photos)
    second = folder(own_photos, first.transform)
    assert_equal_runs(lambda kind: kind(Subset(first, [3, -1, 7, 7]), 2))
    parts = random_split(first, [20, 40], torch.Generator().manual_seed(1))
    assert_equal_runs(lambda kind: kind(parts[1], 8, True))
    assert_equal_runs(lambda kind: kind(Subset(parts[0], [0, 5, 9]), 2))
    both = ConcatDataset([Subset(first, range(7)), second, Subset(first, range(7, 12))])
    loader = assert_equal_runs(lambda kind: kind(both, 8, True))
    assert "ConcatDataset" in loader.explain() and "Subset" in loader.explain()


def test_concat_with_different_transforms_runs_as_it_is(photos):
    both = ConcatDataset([folder(photos, evaluation(16)), folder(photos, evaluation(16))])
    assert_equal_runs(lambda kind: kind(both, 8), path="python", epochs=1)


def test_target_transform(photos):
    dataset = folder(photos, target_transform=lambda label: label * 10 + 1)
    loader = assert_equal_runs(lambda kind: kind(dataset, 8))
    assert "target_transform" in loader.explain()
    dataset = folder(photos, target_transform=lambda label: {"class": label, "odd": float(label % 2)})
    assert_equal_runs(lambda kind: kind(dataset, 8))
    dataset = folder(photos, target_transform=lambda label: random.random() + torch.rand(1).item())
    assert_equal_runs(lambda kind: kind(dataset, 8))


def test_edited_samples(photos):
    dataset = folder(photos)
    dataset.samples = [(path, 100 + at) for at, (path, _) in enumerate(reversed(dataset.samples))] * 2
    assert_equal_runs(lambda kind: kind(dataset, 8, True))
    dataset.samples = [(path, f"class {label % 2}") for path, label in dataset.samples[:9]]
    assert_equal_runs(lambda kind: kind(dataset, 4))


def test_samples_edited_between_epochs(photos):
    dataset = folder(photos)
    loader = DataLoader(dataset, 60)
    (_, before), = loader
    dataset.samples[3] = (dataset.samples[3][0], 77)
    (_, after), = loader
    assert before[3] == 0 and after[3] == 77 and loader.stats()["path"] == "native"


def test_transform_changed_between_epochs(photos):
    dataset = folder(photos)
    loader = DataLoader(dataset, 60)
    (x, _), = loader
    dataset.transform = evaluation(8)
    (z, _), = loader
    assert x.shape[-1] == 16 and z.shape[-1] == 8


def test_modes_of_pictures(tmp_path):
    """default_loader gives RGB whatever the file holds."""
    rng = numpy.random.default_rng(0)
    (tmp_path / "a").mkdir()
    noise = PIL.Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=numpy.uint8))
    noise.convert("L").save(tmp_path / "a" / "grey.jpg")
    noise.convert("L").save(tmp_path / "a" / "grey.png")
    noise.convert("P").save(tmp_path / "a" / "palette.png")
    noise.convert("RGBA").save(tmp_path / "a" / "alpha.png")
    noise.convert("LA").save(tmp_path / "a" / "grey_alpha.png")
    noise.convert("1").save(tmp_path / "a" / "bits.png")
    noise.convert("CMYK").save(tmp_path / "a" / "cmyk.jpg")
    exif = noise.getexif()
    exif[0x0112] = 6
    noise.resize((40, 30)).save(tmp_path / "a" / "turned.jpg", exif=exif)
    assert_equal_runs(lambda kind: kind(folder(tmp_path), 8), epochs=1)


def test_collate_of_the_users_own(photos):
    dataset = folder(photos)

    def as_dict(samples):
        return {"x": torch.stack([x for x, _ in samples]), "y": [y for _, y in samples], "n": len(samples)}

    loader = assert_equal_runs(lambda kind: kind(dataset, 8, collate_fn=as_dict))
    assert "as_dict" in loader.explain() and "collation in Python:" in loader.explain()
    assert "decode" in loader.explain().split("measured:")[1] and loader.stats()["samples"] == 60


def test_ragged_pictures(photos):
    dataset = folder(photos, transforms.ToTensor())
    assert_equal_runs(lambda kind: kind(dataset, 8, collate_fn=lambda samples: samples), epochs=1)
    with pytest.raises(RuntimeError, match="equal size"):
        list(DataLoader(dataset, 8))


def _mixing(mix):
    from torch.utils.data.dataloader import default_collate

    def collate_fn(batch):
        return mix(*default_collate(batch))

    return collate_fn


def test_mixing_after_default_collate(photos):
    dataset = folder(photos)

    def mix(x, y):
        weight = torch.rand(1).item()
        return x.roll(1, 0).mul_(1 - weight).add_(x.mul(weight)), torch.nn.functional.one_hot(y, 3) * weight

    loader = assert_equal_runs(lambda kind: kind(dataset, 8, collate_fn=_mixing(mix)))
    assert "on a finished batch" in loader.explain()


def test_batches_may_be_written_to_and_kept(photos, recwarn):
    dataset = folder(photos)
    expected = [x.clone() for x, _ in torch.utils.data.DataLoader(dataset, 2)]
    kept = []
    warnings.simplefilter("error")  # torch warns when memory may not be written to
    for x, y in DataLoader(dataset, 2):
        assert x.is_contiguous()
        kept.append((x, x.clone()))
        x.add_(1)
    for (x, clone), plain in zip(kept, expected):
        assert_same(clone, plain)
        assert_same(x, plain + 1)


def test_two_passes_at_once(photos):
    loader = DataLoader(folder(photos), 8)
    for (x, _), (z, _) in zip(loader, loader):
        assert torch.equal(x, z)


def test_augmentation_follows_torchs_seed(photos):
    dataset = folder(photos, training())

    def make(kind):
        return kind(dataset, 8, shuffle=True, num_workers=1)

    _, one, _ = run(DataLoader, make, seed=1)
    _, same, _ = run(DataLoader, lambda kind: kind(dataset, 8, shuffle=True, num_workers=2), seed=1)
    loader, other, _ = run(DataLoader, make, seed=2)
    assert_same(one, same)
    assert loader.stats()["path"] == "native"
    assert not torch.equal(one[0][0], other[0][0])
    assert not torch.equal(one[0][0], one[8][0]), "the second epoch repeats the first"


def test_seed_argument(photos):
    dataset = folder(photos, training())
    first = list(DataLoader(dataset, 8, True, seed=11))
    seed_all(99)
    assert_same(list(DataLoader(dataset, 8, True, seed=11)), first)


def test_ready_order_gives_every_sample_once(photos):
    dataset = folder(photos, target_transform=None)
    dataset.samples = [(path, at) for at, (path, _) in enumerate(dataset.samples)]
    reference = next(iter(torch.utils.data.DataLoader(dataset, 60)))[0]
    loader = DataLoader(dataset, 7, True, num_workers=2, in_order=False)
    seen = []
    for x, y in loader:
        assert_same(x, reference[y])
        seen += y.tolist()
    assert sorted(seen) == list(range(60)) and loader.stats()["path"] == "native"


@pytest.mark.parametrize("drop", [False, True])
def test_ranks_by_argument(photos, drop):
    dataset = folder(photos)
    dataset.samples = [(path, at) for at, (path, _) in enumerate(dataset.samples)]
    shares = [DataLoader(dataset, 8, True, seed=4, rank=rank, world=3, drop_last=drop) for rank in range(3)]
    got = [[y.tolist() for _, y in share] for share in shares]
    assert [len(each) for each in got] == [len(share) for share in shares]
    assert len({len(each) for each in got}) == 1
    flat = [index for share in got for batch in share for index in batch]
    if drop:
        assert len(set(flat)) == len(flat) == 48
    else:
        assert set(flat) == set(range(60))


def test_without_ranks_every_process_gets_all(photos, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sum(len(y) for _, y in DataLoader(folder(photos), 8)) == 60


def test_empty_epoch(photos):
    loader, got, expected = pairs(lambda kind: kind(folder(photos), 8, sampler=[]))
    assert got == expected == []
