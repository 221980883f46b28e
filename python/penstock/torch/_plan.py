# SPDX-License-Identifier: Apache-2.0
"""Which way a loader's batches are made, decided anew at every epoch: datasets and transforms may change in between."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from . import _collate, _datasets, _mix, _prefix, _samplers
from ._files import Files, too_many
from ._lower import Lowered, lower
from ._native import NativePlan
from ._ops import Unfit


@dataclasses.dataclass
class Plan:
    """path: "native", "prefix" (Python workers that begin natively), "python", or "torch" (torch's own iterator, for
    its deprecated data pipes).

    why: the reason for a path that is not native. flat and lowered: as far as they could be made.
    """

    path: str
    why: str = ""
    native: NativePlan | None = None
    flat: _datasets.Flat | None = None
    lowered: Lowered | None = None
    collate: _collate.Collate | None = None


def make(loader: Any, before: Plan | None) -> Plan:
    """`before`: the last plan, whose listing is kept when it still holds."""
    if _is_data_pipe(loader.dataset):
        return Plan("torch", "data pipes run as in torch")
    plan = _lowered(loader, before)
    if plan.path != "native" and loader.native is True:
        raise ValueError(f"native=True, and this loader cannot be native: {plan.why}")
    return plan


def _is_data_pipe(dataset: Any) -> bool:
    pipes = sys.modules.get("torch.utils.data.datapipes.datapipe")
    return pipes is not None and isinstance(dataset, (pipes.IterDataPipe, pipes.MapDataPipe))


def _lowered(loader: Any, before: Plan | None) -> Plan:
    plan = Plan("python", collate=_collate.recognise(loader.collate_fn))
    if loader.native is False:
        plan.why = "native=False"
    elif loader._dataset_kind != 0:
        plan.why = "the dataset is iterable"
    else:
        plan.why = _try_native(loader, plan, before)
        if not plan.why:
            plan.path = "native"
        elif _prefix.is_there() and plan.flat is not None and plan.lowered is not None:
            plan.path = "prefix" if plan.lowered.ops or plan.lowered.complete else "python"
    return plan


def _try_native(loader: Any, plan: Plan, before: Plan | None) -> str:
    """Fills the plan; "" or why the whole cannot be native."""
    try:
        plan.flat = _datasets.flatten(loader.dataset)
        plan.lowered = lower(plan.flat.transform)
        if not plan.lowered.complete:
            return _what_is_left(plan.lowered)
        if not loader._auto_collation:
            return "batch_size=None gives single samples"
        if _samplers.is_endless(loader):
            return "the sampler does not say how long it is, or has more indices than are read ahead"
        plan.native = _native_plan(plan, before)
        met, count = len(plan.native.python_only), len(plan.native.files.raw)
        if too_many(met, count):  # the plan is kept, so that the next epoch knows
            return f"{met} of {count} files are such as only Pillow reads"
    except _datasets.Unknown as why:
        return str(why)
    return ""


def _what_is_left(lowered: Lowered) -> str:
    if lowered.rest:
        return f"{lowered.steps[-len(lowered.rest)].name}: {lowered.steps[-len(lowered.rest)].why}"
    return "what the transforms give is no tensor"


def _native_plan(plan: Plan, before: Plan | None) -> NativePlan:
    assert plan.flat is not None and plan.lowered is not None and plan.collate is not None
    last = before.native if before is not None else None
    if last is not None and last.files.holds(plan.flat):
        files, python_only = last.files, last.python_only
        if last.lowered.text != plan.lowered.text:
            python_only = set(files.foreign)
        made = NativePlan(plan.flat, plan.lowered, files, plan.collate, python_only=python_only)
        made.unreadable = last.unreadable
        return _with_mix(made)
    try:
        files = Files(plan.flat)
    except Exception as why:  # a list that the engine refuses is one for Python
        raise _datasets.Unknown(str(why)) from why
    return _with_mix(NativePlan(plan.flat, plan.lowered, files, plan.collate, python_only=set(files.foreign)))


def _with_mix(plan: NativePlan) -> NativePlan:
    """Lowers what the collation does to a finished batch, where that is known."""
    if plan.collate.kind != "mix":
        return plan
    try:
        if any(leaf.dataset.target_transform is not None for leaf in plan.flat.leaves):
            raise Unfit("target_transform comes before it")
        plan.mix = _mix.lower(plan.collate.call, plan.files.label_range())
    except Unfit as why:
        plan.why_no_mix = str(why)
    return plan
