# SPDX-License-Identifier: Apache-2.0
"""Any object through the shared memory: the bytes of its tensors and arrays lie in chunks, the rest is a small pickle.

Workers and trainer are one program of one user, forked from each other, so pickle carries nothing here that did not
come from the user's own code. A tensor keeps its strides where its elements fill their memory without gaps.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy
import torch

from ._arena import Arena, Region

_INLINE = 256  # bytes up to which an array is not worth a chunk


def store(region: Region, data: bytes) -> int:
    """A chunk with these bytes; its first word is their number."""
    start = region.allocate(len(data) + 8)
    arena = region.arena
    arena.words[start >> 3] = len(data)
    arena.map[start + 8 : start + 8 + len(data)] = data
    return start


def fetch(arena: Arena, start: int) -> bytes:
    return arena.map[start + 8 : start + 8 + arena.words[start >> 3]]


def take(arena: Arena, start: int) -> bytes:
    """`fetch`, and one holder less."""
    data = fetch(arena, start)
    arena.release(start)
    return data


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, region: Region) -> None:
        super().__init__(file, protocol=5)
        self.region = region
        self.chunks: list[int] = []  # those that the reader will release

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is torch.Tensor:
            return self._plain(obj)
        if kind is numpy.ndarray and not obj.dtype.hasobject and obj.nbytes > _INLINE:
            return self._array(obj)
        if isinstance(obj, torch.Tensor) and self._is_dense(obj):
            state = {name: value for name, value in getattr(obj, "__dict__", {}).items()}
            return _as_subclass, (obj.detach().as_subclass(torch.Tensor), kind, obj.requires_grad, state)
        return NotImplemented

    @staticmethod
    def _is_dense(tensor: torch.Tensor) -> bool:
        return (
            tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
            and not tensor.is_conj() and not tensor.is_neg()
            and (not tensor.requires_grad or tensor.is_leaf)
        )  # fmt: skip

    def _plain(self, tensor: torch.Tensor) -> Any:
        if not self._is_dense(tensor):
            if tensor.device.type != "cpu":
                from torch.multiprocessing.reductions import reduce_tensor

                return reduce_tensor(tensor)
            return NotImplemented
        if tensor.requires_grad:
            return _with_grad, (tensor.detach(),)
        size = tensor.numel() * tensor.element_size()
        if not size:
            return _empty, (tuple(tensor.shape), tensor.dtype)
        fills = _fills(tensor)
        start = self._shared(tensor, size) if fills else None
        if start is None:
            start = self._copied(tensor, size)
        stride = tensor.stride() if fills else None
        self.chunks.append(start)
        return _tensor_here, (start, size, tensor.dtype, tuple(tensor.shape), stride)

    def _shared(self, tensor: torch.Tensor, size: int) -> int | None:
        """The chunk that the tensor already is, with one more holder, if our own collation put it there."""
        arena = self.region.arena
        start = tensor.data_ptr() - arena.address
        if start not in self.region.collated or self.region.collated[start] != size:
            return None
        arena.hold(start)
        return start

    def _copied(self, tensor: torch.Tensor, size: int) -> int:
        start = self.region.allocate(size)
        raw = torch.from_numpy(self.region.arena.view(start, size))
        target = raw.view(tensor.dtype)
        if _fills(tensor):
            target.as_strided(tensor.shape, tensor.stride()).copy_(tensor)
        else:
            target.view(tensor.shape).copy_(tensor)
        return start

    def _array(self, array: numpy.ndarray) -> Any:
        start = self.region.allocate(array.nbytes)
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        order = "F" if fortran else "C"
        target: numpy.ndarray = numpy.ndarray(array.shape, array.dtype, self.region.arena.map, start, order=order)
        target[...] = array
        self.chunks.append(start)
        return _array_here, (start, array.nbytes, array.dtype, array.shape, order)


def _fills(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a stretch of memory without gaps or overlaps, in whatever order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape)):
        if length == 1:
            continue
        if stride != expected:
            return False
        expected *= length
    return True


def dump(region: Region, obj: Any) -> int:
    """A chunk from which `load` makes the object again. Nothing stays behind if it cannot be pickled."""
    file = io.BytesIO()
    pickler = _Pickler(file, region)
    try:
        pickler.dump(obj)
    except BaseException:
        for start in pickler.chunks:
            region.arena.release(start)
        raise
    return store(region, file.getbuffer())


class _Reader:
    """Makes tensors and arrays over chunks. Not the unpickler itself: that remembers what it was given, and a cycle
    would keep every batch until the garbage collector comes by."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def tensor(self, start: int, size: int, dtype: Any, shape: tuple[int, ...], stride: tuple[int, ...] | None) -> Any:
        tensor = torch.frombuffer(self._arena.lease(start, size), dtype=dtype)
        return tensor.view(shape) if stride is None else tensor.as_strided(shape, stride)

    def array(self, start: int, size: int, dtype: Any, shape: tuple[int, ...], order: Any) -> numpy.ndarray:
        return numpy.ndarray(shape, dtype, self._arena.lease(start, size), order=order)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, reader: _Reader) -> None:
        super().__init__(file)
        self._reader = reader

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == "_tensor_here":
            return self._reader.tensor
        if module == __name__ and name == "_array_here":
            return self._reader.array
        return super().find_class(module, name)


# torch keeps every sparse tensor that was unpickled until this is called.
_forget_sparse = getattr(torch._utils, "_validate_loaded_sparse_tensors", lambda: None)


def load(arena: Arena, start: int) -> Any:
    """The object that was dumped there; its chunks are held by its arrays, the pickle's is released."""
    result = _Unpickler(io.BytesIO(take(arena, start)), _Reader(arena)).load()
    _forget_sparse()
    return result


def discard(arena: Arena, start: int) -> None:
    """Gives back what was dumped there: the arrays of the object give back their chunks as they go."""
    try:
        load(arena, start)
    except Exception:
        pass  # the user's class does not want to come back; nobody asked for it


def _tensor_here(*_: Any) -> Any:
    raise RuntimeError("a shared tensor can be read from its arena only")


def _array_here(*_: Any) -> Any:
    raise RuntimeError("a shared array can be read from its arena only")


def _empty(shape: tuple[int, ...], dtype: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _with_grad(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_()


def _as_subclass(tensor: torch.Tensor, kind: Any, requires_grad: bool, state: dict[str, Any]) -> Any:
    result = tensor.as_subclass(kind)
    for name, value in state.items():
        setattr(result, name, value)
    return result.requires_grad_() if requires_grad else result
