# SPDX-License-Identifier: Apache-2.0
"""Hugging Face accelerate: its own wrapper of a loader, with Penstock's loader inside instead of torch's."""

from __future__ import annotations

from typing import Any

from .._penstock import SettingError

ADVICE = (
    "accelerator.prepare would replace this loader by torch's own. Write instead: "
    "loader = penstock.torch.prepare(accelerator, loader)"
)

# What a loader is made from besides its dataset and its batches.
_KEPT = (
    "collate_fn",
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
    "on_error",
    "cache",
    "memory",
    "disk",
    "remote",
    "engine",
    "native",
)


def prepare(accelerator: Any, loader: Any) -> Any:
    """What ``accelerator.prepare(loader)`` gives, with batches that come from Penstock.

    Sharding over processes, the device, seeds and gradient accumulation are accelerate's. The result may be given to
    ``accelerator.prepare`` together with model and optimizer; it is left as it is there.
    """
    if loader.world is not None:
        raise SettingError("rank and world are given to this loader, and accelerate would share its batches once more")
    loader._may_be_rebuilt = True
    try:
        made = accelerator.prepare_data_loader(loader)
    finally:
        loader._may_be_rebuilt = False
    inner = getattr(made, "base_dataloader", None)
    if inner is None or type(made).__name__ != "DataLoaderShard":
        raise SettingError(
            f"accelerate made a {type(made).__name__}, whose batches one process reads for all; set "
            "dispatch_batches=False in its DataLoaderConfiguration"
        )
    made.base_dataloader = _rebuilt(loader, inner, made.device)
    made._is_accelerate_prepared = True
    return made


def _rebuilt(loader: Any, inner: Any, device: Any) -> Any:
    """A loader like the user's over what accelerate chose: its batches, and perhaps a part of the dataset."""
    options = {name: getattr(loader, name) for name in _KEPT}
    if device is not None and device.type == "cuda":
        options["device"] = device
    if loader._dataset_kind != 0:
        options.update(batch_size=inner.batch_size, drop_last=inner.drop_last)
    elif inner.batch_size is None and inner.batch_sampler is None:
        options.update(batch_size=None, sampler=inner.sampler)
    else:
        options["batch_sampler"] = inner.batch_sampler
    return type(loader)(inner.dataset, **options)
