# SPDX-License-Identifier: Apache-2.0
"""Carries what user code raised from a worker to the trainer: same type, with the worker's traceback in its text."""

from __future__ import annotations

import pickle
import signal
import traceback
from typing import Any


class _Text(str):
    """Text that KeyError shows as it is instead of its repr."""

    def __repr__(self) -> str:
        return str(self)


def packed(error: BaseException, where: str) -> bytes:
    """What `raise_packed` needs. An exception that cannot be pickled goes as its text."""
    text = "".join(traceback.format_exception(error))
    name = type(error).__name__
    try:
        body = pickle.dumps(error)
        if type(pickle.loads(body)) is not type(error):
            body = b""
    except Exception:  # user classes may fail in any way here
        body = b""
    return pickle.dumps((body, name, f"Caught {name} {where}.\nOriginal {text}"))


def unpacked(data: bytes) -> BaseException:
    """The exception, its own arguments kept unless they are one text, which then is followed by the traceback."""
    body, name, text = pickle.loads(data)
    error = _restored(body)
    if error is None or isinstance(error, StopIteration):  # a StopIteration would end the loop without a word
        return RuntimeError(text)
    one_text = len(error.args) == 1 and type(error.args[0]) is str and str(error) == error.args[0]
    if one_text or isinstance(error, KeyError):
        error.args = (_Text(text),)
        if str(error) == text:
            return error
        error = _restored(body)
        assert error is not None
    error.add_note(text)
    return error


def _restored(body: bytes) -> BaseException | None:
    try:
        error = pickle.loads(body) if body else None
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def death_text(worker_id: int, pid: int, code: int | None) -> str:
    """What to say of a worker that ended by itself."""
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"number {-code}"
        what = f"was killed by signal {-code} ({name})"
    else:
        what = f"exited unexpectedly with code {code}"
    advice = {
        -signal.SIGKILL: "If nobody did it by hand, the machine or its cgroup ran out of memory: use fewer workers, a "
        "smaller prefetch_factor or smaller samples (dmesg names the process).",
        -signal.SIGBUS: "The shared memory could not be had: the cgroup's limit is reached.",
    }.get(code or 0, "Run with num_workers=0 to see it happen in the main process.")
    return f"DataLoader worker {worker_id} (pid {pid}) {what}. {advice}"


def traceback_note(indices: Any, position: int | None = None) -> str:
    """Names the sample in a message, shortened."""
    text = repr(indices)
    if len(text) > 200:
        text = text[:200] + "..."
    return text if position is None else f"{text} (position {position} of the epoch)"
