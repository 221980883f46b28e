# SPDX-License-Identifier: Apache-2.0
"""What explain() says: each layer of the dataset and each transform, what became of it, and what Python costs."""

from __future__ import annotations

from typing import Any

from ._plan import Plan

_PATHS = {
    "native": "native: threads of this process prepare whole batches",
    "prefix": "Python workers that begin natively: the rest runs as it was written",
    "python": "Python: the dataset runs as it was written",
    "torch": "torch: its own iterator",
}


def text(loader: Any, plan: Plan, stats: dict[str, Any]) -> str:
    lines = [f"path: {_PATHS[plan.path]}"]
    if plan.why:
        lines.append(f"  because {plan.why}")
    lines += _dataset(loader, plan) + _transforms(plan) + _targets(plan) + _collation(loader, plan)
    lines.append(_order(loader, plan))
    if plan.path == "native" and plan.lowered is not None:
        mix = plan.native.mix if plan.native is not None and not plan.native.python_only else ""
        lines.append(f"pipeline: {plan.lowered.text}" + (f" || {mix}" if mix else ""))
    return "\n".join(lines + _costs(plan, stats))


def _dataset(loader: Any, plan: Plan) -> list[str]:
    if plan.flat is None:
        return [f"dataset: {type(loader.dataset).__module__}.{type(loader.dataset).__qualname__}: Python"]
    lines = ["dataset:", *(f"  {layer}" for layer in plan.flat.layers)]
    if plan.path == "native" and plan.native is not None and plan.native.python_only:
        lines.append(f"  {len(plan.native.python_only)} samples that only Pillow reads: Python, in the caller's thread")
    return lines


def _transforms(plan: Plan) -> list[str]:
    if plan.lowered is None:
        return []
    lines = ["transforms:"]
    for step in plan.lowered.steps:
        became = f"Python, {step.why}" if step.op is None else step.op or "nothing to do"
        lines.append(f"  {step.name}: {became}")
    return lines if plan.lowered.steps else []


def _targets(plan: Plan) -> list[str]:
    if plan.flat is None:
        return []
    changes = [leaf.dataset.target_transform for leaf in plan.flat.leaves if leaf.dataset.target_transform is not None]
    return [f"target_transform: Python, for each sample at delivery: {change!r}" for change in changes]


def _collation(loader: Any, plan: Plan) -> list[str]:
    if plan.collate is None:
        return []
    where = "in the caller's thread" if plan.path == "native" or loader.num_workers == 0 else "in the workers"
    said = {
        "default": "torch's default" + (": batches are written in place" if plan.path == "native" else ""),
        "mix": f"{plan.collate.call!r} on a finished batch: {_mixing(plan, where)}",
        "user": f"{plan.collate.call!r} on a list of samples: Python, {where}",
    }
    return [f"collation: {said[plan.collate.kind]}"]


def _mixing(plan: Plan, where: str) -> str:
    native = plan.native if plan.path == "native" else None
    if native is not None and native.mix and not native.python_only:
        return native.mix
    why = f" ({native.why_no_mix})" if native is not None and native.why_no_mix else ""
    return f"Python, {where}{why}"


def _order(loader: Any, plan: Plan) -> str:
    name = type(loader.sampler if loader.batch_size is not None else loader.batch_sampler).__name__
    how = "as torch's" if loader.in_order else "what is ready first"
    return f"order: {name}, {how}"


def _costs(plan: Plan, stats: dict[str, Any]) -> list[str]:
    lines = []
    for name, runs, seconds in stats.get("stages", []):
        if runs:
            lines.append(f"  {name}: {seconds / runs * 1e3:.3f} ms a sample")
    if stats.get("python_batch_s"):
        lines.append(f"  targets and collation in Python: {stats['python_batch_s'] * 1e3:.3f} ms a batch")
    if stats.get("sample_s"):
        lines.append(f"  the dataset in the workers: {stats['sample_s'] * 1e3:.3f} ms a sample")
    return ["measured:", *lines] if lines else []
