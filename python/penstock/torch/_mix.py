# SPDX-License-Identifier: Apache-2.0
"""torchvision's MixUp and CutMix as batch ops of the engine, where they are exactly what the library ships."""

from __future__ import annotations

import fractions
import math
import sys
from typing import Any

from .. import _penstock
from ._ops import Unfit, number
from ._recognise import why_unknown

# Weights of a choice are whole numbers natively; probabilities are kept when they are such a fraction.
_LARGEST_WEIGHT = 1000


def lower(mix: Any, labels: tuple[int, int] | None) -> str:
    """The batch op for what a collate function calls on (pictures, labels), where labels are the least and the largest
    one. Unfit says why it stays Python."""
    if why_unknown(mix, "torchvision") is not None:
        raise Unfit("it is no MixUp, CutMix or RandomChoice of torchvision's")
    ops = _choices(mix) if type(mix).__name__ == "RandomChoice" else [("", mix)]
    classes = {_classes(each) for _, each in ops}
    if len(classes) != 1:
        raise Unfit("its parts have different num_classes")
    if labels is None or labels[0] < 0 or labels[1] >= classes.pop():
        raise Unfit("not all labels are whole numbers below num_classes")
    parts = [f"{weight}{_op(each)}" for weight, each in ops]
    text = parts[0] if len(parts) == 1 and not ops[0][0] else f"choice({', '.join(parts)})"
    try:
        _penstock.check_pipeline(f"decode | to(f32, nchw) || {text}")
    except ValueError as why:
        raise Unfit(str(why)) from None
    return text


def _choices(mix: Any) -> list[tuple[str, Any]]:
    """("weight: ", transform) of each part of a RandomChoice."""
    # Without weights all are equal; the v1 class takes weights of any sum and keeps them as they are.
    given = [1.0] * len(mix.transforms) if mix.p is None else [float(p) for p in mix.p]
    if not given or len(given) != len(mix.transforms) or not sum(given) > 0:
        raise Unfit("it has no weight for each of its parts")
    parts = [p / sum(given) for p in given]
    shares = [fractions.Fraction(p).limit_denominator(_LARGEST_WEIGHT) for p in parts]
    if any(abs(float(share) - p) > 1e-12 for share, p in zip(shares, parts)):
        raise Unfit("its probabilities are no small fractions")
    common = 1
    for share in shares:
        common = common * share.denominator // math.gcd(common, share.denominator)
    weights = [int(share * common) for share in shares]
    if min(weights) < 1 or max(weights) > _LARGEST_WEIGHT:
        raise Unfit("its probabilities are no small fractions")
    return [(f"{weight}: ", each) for weight, each in zip(weights, mix.transforms)]


def _known(mix: Any) -> None:
    utils = sys.modules.get("torchvision.transforms.v2._utils")
    usual = getattr(utils, "_find_labels_default_heuristic", None)
    if why_unknown(mix, "torchvision") is not None or type(mix).__name__ not in ("MixUp", "CutMix"):
        raise Unfit(f"{type(mix).__name__} is no MixUp or CutMix of torchvision's")
    if usual is None or mix._labels_getter is not usual:
        raise Unfit("it has a labels_getter of its own")
    alpha = mix._dist.concentration1, mix._dist.concentration0
    if any(abs(float(each) - mix.alpha) > 1e-6 * mix.alpha for each in alpha):
        raise Unfit("its distribution was changed")


def _classes(mix: Any) -> int:
    _known(mix)
    if type(mix.num_classes) is not int:
        raise Unfit("it has no num_classes")
    return mix.num_classes


def _op(mix: Any) -> str:
    return f"{type(mix).__name__.lower()}({number(mix.alpha)}, classes={mix.num_classes})"
