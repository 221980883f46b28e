# SPDX-License-Identifier: Apache-2.0
"""Batches as torch tensors: on the CPU over the engine's own memory, on a GPU through pinned memory one batch ahead.

On a GPU the pictures cross the bus as bytes, and normalize and the choice of type and layout happen there. The engine's ring is
registered with CUDA, so copies are asynchronous and go straight from where the workers wrote.
"""

from __future__ import annotations

import collections
import warnings
from typing import Any, Callable

import torch

from . import _penstock
from ._batch import Batch, as_array, copied_batch, field_order
from ._finish import Finish, clear_padding, mixed
from ._loader import HostFront
from ._penstock import SettingError

_TORCH_TYPES = {"i8", "u8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}


def tensor_over(view: _penstock.View) -> torch.Tensor:
    """A tensor over the view's memory; what torch has no type for is copied into one that it has."""
    if view.dtype in _TORCH_TYPES:
        return torch.utils.dlpack.from_dlpack(view)  # type: ignore[attr-defined]
    array = as_array(view)
    return torch.tensor(array if view.dtype == "bool" else array.astype("int32"))


def front(device: Any, channels_last: bool, finish: Callable[[Batch], Any] | None, options: dict[str, Any]) -> Any:
    """What turns the engine's batches into tensors on `device`."""
    where = torch.device(device)
    if where.type == "cpu":
        if channels_last:
            raise SettingError("on the CPU the pipeline decides the layout: write to(f32, nhwc), or leave channels_last out")
        return HostFront(tensor_over, finish)
    if where.type != "cuda":
        raise SettingError(f"device={device!r} is not known; use 'cpu' or 'cuda'")
    if not torch.cuda.is_available():
        raise SettingError("device='cuda' was asked for and torch finds no GPU; `python -m penstock doctor` says more")
    options.update(raw_finish=True, leases=4)  # the loop's, the one on its way, and those whose copies are not done
    return _CudaFront(where, channels_last, finish)


class _CudaFront:
    def __init__(self, device: torch.device, channels_last: bool, finish: Callable[[Batch], Any] | None) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._channels_last, self._finish = channels_last, finish

    def open(self, job: _penstock.Job) -> CudaStream:
        return CudaStream(job, self._device, self._channels_last, self._finish)


class _Ahead:
    """A batch on its way: the tensors, the event after which they are there, and what must live until then."""

    __slots__ = ("batch", "ready", "state")

    def __init__(self, batch: Any, ready: Any, state: bytes) -> None:
        self.batch, self.ready, self.state = batch, ready, state


class CudaStream:
    """Copies the next batch while the loop works on this one. Used by one thread at a time."""

    def __init__(self, job: _penstock.Job, device: torch.device, channels_last: bool, finish: Any) -> None:
        self._job, self._device, self._user = job, device, finish
        self._side = torch.cuda.Stream(device)
        self._pinned = _Pinned(job)
        self._finishes = {name: Finish(info, device, channels_last) for name, info in job.finishes().items()}
        self._held: collections.deque[tuple[Any, _penstock.Batch]] = collections.deque()
        self._next: _Ahead | None = None
        self._turn = -1
        self._state = self._state_now()

    def _state_now(self) -> bytes:
        return self._job.state()

    def _values(self, batch: Any) -> tuple[Any, ...]:
        """Everything of a batch that may be on the device."""
        return (*batch, batch.ids, batch.valid)

    def next(self, turn: int, timeout: float = 0) -> Any:
        if turn != self._turn:
            self.drop()
            self._turn = turn
        ahead = self._next or self._send(self._job.next(turn, timeout))
        if ahead is None:
            self._state = self._state_now()
            return None
        main = torch.cuda.current_stream(self._device)
        main.wait_event(ahead.ready)
        for value in self._values(ahead.batch):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                value.record_stream(main)
        self._state = ahead.state
        self._release(wait=False)
        self._next = self._send(self._job.try_next(turn))
        return ahead.batch if self._user is None else self._user(ahead.batch)

    def _send(self, raw: _penstock.Batch | None) -> _Ahead | None:
        """Starts the copy of a batch. The state is that of a loop which has received it."""
        if raw is None:
            return None
        state = self._state_now()
        with torch.cuda.stream(self._side):
            batch = self._copy(raw)
            ready = torch.cuda.Event()
            ready.record(self._side)
        self._held.append((ready, raw))
        return _Ahead(batch, ready, state)

    def _copy(self, raw: _penstock.Batch) -> Any:
        """Every field on the device, pictures finished there. On the side stream."""
        values = mixed(raw, {name: self._field(raw, name) for name in field_order(raw.names)}, self._finishes)
        kept = {
            "id": tensor_over(raw.view("id")).to(self._device, non_blocking=True),
            "valid": tensor_over(raw.view("valid")).to(self._device, non_blocking=True),
            "key": raw.texts("key"),
        }
        return copied_batch(raw, values, kept)

    def _field(self, raw: _penstock.Batch, name: str) -> Any:
        kind, _, _, packing, _ = raw.info(name)
        if kind == "text":
            return raw.texts(name)
        finish = self._finishes.get(name)
        if packing == "ragged":
            slots = [tensor_over(slot).to(self._device, non_blocking=True) for slot in raw.slots(name)]
            return [finish(slot[None])[0] for slot in slots] if finish else slots
        sent = tensor_over(raw.view(name)).to(self._device, non_blocking=True)
        if finish is None:
            return sent
        done = finish(sent)
        return clear_padding(done, as_array(raw.shapes(name)), finish.nchw) if packing == "padded" else done

    def _release(self, wait: bool) -> None:
        """Gives back the engine's batches whose copies are done."""
        while self._held and (wait or self._held[0][0].query()):
            ready, _ = self._held.popleft()
            if wait:
                ready.synchronize()

    def state(self) -> bytes:
        return self._state

    def drop(self) -> None:
        """Forgets the batch on its way: the loop never received it."""
        self._next = None
        self._turn = -1
        self._release(wait=True)

    def close(self) -> None:
        self.drop()
        self._pinned.close()


class _Pinned:
    """The ring's memory, registered with CUDA for as long as the job is open. Without it copies still work, only slower."""

    def __init__(self, job: _penstock.Job) -> None:
        self._blocks: list[int] = []
        self._runtime = torch.cuda.cudart()
        for address, size in job.memory():
            error = self._runtime.cudaHostRegister(address, size, 0)
            if int(error) != 0:
                warnings.warn(
                    f"pinning {size >> 20} MiB of batch memory failed ({error}): copies to the GPU will be slower. "
                    "`ulimit -l` shows the limit on locked memory.",
                    RuntimeWarning,
                    stacklevel=4,
                )
                break
            self._blocks.append(address)

    def close(self) -> None:
        for address in self._blocks:
            self._runtime.cudaHostUnregister(address)
        self._blocks = []

    def __del__(self) -> None:
        self.close()
