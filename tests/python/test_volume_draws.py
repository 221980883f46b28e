# SPDX-License-Identifier: Apache-2.0
"""The random part of the 3D U-Net recipe, held against the reference's own algorithm: where crops lie, how often they
lie about the foreground, flips, brightness and noise. Voxels hold their own place, so a crop tells where it is from."""

import random

import numpy
import penstock
import pytest

ndimage = pytest.importorskip("scipy.ndimage")
stats = pytest.importorskip("scipy.stats")

SHAPE, PATCH = (30, 26, 34), (12, 10, 14)
DRAWS = 20_000
RARE = 1e-3


def places(shape=SHAPE) -> numpy.ndarray:
    return numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape)


def two_classes() -> numpy.ndarray:
    """Class 1: two large parts and a crumb; class 2: one that is longer than the patch. Some touch the ends."""
    mask = numpy.zeros(SHAPE, numpy.uint8)
    mask[0:6, 2:7, 3:9] = 1
    mask[20:29, 15:26, 25:34] = 1
    mask[10, 24, 1] = 1
    mask[12:15, 10:12, 5:28] = 2
    return mask


def save(root, image, mask):
    numpy.save(root / "a_x.npy", image[None])
    numpy.save(root / "a_y.npy", mask[None])
    return root


def crops(root, pipeline, draws=DRAWS, batch=200):
    """(images, masks) of many occurrences of the one sample."""
    loader = penstock.Loader(root, pipeline, batch, sampler=[0] * draws, seed=11)
    for image, mask in loader:
        yield image[:, 0], mask[:, 0]


def corners(root, pipeline) -> numpy.ndarray:
    found = []
    for image, mask in crops(root, pipeline):
        found.append(numpy.stack(numpy.unravel_index(image[:, 0, 0, 0].astype(numpy.int64), SHAPE), 1))
    return numpy.concatenate(found)


class Reference:
    """RandBalancedCrop as MLPerf's 3D U-Net has it, which gives the corner alone."""

    def __init__(self, mask, foreground):
        self.mask, self.foreground = mask[None], foreground
        self.random, self.choice = random.Random(3), numpy.random.default_rng(3)
        self.parts = {c: self.boxes(c) for c in numpy.unique(mask[mask > 0])}

    def boxes(self, c):
        found = [b for b in ndimage.find_objects(ndimage.label(self.mask == c)[0]) if b is not None]
        volumes = [numpy.prod([s.stop - s.start for s in b]) for b in found]
        return [found[i] for i in numpy.argsort(volumes)[-2:]]

    def randrange(self, n):
        return 0 if n == 0 else self.random.randrange(n)

    def adjust(self, part, axis):
        diff = PATCH[axis - 1] - (part[axis].stop - part[axis].start)
        sign = -1 if diff < 0 else 1
        diff = abs(diff)
        ladj = self.randrange(diff)
        hadj = diff - ladj
        low = max(0, part[axis].start - sign * ladj)
        high = min(self.mask.shape[axis], part[axis].stop + sign * hadj)
        diff = PATCH[axis - 1] - (high - low)
        if diff > 0 and low == 0:
            high += diff
        elif diff > 0:
            low -= diff
        return low

    def corner(self):
        if self.random.random() < self.foreground:
            parts = self.parts[self.choice.choice(list(self.parts))]
            part = parts[self.random.randrange(len(parts))]
            return [self.adjust(part, axis) for axis in (1, 2, 3)]
        return [self.randrange(n - p) for n, p in zip(SHAPE, PATCH)]


def same_distribution(a, b) -> float:
    """p of the chi-square test on two samples of equal size; rare values are taken together."""
    values = numpy.union1d(a, b)
    left, right = ((x[:, None] == values).sum(0) for x in (a, b))
    rare = left + right < 20
    left, right = (numpy.append(x[~rare], x[rare].sum()) for x in (left, right))
    kept = left + right > 0
    left, right = left[kept], right[kept]
    if len(left) == 1:
        return 1.0
    return stats.chi2.sf(((left - right) ** 2 / (left + right)).sum(), len(left) - 1)


@pytest.mark.parametrize("foreground", [0, 0.4, 1])
def test_corners_lie_where_the_reference_has_them(tmp_path, foreground):
    root = save(tmp_path, places(), two_classes())
    mine = corners(root, f"decode | balanced_crop({PATCH}, foreground={foreground})")
    reference = Reference(two_classes(), foreground)
    wanted = numpy.array([reference.corner() for _ in range(DRAWS)])
    assert len(mine) == DRAWS
    for axis in range(3):
        assert same_distribution(mine[:, axis], wanted[:, axis]) > RARE, axis
    # Axes together: which part was chosen shows in all three.
    coarse = [(x // 5 * (100, 10, 1)).sum(1) for x in (mine, wanted)]
    assert same_distribution(*coarse) > RARE


def test_crops_hold_their_share_of_foreground(tmp_path):
    """The last voxel is where crops that lie anywhere never reach, so those that hold it are about the foreground."""
    mask = numpy.zeros(SHAPE, numpy.uint8)
    mask[-1, -1, -1] = 1
    root = save(tmp_path, places(), mask)
    held = sum(int(m.any((1, 2, 3)).sum()) for _, m in crops(root, f"decode | balanced_crop({PATCH})"))
    assert abs(held / DRAWS - 0.4) < 3 * (0.4 * 0.6 / DRAWS) ** 0.5


def test_axes_are_flipped_a_third_of_the_time_each_by_itself(tmp_path):
    root = save(tmp_path, places(), two_classes())
    turned = []
    for image, mask in crops(root, "decode | center_crop3((4, 5, 6)) | random_flip"):
        turned.append(numpy.stack([image[:, 1, 0, 0] < image[:, 0, 0, 0], image[:, 0, 1, 0] < image[:, 0, 0, 0],
                                   image[:, 0, 0, 1] < image[:, 0, 0, 0]], 1))  # fmt: skip
    turned = numpy.concatenate(turned)
    for which in range(8):
        flags = numpy.array([which >> axis & 1 for axis in range(3)], bool)
        share, wanted = (turned == flags).all(1).mean(), numpy.where(flags, 1 / 3, 2 / 3).prod()
        assert abs(share - wanted) < 4 * (wanted * (1 - wanted) / DRAWS) ** 0.5, which


def test_brightness_and_noise_are_drawn_as_the_reference_does(tmp_path):
    root = save(tmp_path, numpy.ones(SHAPE, numpy.float32), two_classes())
    gains = numpy.concatenate([i[:, 0, 0, 0] for i, _ in crops(root, "decode | center_crop3(2) | random_brightness((1.7, 2.3))")])
    drawn = gains[gains != 1]
    assert abs(len(drawn) / DRAWS - 0.1) < 3 * (0.09 / DRAWS) ** 0.5
    assert stats.kstest(drawn, "uniform", (1.7, 0.6)).pvalue > RARE
    deviations, values = [], []
    for image, _ in crops(root, "decode | center_crop3(10) | gaussian_noise(0.1)"):
        noise = image.reshape(len(image), -1) - 1
        noisy = noise[noise.any(1)]
        deviations.append(noisy.std(1))
        values.append((noisy / noisy.std(1, keepdims=True))[:, :20].ravel())
    deviations = numpy.concatenate(deviations)
    assert abs(len(deviations) / DRAWS - 0.1) < 3 * (0.09 / DRAWS) ** 0.5
    assert stats.kstest(deviations, "uniform", (0, 0.1)).pvalue > RARE
    assert stats.kstest(numpy.concatenate(values), "norm").pvalue > RARE


def test_an_empty_mask_is_cropped_anywhere_or_refused(tmp_path):
    root = save(tmp_path, places(), numpy.zeros(SHAPE, numpy.uint8))
    mine = corners(root, f"decode | balanced_crop({PATCH}, foreground=1)")
    for axis, (n, p) in enumerate(zip(SHAPE, PATCH)):
        assert stats.chisquare(numpy.bincount(mine[:, axis], minlength=n - p)).pvalue > RARE
    with pytest.raises(penstock.Error, match="a: .*balanced_crop.*no foreground|no foreground"):
        list(penstock.Loader(root, f"decode | balanced_crop({PATCH}, foreground=0.01, empty=error)", 1))


def test_the_foreground_is_searched_once(tmp_path):
    for i in range(4):
        numpy.save(tmp_path / f"{i}_x.npy", places()[None])
        numpy.save(tmp_path / f"{i}_y.npy", two_classes()[None])
    pipeline = f"decode | balanced_crop({PATCH}, foreground=1) | random_flip"
    wanted = None
    for options in ({"cache": 0}, {"cache": "64M", "memory": "256M"}):
        loader = penstock.Loader(tmp_path, pipeline, 2, seed=3, workers=1, **options)
        got = [[x.copy() for x in batch] for _ in range(5) for batch in loader]
        if wanted:
            assert all(numpy.array_equal(a, b) for m, w in zip(got, wanted) for a, b in zip(m, w))
        wanted = got
        runs = {name: count for name, count, _ in loader.stats()["stages"]}
        assert runs["foreground"] == 4 and runs["balanced_crop"] >= 20
        loader.close()


def test_what_cannot_be_searched_is_refused(tmp_path):
    root = save(tmp_path, places(), two_classes())
    with pytest.raises(penstock.Error, match="balanced_crop comes after random_flip.*put balanced_crop first"):
        penstock.Loader(root, "decode | random_flip | balanced_crop(8)", 1)
    with pytest.raises(penstock.Error, match="foreground of a mask, and acts on none"):
        penstock.Loader(root, "decode | balanced_crop(8)", 1, fields=["image"])
    assert next(iter(penstock.Loader(root, "decode | balanced_crop(8, foreground=0)", 1, fields=["image"])))[0].shape == (
        1, 1, 8, 8, 8)  # fmt: skip
    with pytest.raises(penstock.Error, match="put pad_min before"):
        list(penstock.Loader(root, "decode | balanced_crop(31)", 1))


def test_what_evaluation_has_kept_is_searched_when_training_asks(tmp_path):
    for i in range(4):
        numpy.save(tmp_path / f"{i}_x.npy", places()[None] + i)
        numpy.save(tmp_path / f"{i}_y.npy", two_classes()[None])
    prepare, crop = "decode | clip(5, 20000)", f" | balanced_crop({PATCH}, foreground=1)"
    with penstock.Loader(tmp_path, prepare + crop, 2, seed=3, cache=0) as alone:
        wanted = [[x.copy() for x in batch] for _ in range(3) for batch in alone]
    engine = penstock.Engine(workers=1, memory=256 << 20, cache=64 << 20)
    whole = penstock.Loader(tmp_path, prepare, 1, train=False, engine=engine, fields={"image": "padded", "mask": "padded"})
    assert sum(1 for _ in whole) == 4
    train = penstock.Loader(tmp_path, prepare + crop, 2, seed=3, engine=engine)
    got = [[x.copy() for x in batch] for _ in range(3) for batch in train]
    assert all(numpy.array_equal(a, b) for m, w in zip(got, wanted) for a, b in zip(m, w))
    stats = train.stats()
    runs = {name: count for name, count, _ in stats["stages"]}
    assert runs["foreground"] == 4 and runs["decode"] == 0, stats["stages"]
