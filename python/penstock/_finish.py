# SPDX-License-Identifier: Apache-2.0
"""The end of a pipeline in torch: normalize, type and layout on bytes that are on the GPU already, and batch ops after it.

The numbers are those of the CPU: value = x * scale - bias in float32 with the engine's own constants.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _penstock

_TYPES = {"u8": torch.uint8, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def pictures_of(job: _penstock.Job) -> dict[str, dict[str, Any]]:
    """Fields that the engine left unfinished, and how to finish them."""
    return job.finishes()


class Finish:
    """Finishes u8 pictures [n, rows, columns, channels] as the pipeline says."""

    def __init__(self, info: dict[str, Any], device: torch.device, channels_last: bool) -> None:
        self._dtype = _TYPES[info["dtype"]]
        self._nchw = info["layout"] == "nchw"
        self._channels_last = channels_last
        channels = info["channels"]
        self._scale = torch.tensor(info["scale"][:channels], dtype=torch.float32, device=device)
        self._bias = torch.tensor(info["bias"][:channels], dtype=torch.float32, device=device)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        if self._dtype != torch.uint8:
            pixels = torch.mul(pixels, self._scale).sub_(self._bias).to(self._dtype)
        if not self._nchw:
            return pixels
        moved = pixels.permute(0, 3, 1, 2)  # its memory is channels_last already
        return moved if self._channels_last else moved.contiguous()


def apply_mix(raw: _penstock.Batch, values: dict[str, Any]) -> dict[str, Any]:
    """The batch op that the engine drew and left undone."""
    return values
