# SPDX-License-Identifier: Apache-2.0
"""Page-locked copies of finished batches, made by a thread while the trainer works on the one before."""

from __future__ import annotations

import warnings
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch


class Pinner:
    """pin_memory: False, True or a device's name. Without an accelerator it only warns, as torch does."""

    AHEAD = 2  # batches pinned before they are asked for

    def __init__(self, pin_memory: bool | str) -> None:
        self.active = bool(pin_memory) and torch.cuda.is_available()
        self._device = pin_memory if isinstance(pin_memory, str) else None
        self._thread: ThreadPoolExecutor | None = None
        self.ahead: deque[tuple[Future[Any], Any]] = deque()
        if pin_memory and not self.active:
            warnings.warn(
                "pin_memory does nothing here: this torch finds no accelerator",
                stacklevel=3,
            )

    def push(self, data: Any, delivered: Any) -> None:
        """Queues a batch; `delivered` goes along with it."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "penstock-pin")
        self.ahead.append((self._thread.submit(self._pin, data), delivered))

    def fail(self, error: Exception, delivered: Any) -> None:
        """Queues what taking a batch raised, at its place."""
        future: Future[Any] = Future()
        future.set_exception(error)
        self.ahead.append((future, delivered))

    def _pin(self, data: Any) -> Any:
        from torch.utils.data._utils.pin_memory import pin_memory

        torch.set_num_threads(1)
        return pin_memory(data, self._device)

    def clear(self) -> None:
        self.ahead.clear()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
