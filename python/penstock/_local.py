# SPDX-License-Identifier: Apache-2.0
"""One engine for the ranks of one machine, with ``engine="auto"``.

Local rank 0 starts a daemon as its child, which ends when rank 0 does: the child's standard input is a pipe whose other
end the kernel closes. The others join it in a directory whose name all of them can tell. They wait for it at a named pipe
in there, which rank 0 makes readable once the daemon serves, or has failed to. Whoever cannot join takes a share of the
machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import shutil
import stat
import subprocess
import sys
from typing import Any, Callable

from ._penstock import Engine, Error, serve, served_dir
from ._ranks import Ranks, local_rank

_WAIT_S = 60
_started: dict[str, subprocess.Popen[bytes]] = {}
_told: list[int] = []  # named pipes: a byte is in there as long as somebody has them open


def shared_engine(ranks: Ranks, share: Callable[[str | None], Engine], options: dict[str, Any]) -> Engine:
    """An engine that this machine's ranks share, with its `options`; else share(None), after one line that says so.

    share(address) makes an Engine at the address, with this rank's own share of the machine for when it goes on alone.
    """
    usual = served_dir()
    if _is_mine(usual):
        with contextlib.suppress(Error):  # as long as nobody serves there
            return share(f"unix:{usual}")
    try:
        return _join(ranks, share, options)
    except (OSError, Error) as failure:
        why = f"the ranks of this machine do not share an engine: {failure}; each takes its share of the machine"
        print(f"penstock: {why}", file=sys.stderr, flush=True)
    return share(None)


def _join(ranks: Ranks, share: Callable[[str | None], Engine], options: dict[str, Any]) -> Engine:
    which = local_rank(ranks)
    if which is None:
        raise OSError("which of them this one is cannot be told; set LOCAL_RANK")
    place = _place()
    _make(place)
    if which == 0:
        _start(place, options)
        return share(f"unix:{place}")
    with _opened(os.path.join(place, "ready"), os.O_RDONLY | os.O_NONBLOCK) as ready:
        with contextlib.suppress(Error):
            return share(f"unix:{place}")
        waiter = select.poll()
        waiter.register(ready, select.POLLIN)
        if not waiter.poll(_WAIT_S * 1000):
            raise OSError(f"local rank 0 made no loader with engine='auto' within {_WAIT_S} s")
        return share(f"unix:{place}")


def _place() -> str:
    """The same for the ranks of one run on this machine, and another one for everybody else."""
    torch = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    names = (*torch, "SLURM_JOB_ID", "SLURM_STEP_ID")
    said = [f"{name}={os.environ.get(name, '')}" for name in names]
    if not os.environ.get("MASTER_PORT") and not os.environ.get("SLURM_JOB_ID"):
        said.append(f"parent={os.getppid()}")
    return f"{served_dir()}-{hashlib.sha256(chr(0).join(said).encode()).hexdigest()[:16]}"


def _make(place: str) -> None:
    """The directory and the named pipe. What another user may have put there is refused."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    if not _is_mine(place):
        raise OSError(f"{place} is not a directory of this user alone")
    with contextlib.suppress(FileExistsError):
        os.mkfifo(os.path.join(place, "ready"), 0o600)


def _is_mine(place: str) -> bool:
    try:
        found = os.lstat(place)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Any:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _start(place: str, options: dict[str, Any]) -> None:
    """Starts the daemon, unless this process has one that lives; tells those who wait in any case."""
    if place in _started and _started[place].poll() is None:
        return
    try:
        _started[place] = _spawn(place, options)
    finally:
        _told.append(os.open(os.path.join(place, "ready"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        os.write(_told[-1], b"!")


def _spawn(place: str, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise OSError("this program has no Python interpreter that could serve one")
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", "_serve", json.dumps({"dir": place, **options})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for the ranks
        env=environment,
    )
    assert child.stdout is not None and child.stdin is not None
    said, _, _ = select.select([child.stdout], [], [], _WAIT_S)
    line = child.stdout.readline().decode(errors="replace").strip() if said else "it does not start"
    child.stdout.close()
    if line == "serving":
        return child
    child.stdin.close()
    child.kill()
    child.wait()
    raise OSError(line or "the process that should serve one ended at once")


def _forget() -> None:
    """In a forked child: whoever holds the pipes would keep the daemon alive after rank 0."""
    for child in _started.values():
        if child.stdin is not None:
            child.stdin.close()
        child.returncode = 0  # not this process's child
    _started.clear()


os.register_at_fork(after_in_child=_forget)


def serve_ranks(text: str) -> int:
    """The daemon's own process: serves until standard input is closed, then takes its directory away."""
    options = json.loads(text)
    options["forms"] = tuple(options["forms"])
    try:
        serve(**options, lifeline=0, ready=1)
    except Error as failure:
        print(failure, flush=True)
        return 1
    with contextlib.suppress(OSError), _opened(os.path.join(options["dir"], "lock"), os.O_RDWR) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else somebody else serves there by now
        shutil.rmtree(options["dir"], ignore_errors=True)
    return 0
