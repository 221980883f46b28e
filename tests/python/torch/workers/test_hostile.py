# SPDX-License-Identifier: Apache-2.0
"""Errors, deaths, interrupts and waste: workers that raise, are killed, are left alone or made by the hundred."""

import gc
import os
import pickle
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from penstock.torch._workers import IterableRunner, MapRunner
from tools import epoch, rest, same


class Squares:
    def __init__(self, length=32):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor([index, index * index])


def batches(length=32, size=4):
    return iter([list(range(i, min(i + size, length))) for i in range(0, length, size)])


def started(dataset, length=32, **options):
    options = {"num_workers": 2, "collate_fn": default_collate, **options}
    runner = MapRunner(dataset, **options)
    runner.start_epoch(batches(length), 5)
    return runner


# Errors


class TwoArguments(Exception):
    def __init__(self, code, reason):
        super().__init__(code, reason)
        self.code = code


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("no")


class Raising(Squares):
    def __init__(self, error, at=9):
        super().__init__()
        self.error, self.at = error, at

    def __getitem__(self, index):
        if index == self.at:
            raise self.error
        return super().__getitem__(index)


@pytest.mark.parametrize("collate", [default_collate, list])
def test_an_error_comes_at_its_batch_and_the_loader_goes_on(collate):
    runner = started(Raising(ValueError("bad pixel")), collate_fn=collate)
    runner.next(), runner.next()
    with pytest.raises(ValueError) as caught:
        runner.next()
    text = str(caught.value)
    assert "bad pixel" in text and "test_hostile.py" in text and "line" in text and "sample index 9" in text
    assert len(rest(runner)) == 5


@pytest.mark.parametrize(
    "error, kind",
    [(KeyError("missing"), KeyError), (TwoArguments(7, "why"), TwoArguments), (OSError(2, "gone"), OSError)],
)
def test_errors_keep_their_type_and_arguments(error, kind):
    runner = started(Raising(error, at=0))
    with pytest.raises(kind) as caught:
        runner.next()
    runner.shutdown()
    shown = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "sample index 0" in shown and "test_hostile.py" in shown
    if kind is TwoArguments:
        assert caught.value.args == (7, "why") and caught.value.code == 7
    if kind is OSError:
        assert caught.value.errno == 2
    if kind is KeyError:
        assert "\n" in str(caught.value)  # readable, not one line with \n in it


@pytest.mark.parametrize("error", [Unpicklable("x"), StopIteration("x")])
def test_errors_that_cannot_travel_become_runtime_errors(error):
    runner = started(Raising(error, at=0))
    with pytest.raises(RuntimeError, match="sample index 0"):
        runner.next()
    runner.shutdown()


def test_of_two_errors_in_a_batch_the_first_sample_s_comes():
    class Two(Squares):
        def __getitem__(self, index):
            raise ValueError(f"number {index}")

    runner = started(Two())
    with pytest.raises(ValueError, match="number 0"):
        runner.next()
    runner.shutdown()


def test_an_error_in_collate_fn():
    def collate(batch):
        raise LookupError("collate")

    runner = started(Squares(), collate_fn=collate)
    with pytest.raises(LookupError, match="collate"):
        runner.next()
    runner.shutdown()


def test_what_default_collate_refuses_is_refused():
    class Nones(Squares):
        def __getitem__(self, index):
            return None

    class Ragged(Squares):
        def __getitem__(self, index):
            return torch.zeros(index + 1)

    for dataset, kind in ((Nones(), TypeError), (Ragged(), RuntimeError)):
        runner = started(dataset)
        with pytest.raises(kind):
            runner.next()
        runner.shutdown()


def test_an_error_in_worker_init_fn():
    def init(worker_id):
        raise ZeroDivisionError("init")

    runner = started(Squares(), worker_init_fn=init)
    with pytest.raises(ZeroDivisionError, match="init"):
        runner.next()
    with pytest.raises(RuntimeError, match="init"):
        runner.next()


def never_back():
    raise LookupError("does not come back")


class NeverBack:
    def __reduce__(self):
        return never_back, ()


def test_a_sample_that_cannot_be_unpickled_is_an_error_of_its_batch():
    class Some(Squares):
        def __getitem__(self, index):
            return NeverBack() if index == 2 else super().__getitem__(index)

    runner = started(Some())
    with pytest.raises(LookupError, match="does not come back"):
        runner.next()
    assert len(rest(runner)) == 7


def test_an_error_in_the_sampler_leaves_the_rest_usable():
    def some():
        yield from batches(32)
        raise LookupError("sampler")

    runner = started(Squares(), persistent=True)
    runner.start_epoch(some(), 5)
    with pytest.raises(LookupError, match="sampler"):
        rest(runner)
    runner.start_epoch(batches(), 5)
    assert len(rest(runner)) == 8
    while runner._limbo:  # a worker may still be at a sample of the first epoch
        runner._sweep_limbo()
    runner.shutdown()


def test_an_error_in_an_iterable():
    class Failing(IterableDataset):
        def __iter__(self):
            yield 1
            raise ValueError("stream")

    runner = IterableRunner(Failing(), num_workers=1, collate_fn=default_collate, batch_size=1)
    runner.start_epoch()
    assert runner.next().tolist() == [1]
    with pytest.raises(ValueError, match="stream"):
        runner.next()
    assert rest(runner) == []


def test_worker_info_and_init(tmp_path):
    def init(worker_id):
        info = torch.utils.data.get_worker_info()
        assert (info.id, info.num_workers, info.seed) == (worker_id, 2, 100 + worker_id)
        assert info.seed == torch.initial_seed()
        info.dataset.marked = worker_id
        (tmp_path / str(worker_id)).touch()

    class Marked(Squares):
        def __getitem__(self, index):
            return self.marked, torch.get_num_threads()

    runner = started(Marked(), worker_init_fn=init, base_seed=100)
    got = rest(runner)
    assert {int(w) for b in got for w in b[0]} <= {0, 1} and {int(w) for b in got for w in b[1]} == {1}
    assert sorted(os.listdir(tmp_path)) == ["0", "1"]
    assert torch.utils.data.get_worker_info() is None


# Deaths


class Killing(Squares):
    def __getitem__(self, index):
        if index == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_killed_worker_is_an_error_and_not_a_hang():
    runner = started(Killing())
    with pytest.raises(RuntimeError, match=r"pid \d+.*signal 9.*SIGKILL") as caught:
        rest(runner)
    assert "memory" in str(caught.value)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        runner.next()


def test_a_killed_idle_worker_of_an_iterable():
    class Stream(IterableDataset):
        def __iter__(self):
            if torch.utils.data.get_worker_info().id == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield from range(100)

    runner = IterableRunner(Stream(), num_workers=2, collate_fn=default_collate, batch_size=1)
    runner.start_epoch()
    with pytest.raises(RuntimeError, match="SIGKILL"):
        rest(runner)


def test_timeout():
    class Stuck(Squares):
        def __getitem__(self, index):
            signal.pause()

    runner = started(Stuck(), timeout=0.1)
    with pytest.raises(RuntimeError, match="timed out after 0.1 seconds"):
        runner.next()
    for process in runner._pool.processes:
        process.kill()
    runner.shutdown()


# Other processes: each script prints what it saw


HEAD = """
import os, signal, sys, time
import torch
from torch.utils.data import default_collate
from penstock.torch._workers import MapRunner

class Data:
    def __getitem__(self, index):
        return torch.tensor([index])

def start(dataset, n=1000, **options):
    runner = MapRunner(dataset, num_workers=2, collate_fn=default_collate, **options)
    runner.start_epoch(iter([[i, i + 1] for i in range(0, n, 2)]), 1)
    return runner
"""


def script(text, tmp_path, **options):
    path = tmp_path / "script.py"
    path.write_text(HEAD + text)
    return subprocess.Popen(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, **options
    )


def alive(pids):
    """Those of the processes that run; a zombie that its new parent has not fetched yet does not."""
    running = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] not in "ZX":
                    running.append(pid)
        except FileNotFoundError:
            pass
    return running


def gone(pids, seconds=20):
    """Whether all end within the time. Reads /proc: they are not our children, so there is nothing to wait on."""
    deadline = time.monotonic() + seconds
    while alive(pids):
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def test_no_main_guard_and_exit_with_a_half_read_loader(tmp_path):
    text = "r = start(Data()); print(r.next().tolist()); print(*[p.pid for p in r._pool.processes])"
    process = script(text, tmp_path)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err == "", err
    lines = out.splitlines()
    assert lines[0] == "[[0], [1]]"
    assert gone(map(int, lines[1].split()))


def test_workers_end_when_their_trainer_is_killed(tmp_path):
    """Those that its main thread forked, whom the kernel kills, and those of another thread, who see their pipe end."""
    text = """
import threading
runners = []
def go():
    runners.append(start(Data()))
    runners[-1].next()
go()
thread = threading.Thread(target=go)
thread.start()
thread.join()
go()
print(*[p.pid for r in runners for p in r._pool.processes], flush=True)
signal.pause()
"""
    process = script(text, tmp_path)
    pids = list(map(int, process.stdout.readline().split()))
    assert len(alive(pids)) == 6
    process.kill()
    assert gone(pids)
    process.communicate()


def test_interrupt_is_prompt_and_leaves_nothing(tmp_path):
    text = """
class Stuck(Data):
    def __getitem__(self, index):
        if index == 8:
            print('stuck', flush=True)
            time.sleep(3)
        return super().__getitem__(index)
r = start(Stuck())
print(*[p.pid for p in r._pool.processes], flush=True)
try:
    while True:
        r.next()
except KeyboardInterrupt:
    print('interrupted', flush=True)
    sys.exit(7)
"""
    process = script(text, tmp_path, start_new_session=True)
    pids = list(map(int, process.stdout.readline().split()))
    assert process.stdout.readline() == "stuck\n"
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - began < 2
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7 and "Traceback" not in err, err
    assert gone(pids)


def in_a_fork(function):
    """What the function returns, as text, in a child of this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, repr(function()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def test_fork_after_use():
    runner = started(Squares(1000), length=1000)
    got = [runner.next().clone() for _ in range(20)]
    got.append(runner.next())

    def in_child():
        nonlocal runner
        try:
            runner.next()
        except RuntimeError as error:
            said = str(error)
        runner = None
        got.clear()
        return said, started(Squares(), length=4).next().tolist()

    text = in_a_fork(in_child)
    assert "this iterator belongs to" in text and "[[0, 0], [1, 1], [2, 4], [3, 9]]" in text
    got += rest(runner)
    assert torch.cat(got)[:, 0].tolist() == list(range(1000))


def named():
    """What this process maps or holds in /dev/shm."""
    with open("/proc/self/maps") as file:
        found = {line[line.index("/dev/shm") :] for line in file if "/dev/shm" in line}
    for name in os.listdir("/proc/self/fd"):
        path = os.path.realpath(f"/proc/self/fd/{name}")
        if "/dev/shm" in path:
            found.add(path)
    return found


@pytest.mark.parametrize("own", [False, True], ids=["default_collate", "own"])
def test_nothing_is_named_in_dev_shm(own):
    """Neither trainer nor worker maps or holds a file there that was not there before, whoever collates."""
    before = named()

    class Big(Squares):
        def __getitem__(self, index):
            return torch.zeros(1000), len(named() - before)

    def stacked(batch):
        data = default_collate(batch)
        return data[0], data[1] + len(named() - before)

    runner = started(Big(), length=80, collate_fn=stacked if own else default_collate)
    for _ in range(20):
        assert not runner.next()[1].any() and named() <= before
    runner.shutdown()


# Waste


def notebook_class():
    """A class as a notebook defines it."""
    main = vars(sys.modules["__main__"])
    exec("class Cell:\n    def __getitem__(self, i):\n        return {'i': i, 'f': (lambda: i)()}", main)
    return main["Cell"]


def test_class_defined_in_main():
    got = rest(started(notebook_class()()))
    assert torch.cat([b["i"] for b in got]).tolist() == list(range(32))


def open_files():
    return len(os.listdir("/proc/self/fd"))


def children():
    found = set()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:
            found.update(file.read().split())
    return found


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_loaders_made_and_dropped_leave_no_files_processes_or_memory(count):
    def one(read):
        runner = started(Squares(), persistent=read % 2 == 0)
        kept = [runner.next() for _ in range(read % 3)]
        if read % 5 == 0:
            runner.shutdown()
        return kept

    for number in range(5):
        one(number)
    gc.collect()
    files, processes, kept = open_files(), children(), []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        kept = kept[-20:] + one(number)[:1]
    assert open_files() <= files + len(kept)  # each kept batch keeps its mapping
    kept.clear()
    gc.collect()
    assert open_files() == files
    assert children() == processes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 64 * 1024


def shared_memory():
    """Bytes of memory behind our mappings of shared batches that are in use."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:penstock" in os.readlink(f"/proc/self/fd/{fd}"):
                return os.stat(int(fd)).st_blocks * 512
        except OSError:
            continue
    return 0


@pytest.fixture
def no_collector():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("collate", [default_collate, torch.stack, lambda batch: default_collate(batch)])
def test_memory_is_used_again(collate, no_collector):
    """100 batches of 4 MiB need a few batches' worth of memory, without the garbage collector's help."""

    class Big:
        def __getitem__(self, index):
            return torch.zeros(1 << 18)

    runner = started(Big(), length=400, collate_fn=collate)
    for _ in range(100):
        batch = runner.next()
    assert batch.shape == (4, 1 << 18)
    assert shared_memory() < 16 * (4 << 20)
    assert rest(runner) == []
    assert shared_memory() < 2 * (4 << 20)  # the batch that is kept


@pytest.mark.parametrize("options", [{}, {"collate_fn": list}, {"in_order": False, "regroup": True}], ids=str)
def test_epochs_broken_off_give_their_memory_back(options):
    class Big:
        def __getitem__(self, index):
            return torch.zeros(1 << 16) + index

    runner = started(Big(), length=64, persistent=True, **options)
    for _ in range(30):
        runner.start_epoch(batches(64), 5)
        runner.next(), runner.next()
    assert shared_memory() < 32 * (1 << 20)  # of 120 batches of 1 MiB
    runner.shutdown()


def test_kept_batches_do_not_change_while_others_come():
    runner = started(Squares(4000), length=4000)
    kept = {}
    for number in range(1000):
        batch = runner.next()
        if number % 7 == 0:
            kept[number] = batch
    assert rest(runner) == []
    for number, batch in kept.items():
        assert batch[:, 0].tolist() == list(range(number * 4, number * 4 + 4))


def test_growing_samples():
    class Growing:
        def __getitem__(self, index):
            return torch.full((1 + (index // 4) ** 2 * 50,), float(index))

    for number, batch in enumerate(rest(started(Growing(), length=120))):
        assert batch.shape == (4, 1 + number**2 * 50) and batch[:, -1].tolist() == [number * 4 + i for i in range(4)]


def test_results_do_not_share_memory_with_pickles():
    """A batch handed out can be pickled and copied like any other."""
    batch = started(Squares()).next()
    assert torch.equal(pickle.loads(pickle.dumps(batch)), batch) and torch.equal(batch.clone(), batch)


def test_slow_samples_do_not_hold_up_the_others():
    """Strict order: a batch waits for its slowest sample, not for the sum; work goes on behind it."""

    class Gate:
        """Sample 0 ends only after samples 1 to 6 were made by the other worker."""

        def __init__(self):
            self.pipe = os.pipe()

        def __getitem__(self, index):
            if index == 0:
                got = b""
                while len(got) < 6:
                    got += os.read(self.pipe[0], 6 - len(got))
            elif index <= 6:
                os.write(self.pipe[1], b"x")
            return index

    got = rest(started(Gate(), length=8, timeout=60))
    assert [b.tolist() for b in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_loader_of_torch_and_ours_by_turns():
    loader = DataLoader(Squares(), batch_size=4, num_workers=1)
    for _ in range(2):
        same(epoch(loader), list(loader))
