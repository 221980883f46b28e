# SPDX-License-Identifier: Apache-2.0
"""The end of a pipeline in torch: normalize, type and layout on bytes that are on the GPU already, and batch ops after it.

The numbers are those of the CPU: value = x * scale - bias in float32 with the engine's own constants; a mixed value is
x * lam + partner * (1 - lam).
"""

from __future__ import annotations

from typing import Any

import torch

from . import _penstock
from ._batch import as_array
from ._penstock import DataError

_TYPES = {"u8": torch.uint8, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


class Finish:
    """Finishes u8 pictures [n, rows, columns, channels] as the pipeline says."""

    def __init__(self, info: dict[str, Any], device: torch.device, channels_last: bool) -> None:
        self._dtype = _TYPES[info["dtype"]]
        self.nchw = info["layout"] == "nchw"
        self._channels_last = channels_last
        channels = info["channels"]
        self._scale = torch.tensor(info["scale"][:channels], dtype=torch.float32, device=device)
        self._bias = torch.tensor(info["bias"][:channels], dtype=torch.float32, device=device)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        if self._dtype != torch.uint8:
            pixels = torch.mul(pixels, self._scale).sub_(self._bias).to(self._dtype)
        if not self.nchw:
            return pixels
        moved = pixels.permute(0, 3, 1, 2)  # its memory is channels_last already
        return moved if self._channels_last else moved.contiguous()


def clear_padding(pictures: torch.Tensor, sizes: Any, nchw: bool) -> torch.Tensor:
    """Zeros where no picture is, as on the CPU: normalize made something else of the zeros that came."""
    planar = pictures if nchw else pictures.permute(0, 3, 1, 2)
    for picture, (rows, cols, _) in zip(planar, sizes.tolist()):  # as sent: rows, columns, channels
        picture[:, rows:] = 0
        picture[:, :rows, cols:] = 0
    return pictures


def mixed(raw: _penstock.Batch, values: dict[str, Any], finishes: dict[str, Finish]) -> dict[str, Any]:
    """The batch op that the engine drew and left undone, on finished values."""
    if not raw.mix_classes:
        return values
    out = dict(values)
    for name, value in values.items():
        if raw.info(name)[0] == "label":
            out[name] = _soft_labels(raw, name, value)
        elif name in finishes and raw.mix is not None:
            out[name] = _mixed_pictures(raw, value, finishes[name].nchw)
    return out


def _partners(raw: _penstock.Batch, values: torch.Tensor) -> torch.Tensor:
    """What each slot is mixed with: the valid one before it, the first with the last; padding with itself."""
    if raw.valid_count == raw.slot_count:
        return values.roll(1, 0)
    slots = [slot for slot, counts in enumerate(as_array(raw.view("valid"))) if counts]
    order = list(range(raw.slot_count))
    for before, slot in zip(slots[-1:] + slots[:-1], slots):
        order[slot] = before
    return values[order]


def _soft_labels(raw: _penstock.Batch, name: str, labels: torch.Tensor) -> torch.Tensor:
    known = as_array(raw.view(name))
    if known.min() < 0 or known.max() >= raw.mix_classes:
        raise DataError(f"labels from {known.min()} to {known.max()} do not fit the {raw.mix_classes} classes to blend over")
    soft = torch.nn.functional.one_hot(labels, raw.mix_classes).to(torch.float32)
    return soft if raw.mix is None else _blend(raw, soft, raw.mix[1])


def _mixed_pictures(raw: _penstock.Batch, pictures: torch.Tensor, nchw: bool) -> torch.Tensor:
    assert raw.mix is not None
    kind, lam, (top, left, bottom, right), _ = raw.mix
    if kind == "mixup":
        return _blend(raw, pictures, lam)
    inside = (slice(top, bottom), slice(left, right))
    box = (slice(None), slice(None), *inside) if nchw else (slice(None), *inside)
    pasted = pictures.clone()
    pasted[box] = _partners(raw, pictures)[box]
    return pasted


def _blend(raw: _penstock.Batch, values: torch.Tensor, lam: float) -> torch.Tensor:
    """In float32, then rounded to the type asked for, as on the CPU."""
    wide = values.to(torch.float32)
    return _partners(raw, wide).mul(1.0 - lam).add_(wide.mul(lam)).to(values.dtype)
