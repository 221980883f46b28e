# SPDX-License-Identifier: Apache-2.0
"""Whether an object is exactly what a library ships: its type, with the methods it came with.

Lowering replaces Python code by native code, so it may only happen when the Python code is known. A subclass, a method
patched on the class or on the instance, a hook: each makes the object unknown, and then it runs as it is.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from typing import Any, Callable

# What torchvision's transforms and datasets may be called through.
_METHODS = (
    "__call__",
    "forward",
    "transform",
    "_transform",
    "get_params",
    "make_params",
    "_get_params",
    "check_inputs",
    "_check_inputs",
    "_call_kernel",
    "_needs_transform_list",
    "_mixup_label",
    "_check_image_or_video",
    "__getitem__",
    "__getitems__",
    "__len__",
    "__getattr__",
    "__getattribute__",
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")


@functools.lru_cache(maxsize=None)
def _home(package: str) -> str:
    return os.path.dirname(os.path.abspath(sys.modules[package].__file__ or "")) + os.sep


def _shipped(function: Any, packages: tuple[str, ...]) -> bool:
    """Whether a function's code lies in one of the packages; what has no Python code (a slot of object) counts."""
    while isinstance(function, (staticmethod, classmethod, types.MethodType, functools.partial)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    code = getattr(function, "__code__", None)
    if code is None:
        return not isinstance(function, types.FunctionType)
    return any(os.path.abspath(code.co_filename).startswith(_home(package)) for package in packages)


def why_unknown(thing: Any, package: str) -> str | None:
    """None if `thing` is an untouched instance of a class of `package` (a top-level package that is imported)."""
    kind = type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    home = sys.modules.get(kind.__module__)
    if kind.__module__.split(".")[0] != package or getattr(home, kind.__qualname__, None) is not kind:
        return f"{name} is not a class of {package}"
    packages = ("torch",) if package == "torch" else (package, "torch")
    for method in _METHODS:
        function = getattr(kind, method, None)
        if function is not None and not _shipped(function, packages):
            return f"{name}.{method} was replaced"
    own = getattr(thing, "__dict__", {})
    for attribute in own:
        if callable(getattr(kind, attribute, None)):
            return f"{attribute} was replaced on this {kind.__name__}"
    if any(own.get(hooks) for hooks in _HOOKS):
        return f"this {kind.__name__} has hooks"
    return None


def passes_on(function: Callable[..., Any], template: str) -> tuple[str, ...] | None:
    """The names a one-line function uses, if compiling `template` with them gives the very same code.

    The template's placeholders are {s} and {a} for the first and the last argument and {0}, {1} for names, as in
    ``return {s}.{0}({a})``. Names are those of globals and attributes in order of use, then closure variables.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_argcount < 1 or code.co_flags & 0x0C or code.co_kwonlyargcount:
        return None
    argument = code.co_varnames[code.co_argcount - 1]
    names = (*code.co_names, *code.co_freevars)
    try:
        body = template.format(*names, a=argument, s=code.co_varnames[0])
    except IndexError:
        return None
    arguments = ", ".join(code.co_varnames[: code.co_argcount])
    source = f"def outer({', '.join(code.co_freevars)}):\n  def inner({arguments}):\n    {body}\n"
    try:
        outer = compile(source, "<template>", "exec").co_consts[0]
    except SyntaxError:
        return None
    inner = next(const for const in outer.co_consts if isinstance(const, types.CodeType))
    same = (
        code.co_code == inner.co_code
        and code.co_names == inner.co_names
        and code.co_freevars == inner.co_freevars
        and code.co_varnames == inner.co_varnames
    )
    return names if same else None


def looked_through(thing: Any) -> Any | None:
    """The callable that `thing` only passes its argument on to, as ``def __call__(self, img): return self.tf(img)``.

    That is how recipes wrap a Compose in a class of their own. None if it does anything else.
    """
    kind = type(thing)
    if kind.__getattribute__ is not object.__getattribute__ or hasattr(kind, "__getattr__"):
        return None
    call = kind.__dict__.get("__call__")
    if not isinstance(call, types.FunctionType) or call.__code__.co_argcount != 2:
        return None
    names = passes_on(call, "return {s}.{0}({a})")
    if names is None or hasattr(kind, names[0]):
        return None
    return vars(thing).get(names[0]) if hasattr(thing, "__dict__") else None
