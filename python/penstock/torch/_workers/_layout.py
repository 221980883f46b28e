# SPDX-License-Identifier: Apache-2.0
"""How a sample's tensors, arrays and numbers lie in a batch, and the batch that torch's default_collate makes of it.

A sample of known types has a key: nested tuples that name its containers, and the type, dtype and shape of each leaf.
Samples with the same key can be written side by side into one block; anything else has no key and is left to torch's
own default_collate. What a batch looks like (a tuple becomes a list, a float becomes float64, text is left as it is)
follows default_collate exactly, and the tests compare the two.
"""

from __future__ import annotations

import math
import pickle
from typing import Any, Callable, Iterator

import numpy
import torch

_ALIGN = 64
_STRIDED = torch.strided
_NUMBERS = {int: numpy.dtype(numpy.int64), float: numpy.dtype(numpy.float64), bool: numpy.dtype(numpy.bool_)}

# The dtypes whose rows can be written through NumPy; bfloat16 travels as int16.
_STORED: dict[Any, numpy.dtype] = {
    dtype: torch.empty(0, dtype=dtype).numpy().dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
        torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_FROM_NUMPY = {stored: dtype for dtype, stored in _STORED.items()}
_STORED[torch.bfloat16] = numpy.dtype(numpy.int16)

_scalar_dtypes: dict[type, Any] = {}


class Unfit(Exception):
    """The sample has no key."""


def _scalar_dtype(value: Any) -> Any:
    """The dtype that default_collate gives to numbers of this NumPy type."""
    kind = type(value)
    if kind not in _scalar_dtypes:
        dtype = torch.utils.data.default_collate([value, value]).dtype
        _scalar_dtypes[kind] = dtype if dtype in _STORED else None
    return _scalar_dtypes[kind]


def flatten(sample: Any, values: list[Any], texts: list[Any]) -> Any:
    """The sample's key; its leaves go to `values` (as NumPy can write them) and `texts`. Unfit where there is none."""
    kind = type(sample)
    if kind is torch.Tensor:
        dtype = sample.dtype
        if not sample.is_cpu or sample.layout is not _STRIDED or sample.requires_grad or dtype not in _STORED:
            raise Unfit
        try:
            values.append((sample.view(torch.int16) if dtype is torch.bfloat16 else sample).numpy())
        except RuntimeError:  # lazily conjugated or negated
            raise Unfit from None
        return (kind, dtype, sample.shape)
    if kind in _NUMBERS:
        values.append(sample)
        return kind
    if kind is numpy.ndarray or kind is numpy.memmap:
        if sample.dtype not in _FROM_NUMPY:
            raise Unfit
        values.append(sample)
        return (numpy.ndarray, sample.dtype, sample.shape)
    if kind is str or kind is bytes:
        texts.append(sample)
        return kind
    if kind is tuple or kind is list:
        if not sample:
            raise Unfit
        return (kind, *[flatten(item, values, texts) for item in sample])
    if kind is dict:
        return (kind, tuple(sample), *[flatten(item, values, texts) for item in sample.values()])
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return (kind, *[flatten(item, values, texts) for item in sample])
    if isinstance(sample, (numpy.number, numpy.bool_)) and _scalar_dtype(sample) is not None:
        values.append(sample)
        return (numpy.generic, kind)
    raise Unfit


def _leaves(key: Any) -> Iterator[tuple[numpy.dtype, Any, tuple[int, ...]]]:
    """Of each leaf that is not text: how it is stored, its dtype in the batch, its shape."""
    if key in (str, bytes):
        return
    if key in _NUMBERS:
        yield _NUMBERS[key], _FROM_NUMPY[_NUMBERS[key]], ()
    elif key[0] is torch.Tensor:
        yield _STORED[key[1]], key[1], tuple(key[2])
    elif key[0] is numpy.ndarray:
        yield key[1], _FROM_NUMPY[key[1]], tuple(key[2])
    elif key[0] is numpy.generic:
        dtype = _scalar_dtype(key[1](0))
        yield _STORED[dtype], dtype, ()
    else:
        for child in key[2:] if key[0] is dict else key[1:]:
            yield from _leaves(child)


class Layout:
    """Where the leaves of `n` samples with one key lie in a block."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.leaves = list(_leaves(key))
        self.item_bytes = [dtype.itemsize * math.prod(shape) for dtype, _, shape in self.leaves]
        self.has_text = _has_text(key)
        self.where = 0  # offset of the packed layout in the arena once it was published
        self._starts: dict[int, tuple[list[int], int]] = {}

    def pack(self) -> bytes:
        return pickle.dumps(self.key)

    def starts(self, n: int) -> tuple[list[int], int]:
        """Each leaf's start in a block of n samples, and the block's size."""
        known = self._starts.get(n)
        if known is None:
            starts, total = [], 0
            for size in self.item_bytes:
                starts.append(total)
                total += -(-size * n // _ALIGN) * _ALIGN
            known = self._starts[n] = (starts, max(total, _ALIGN))
        return known

    def rows(self, buffer: Any, offset: int, n: int) -> list[numpy.ndarray]:
        """The leaves' arrays in a block at `offset` of `buffer`, the samples along the first axis."""
        starts, _ = self.starts(n)
        return [
            numpy.ndarray((n, *shape), dtype, buffer, offset + start)
            for (dtype, _, shape), start in zip(self.leaves, starts)
        ]

    def batch(self, raw: numpy.ndarray, n: int, texts: list[list[Any]]) -> Any:
        """What default_collate makes of the samples. texts: for each text leaf, its n values."""
        tensors = iter([_tensor(row, leaf[1]) for row, leaf in zip(self.rows(raw, 0, n), self.leaves)])
        return _batched(self.key, tensors, iter(texts), list)

    def sample(self, raw: numpy.ndarray, n: int, position: int, texts: list[Any]) -> Any:
        """One sample as the dataset gave it; its arrays are windows on the block."""
        rows = iter([row[position : position + 1] for row in self.rows(raw, 0, n)])
        return _restored(self.key, rows, iter(texts))


def _has_text(key: Any) -> bool:
    if not isinstance(key, tuple):
        return key in (str, bytes)
    if key[0] in (torch.Tensor, numpy.ndarray, numpy.generic):
        return False
    return any(_has_text(child) for child in (key[2:] if key[0] is dict else key[1:]))


def _tensor(row: numpy.ndarray, dtype: Any) -> torch.Tensor:
    tensor = torch.from_numpy(row)
    return tensor if tensor.dtype is dtype else tensor.view(dtype)


def _batched(key: Any, tensors: Iterator[Any], texts: Iterator[list[Any]], column: Callable[[Any], Any]) -> Any:
    """default_collate's containers. column: what text becomes: a tuple inside sequences (zip), a list elsewhere."""
    if not isinstance(key, tuple):
        return column(next(texts)) if key in (str, bytes) else next(tensors)
    kind = key[0]
    if kind in (torch.Tensor, numpy.ndarray, numpy.generic):
        return next(tensors)
    if kind is dict:
        return {name: _batched(child, tensors, texts, list) for name, child in zip(key[1], key[2:])}
    children = [_batched(child, tensors, texts, tuple) for child in key[1:]]
    return children if kind in (tuple, list) else kind(*children)


def _restored(key: Any, rows: Iterator[numpy.ndarray], texts: Iterator[Any]) -> Any:
    if not isinstance(key, tuple):
        return next(texts) if key in (str, bytes) else key(next(rows)[0])
    kind = key[0]
    if kind is torch.Tensor:
        return _tensor(next(rows)[0, ...], key[1])
    if kind is numpy.ndarray:
        return next(rows)[0, ...]
    if kind is numpy.generic:
        return key[1](next(rows)[0])
    if kind is dict:
        return {name: _restored(child, rows, texts) for name, child in zip(key[1], key[2:])}
    children = [_restored(child, rows, texts) for child in key[1:]]
    return kind(children) if kind in (tuple, list) else kind(*children)


def unpack(data: bytes) -> Layout:
    return Layout(pickle.loads(data))
