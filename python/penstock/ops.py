# SPDX-License-Identifier: Apache-2.0
"""Every op of the pipeline language as a function: ``ops.decode() | ops.random_resized_crop(224) | ops.hflip()``.

The functions are made from the engine's own tables, so they are exactly the ops that it has; ``help(ops.resize)`` shows an
op's parameters. A wrong parameter is found when the pipeline is used, with its place in the text.
"""

from __future__ import annotations

from typing import Any, Callable

from . import _penstock
from ._pipeline import Pipeline, join_calls, op_text, python

__all__ = ["choice", "names", "python", "views"]

_HELP = {name: (summary, params) for name, summary, params in _penstock.op_help()}


def names() -> list[str]:
    """The ops there are."""
    return list(_HELP)


def views(*groups: tuple[int, Pipeline | str]) -> Pipeline:
    """Several outputs from one decoded picture: ``views((2, ops.random_resized_crop(224)), (8, …))``.

    Each is a field of the batch, ``image_0``, ``image_1``, …, in the order written.
    """
    return _of_chains("views", groups)


def choice(*groups: tuple[int, Pipeline | str]) -> Pipeline:
    """One batch op drawn by weight: ``choice((1, ops.mixup(0.2)), (1, ops.cutmix()))``."""
    return _of_chains("choice", groups)


def _of_chains(name: str, groups: tuple[tuple[int, Pipeline | str], ...]) -> Pipeline:
    calls: dict[str, Any] = {}
    for _, chain in groups:
        calls = join_calls(calls, getattr(chain, "calls", {}))
    return Pipeline(f"{name}(" + ", ".join(f"{count}: {chain}" for count, chain in groups) + ")", calls)


def _make(name: str) -> Callable[..., Pipeline]:
    summary, params = _HELP[name]

    def op(*args: Any, **kwargs: Any) -> Pipeline:
        return Pipeline(op_text(name, args, kwargs))

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"{summary}\n\n{_table(params)}"
    return op


def _table(params: str) -> str:
    lines = []
    for line in params.splitlines():
        name, kind, limits, default, text = (line.split("\t") + [""] * 5)[:5]
        lines.append(f"{name} ({kind}, {limits}; {'required' if default == '' else default}): {text}")
    return "\n".join(lines) or "No parameters."


def __getattr__(name: str) -> Callable[..., Pipeline]:
    if name not in _HELP:
        raise AttributeError(f"there is no op {name!r}; there are {', '.join(_HELP)}")
    made = globals()[name] = _make(name)
    return made


def __dir__() -> list[str]:
    return sorted({*__all__, *_HELP})
