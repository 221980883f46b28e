# SPDX-License-Identifier: Apache-2.0
"""Ends of programs: every way of loading against every way of ending, each in a process of its own.

The processes are forked from one that has imported torch and run to the interpreter's real end: a program each, without
the seconds that importing takes.
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = r'''
import json, os, signal, sys, threading, time
import torch
from torchvision import transforms
from torchvision.datasets import ImageFolder
import penstock
from penstock.torch import DataLoader

photos = sys.argv[1]

class Reader:
    def __init__(self):
        self.paths = [os.path.join(at, name) for at, _, names in sorted(os.walk(photos)) for name in sorted(names)]
    def __len__(self):
        return len(self.paths)
    def read(self, i):
        with open(self.paths[i], "rb") as file:
            return file.read(), i

class Numbers:
    def __len__(self):
        return 60
    def __getitem__(self, i):
        return torch.full((3, 16, 16), float(i)), i

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        yield from range(info.id, 60, info.num_workers)

def same(x):
    return x

def folder(*more):
    return ImageFolder(photos, transforms.Compose([transforms.RandomResizedCrop(16), transforms.ToTensor(), *more]))

CROP = "decode | random_resized_crop(16) | hflip"
WAYS = {
    "arrays": lambda: penstock.Loader(photos, CROP, 4, workers=2),
    "tensors": lambda: penstock.Loader(photos, CROP, 4, workers=2, device="cpu"),
    "reader": lambda: penstock.Loader(Reader(), CROP, 4, workers=2),
    "native": lambda: DataLoader(folder(), 4, shuffle=True, num_workers=2),
    "prefix": lambda: DataLoader(folder(same), 4, shuffle=True, num_workers=2),
    "python": lambda: DataLoader(Numbers(), 4, shuffle=True, num_workers=2),
    "persistent": lambda: DataLoader(Numbers(), 4, shuffle=True, num_workers=2, persistent_workers=True),
    "iterable": lambda: DataLoader(Stream(), 5, num_workers=2),
    "inline": lambda: DataLoader(Numbers(), 4, shuffle=True),
}
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if not pid:
        break
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit(0)
os.setsid()
for number in (1, 2):
    os.dup2(os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
make = WAYS[order["way"]]
batches = 12 if order["way"] == "iterable" else 15
loader = make()
turn = iter(loader)
next(turn)
exec(order["text"])
'''

ALL = ("arrays", "tensors", "reader", "native", "prefix", "python", "persistent", "iterable", "inline")
# Each process spends about a second in torch's own end: everything only in long runs.
WAYS = ALL if os.environ.get("PENSTOCK_LONG") else ("reader", "native", "python")

# (what the program does after its first batch, its exit status, what its error output is to contain)
ENDS = {
    "half read": ("pass", 0, ""),
    "sys.exit in the loop": ("for batch in loader: sys.exit(3)", 3, ""),
    "exception in the loop": ("for batch in loader: raise ValueError('mine')", 1, "ValueError: mine"),
    "kept by a module": ("import builtins; builtins.kept = loader, turn; del loader, turn", 0, ""),
    "in a cycle": ("class C: pass\nc = C(); c.c, c.turn, c.loader = c, turn, loader; del c, turn, loader", 0, ""),
    "os._exit": ("os._exit(4)", 4, ""),
    "thread that goes on": (
        "go = threading.Event()\n"
        "def rest():\n    go.wait(); assert sum(1 for _ in turn) == batches - 1; os.write(1, b'all')\n"
        "threading.Thread(target=rest).start(); go.set()", 0, "all"),
    "daemon in mid-epoch": (
        "def forever():\n    while True:\n        for _ in loader: first.set()\n"
        "first = threading.Event(); threading.Thread(target=forever, daemon=True).start(); first.wait()", 0, ""),
    "used by atexit": ("import atexit; atexit.register(lambda: os.write(1, b'%d' % sum(1 for _ in make())))", 0, "1"),
    "fork, child exits": (
        "pid = os.fork()\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0; assert sum(1 for _ in turn) == batches - 1", 0, ""),
    "fork, child loads": (
        "pid = os.fork()\n"
        "if not pid: assert sum(1 for _ in make()) == batches; sys.exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0; assert sum(1 for _ in turn) == batches - 1", 0, ""),
    "multiprocessing child loads": (
        "import multiprocessing\n"
        "def load(): assert sum(1 for _ in make()) == batches\n"
        "p = multiprocessing.get_context('fork').Process(target=load); p.start(); p.join()\n"
        "assert p.exitcode == 0; assert sum(1 for _ in turn) == batches - 1", 0, ""),
    "dropped, then another": (
        "del loader, turn; import gc; gc.collect()\n"
        "until = time.monotonic() + 20  # a thread that was joined is listed for a moment\n"
        "while len(os.listdir('/proc/self/task')) > 1 and time.monotonic() < until: time.sleep(0.05)\n"
        "tasks = os.listdir('/proc/self/task'); assert len(tasks) == 1, tasks\n"
        "assert not open(f'/proc/self/task/{tasks[0]}/children').read()\n"
        "assert sum(1 for _ in make()) == batches", 0, ""),
    "two interleaved": (
        "other = make(); assert sum(1 for _ in zip(make(), other)) == batches\n"
        "for number, _ in enumerate(loader):\n"
        "    if number == 2: assert sum(1 for _ in other) == batches\n"
        "assert number == batches - 1", 0, ""),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT)\nwhile True:\n    for _ in loader: pass", -2, "KeyboardInterrupt"),
    "Ctrl-C, then on": (
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    while True: next(turn)\nexcept KeyboardInterrupt: pass\n"
        "assert sum(1 for _ in loader) == batches", 0, ""),
}  # fmt: skip

# torch 1.13 aborts where a daemon thread is inside its code at the interpreter's end; so does a loop over its own loader.
WITHOUT_TENSORS = ("arrays", "reader")


@pytest.fixture(scope="module")
def nursery(photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("life") / "program.py"
    path.write_text(PROGRAM)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1")
    process = subprocess.Popen(
        [sys.executable, path, photos], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    yield process
    process.stdin.close()
    assert process.wait(60) == 0


def session_of(pid: int) -> list[int]:
    """Processes of the session that this one began, itself and the dead not counted."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, _, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == pid and int(name) != pid and state not in "ZX":
            found.append(int(name))
    return found


def ended(pid: int, seconds: float = 60) -> bool:
    """Whether nothing of the session runs any more, soon. They are not our children: there is nothing to wait on."""
    deadline = time.monotonic() + seconds
    while session_of(pid):
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def left_in_memory(before: set[str], seconds: float = 10) -> set[str]:
    """Files of shared memory that came since and stay, once all of the session has ended.

    The folder is the whole machine's: what carries the number of a process that runs is another program's, and what goes
    again was one."""
    deadline = time.monotonic() + seconds
    while True:
        new = set(os.listdir("/dev/shm")) - before
        left = {name for name in new if not any(os.path.exists(f"/proc/{n}") for n in re.findall(r"_(\d+)_", name))}
        if not left or time.monotonic() > deadline:
            return left
        os.sched_yield()


def live(nursery, tmp_path, way, text, seconds=120):
    """Exit status and output of a program, which must not hang and must leave no process behind."""
    out = tmp_path / "out"
    nursery.stdin.write(json.dumps({"way": way, "text": text, "out": str(out)}) + "\n")
    nursery.stdin.flush()
    pid = int(nursery.stdout.readline())
    guard = subprocess.Popen([sys.executable, "-c", f"import time, os; time.sleep({seconds}); os.killpg({pid}, 9)"])
    try:
        status = int(nursery.stdout.readline())
    finally:
        guard.kill()
        guard.wait()
    said = out.read_text() if out.exists() else ""
    assert status != -signal.SIGKILL, f"{way}: hung\n{said}"
    assert ended(pid), f"{way}: left processes behind: {session_of(pid)}"
    return status, said


@pytest.mark.parametrize("end", ENDS)
def test_ends(nursery, tmp_path, end):
    text, expected, words = ENDS[end]
    for way in WAYS:
        if end == "daemon in mid-epoch" and way not in WITHOUT_TENSORS:
            continue
        shared = set(os.listdir("/dev/shm"))
        status, said = live(nursery, tmp_path, way, text)
        (tmp_path / "out").unlink(missing_ok=True)
        assert status == expected and words in said, f"{way}: exit status {status}\n{said}"
        assert words or not said, f"{way} was not quiet:\n{said}"
        assert not left_in_memory(shared), way


PROMPT = b">>> "


class Typist:
    """A person at an interactive interpreter."""

    def __init__(self) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-i", "-q"])
        self.seen = b""

    def until(self, words: bytes, seconds: float = 60) -> bytes:
        """What appears on the screen up to these words."""
        deadline = time.monotonic() + seconds
        while words not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"waited for {words!r}, saw {self.seen!r}"
            self.seen += os.read(self.fd, 1 << 16)
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, line: str) -> bytes:
        """What the interpreter says to a line."""
        os.write(self.fd, line.encode() + b"\n")
        return self.until(PROMPT)

    def press(self, key: bytes) -> None:
        os.write(self.fd, key)

    def leave(self) -> int:
        self.press(b"\x04")
        try:
            while os.read(self.fd, 1 << 16):
                pass
        except OSError:  # how the end of a terminal is said
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_in_an_interactive_interpreter(photos, tmp_path, monkeypatch, way):
    """The loop ends at once, the loader and a half-read pass go on, and Ctrl-D ends the interpreter."""
    (tmp_path / "ways.py").write_text(PROGRAM.partition("for line in sys.stdin")[0])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    person = Typist()
    person.until(PROMPT)
    person.type(f"import sys; sys.argv = ['', {str(photos)!r}]; from ways import *; loader = WAYS[{way!r}]()")
    person.type("count = 0\ndef forever():\n    global count\n    while True:\n        for b in loader:\n"
                "            count += 1\n            if count == 5: print('under', 'way')\n")  # fmt: skip
    os.write(person.fd, b"forever()\n")
    person.until(b"under way")
    person.press(b"\x03")
    assert b"Process" not in person.until(b"KeyboardInterrupt", 10)
    person.until(PROMPT)
    batches = 12 if way == "iterable" else 15
    assert f"all {batches}".encode() in person.type("print('all', sum(1 for _ in loader))")
    person.type("turn = iter(loader); first = next(turn); pause = __import__('time').sleep")
    os.write(person.fd, b"print('as', 'leep'); pause(60)\n")
    person.until(b"as leep")
    time.sleep(0.3)  # a signal just before the system call would not end it
    person.press(b"\x03")
    person.until(PROMPT, 10)
    assert f"rest {batches - 1}".encode() in person.type("print('rest', sum(1 for _ in turn))")
    person.type("turn = iter(loader); first = next(turn)")
    assert person.leave() == 0
