# SPDX-License-Identifier: Apache-2.0
"""From torchvision's transforms to a pipeline's text: the longest known prefix, and what is left for Python.

A transform is known by its exact type with untouched methods. The text is offered to the engine op by op, so an op or a
parameter that this build does not know ends the prefix instead of failing.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator

from .. import _penstock
from . import _ops
from ._recognise import looked_through, why_unknown


@dataclasses.dataclass(frozen=True)
class Step:
    """One transform as the user wrote it: the op it became, or why it stays Python."""

    name: str
    op: str | None
    why: str = ""


@dataclasses.dataclass
class Lowered:
    """A transform taken apart.

    ops: the native prefix, without finish. finish: what writes the batch, or "" for a picture that Python gets as PIL.
    form: what stands after the prefix: "pil", "u8" (CHW tensor), "f32" (CHW tensor in 0..1 or normalised).
    image: whether the tensor is a tv_tensors.Image there. drawn: whether the prefix draws anything at random.
    rest: the transforms Python still has to apply.
    """

    steps: list[Step]
    ops: list[str]
    form: str
    image: bool
    normalised: bool
    drawn: bool
    rest: list[Callable[[Any], Any]]

    @property
    def text(self) -> str:
        """The pipeline for everything before `rest`."""
        finish = {"pil": [], "u8": ["to(u8, nchw)"], "f32": [] if self.normalised else ["to(f32, nchw)"]}[self.form]
        return " | ".join(["decode", *self.ops, *finish])

    @property
    def complete(self) -> bool:
        """Whether nothing is left for Python and what comes out is a tensor."""
        return not self.rest and self.form != "pil"


def flatten(transform: Any) -> Iterator[Any]:
    """The single transforms of nested Compose, Sequential and classes that only pass their argument on."""
    kind = type(transform)
    if kind.__name__ == "Compose" and why_unknown(transform, "torchvision") is None:
        for each in transform.transforms:
            yield from flatten(each)
    elif kind.__name__ == "Sequential" and why_unknown(transform, "torch") is None:
        for each in transform:
            yield from flatten(each)
    else:
        inner = looked_through(transform)
        if inner is None:
            yield transform
        else:
            yield from flatten(inner)


def describe(transform: Any) -> str:
    """A short name: of a function its own, of an object its repr's first line."""
    name = getattr(transform, "__qualname__", None)
    if name is not None:
        return f"{getattr(transform, '__module__', '?')}.{name}"
    text = " ".join(repr(transform).split())
    return text if len(text) <= 100 else text[:97] + "..."


def _accepted(ops: list[str]) -> str | None:
    """None if the engine reads the pipeline, else what it says."""
    text = " | ".join(["decode", *ops])
    try:
        Prep = getattr(_penstock, "Prep", None)
        Prep(text, 0) if Prep else _penstock.check_pipeline(text)
    except ValueError as why:
        return str(why)
    return None


def lower(transform: Any) -> Lowered:
    """Takes a transform of photos (RGB) apart; None stands for no transform at all."""
    leaves = [] if transform is None else list(flatten(transform))
    found = Lowered([], [], "pil", False, False, False, [])
    for at, each in enumerate(leaves):
        why = _take(found, each)
        if why is not None:
            found.rest = leaves[at:]
            found.steps.append(Step(describe(each), None, why))
            found.steps += [Step(describe(later), None, "comes after it") for later in leaves[at + 1 :]]
            break
    return found


def _take(found: Lowered, transform: Any) -> str | None:
    """Adds one transform to the prefix, or says why it cannot."""
    unknown = why_unknown(transform, "torchvision")
    if unknown is not None:
        return unknown
    name = type(transform).__name__
    if name in _ops.CONVERSIONS:
        return _convert(found, transform, name)
    make = _ops.OPS.get(name)
    if make is None and name != "RandomErasing":
        return f"there is no native op for {name}"
    if name == "Normalize" and found.normalised:
        return "natively there is one normalisation"
    if found.form == "f32" and name not in _ops.AFTER_FLOAT:
        return "it follows the conversion to float; natively it would come before"
    try:
        op = make(transform, found.form) if make else _ops.random_erasing(transform, found.form, found.normalised)
    except _ops.Unfit as why:
        return str(why)
    refused = _accepted([*found.ops, op])
    if refused is not None:
        return refused
    found.ops.append(op)
    found.drawn = found.drawn or name in _ops.DRAWN
    found.normalised = found.normalised or name == "Normalize"
    found.steps.append(Step(describe(transform), op))
    return None


def _convert(found: Lowered, transform: Any, name: str) -> str | None:
    try:
        form, image = _ops.CONVERSIONS[name](transform, found.form, found.image)
    except _ops.Unfit as why:
        return str(why)
    op = "" if form == found.form else f"to({form}, nchw)"
    found.steps.append(Step(describe(transform), op))
    found.form, found.image = form, image
    return None
