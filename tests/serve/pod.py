# SPDX-License-Identifier: Apache-2.0
"""A process as a pod's would be: another user, its own PIDs and mounts, and of this machine's files only what it is given. Needs root.

    pod.command(root, [binary, "feed", …], mounts={"/penstock/data": folder}, uid=47002)

makes a command that runs there; `root` is a folder of the caller's, which becomes its root. The binary and the libraries that it needs
are copied, so that nothing else is seen.
"""
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path


def missing():
    """Why there can be none here, or None."""
    if os.geteuid() != 0:
        return "needs root, for namespaces and to be another user"
    if not shutil.which("unshare") or not shutil.which("chroot"):
        return "needs unshare and chroot"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "--make-rprivate", "/"], capture_output=True, text=True)
    return None if tried.returncode == 0 else "namespaces are not permitted here: " + tried.stderr.strip()


def copy_program(root, program):
    """The program and what it is linked with, in /app; its loader where it must be. Where the program is there."""
    needed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for path in [str(program), *re.findall(r"(/\S+) \(0x", needed)]:
        loader = Path(path).name.startswith("ld-linux")
        to = Path(str(root) + path) if loader else root / "app" / Path(path).name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists():
            shutil.copy(path, to)
    for folder in [root, *root.rglob("*")]:
        if folder.is_dir():
            folder.chmod(0o755)
    return "/app/" + Path(program).name


def command(root, argv, mounts, uid=47002, writable=None):
    """mounts: where: what, all read-only; writable: a folder that becomes /out. Run it with environment(...)."""
    root = Path(root)
    argv = [copy_program(root, argv[0]), *argv[1:]]
    lines = ["set -e", "mount --make-rprivate /"]
    for where, what in {**mounts, **({"/out": writable} if writable else {})}.items():
        at = str(root) + where
        os.makedirs(at, exist_ok=True)
        lines.append(f"mount --bind {shlex.quote(str(what))} {shlex.quote(at)}")
        if where != "/out":
            lines.append(f"mount -o remount,bind,ro {shlex.quote(at)}")
    for name in ("proc", "tmp"):
        os.makedirs(root / name, exist_ok=True)
    lines.append(f"mount -t proc proc {shlex.quote(str(root / 'proc'))}")
    lines.append(f"mount -t tmpfs -o mode=1777 tmpfs {shlex.quote(str(root / 'tmp'))}")
    # The shell stays, as the first process of its namespace: with it all others there are ended.
    lines.append(f"chroot --userspec={uid}:{uid} --groups= {shlex.quote(str(root))} " + " ".join(shlex.quote(str(a)) for a in argv) + "; exit $?")
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(lines)]


def inside(pid):
    """The program of a running command, as this process sees it: the last of its line."""
    while below := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(below[0])
    return pid


def environment(**more):
    """What the webhook sets, and nothing of this process's."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": "/app", "HOME": "/tmp", "XDG_CACHE_HOME": "/tmp/cache", "PENSTOCK_DATASET": "/penstock/data",
            "PENSTOCK_ENGINE": "unix:/run/penstock", **more}
