# SPDX-License-Identifier: Apache-2.0
"""Holds Ctrl-C back while workers are started.

Python runs hooks around fork (logging has some) and drops what is raised in them, KeyboardInterrupt included: the loop would go
on as if nobody had pressed a key. And in a worker that has not yet chosen to ignore it, it would print a traceback.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class LaterInterrupt:
    """As a context: an interrupt that comes within it is raised at its end. Only the main thread is ever interrupted."""

    def __init__(self) -> None:
        self._before: Any = None
        self._came = False

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True

    def __exit__(self, *exc: object) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self._came:
            signal.raise_signal(signal.SIGINT)
