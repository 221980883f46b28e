# SPDX-License-Identifier: Apache-2.0
"""Dataset: an ordered list of samples, wherever they lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from . import _penstock
from ._batch import as_array
from ._custom import open_custom
from ._penstock import SettingError

if TYPE_CHECKING:
    import numpy


class Field(NamedTuple):
    """One field of a dataset. A length is -1 where it varies or is not known before decoding."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    format: str
    optional: bool


class _Keys(Sequence):
    """The samples' names by id, looked up when asked for: a dataset may have millions."""

    __slots__ = ("_raw",)

    def __init__(self, raw: _penstock.Dataset) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> list[str]: ...
    def __getitem__(self, which):
        if isinstance(which, slice):
            return [self._raw.sample(i)[0] for i in range(*which.indices(len(self)))]
        return self._raw.sample(which + len(self) if which < 0 else which)[0]


class Dataset:
    """A folder, a tar file, a folder or list of tar shards, a manifest (.tsv, .jsonl), one file, the ``s3://`` or ``https://`` URL of
    any of these, or an object of yours.

    index_dir: where listings are remembered (None = the user's cache folder, "" = nowhere). refresh: list again.

    An object with ``len()`` and ``read(i)`` fetches the bytes of samples from wherever they are; everything after that is
    native. ``read(i)`` gives the encoded image, ``(image, label)`` or ``(image, {field: value})``; it is called from
    `threads` threads at once (0 = two while reads are quick, up to 8). For these the following count, each of which may
    also be an attribute of the object:
    fields: what else comes, ``{"caption": "text", "score": "f32", "box": ("f32", 4), "mask": "mask"}``, beside "image" and,
    unless a field has that name, an int64 "label". labels: one for each sample, where they are known ahead.
    key: a function that names a sample (``str(i)`` otherwise). name: stands for the data in saved states (the class's name
    otherwise). revision: text or bytes that change when the data does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Any,
        *,
        index_dir: str | os.PathLike[str] | None = None,
        threads: int = 0,
        refresh: bool = False,
        name: str | None = None,
        fields: Mapping[str, Any] | None = None,
        labels: Iterable[int] | None = None,
        key: Callable[[int], object] | None = None,
        revision: str | bytes | None = None,
    ) -> None:
        if callable(getattr(path, "read", None)) and hasattr(path, "__len__"):
            self.raw, self.path = open_custom(path, threads, name, fields, labels, key, revision)
            return
        if not (name is None and fields is None and labels is None and key is None and revision is None):
            raise SettingError("name, fields, labels, key and revision go with an object that has len() and read(i)")
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise TypeError(f"data is a path or an object with len() and read(i), and not {_shown(path)}")
        self.path = os.fspath(path)
        self.raw = _penstock.Dataset(self.path, index_dir, threads=threads, refresh=refresh)

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def keys(self) -> Sequence[str]:
        """The samples' names, by id."""
        return _Keys(self.raw)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, by label."""
        return self.raw.classes

    @property
    def splits(self) -> tuple[str, ...]:
        return self.raw.splits

    @property
    def fields(self) -> dict[str, Field]:
        return {field[0]: Field(*field) for field in self.raw.fields}

    @property
    def revision(self) -> str:
        """Hex digits that change when any sample does."""
        return self.raw.revision.hex()

    @property
    def kind(self) -> str:
        """'folder', 'tar', 'manifest', 'file' or 'custom'."""
        return self.raw.kind

    def label(self, id: int) -> int | None:
        return self.raw.sample(id)[2]

    def split(self, name: str) -> numpy.ndarray:
        """The ids of a split, ascending."""
        view = self.raw.split(name)
        if view is not None:
            return as_array(view)
        import numpy

        return numpy.arange(len(self), dtype=numpy.int64)

    def read(self, id: int, field: str) -> bytes:
        """One field's bytes as they are stored."""
        return self.raw.read(id, field)

    def __repr__(self) -> str:
        return f"<penstock.Dataset {self.path!r} kind={self.kind} samples={len(self)}>"


def _shown(thing: Any) -> str:
    """A wrong argument in a message; datasets of torch are what is given most often."""
    kind = type(thing).__name__
    return f"a {kind}; penstock.torch.DataLoader takes it" if hasattr(thing, "__getitem__") else f"{kind} {thing!r:.60}"


def as_dataset(data: Any) -> Dataset:
    """A Dataset from what a Loader takes: one already, a path, or an object with ``len()`` and ``read(i)``."""
    return data if isinstance(data, Dataset) else Dataset(data)
