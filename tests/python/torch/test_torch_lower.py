# SPDX-License-Identifier: Apache-2.0
"""Which transforms become which ops, and which do not."""

import pytest
import torch
from dropin_tools import MEAN, STD
from torchvision import transforms as v1

import penstock
from penstock.torch._lower import lower

try:
    from torchvision.transforms import v2
except ImportError:
    v2 = None

CUBIC = v1.InterpolationMode.BICUBIC
NORMAL = "normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))"
CROP = "random_resized_crop({}, scale=(0.08, 1), ratio=(0.75, 1.3333333333333333))"

# What only this build's registry decides is left out: every op here is one of the first version.
COMPLETE = [
    (lambda m: [m.ToTensor()], "decode | to(f32, nchw)"),
    (lambda m: [m.PILToTensor()], "decode | to(u8, nchw)"),
    (lambda m: [m.PILToTensor(), m.ConvertImageDtype(torch.float32)], "decode | to(f32, nchw)"),
    (lambda m: [m.Resize(9), m.ToTensor()], "decode | resize(9) | to(f32, nchw)"),
    (lambda m: [m.Resize([9]), m.ToTensor()], "decode | resize(9) | to(f32, nchw)"),
    (lambda m: [m.Resize((9, 7)), m.ToTensor()], "decode | resize((9, 7)) | to(f32, nchw)"),
    (lambda m: [m.Resize(9, CUBIC), m.ToTensor()], "decode | resize(9, interpolation=bicubic) | to(f32, nchw)"),
    (lambda m: [m.Resize(9, max_size=12), m.ToTensor()], "decode | resize(9, max_size=12) | to(f32, nchw)"),
    (lambda m: [m.CenterCrop((8, 9)), m.ToTensor()], "decode | center_crop((8, 9)) | to(f32, nchw)"),
    (lambda m: [m.RandomResizedCrop(8), m.ToTensor()], f"decode | {CROP.format(8)} | to(f32, nchw)"),
    (
        lambda m: [m.RandomCrop(8, 2, fill=7), m.ToTensor()],
        "decode | random_crop(8, padding={}, fill=7) | to(f32, nchw)",
    ),
    (
        lambda m: [m.RandomCrop(8, [1, 2, 3, 4], padding_mode="reflect"), m.ToTensor()],
        "decode | random_crop(8, padding=(1, 2, 3, 4), padding_mode=reflect) | to(f32, nchw)",
    ),
    (
        lambda m: [m.RandomCrop(8, pad_if_needed=True), m.ToTensor()],
        "decode | random_crop(8, pad_if_needed=true) | to(f32, nchw)",
    ),
    (lambda m: [m.Pad(3, fill=(1, 2, 3)), m.ToTensor()], "decode | pad(3, fill=(1, 2, 3)) | to(f32, nchw)"),
    (lambda m: [m.RandomHorizontalFlip(0.25), m.ToTensor()], "decode | hflip(p=0.25) | to(f32, nchw)"),
    (lambda m: [m.RandomVerticalFlip(), m.ToTensor()], "decode | vflip | to(f32, nchw)"),
    (lambda m: [m.ToTensor(), m.Normalize(MEAN, STD)], f"decode | {NORMAL}"),
    (lambda m: [m.ToTensor(), m.Normalize(MEAN, STD), m.RandomHorizontalFlip()], f"decode | {NORMAL} | hflip"),
    (lambda m: [m.Compose([m.CenterCrop(4)]), m.Compose([m.ToTensor()])], "decode | center_crop(4) | to(f32, nchw)"),
    (lambda m: [torch.nn.Sequential(m.CenterCrop(4)), m.ToTensor()], "decode | center_crop(4) | to(f32, nchw)"),
]


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("at", range(len(COMPLETE)))
def test_known_transforms_become_ops(module, at):
    if module is None:
        pytest.skip("this torchvision has no transforms v2")
    make, text = COMPLETE[at]
    lowered = lower(module.Compose(make(module)))
    padding = "(2, 2, 2, 2)" if module is v2 else "2"
    assert lowered.complete, lowered.steps
    assert lowered.text == text.replace("{}", padding)


@pytest.mark.skipif(v2 is None, reason="this torchvision has no transforms v2")
def test_version_two_conversions():
    tail = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.ToPureTensor()]
    lowered = lower(v2.Compose([v2.ToImage(), v2.ToDtype(torch.uint8, scale=True), v2.CenterCrop(8), *tail]))
    assert lowered.complete and lowered.text == f"decode | center_crop(8) | {NORMAL}" and not lowered.image
    assert lower(v2.Compose([v2.ToImage(), *tail[:1]])).image
    assert lower(v2.Compose([v2.ToImage(), v2.Resize(9), *tail])).complete


class Smaller(v1.Resize):
    pass


class Preset:
    """A class of the user's own that only passes its argument on."""

    def __init__(self, *steps):
        self.steps = v1.Compose(steps)

    def __call__(self, img):
        """Applies it."""
        return self.steps(img)


class Doubled(Preset):
    def __call__(self, img):
        return self.steps(self.steps(img))


def _hooked():
    resize = v1.Resize(9)
    resize.register_forward_hook(lambda module, args, out: out)
    return resize


def _patched():
    resize = v1.Resize(9)
    resize.forward = lambda img: img
    return resize


PREFIX = [
    ([v1.CenterCrop(9), v1.Lambda(lambda x: x), v1.ToTensor()], ["center_crop(9)"], 2),
    ([v1.CenterCrop(9), lambda x: x, v1.ToTensor()], ["center_crop(9)"], 2),
    ([Smaller(9), v1.ToTensor()], [], 2),
    ([v1.Resize(9, v1.InterpolationMode.LANCZOS), v1.ToTensor()], [], 2),
    ([_hooked(), v1.ToTensor()], [], 2),
    ([_patched(), v1.ToTensor()], [], 2),
    ([v1.RandomApply([v1.CenterCrop(9)]), v1.ToTensor()], [], 2),
    ([v1.ToTensor(), v1.Resize(9)], [], 1),
    ([v1.ToTensor(), v1.Normalize(MEAN, STD), v1.Normalize(MEAN, STD)], [NORMAL], 1),
    ([v1.PILToTensor(), v1.ConvertImageDtype(torch.float64)], [], 1),
    ([v1.CenterCrop(9), Doubled(v1.CenterCrop(3)), v1.ToTensor()], ["center_crop(9)"], 2),
]


@pytest.mark.parametrize("at", range(len(PREFIX)))
def test_the_longest_known_prefix_is_lowered(at):
    steps, ops, left = PREFIX[at]
    lowered = lower(v1.Compose(steps))
    assert lowered.ops == ops and len(lowered.rest) == left and not lowered.complete
    assert lowered.rest[-1] is steps[-1]
    reasons = [step.why for step in lowered.steps if step.op is None]
    assert len(reasons) == left and all(reasons)


def test_a_class_that_only_passes_on_is_looked_through():
    assert lower(Preset(v1.CenterCrop(9), v1.ToTensor())).text == "decode | center_crop(9) | to(f32, nchw)"


def test_a_method_patched_on_the_class_is_seen(monkeypatch):
    monkeypatch.setattr(v1.CenterCrop, "forward", lambda self, img: img)
    assert lower(v1.Compose([v1.CenterCrop(9), v1.ToTensor()])).ops == []


def test_no_transform_leaves_pictures():
    assert not lower(None).complete and not lower(v1.Compose([v1.CenterCrop(9)])).complete


def _has(op: str) -> bool:
    try:
        penstock.check_pipeline(f"decode | {op}")
    except penstock.PipelineError:
        return False
    return True


# The recipes' other ops: what they become where this build has them.
RECIPE_OPS = [
    (lambda m: m.ColorJitter(0.4, (0.5, 1.5), 0, 0.1),
     "color_jitter(brightness=(0.6, 1.4), contrast=(0.5, 1.5), hue=(-0.1, 0.1))"),
    (lambda m: m.Grayscale(3), "grayscale(3)"),
    (lambda m: m.RandomGrayscale(0.2), "random_grayscale(p=0.2)"),
    (lambda m: m.GaussianBlur(3, 0.5), "gaussian_blur((3, 3), sigma=(0.5, 0.5))"),
    (lambda m: m.RandomAffine(5, (0.1, 0.2), (0.9, 1.1), 3),
     "random_affine((-5, 5), translate=(0.1, 0.2), scale=(0.9, 1.1), shear=(-3, 3))"),
    (lambda m: m.RandomRotation(9, fill=3, expand=True), "random_rotation((-9, 9), expand=true, fill=3)"),
    (lambda m: m.RandomPosterize(3), "random_posterize(3)"),
    (lambda m: m.RandomSolarize(128, 0.3), "random_solarize(128, p=0.3)"),
    (lambda m: m.RandomAdjustSharpness(2), "random_adjust_sharpness(2)"),
    (lambda m: m.RandomAutocontrast(), "random_autocontrast"),
    (lambda m: m.RandomEqualize(0.1), "random_equalize(p=0.1)"),
    (lambda m: m.RandomInvert(), "random_invert"),
    (lambda m: m.AutoAugment(v1.AutoAugmentPolicy.CIFAR10), "auto_augment(cifar10)"),
    (lambda m: m.RandAugment(3, 7), "rand_augment(3, 7, 31)"),
    (lambda m: m.TrivialAugmentWide(interpolation=v1.InterpolationMode.BILINEAR),
     "trivial_augment_wide(31, interpolation=bilinear)"),
    (lambda m: m.AugMix(severity=2), "augmix(2, 3, -1, 1)"),
]  # fmt: skip


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("at", range(len(RECIPE_OPS)))
def test_ops_of_recipes(module, at):
    if module is None:
        pytest.skip("this torchvision has no transforms v2")
    make, op = RECIPE_OPS[at]
    if not _has(op):
        pytest.skip(f"this build has no {op}")
    lowered = lower(module.Compose([make(module), module.ToTensor()]))
    assert lowered.complete and lowered.ops == [op], lowered.steps
    assert lowered.drawn == (not op.startswith("grayscale"))


ERASE = "random_erasing(p={}, scale=(0.02, 0.33), ratio=(0.3, 3.3){})"


@pytest.mark.skipif(not _has("random_erasing"), reason="this build has no random_erasing")
def test_random_erasing_stands_where_it_stood():
    normal = v1.Normalize(MEAN, STD)
    assert lower(v1.Compose([v1.ToTensor(), v1.RandomErasing(1)])).ops == [ERASE.format(1, "")]
    lowered = lower(v1.Compose([v1.ToTensor(), normal, v1.RandomErasing(0.1, value="random")]))
    assert lowered.complete and lowered.ops == [NORMAL, ERASE.format(0.1, ", value=random")]
    grey = v1.RandomErasing(value=(0.5, 0.5, 0.5))
    assert lower(v1.Compose([v1.ToTensor(), normal, grey])).complete
    assert not lower(v1.Compose([v1.ToTensor(), grey, normal])).complete
