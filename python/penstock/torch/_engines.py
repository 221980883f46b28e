# SPDX-License-Identifier: Apache-2.0
"""Engines by setting: loaders of one process that ask for the same thing share one, as long as any of them lives."""

from __future__ import annotations

import os
import threading
import weakref

from .._penstock import Engine, SettingError, settings


class Shared:
    """One engine and the process that made it."""

    __slots__ = ("engine", "pid", "__weakref__")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pid = os.getpid()


_lock = threading.Lock()
_Key = tuple[int, int, int, "int | str", "str | None", "str | None"]
_engines: weakref.WeakValueDictionary[_Key, Shared] = weakref.WeakValueDictionary()


def worker_count(num_workers: int) -> int:
    """num_workers is an upper bound: not more than the process may use, and at least one."""
    return min(max(num_workers, 1), int(settings()["cpus"]))


def _make(workers: int, memory: int, cache: int | str, disk: str | None, remote: str | None) -> Engine:
    if not cache:
        return Engine(workers, memory, disk=disk, remote=remote)
    try:
        return Engine(workers, memory, cache, disk=disk, remote=remote)
    except TypeError:
        raise SettingError(f"cache={cache!r}: this build of penstock keeps no prepared samples; use cache=0") from None


def acquire(
    num_workers: int, memory: int, cache: int | str = 0, disk: str | None = None, remote: str | None = None
) -> Shared:
    """The engine for these settings. It ends when the last holder is gone; in a forked child a new one is made."""
    key = (os.getpid(), worker_count(num_workers), memory, cache, disk, remote)
    with _lock:
        shared = _engines.get(key)
        if shared is None or shared.engine.closed:
            shared = _engines[key] = Shared(_make(*key[1:]))
        return shared
