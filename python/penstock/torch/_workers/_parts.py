# SPDX-License-Identifier: Apache-2.0
"""Where a dataset's samples can be put aside: between two items of a list of transforms that are applied in turn.

`find` looks through a dataset for objects with a list `transforms`, as every `Compose` has one, and puts a list of the
same items in its place that tells us when a loop over it goes on to the next. The dataset's own code runs as it is: no
transform is wrapped, and no other function is called instead. This happens in the worker's copy of the dataset alone.

Other samples are made while one is aside, by the same objects. Code that leaves notes about the sample on them would
mix samples up, so `Watch` looks at the first samples: where attributes change, or a lock is held, nothing is put aside.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Callable, Iterator

_DEEPEST = 8  # attributes of attributes
_MOST = 512  # objects
_NOT_OPENED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class Parts(list):
    """A list whose iterators tell its lane when they go on, where it listens as they are made."""

    __slots__ = ("lane",)
    lane: Any

    def __iter__(self) -> Iterator[Any]:
        return self.lane.steps(self) if self.lane.listens else list.__iter__(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy is a plain list."""
        return list, (list.copy(self),)


def find(lane: Any, *roots: Any) -> list[Any]:
    """Puts `Parts` in place of lists under the roots; the objects looked through, none if there are no lists."""
    seen: dict[int, Any] = {}
    found = [_open(root, lane, seen, 0) for root in roots]
    return list(seen.values()) if any(found) else []


def _open(thing: Any, lane: Any, seen: dict[int, Any], depth: int) -> bool:
    attributes = getattr(thing, "__dict__", None)
    if isinstance(thing, _NOT_OPENED) or type(attributes) is not dict:
        return False
    if id(thing) in seen or depth > _DEEPEST or len(seen) >= _MOST:
        return False
    seen[id(thing)] = thing
    found = False
    for name, value in list(attributes.items()):
        if name in ("transforms", "datasets", "rest") and type(value) in (list, tuple):
            for each in value:
                found |= _open(each, lane, seen, depth + 1)
            if name != "datasets" and type(value) is list and len(value) > 1 and all(map(callable, value)):
                parts = attributes[name] = Parts(value)
                parts.lane = lane
                found = True
        else:
            found |= _open(value, lane, seen, depth + 1)
    return found


class Watch:
    """Whether samples leave notes on the objects that make them, or hold locks of theirs between two transforms."""

    def __init__(self, things: list[Any], samples: int) -> None:
        self._things, self.left = things, samples
        self._before: list[dict[str, Any]] = []
        self._changed: dict[tuple[int, str], int] = {}
        self._changed_now: set[tuple[int, str]] = set()
        self.why = ""  # nothing may be put aside

    def begin(self) -> None:
        self._before = [dict(vars(thing)) for thing in self._things]
        self._changed_now = set()

    def look(self) -> None:
        for number, (thing, before) in enumerate(zip(self._things, self._before)):
            for name, value in vars(thing).items():
                if value is not before.get(name, self):
                    self._changed_now.add((number, name))
                if _is_held(value):
                    self.why = f"{type(thing).__qualname__}.{name} is a lock that is held between transforms"

    def end(self) -> None:
        """What is set once, when it is first needed, is no note about a sample."""
        self.look()
        self.left -= 1
        self._before = []
        for number, name in self._changed_now:
            times = self._changed[number, name] = self._changed.get((number, name), 0) + 1
            if times > 1:
                self.why = f"{type(self._things[number]).__qualname__}.{name} changes from sample to sample"


def _is_held(value: Any) -> bool:
    locked: Callable[[], Any] | None = getattr(value, "locked", None) if type(value).__module__ == "_thread" else None
    return locked is not None and bool(locked())


def held_around(last: str) -> str | None:
    """The name of a lock that is held in what the callers see, up to module `last`; another sample would wait for it."""
    frame: types.FrameType | None = sys._getframe(2)
    seen: set[int] = set()
    while frame is not None and frame.f_globals.get("__name__") != last:
        for scope in (frame.f_locals, frame.f_globals):
            if scope is frame.f_globals and id(scope) in seen:
                continue
            seen.add(id(scope))
            for name, value in list(scope.items()):
                if _is_held(value):
                    return name
        frame = frame.f_back
    return None
