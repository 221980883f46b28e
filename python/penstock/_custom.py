# SPDX-License-Identifier: Apache-2.0
"""Datasets that an object of the user's reads for: what it declares, turned into what the engine takes."""

from __future__ import annotations

import hashlib
from array import array
from typing import Any, Callable, Iterable, Mapping

from . import _penstock
from ._penstock import SettingError

_FieldTuple = tuple[str, str, str, tuple[int, ...], str]
_KINDS = ("image", "mask", "volume", "audio", "text", "bytes")
_DTYPES = ("u8", "i8", "u16", "i16", "i32", "i64", "f16", "f32", "f64", "bool")
_IMAGE: _FieldTuple = ("image", "image", "", (), "")
_LABEL: _FieldTuple = ("label", "label", "i64", (), "")


def open_custom(
    reader: Any,
    threads: int,
    name: str | None,
    fields: Mapping[str, Any] | None,
    labels: Iterable[int] | None,
    key: Callable[[int], object] | None,
    revision: str | bytes | None,
) -> tuple[_penstock.Dataset, str]:
    """The engine's dataset and its name. What is not given is taken from the object, if it has it."""
    name = name or getattr(reader, "name", None)
    if not isinstance(name, str) or not name:
        name = type(reader).__qualname__
    fields = fields if fields is not None else _declared(reader, "fields", Mapping)
    labels = labels if labels is not None else _declared(reader, "labels", Iterable)
    key = key if key is not None else _declared(reader, "key", Callable)
    revision = revision if revision is not None else _declared(reader, "revision", (str, bytes))
    raw = _penstock.custom(
        reader,
        len(reader),
        name,
        threads=threads,
        fields=_fields(fields or {}),
        labels=None if labels is None else array("q", labels),
        key=key,
        revision=None if revision is None else _digest(revision),
    )
    return raw, name


def _declared(reader: Any, attribute: str, kind: Any) -> Any:
    """An attribute of the object if it is of the kind that is meant; objects may use the word for something else."""
    value = getattr(reader, attribute, None)
    if kind is Callable:
        return value if callable(value) else None
    return value if isinstance(value, kind) else None


def _digest(revision: str | bytes) -> bytes:
    blob = revision.encode() if isinstance(revision, str) else revision
    return hashlib.sha256(blob).digest()[:16]


def _fields(declared: Mapping[str, Any]) -> tuple[_FieldTuple, ...]:
    """What every dataset of this kind has, then what was declared. A mask beside a volume is one of voxels."""
    words = {what for what in declared.values() if isinstance(what, str)}
    table = {} if "image" in declared or words & {"volume", "audio"} else {"image": _IMAGE}
    if "label" not in declared:
        table["label"] = _LABEL
    table.update((name, _field(name, what)) for name, what in declared.items())
    if "volume" in words:
        table.update((name, (*field[:3], (-1,) * 4, field[4])) for name, field in table.items() if field[1] == "mask")
    return tuple(table.values())


def _field(name: str, what: Any) -> _FieldTuple:
    word, *shape = (what,) if isinstance(what, str) else tuple(what)
    if word in _KINDS and not shape:
        return (name, word, "", (), "")
    if word not in _DTYPES:
        raise SettingError(
            f"field {name!r}: {word!r} is not known; use {', '.join(_KINDS)}, or a number type: {', '.join(_DTYPES)}"
        )
    kind = "label" if name == "label" else "array" if shape else "meta"
    return (name, kind, word, tuple(int(n) for n in shape), "")
