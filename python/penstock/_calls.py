# SPDX-License-Identifier: Apache-2.0
"""Functions of the user's inside a pipeline: what they get and what they may give, in numpy's terms."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Mapping

if TYPE_CHECKING:
    from ._penstock import View

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def takes_seed(fn: Callable[..., Any]) -> bool:
    """Whether the function wants a second argument. One with a default is its own setting, unless it is called seed."""
    try:
        parameters = [p for p in inspect.signature(fn).parameters.values() if p.kind in _POSITIONAL]
    except (TypeError, ValueError):  # some functions of C extensions do not tell
        return False
    return len(parameters) > 1 and (parameters[1].default is inspect.Parameter.empty or parameters[1].name == "seed")


def wrap_calls(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[[View, int], Any]]:
    """As the engine calls them."""
    return {name: _wrapped(fn) for name, fn in functions.items()}


def _wrapped(fn: Callable[..., Any]) -> Callable[[View, int], Any]:
    import numpy

    def call(view: View, seed: int) -> Any:
        return _checked(fn(numpy.asarray(view)))

    def call_with_seed(view: View, seed: int) -> Any:
        return _checked(fn(numpy.asarray(view), seed))

    return call_with_seed if takes_seed(fn) else call


def _checked(result: Any) -> Any:
    """The result as a contiguous array of bytes; its shape is the engine's to judge."""
    import numpy

    if result is None:
        raise TypeError("the function gave None; it returns the picture, also when it changed it in place")
    array = numpy.asarray(result)
    if array.dtype != numpy.uint8:
        raise TypeError(f"the function gave values of type {array.dtype}; a picture has uint8")
    return array if array.flags.c_contiguous else numpy.ascontiguousarray(array)
