# SPDX-License-Identifier: Apache-2.0
"""Page-locked copies of finished batches, made by a thread while the trainer works on the one before."""

from __future__ import annotations

import warnings
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable

import torch


class Pinner:
    """pin_memory: False, True or a device's name. Without an accelerator it only warns, as torch does."""

    _AHEAD = 2  # batches pinned before they are asked for

    def __init__(self, pin_memory: bool | str) -> None:
        self.active = bool(pin_memory) and torch.cuda.is_available()
        self._device = pin_memory if isinstance(pin_memory, str) else None
        self._thread: ThreadPoolExecutor | None = None
        self.handed: Any = -1
        self._ahead: deque[tuple[Future[Any], Any]] = deque()
        if pin_memory and not self.active:
            warnings.warn(
                "pin_memory does nothing here: this torch finds no accelerator",
                stacklevel=3,
            )

    def next(self, take: Callable[[], Any], delivered: Callable[[], Any], is_there: Callable[[], bool]) -> Any:
        """The next batch, pinned; what `delivered` said after taking it is `handed` now.

        take: waits for a batch. is_there: whether it need not wait. What it raises while batches before its own are not
        handed out yet is raised when their turn is over.
        """
        if not self._ahead:
            self._push(take(), delivered())
        data, self.handed = self._ahead.popleft()
        while len(self._ahead) < self._AHEAD and is_there():
            try:
                self._push(take(), delivered())
            except Exception as error:
                self._fail(error, delivered())
        return data.result()

    def _push(self, data: Any, delivered: Any) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "penstock-pin")
        self._ahead.append((self._thread.submit(self._pin, data), delivered))

    def _fail(self, error: Exception, delivered: Any) -> None:
        future: Future[Any] = Future()
        future.set_exception(error)
        self._ahead.append((future, delivered))

    def _pin(self, data: Any) -> Any:
        from torch.utils.data._utils.pin_memory import pin_memory

        torch.set_num_threads(1)
        return pin_memory(data, self._device)

    def clear(self) -> None:
        self._ahead.clear()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
