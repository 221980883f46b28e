# SPDX-License-Identifier: Apache-2.0
"""In a worker, torch's default_collate stacks tensors straight into the shared memory.

torch stacks into a file in /dev/shm of its own when it finds itself in a worker; here the entry for tensors in its
table of collate functions is replaced, in the worker process alone, so that whoever calls default_collate gets our memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data._utils import collate

from ._arena import Region


def is_default(collate_fn: Any) -> bool:
    """Whether it is torch's default_collate with its own table for the types we write ourselves."""
    if collate_fn is not collate.default_collate:
        return False
    table = getattr(collate, "default_collate_fn_map", None)
    return table is None or table.get(torch.Tensor) is collate.collate_tensor_fn


def stack_into(region: Region) -> None:
    """Replaces the table's entry for tensors in this process."""
    table = getattr(collate, "default_collate_fn_map", None)
    if table is None or table.get(torch.Tensor) is not collate.collate_tensor_fn:
        return
    original = collate.collate_tensor_fn

    def stacked(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
        if not _stackable(batch):
            return original(batch, collate_fn_map=collate_fn_map)
        first = batch[0]
        size = first.numel() * first.element_size() * len(batch)
        start = region.allocate(size)
        raw = region.arena.lease(start, size)
        region.collated[start] = size
        out = torch.frombuffer(raw, dtype=first.dtype).view(len(batch), *first.shape)
        try:
            return torch.stack(batch, 0, out=out)
        except RuntimeError:
            del region.collated[start]
            return original(batch, collate_fn_map=collate_fn_map)  # says what is wrong in torch's words

    table[torch.Tensor] = stacked


def _stackable(batch: Any) -> bool:
    """Whether the stack of these is a plain tensor of their dtype; whether they can be stacked at all torch says."""
    first = batch[0]
    if first.numel() == 0 or first.layout is not torch.strided or first.is_quantized or first.is_complex():
        return False
    dtype = first.dtype
    for x in batch:
        if type(x) is not torch.Tensor or x.dtype is not dtype or x.requires_grad or not x.is_cpu:
            return False
    return True
