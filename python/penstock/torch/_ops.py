# SPDX-License-Identifier: Apache-2.0
"""The table of torchvision's transforms and the native ops that do the same.

Each function takes a transform, whose exact type is known, and the form its input has ("pil", "u8", "f32"), and gives
the op's text. Unfit says why this one cannot be native. Attribute names are those that torchvision's versions 1 and 2
share unless said otherwise.
"""

from __future__ import annotations

import numbers
from typing import Any, Callable, Sequence


class Unfit(Exception):
    """This transform's parameters have no native counterpart."""


def number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise Unfit(f"{value!r} is not a number")
    return repr(int(value)) if float(value).is_integer() else repr(float(value))


def several(values: Any) -> str:
    """A list of numbers: one, or in parentheses."""
    if isinstance(values, numbers.Real):
        return number(values)
    texts = [number(value) for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def call(name: str, *args: str, **named: str) -> str:
    """`named` values are left out when empty."""
    words = [*args, *(f"{key}={value}" for key, value in named.items() if value)]
    return f"{name}({', '.join(words)})" if words else name


def interpolation(transform: Any, form: str, default: str = "bilinear") -> str:
    """The filter's word, "" for the op's default."""
    mode = transform.interpolation
    word = str(getattr(mode, "value", mode))
    word = {"0": "nearest", "2": "bilinear", "3": "bicubic"}.get(word, word)
    if word == "nearest-exact" and form == "pil":
        word = "nearest"
    if word not in ("nearest", "bilinear", "bicubic"):
        raise Unfit(f"interpolation {word} has no native counterpart")
    if form != "pil" and (word == "nearest" or getattr(transform, "antialias", True) is not True):
        raise Unfit("on tensors only antialiased filters are the same")
    return "" if word == default else word


def fill(transform: Any) -> str:
    """The border's value, "" for black. A dict (by type, v2) is not followed."""
    value = transform.fill
    if value is None or value == 0:
        return ""
    if isinstance(value, dict) or isinstance(value, str):
        raise Unfit(f"fill={value!r} has no native counterpart")
    values: Sequence[Any] = [value] if isinstance(value, numbers.Real) else list(value)
    if any(float(v) != int(v) for v in values):
        raise Unfit(f"fill={value!r} is not a whole number")
    return several([int(v) for v in values])


def square(size: Any) -> str:
    """torchvision keeps one number for a square as two."""
    sides = [size, size] if isinstance(size, numbers.Integral) else list(size)
    if len(sides) == 1:
        sides = sides * 2
    return number(sides[0]) if sides[0] == sides[1] else several(sides)


def resize(t: Any, form: str) -> str:
    if t.size is None:
        raise Unfit("size=None has no native counterpart")
    size = t.size if isinstance(t.size, numbers.Integral) else list(t.size)
    return call(
        "resize", several(size), interpolation=interpolation(t, form), max_size=number(t.max_size) if t.max_size else ""
    )


def center_crop(t: Any, form: str) -> str:
    return call("center_crop", square(t.size))


def random_resized_crop(t: Any, form: str) -> str:
    return call(
        "random_resized_crop",
        square(t.size),
        scale=several(t.scale),
        ratio=several(t.ratio),
        interpolation=interpolation(t, form),
    )


def _sides(padding: Any, v2_order: bool) -> str:
    """left, top, right, bottom; version 2 keeps left, right, top, bottom in RandomCrop."""
    if v2_order and isinstance(padding, (list, tuple)) and len(padding) == 4:
        left, right, top, bottom = padding
        padding = [left, top, right, bottom]
    return several(padding)


def _is_v2(t: Any) -> bool:
    return type(t).__module__.startswith("torchvision.transforms.v2")


def random_crop(t: Any, form: str) -> str:
    padded = t.padding is not None or t.pad_if_needed
    if form == "f32" and padded:
        raise Unfit("it pads after the conversion to float")
    mode = t.padding_mode if padded and t.padding_mode != "constant" else ""
    return call(
        "random_crop",
        square(t.size),
        padding=_sides(t.padding, _is_v2(t)) if t.padding is not None else "",
        pad_if_needed="true" if t.pad_if_needed else "",
        fill=fill(t) if padded else "",
        padding_mode=mode,
    )


def pad(t: Any, form: str) -> str:
    mode = t.padding_mode if t.padding_mode != "constant" else ""
    return call("pad", _sides(t.padding, False), fill=fill(t), padding_mode=mode)


def with_p(name: str) -> Callable[[Any, str], str]:
    def make(t: Any, form: str) -> str:
        return call(name, p=number(t.p) if t.p != 0.5 else "")

    return make


def normalize(t: Any, form: str) -> str:
    if form != "f32":
        raise Unfit("its input is not float")
    return call("normalize", mean=several(t.mean), std=several(t.std))


def _like(form: str) -> str:
    """Pictures and uint8 tensors are computed differently by torchvision; ops that know both have this word."""
    return "" if form == "pil" else "tensor"


def color_jitter(t: Any, form: str) -> str:
    parts = {name: getattr(t, name) for name in ("brightness", "contrast", "saturation", "hue")}
    return call("color_jitter", **{k: several(v) if v is not None else "" for k, v in parts.items()}, like=_like(form))


def grayscale(t: Any, form: str) -> str:
    return call("grayscale", number(t.num_output_channels), like=_like(form))


def gaussian_blur(t: Any, form: str) -> str:
    return call("gaussian_blur", several(t.kernel_size), sigma=several(t.sigma))


def _chance(name: str, default: float, parameter: str = "", like: bool = False) -> Callable[[Any, str], str]:
    """An op with a probability and at most one parameter more."""

    def make(t: Any, form: str) -> str:
        first = [number(getattr(t, parameter))] if parameter else []
        return call(name, *first, p=number(t.p) if t.p != default else "", like=_like(form) if like else "")

    return make


def _only_pictures(form: str) -> None:
    if form != "pil":
        raise Unfit("on tensors torchvision computes it differently")


def _center(t: Any) -> str:
    return several(t.center) if t.center is not None else ""


def random_affine(t: Any, form: str) -> str:
    _only_pictures(form)
    return call(
        "random_affine",
        several(t.degrees),
        translate=several(t.translate) if t.translate is not None else "",
        scale=several(t.scale) if t.scale is not None else "",
        shear=several(t.shear) if t.shear is not None else "",
        interpolation=interpolation(t, form, "nearest"),
        fill=fill(t),
        center=_center(t),
    )


def random_rotation(t: Any, form: str) -> str:
    _only_pictures(form)
    return call(
        "random_rotation",
        several(t.degrees),
        interpolation=interpolation(t, form, "nearest"),
        expand="true" if t.expand else "",
        center=_center(t),
        fill=fill(t),
    )


def _policy_filter(t: Any, default: str = "nearest") -> str:
    return interpolation(t, "pil", default)


def auto_augment(t: Any, form: str) -> str:
    policy = str(t.policy.value)
    return call("auto_augment", policy, interpolation=_policy_filter(t), fill=fill(t), like=_like(form))


def rand_augment(t: Any, form: str) -> str:
    return call(
        "rand_augment",
        number(t.num_ops),
        number(t.magnitude),
        number(t.num_magnitude_bins),
        interpolation=_policy_filter(t),
        fill=fill(t),
        like=_like(form),
    )


def trivial_augment_wide(t: Any, form: str) -> str:
    return call(
        "trivial_augment_wide",
        number(t.num_magnitude_bins),
        interpolation=_policy_filter(t),
        fill=fill(t),
        like=_like(form),
    )


def augmix(t: Any, form: str) -> str:
    _only_pictures(form)
    return call(
        "augmix",
        number(t.severity),
        number(t.mixture_width),
        number(t.chain_depth),
        number(t.alpha),
        all_ops="" if t.all_ops else "false",
        interpolation=_policy_filter(t, "bilinear"),
        fill=fill(t),
    )


def random_erasing(t: Any, form: str, normalised: bool) -> str:
    if form != "f32":
        raise Unfit("its input is not float")
    value = "random" if isinstance(t.value, str) else several(t.value)
    if not normalised and value not in ("0", "(0, 0, 0)"):
        raise Unfit("before normalisation only black is the same natively")
    value = "" if value == "0" else value
    return call("random_erasing", p=number(t.p), scale=several(t.scale), ratio=several(t.ratio), value=value)


OPS: dict[str, Callable[[Any, str], str]] = {
    "Resize": resize,
    "CenterCrop": center_crop,
    "RandomResizedCrop": random_resized_crop,
    "RandomCrop": random_crop,
    "Pad": pad,
    "RandomHorizontalFlip": with_p("hflip"),
    "RandomVerticalFlip": with_p("vflip"),
    "Normalize": normalize,
    "ColorJitter": color_jitter,
    "Grayscale": grayscale,
    "RandomGrayscale": _chance("random_grayscale", 0.1, like=True),
    "GaussianBlur": gaussian_blur,
    "RandomAffine": random_affine,
    "RandomRotation": random_rotation,
    "RandomPosterize": _chance("random_posterize", 0.5, "bits"),
    "RandomSolarize": _chance("random_solarize", 0.5, "threshold"),
    "RandomAdjustSharpness": _chance("random_adjust_sharpness", 0.5, "sharpness_factor", like=True),
    "RandomAutocontrast": _chance("random_autocontrast", 0.5, like=True),
    "RandomEqualize": _chance("random_equalize", 0.5),
    "RandomInvert": _chance("random_invert", 0.5),
    "AutoAugment": auto_augment,
    "RandAugment": rand_augment,
    "TrivialAugmentWide": trivial_augment_wide,
    "AugMix": augmix,
}

# Those whose result is drawn; the others give the same for the same picture.
DRAWN = {name for name in OPS if name.startswith("Random")}
DRAWN |= {"ColorJitter", "GaussianBlur", "AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix", "RandomErasing"}

# What may stand behind the conversion to float with the same result.
AFTER_FLOAT = {"Normalize", "RandomHorizontalFlip", "RandomVerticalFlip", "CenterCrop", "RandomCrop", "RandomErasing"}


def _to_tensor(t: Any, form: str, image: bool) -> tuple[str, bool]:
    if form != "pil":
        raise Unfit("ToTensor of a tensor")
    return "f32", False


def _pil_to_tensor(t: Any, form: str, image: bool) -> tuple[str, bool]:
    if form != "pil":
        raise Unfit("PILToTensor of a tensor")
    return "u8", False


def _to_image(t: Any, form: str, image: bool) -> tuple[str, bool]:
    return ("u8", True) if form == "pil" else (form, True)


def _to_dtype(t: Any, form: str, image: bool) -> tuple[str, bool]:
    import torch

    if form == "pil":
        if type(t).__name__ == "ToDtype":
            return form, image  # it leaves PIL pictures alone
        raise Unfit("it takes no PIL picture")
    scale = getattr(t, "scale", True)  # ConvertImageDtype always scales
    if not isinstance(t.dtype, torch.dtype):
        raise Unfit("dtype by kind has no native counterpart")
    if t.dtype == torch.float32 and (scale or form == "f32"):
        return "f32", image
    if t.dtype == torch.uint8 and form == "u8":
        return "u8", image
    raise Unfit(f"conversion to {t.dtype} with scale={scale} has no native counterpart")


def _same(t: Any, form: str, image: bool) -> tuple[str, bool]:
    return form, image


def _to_pure(t: Any, form: str, image: bool) -> tuple[str, bool]:
    return form, False


# name -> function of (transform, form, is it a tv_tensors.Image) that gives the new form
CONVERSIONS: dict[str, Callable[[Any, str, bool], tuple[str, bool]]] = {
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ConvertImageDtype": _to_dtype,
    "ToImage": _to_image,
    "ToDtype": _to_dtype,
    "ToPureTensor": _to_pure,
    "Identity": _same,
    "RGB": _same,
}
