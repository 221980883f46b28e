# SPDX-License-Identifier: Apache-2.0
"""Batches of the native path on a GPU: the stream of the native front, which copies bytes one batch ahead and finishes them
there, for pictures and the numbers of their samples alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import torch

from .. import _penstock
from .._device import CudaStream


class Sent(NamedTuple):
    """Pictures on the device (a list where they are ragged), and what the host knows of them."""

    images: Any
    ids: numpy.ndarray
    valid_count: int


class Pictures(CudaStream):
    """The job has raw_finish. Its state is not kept with every batch: the loader knows where it stands."""

    def __init__(self, job: _penstock.Job, device: torch.device) -> None:
        super().__init__(job, device, channels_last=False, finish=None)

    def _state_now(self) -> bytes:
        return b""

    def _values(self, batch: Sent) -> tuple[Any, ...]:
        return tuple(batch.images) if isinstance(batch.images, list) else (batch.images,)

    def _copy(self, raw: _penstock.Batch) -> Sent:
        return Sent(self._field(raw, "image"), numpy.asarray(raw.view("id")).copy(), raw.valid_count)


def device_of(loader: Any) -> torch.device | None:
    """The GPU that a loader's batches go to, or None."""
    if loader.device is None:
        return None
    where = torch.device(loader.device)
    if where.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.device("cuda", torch.cuda.current_device() if where.index is None else where.index)
