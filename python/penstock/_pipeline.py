# SPDX-License-Identifier: Apache-2.0
"""Pipelines from Python objects. They print as the text that is used everywhere else."""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Mapping, Union

from . import _penstock
from ._calls import takes_seed
from ._penstock import SettingError

PipelineLike = Union[str, "Pipeline", Iterable[Union[str, "Pipeline"]]]
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NAME_MOST = 31


class Pipeline:
    """A piece of a pipeline: ``decode() | hflip()``. ``str()`` gives its text.

    ``piece | piece`` puts one after the other, ``piece.then_batch(mixup(0.2))`` adds ops on whole batches, and
    ``piece.also("mask", to("i64"))`` adds a block for some fields only.
    """

    __slots__ = ("text", "calls")

    def __init__(self, text: str, calls: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.text = text
        self.calls = dict(calls or {})

    def __or__(self, other: Pipeline | str) -> Pipeline:
        return self._join(" | ", other)

    def __ror__(self, other: str) -> Pipeline:
        return as_pipeline(other)._join(" | ", self)

    def then_batch(self, *ops: Pipeline | str) -> Pipeline:
        """Ops that run once on a full batch: the part after ``||``."""
        joined = self
        for number, op in enumerate(ops):
            joined = joined._join(" | " if number else " || ", op)
        return joined

    def also(self, fields: str, chain: Pipeline | str) -> Pipeline:
        """A further block that acts on these fields only: ``"mask"``, or ``"mask,depth"``."""
        piece = as_pipeline(chain)
        return self._join(" ; ", Pipeline(f"{fields}: {piece.text}", piece.calls))

    def _join(self, between: str, other: Pipeline | str) -> Pipeline:
        if not isinstance(other, (str, Pipeline)):
            return NotImplemented
        right = as_pipeline(other)
        return Pipeline(self.text + between + right.text, join_calls(self.calls, right.calls))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<penstock.Pipeline {self.text}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and (self.text, self.calls) == (other.text, other.calls)

    def __hash__(self) -> int:
        return hash(self.text)


def join_calls(
    left: Mapping[str, Callable[..., Any]], right: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """The functions of both; one name stands for one function."""
    for name, fn in right.items():
        if left.get(name, fn) is not fn:
            raise SettingError(f"two functions are called {name!r} in one pipeline; give one of them another name=")
    return {**left, **right}


def as_pipeline(what: PipelineLike) -> Pipeline:
    """A text, a Pipeline, or a list of pieces in order."""
    if isinstance(what, Pipeline):
        return what
    if isinstance(what, str):
        return Pipeline(what)
    if not isinstance(what, (list, tuple)):
        raise TypeError(f"a pipeline is a text, an object of penstock.ops or a list of these, and not {what!r:.60}")
    pieces = [as_pipeline(piece) for piece in what]
    if not pieces:
        raise SettingError("the pipeline is empty; it starts with decode")
    joined = pieces[0]
    for piece in pieces[1:]:
        joined = joined | piece
    return joined


def op_text(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """``name(1, size=(2, 3))`` as pipeline text."""
    parts = [_value_text(value) for value in args] + [f"{key}={_value_text(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(parts)})" if parts else name


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Pipeline):
        return value.text
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else f'"{value}"'
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(_value_text(item) for item in value) + ")"
    if hasattr(value, "item"):  # numpy's and torch's numbers
        return _value_text(value.item())
    raise TypeError(f"{value!r} is no parameter of an op: numbers, words, booleans and lists of them are")


def python(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    shape: tuple[int, ...] | str | None = None,
    fixed: bool = False,
) -> Pipeline:
    """A stage that runs your function on each picture: ``decode() | python(fn) | normalize("imagenet")``.

    `fn` gets the picture as a uint8 array [rows, columns, channels], its own to change or keep, and gives one back;
    with a second parameter it also gets the sample's own random seed, the same in every run. It runs on the engine's
    workers, one at a time where the interpreter has a global lock. shape: None = the result has the size it came with,
    (rows, columns) or (rows, columns, channels) = always this, "any" = rows and columns vary. fixed: the result
    depends on the picture alone, so it may be kept in the cache. name: how the stage is called in the pipeline's text,
    in errors and in a saved state, at most 31 bytes; else the function's own name. A state does not know what the
    function does: change its name when you change it.
    """
    if not callable(fn):
        raise TypeError(f"python() takes a function, not {fn!r}")
    if fixed and takes_seed(fn):
        raise SettingError("a fixed function depends on the picture alone: it takes one argument, no seed")
    options: dict[str, Any] = {}
    if shape == "any":
        options["any"] = True
    elif isinstance(shape, str):
        raise SettingError(f"shape={shape!r} is not known; use 'any', (rows, columns, channels) or None")
    elif shape is not None:
        options["size"] = tuple(shape)
    if fixed:
        options["fixed"] = True
    label = name or _name_of(fn)
    return Pipeline(op_text("call", (label,), options), {label: fn})


def _name_of(fn: Callable[..., Any]) -> str:
    """A function's own name as a word of the pipeline's language."""
    own = getattr(fn, "__name__", type(fn).__name__)
    label = re.sub(r"[^A-Za-z0-9_.-]+", "_", own).strip("_.-") or "fn"
    return (label if _WORD.fullmatch(label) else f"fn_{label}")[:_NAME_MOST]


def check_pipeline(text: PipelineLike) -> str:
    """The canonical form of a pipeline; PipelineError names the wrong word and its place."""
    canonical, _ = _penstock.check_pipeline(str(as_pipeline(text)))
    return canonical
