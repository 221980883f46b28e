# SPDX-License-Identifier: Apache-2.0
"""``python -m penstock doctor``: looks at this installation and this machine, one line per finding.

Every check tries the thing itself where it can: an engine decodes pictures, io_uring is opened, memory is pinned.
``bad`` is what stops a run, ``warn`` what makes it slower or narrower; both say what to do.
"""

from __future__ import annotations

import base64
import ctypes
import json
import mmap
import os
import pathlib
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import _penstock

_SMALLEST = 16 << 20  # bytes: the least budget of an engine
_PIN_BYTES = 4 << 20
_SYS_OPENAT2 = 437  # on every architecture

# A grey picture of 8 x 8 pixels.
_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm"
    "x5moq6T/wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAABf/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AVf/Z"
)
_WITHOUT = {
    "png": ".png files are bad samples; build with libspng",
    "webp": ".webp files are bad samples; build with libwebp",
    "gzip": ".nii.gz and packed .npz files are bad samples; build with zlib",
    "deflate": "volumes are unpacked by zlib, which takes about twice as long; build with libdeflate",
    "flac": ".flac files are bad samples; build with libFLAC",
    "fft": "features of recordings cannot be computed; build with kissfft",
    "uring": "files are read by threads; build with liburing",
    "control": "penstock serve shows nothing of its jobs; build with libmicrohttpd",
    "bucket": "data in S3 and HTTP buckets cannot be read; build with libcurl, expat and libcrypto",
}


class Finding(NamedTuple):
    name: str
    state: str
    text: str
    advice: str = ""


def _ok(name: str, text: str) -> Finding:
    return Finding(name, "ok", text)


def _package() -> Iterator[Finding]:
    yield _ok("penstock", f"{_penstock.version()}, {pathlib.Path(_penstock.__file__).name} on {platform.machine()}")
    yield _ok("python", f"{platform.python_version()} {platform.python_implementation()}")
    for name, built, detail in _penstock.features():
        yield _ok(name, detail) if built else Finding(name, "warn", detail, _WITHOUT.get(name, ""))
    kernels = _penstock.settings()["cpu"]
    if kernels == "c" and platform.machine() == "x86_64":
        pinned = "PENSTOCK_CPU=c is set; unset it" if os.environ.get("PENSTOCK_CPU") else "the CPU has no AVX2"
        yield Finding("kernels", "warn", "plain C", pinned)
    else:
        yield _ok("kernels", {"c": "plain C"}.get(kernels, kernels))


def _kernel() -> Iterator[Finding]:
    yield _ok("kernel", platform.release())
    yield _uring()
    if _has_openat2():
        yield _ok("openat2", "there")
    else:
        tip = "symbolic links inside a dataset are not followed; Linux 5.6 has it"
        yield Finding("openat2", "warn", "not there", tip)
    try:
        os.close(os.memfd_create("penstock-doctor"))
        yield _ok("memfd", "there")
    except OSError as error:
        tip = "Python workers share their results through it: allow it in the sandbox"
        yield Finding("memfd", "warn", f"memfd_create: {error.strerror}", tip)


def _uring() -> Finding:
    try:
        with _penstock.Engine(1, _SMALLEST, io="uring"):
            return _ok("io_uring", "usable")
    except _penstock.Error as error:
        return Finding("io_uring", "warn", str(error), "files are read by threads; results are the same")


def _has_openat2() -> bool:
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY | os.O_DIRECTORY, 0, 0)
    fd = ctypes.CDLL(None).syscall(_SYS_OPENAT2, -100, b".", ctypes.byref(how), ctypes.sizeof(how))
    if fd >= 0:
        os.close(fd)
    return fd >= 0


def _limits() -> Iterator[Finding]:
    found, cores = _penstock.settings(), os.cpu_count() or 1
    cpus = f"{found['cpus']} of {cores} cores, so {found['workers']} workers"
    if found["cpus"] < cores:
        tip = f"other libraries may not see the quota: OMP_NUM_THREADS={found['cpus']} holds them to it"
        yield Finding("cpus", "warn", cpus, tip)
    else:
        yield _ok("cpus", cpus)
    memory = f"{_size(found['may_have'])} may be had, of which {_size(found['memory'])} by an engine"
    if found["memory"] < 256 << 20:
        tip = "large pictures or batches may be refused; raise the container's limit or pass memory="
        yield Finding("memory", "warn", memory, tip)
    else:
        yield _ok("memory", memory)
    yield _ok("memlock", f"{_limit(resource.RLIMIT_MEMLOCK, True)} of memory may be locked")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    open_files = f"{_limit(resource.RLIMIT_NOFILE, False)} files may be open"
    if 0 <= files < 1024:
        yield Finding("nofile", "warn", open_files, "each tar shard is kept open: ulimit -n 65536")
    else:
        yield _ok("nofile", open_files)
    yield _listings()


def _listings() -> Finding:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = pathlib.Path(base) / "penstock"
    there = next(part for part in (folder, *folder.parents) if part.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return _ok("listings", f"remembered in {folder}")
    tip = "large folders are listed anew by each run; set XDG_CACHE_HOME to a folder that can be written"
    return Finding("listings", "warn", f"{folder} cannot be written", tip)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def _limit(which: int, is_bytes: bool) -> str:
    soft = resource.getrlimit(which)[0]
    if soft == resource.RLIM_INFINITY:
        return "any amount" if is_bytes else "any number of"
    return _size(soft) if is_bytes else f"{soft:,}"


def _numpy() -> Iterator[Finding]:
    try:
        import numpy
    except ImportError as error:
        yield Finding("numpy", "bad", str(error), "batches are numpy arrays: pip install numpy")
        return
    if tuple(int(part) for part in numpy.__version__.split(".")[:2]) < (1, 24):
        yield Finding("numpy", "warn", numpy.__version__, "1.24 or later is tested: pip install -U numpy")
    else:
        yield _ok("numpy", numpy.__version__)


def _run() -> Iterator[Finding]:
    """Feeds four pictures, and hands the batch to torch where there is one."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            batch = _small_batch(pathlib.Path(folder))
            took = time.perf_counter() - start
    except (_penstock.Error, OSError) as error:
        yield Finding("engine", "bad", str(error), "nothing can be fed here; the message says what failed")
        return
    yield _ok("engine", f"read, decoded and batched 4 pictures in {took * 1e3:.0f} ms")
    yield from _torch(batch)


def _small_batch(folder: pathlib.Path) -> _penstock.Batch:
    for i in range(4):
        (folder / f"{i}.jpg").write_bytes(_JPEG)
    with _penstock.Engine(1, _SMALLEST) as engine:
        job = _penstock.Job(engine, _penstock.Dataset(folder, ""), "decode | center_crop(4) | normalize(imagenet)", 4)
        batch = job.next(job.begin(None))
        job.close()
    assert batch is not None
    return batch


def _torch(batch: _penstock.Batch) -> Iterator[Finding]:
    try:
        import torch
    except ImportError:
        yield _ok("torch", "not installed; only device= and penstock.torch need it")
        return
    yield _ok("torch", torch.__version__)
    yield _dlpack(batch)
    yield from _cuda(torch)


def _dlpack(batch: _penstock.Batch) -> Finding:
    try:
        from ._device import tensor_over

        view = batch.view("image")
        tensor = tensor_over(view)
        same = tensor.data_ptr() == view.__array_interface__["data"][0] and tuple(tensor.shape) == view.shape
    except Exception as error:  # whatever another version of torch may raise
        tip = "device= does not work with this torch; use another version"
        return Finding("dlpack", "bad", f"{type(error).__name__}: {error}", tip)
    if not same:
        tip = "device= works, with one copy more; use another version of torch"
        return Finding("dlpack", "warn", "torch copied the batch", tip)
    return _ok("dlpack", "torch takes batches without a copy")


def _cuda(torch: Any) -> Iterator[Finding]:
    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            yield _ok("cuda", "this torch is for the CPU; device='cuda' cannot be had")
        else:
            text = f"torch is for CUDA {torch.version.cuda} and finds no GPU"
            yield Finding("cuda", "warn", text, "see nvidia-smi: driver or container")
        return
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    yield _ok("cuda", f"{torch.version.cuda}: {names}")
    yield _pinning(torch)


def _pinning(torch: Any) -> Finding:
    """Registers ordinary memory with CUDA, as a loader does with its batches."""
    with mmap.mmap(-1, _PIN_BYTES) as memory:
        hold = ctypes.c_char.from_buffer(memory)
        address, runtime = ctypes.addressof(hold), torch.cuda.cudart()
        error = runtime.cudaHostRegister(address, _PIN_BYTES, 0)
        if int(error) == 0:
            runtime.cudaHostUnregister(address)
        del hold
    if int(error) != 0:
        tip = "copies to the GPU are slower; raise `ulimit -l`"
        return Finding("pinning", "warn", f"cudaHostRegister: {error}", tip)
    return _ok("pinning", "batch memory can be registered with CUDA")


_CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (_package, _kernel, _limits, _numpy, _run)


def examine() -> list[Finding]:
    """Every finding, in the order in which they are shown."""
    return [finding for check in _CHECKS for finding in check()]


def main(as_json: bool) -> int:
    """Prints what was found. 0, or 1 when something is bad."""
    findings = examine()
    good = all(finding.state != "bad" for finding in findings)
    if as_json:
        json.dump({"good": good, "findings": [finding._asdict() for finding in findings]}, sys.stdout, indent=1)
        print()
    else:
        for finding in findings:
            advice = f": {finding.advice}" if finding.advice else ""
            print(f"{finding.state:<5} {finding.name:<9} {finding.text}{advice}")
    return 0 if good else 1
