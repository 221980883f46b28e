# SPDX-License-Identifier: Apache-2.0
"""Signals, fork, threads, and what is left behind."""

import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import penstock
import pytest
from conftest import CROP
from penstock import ops
from test_loader import COUNT, ids_of

FORKS = 5000 if os.environ.get("PENSTOCK_LONG") else 30
ASAN = "libasan" in os.environ.get("LD_PRELOAD", "")

forks = pytest.mark.skipif(ASAN, reason="a forked child may find the address sanitizer's allocator locked")


def slow_loader(photos, **options) -> penstock.Loader:
    """One batch of 80,000 crops from one worker: its first next() takes seconds."""
    options = options or {"workers": 1}
    return penstock.Loader(photos, CROP, 80_000, sampler=[i % COUNT for i in range(80_000)], **options)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def thread_names() -> list:
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has just ended
            names.append(pathlib.Path("/proc/self/task", task, "comm").read_text().strip())
    return sorted(names)


def ended(done) -> bool:
    """A thread that was joined is still listed until the kernel has let go of it."""
    until = time.monotonic() + 20
    while not done() and time.monotonic() < until:
        time.sleep(0.05)
    return done()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_ctrl_c_ends_a_wait_and_the_loader_goes_on(photos):
    loader = slow_loader(photos)
    turn = iter(loader)
    pressed = []

    def press():
        pressed.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    threading.Timer(0.2, press).start()
    with pytest.raises(KeyboardInterrupt):
        next(turn)
    assert time.monotonic() - pressed[0] < 5
    begin = time.monotonic()
    loader.close()
    assert time.monotonic() - begin < 5


def test_a_signal_handler_may_close_the_loader_it_interrupted(photos):
    loader = slow_loader(photos)
    previous = signal.signal(signal.SIGALRM, lambda *_: loader.close())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(penstock.Error) as caught:
            next(iter(loader))
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert caught.value.code == penstock.CODES["ECLOSED"]


def test_other_threads_run_while_one_waits(photos):
    loader = slow_loader(photos)
    waiting = threading.Thread(target=lambda: pytest.raises(penstock.Error, next, iter(loader)))
    waiting.start()
    ticks = 0
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        ticks += 1
    loader.close()
    waiting.join(10)
    assert not waiting.is_alive() and ticks > 1000


def test_threads_share_an_iterator_and_stop_at_the_epochs_end(photos):
    loader = penstock.Loader(photos, CROP, 3)
    for epoch in range(3):
        turn, got = iter(loader), []

        def consume():
            for batch in turn:
                got.append((batch.epoch, batch.ids.tolist()))

        crew = [threading.Thread(target=consume) for _ in range(4)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join(30)
        assert {number for number, _ in got} == {epoch}
        assert sorted(i for _, ids in got for i in ids) == list(range(COUNT))


def test_threads_with_loaders_of_their_own_on_one_engine(photos):
    results = {}
    with penstock.Engine(workers=2) as engine:

        def consume(seed):
            results[seed] = sorted(ids_of(penstock.Loader(photos, CROP, 8, seed=seed, engine=engine)))

        crew = [threading.Thread(target=consume, args=(seed,)) for seed in range(4)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join(30)
    assert results == {seed: list(range(COUNT)) for seed in range(4)}


def in_child(check) -> int:
    """The exit status of check() in a forked child; 99 when it does not come back, be it from fork itself."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = check() or 0
        finally:
            os._exit(status)
    end = time.monotonic() + 60
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return 99 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


@forks
def test_a_forked_child_gets_an_error_instead_of_a_hang(photos):
    loader = penstock.Loader(photos, CROP, 8)
    turn = iter(loader)
    kept = next(turn)
    then = kept.image.copy()

    def check():
        uses = (lambda: next(turn), lambda: iter(loader), loader.stats, loader.state_dict, lambda: len(loader),
                loader.engine.bad, lambda: loader.dataset.read(0, "image"),
                lambda: penstock.Loader(loader.dataset, CROP, 8, engine=loader.engine))
        for number, use in enumerate(uses):
            try:
                use()
            except penstock.Error as error:
                if error.code == penstock.CODES["EFORK"]:
                    continue
            return 10 + number
        if not (kept.image == then).all():
            return 30
        loader.close()
        return 0

    assert in_child(check) == 0
    assert len(list(turn)) == 7


@forks
def test_a_forked_child_can_make_a_loader_of_its_own(photos):
    loader = penstock.Loader(photos, CROP, 8)
    next(iter(loader))
    assert in_child(lambda: sorted(ids_of(penstock.Loader(photos, CROP, 8))) != list(range(COUNT))) == 0


@forks
def test_forking_while_a_thread_waits_does_not_hang_the_child(photos):
    loader = slow_loader(photos)
    waiting = threading.Thread(target=lambda: pytest.raises(penstock.Error, next, iter(loader)))
    waiting.start()

    def check():
        try:
            iter(loader)
        except penstock.Error as error:
            loader.close()
            return error.code != penstock.CODES["EFORK"]
        return 1

    status = in_child(check)
    loader.close()
    waiting.join(10)
    assert status == 0 and not waiting.is_alive()


@forks
def test_forking_while_workers_enter_python_does_not_hang_the_child(photos):
    """Before CPython 3.12, a thread that enters while another forks could leave the child a lock that nobody lets go."""
    pipeline = ops.decode() | penstock.python(lambda picture: picture)
    loaders = [penstock.Loader(photos, pipeline, 2, workers=2, order="ready") for _ in range(2)]
    stop = threading.Event()

    def consume(loader):
        while not stop.is_set():
            for _ in loader:
                if stop.is_set():
                    break

    crew = [threading.Thread(target=consume, args=(loader,)) for loader in loaders]
    for thread in crew:
        thread.start()
    try:
        assert [in_child(lambda: 0) for _ in range(FORKS)] == [0] * FORKS
    finally:
        stop.set()
        for thread in crew:
            thread.join(30)


def test_dropping_a_loader_mid_epoch_ends_its_threads(photos):
    gc.collect()
    before = threads()
    loader = penstock.Loader(photos, CROP, 4)
    turn = iter(loader)
    next(turn)
    assert threads() > before
    del loader, turn
    gc.collect()
    assert ended(lambda: threads() <= before)


def test_closing_from_another_thread_wakes_the_consumer(photos):
    loader = slow_loader(photos)
    caught = []

    def consume():
        try:
            next(iter(loader))
        except penstock.Error as error:
            caught.append(error.code)

    consumer = threading.Thread(target=consume)
    consumer.start()
    time.sleep(0.1)  # so that it is most likely inside next(); right either way
    loader.close()
    consumer.join(10)
    assert caught == [penstock.CODES["ECLOSED"]]


def test_closing_the_engine_wakes_the_consumers_of_its_loaders(photos):
    engine = penstock.Engine(workers=1)
    loaders = [slow_loader(photos, engine=engine) for _ in range(2)]
    caught = []

    def consume(loader):
        try:
            next(iter(loader))
        except penstock.Error as error:
            caught.append(error.code)

    crew = [threading.Thread(target=consume, args=(loader,)) for loader in loaders]
    for thread in crew:
        thread.start()
    engine.close()
    for thread in crew:
        thread.join(10)
    assert caught == [penstock.CODES["ECLOSED"]] * 2 and engine.closed
    with pytest.raises(penstock.Error):
        engine.settings
    with pytest.raises(penstock.Error):
        penstock.Loader(photos, CROP, 8, engine=engine)


def use_everything(photos) -> None:
    loader = penstock.Loader(photos, CROP, 8, workers=2)
    turn = iter(loader)
    batch = next(turn)
    batch.image, batch.label, batch.keys, batch.dtypes, batch.raw.names
    next(turn).raw.slots("image")
    loader.load_state_dict(loader.state_dict())
    next(iter(loader)).ids
    loader.stats(), loader.engine.settings, loader.dataset.fields, loader.dataset.classes
    try:
        penstock.Loader(photos, "decode | nonsense", 8, engine=loader.engine)
    except penstock.PipelineError:
        pass


def test_references_are_balanced(photos):
    types = [penstock.Engine, penstock.Error, penstock.PipelineError] + [
        getattr(penstock._penstock, name) for name in ("Dataset", "Job", "Batch", "View")
    ]
    use_everything(photos)
    gc.collect()
    before = [sys.getrefcount(kind) for kind in types] + [sys.getrefcount(None) // 1000]
    for _ in range(10):
        use_everything(photos)
    gc.collect()
    assert [sys.getrefcount(kind) for kind in types] + [sys.getrefcount(None) // 1000] == before


def loop_without_growth(photos, rounds: int, slack_bytes: int) -> None:
    for _ in range(20):
        use_everything(photos)
    gc.collect()
    before, names = (threads(), open_files()), thread_names()
    resident = resident_bytes()
    for _ in range(rounds):
        use_everything(photos)
    gc.collect()
    # Fewer, where threads of an earlier loader were still ending when they were counted.
    assert ended(lambda: threads() <= before[0] and open_files() <= before[1]), \
        f"{thread_names()}, {open_files()} files, not {names}, {before[1]} files"
    assert resident_bytes() - resident < slack_bytes


def loop_in_own_process(photos, rounds: int, slack_bytes: int) -> None:
    """Where no other test has left a loader that is still at work."""
    script = f"import test_process; test_process.loop_without_growth({str(photos)!r}, {rounds}, {slack_bytes})"
    done = subprocess.run([sys.executable, "-c", script], cwd=os.path.dirname(__file__), capture_output=True, text=True,
                          timeout=1200)
    assert done.returncode == 0, done.stderr


def test_thirty_loaders_leave_nothing_behind(photos):
    loop_in_own_process(photos, 30, (128 if ASAN else 16) << 20)  # it keeps what was freed for a while


@pytest.mark.long
def test_a_thousand_loaders_leave_nothing_behind(photos):
    loop_in_own_process(photos, 1000, 16 << 20)
