# SPDX-License-Identifier: Apache-2.0
"""What a loop over a Loader gets: a batch that unpacks like a tuple and answers to its fields' names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Union

from . import _penstock

if TYPE_CHECKING:
    import numpy

    Value = Union[numpy.ndarray, list[numpy.ndarray], list[str]]

_ALWAYS_THERE = ("id", "key", "valid")


def as_array(view: _penstock.View) -> numpy.ndarray:
    """A numpy array over the view's memory; the array keeps the view, and the view its batch."""
    try:
        import numpy
    except ImportError as why:
        raise ImportError(
            "penstock gives batches as numpy arrays and numpy is not installed; "
            "install it, or use batch.raw.view(name), which has the buffer protocol"
        ) from why
    return numpy.asarray(view)


class Batch:
    """One batch. Fields are numpy arrays without a copy, read-only: ``batch.image``, ``batch["image"]``, ``batch[0]``.

    Unpacking gives the fields in order; for a dataset of images and labels that is ``x, y = batch``. A ragged field is
    a list with one array per sample, a text field a list of str. A padded field is one array; ``lengths(name)`` has the
    samples' true sizes. bf16 has no numpy type: its bits come as uint16, and ``dtypes`` says "bf16".
    """

    __slots__ = ("raw", "fields", "_values", "__weakref__")

    def __init__(self, raw: _penstock.Batch) -> None:
        self.raw = raw
        self.fields = _order(raw.names)
        self._values: dict[str, Any] = {}

    @property
    def ids(self) -> numpy.ndarray:
        """Sample ids, int64."""
        return self["id"]

    @property
    def keys(self) -> list[str]:
        """The samples' names."""
        return self["key"]

    @property
    def valid(self) -> numpy.ndarray:
        """False where a slot is padding and does not count."""
        return self["valid"]

    @property
    def epoch(self) -> int:
        return self.raw.epoch

    @property
    def step(self) -> int:
        """Number of the batch within its epoch, from 0."""
        return self.raw.step

    @property
    def size(self) -> int:
        """Slots in the batch, the leading dimension of every field."""
        return self.raw.slot_count

    @property
    def dtypes(self) -> dict[str, str]:
        """Element type of each field as the pipeline names it: u8, f16, bf16, f32, i64, …"""
        return {name: self.raw.info(name)[1] for name in self.fields}

    def lengths(self, name: str) -> numpy.ndarray:
        """True sizes of a padded or ragged field: int64[slots] for samples of rank 1, else int64[slots, rank]."""
        shapes = self.raw.shapes(name)
        if shapes is None:
            raise TypeError(f"field {name!r} is dense: all its samples have the same shape")
        sizes = as_array(shapes)
        return sizes[:, 0] if sizes.shape[1] == 1 else sizes

    def __getitem__(self, which: int | str) -> Any:
        name = which if isinstance(which, str) else self.fields[which]
        if name not in self._values:
            self._values[name] = _value(self.raw, name)
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.fields:
            raise AttributeError(f"the batch has no field {name!r}; its fields are {', '.join(self.fields)}")
        return self[name]

    def __iter__(self) -> Iterator[Any]:
        return (self[name] for name in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.fields]

    def __repr__(self) -> str:
        return f"<penstock.Batch epoch={self.epoch} step={self.step} size={self.size} fields={self.fields}>"


def _order(names: tuple[str, ...]) -> tuple[str, ...]:
    fields = tuple(name for name in names if name not in _ALWAYS_THERE)
    return ("image", "label") if sorted(fields) == ["image", "label"] else fields


def _value(raw: _penstock.Batch, name: str) -> Value:
    kind, _, _, packing, _ = raw.info(name)
    if kind == "text" or name == "key":
        return raw.texts(name)
    if packing == "ragged":
        return [as_array(slot) for slot in raw.slots(name)]
    return as_array(raw.view(name))
