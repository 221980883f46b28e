# SPDX-License-Identifier: Apache-2.0
"""What a loop over a Loader gets: a named tuple of a batch's fields that also knows its samples."""

from __future__ import annotations

import functools
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Callable

from . import _penstock
from ._targets import targets_of

if TYPE_CHECKING:
    import numpy

_ALWAYS_THERE = ("id", "key", "valid", "preparation")


def as_array(view: _penstock.View) -> Any:
    """A numpy array over the view's memory; the array keeps the view, and the view its batch.

    Where numpy is not installed the view itself, which has the buffer protocol and DLPack.
    """
    try:
        import numpy
    except ImportError:
        return view
    return numpy.asarray(view)


class Batch(tuple):
    """One batch: ``x, y = batch``, ``batch.image``, ``batch["image"]``, ``batch[0]``.

    Fields come in order; a dataset of images and labels gives exactly these two, and with ``views`` in the pipeline each
    view is a field: ``image_0, image_1, label = batch``. They are numpy arrays, or torch tensors when the
    loader has a device, over the engine's memory without a copy. A ragged field is a list with one array per sample, a
    text field a list of str. A padded field is one array; ``lengths(name)`` has the samples' true sizes. bf16 has no
    numpy type: there its bits come as uint16, and ``dtypes`` says "bf16".
    """

    _fields: tuple[str, ...] = ()
    _about: "_About | None" = None

    def __new__(cls, *values: Any) -> Batch:
        return tuple.__new__(cls, values)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in the order in which they unpack."""
        return self._fields

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def _know(self) -> _About:
        if self._about is None:
            raise AttributeError
        return self._about

    @property
    def raw(self) -> _penstock.Batch:
        """The engine's batch. Not there for batches on another device: its memory has gone back."""
        raw = self._know().raw
        if raw is None:
            raise AttributeError
        return raw

    @property
    def ids(self) -> Any:
        """Sample ids, int64."""
        return self._know().get("id")

    @property
    def keys(self) -> list[str]:
        """The samples' names."""
        return self._know().get("key")

    @property
    def valid(self) -> Any:
        """False where a slot is padding and does not count."""
        return self._know().get("valid")

    @property
    def epoch(self) -> int:
        return self._know().epoch

    @property
    def step(self) -> int:
        """Number of the batch within its epoch, from 0."""
        return self._know().step

    @property
    def size(self) -> int:
        """Slots in the batch, the leading dimension of every field."""
        return self._know().slots

    @property
    def dtypes(self) -> dict[str, str]:
        """Element type of each field as the pipeline names it: u8, f16, bf16, f32, i64, …"""
        return {name: self.raw.info(name)[1] for name in self._fields}

    def lengths(self, name: str) -> numpy.ndarray:
        """True sizes of a padded or ragged field: int64[slots] for samples of rank 1, else int64[slots, rank]."""
        sizes = self._know().sizes(name)
        if sizes is None:
            raise TypeError(f"field {name!r} is dense: all its samples have the same shape")
        return sizes[:, 0] if sizes.shape[1] == 1 else sizes

    def targets(self) -> list[dict[str, Any]]:
        """The objects of each sample under torchvision's names: boxes, labels, masks, image_id, area, iscrowd, as far as
        they are fields of the batch. Padding is left off; nothing is copied."""
        return targets_of(self)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return tuple.__getitem__(self, which)
        if which in self._fields:
            return tuple.__getitem__(self, self._fields.index(which))
        if which in _ALWAYS_THERE:
            return self._know().get(which)
        raise KeyError(which)

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # one of the properties above gave up
            raise AttributeError(
                f"this batch has no {name} any more: it was put together from fields alone, or copied to another device "
                "and its memory went back to the engine"
            )
        raise AttributeError(f"the batch has no field {name!r}; its fields are {', '.join(self._fields)}")

    def __reduce__(self) -> Any:
        return _rebuild, (self._fields, tuple(self))

    def __repr__(self) -> str:
        about = self._about
        where = f" epoch={about.epoch} step={about.step} size={about.slots}" if about else ""
        return f"<penstock.Batch{where} fields={self._fields}>"


class _About:
    """What a batch knows besides its fields; each value is made when first asked for."""

    __slots__ = ("raw", "epoch", "step", "slots", "_values", "_sizes", "_convert")

    def __init__(self, raw: _penstock.Batch, convert: Callable[[_penstock.View], Any]) -> None:
        self.raw: _penstock.Batch | None = raw
        self.epoch, self.step, self.slots = raw.epoch, raw.step, raw.slot_count
        self._values: dict[str, Any] = {}
        self._sizes: dict[str, Any] = {}
        self._convert = convert

    def get(self, name: str) -> Any:
        if name not in self._values:
            if self.raw is None:
                raise AttributeError
            self._values[name] = _value(self.raw, name, self._convert)
        return self._values[name]

    def sizes(self, name: str) -> Any:
        """True sizes of a field's samples, int64[slots, rank]; None where all are alike."""
        if self.raw is None:
            return self._sizes.get(name)
        shapes = self.raw.shapes(name)
        return None if shapes is None else as_array(shapes)

    def settle(self, values: dict[str, Any], sizes: dict[str, Any]) -> None:
        """Keeps these values and sizes and lets go of the engine's memory."""
        self._values, self._sizes, self.raw = values, sizes, None


def make_batch(raw: _penstock.Batch, convert: Callable[[_penstock.View], Any] = as_array) -> Batch:
    """The batch over the engine's own memory; `convert` makes an array or tensor from a view."""
    fields = field_order(raw.names)
    batch = _class_for(fields)(*(_value(raw, name, convert) for name in fields))
    batch._about = _About(raw, convert)
    return batch


def copied_batch(raw: _penstock.Batch, values: dict[str, Any], kept: dict[str, Any]) -> Batch:
    """A batch whose fields lie elsewhere. `kept` are id, key and valid; the engine's memory is let go of. Sizes of samples are
    copied."""
    fields = tuple(name for name in field_order(raw.names) if name in values)
    batch = _class_for(fields)(*(values[name] for name in fields))
    about = _About(raw, as_array)
    sizes = {name: about.sizes(name) for name in fields}
    about.settle(kept, {name: size.copy() for name, size in sizes.items() if hasattr(size, "copy")})
    batch._about = about
    return batch


def field_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """The fields in the order in which a batch unpacks: image, or its views, before label where these are all."""
    fields = tuple(name for name in names if name not in _ALWAYS_THERE)
    images = tuple(name for name in fields if name != "label")
    views = tuple(f"image_{place}" for place in range(len(images)))
    return (*images, "label") if "label" in fields and images in (("image",), views) else fields


@functools.lru_cache(maxsize=64)
def _class_for(fields: tuple[str, ...]) -> type[Batch]:
    """A class of batches with these fields as attributes, where no method has the name already."""
    members: dict[str, Any] = {"_fields": fields, "__doc__": Batch.__doc__}
    for place, name in enumerate(fields):
        if not hasattr(Batch, name):
            members[name] = property(itemgetter(place))
    return type("Batch", (Batch,), members)


def _rebuild(fields: tuple[str, ...], values: tuple[Any, ...]) -> Batch:
    return _class_for(fields)(*values)


def _value(raw: _penstock.Batch, name: str, convert: Callable[[_penstock.View], Any]) -> Any:
    kind, _, _, packing, _ = raw.info(name)
    if kind == "text" or name == "key":
        return raw.texts(name)
    if packing == "ragged":
        return [convert(slot) for slot in raw.slots(name)]
    return convert(raw.view(name))
