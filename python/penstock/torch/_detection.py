# SPDX-License-Identifier: Apache-2.0
"""Batches as torchvision's detection models take them: a list of pictures and a list of target dictionaries."""

from __future__ import annotations

from typing import Any

import torch

from .._targets import NAMES


def detection_collate(samples: list[Any]) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    """For ``penstock.Loader(..., collate=detection_collate)``: ``images, targets = batch``.

    Pictures may differ in size. A target has those of boxes, labels, masks, image_id, area and iscrowd that are fields of the
    loader; no tensor is a copy.
    """
    images, targets = [], []
    for sample in samples:
        images.append(torch.as_tensor(sample.image))
        targets.append({name: _value(name, getattr(sample, name)) for name in NAMES if name in sample._fields})
    return images, targets


def _value(name: str, value: Any) -> torch.Tensor:
    return torch.as_tensor(value).reshape(1) if name == "image_id" else torch.as_tensor(value)
