#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Schedulers of other loaders, simulated event by event on given costs, with one consumer for all.

    bench/paper_schedulers.py [--costs FILE] [--light 50 --heavy 3000 --share 0.2 --runs 16 --samples 640] [--stages 10]
                              [--workers 12] [--batch 4] [--depth 8] [--asks 0.9] [--hidden] [--cores 0] [--out FILE]

FILE has a sample a line: the milliseconds of its stages, in order. Without one costs are made as the op `delay` makes
them.

in order         PyTorch's DataLoader: a batch is one worker's task, workers get batches in turn, delivery is in order
out of order     the same with in_order=False: batches as they are finished, tasks to workers that have few
speedy           SpeedyLoader: cost is predicted; a pool for short and one for long samples, whose idle workers steal
                 short ones; batches hold what PyTorch's would, and go into one queue as they are finished
minato           MinatoLoader as its text says: a sample past the time limit is taken from its worker at once, and a
                 worker for slow samples repeats the interrupted stage and goes on; finished fast samples go first
minato, between  the same, but looked at between stages only, and nothing is repeated
minato, fixed    minato without equations (1) and (2): all workers, all the time
plain            any free worker takes the next sample; batches hold what is finished
ideal            plain with no limit on what may be ready

Not published, so chosen here, in the papers' favour. How workers are split between short and long samples, or between
fast and slow ones: every split is tried and the fastest told. Speedy: long is more than the mean cost, and
predictions are right. Minato: the limit is the 75th percentile of true costs (no warm-up), the 90th where more than
30 % lie above the 75th; of equations (1) and (2) alpha = beta = 2, once a second, the queue's length averaged over 10
values; theta 0.7, steps of at most 2, 1 to --workers workers, 10 ms polls. Queues that the papers bound by a count
are bound by --depth here, so that all may have the same bytes ready: samples that are started and not yet taken are
at most depth * batch, as in Penstock's plain pool. PyTorch counts batches a worker instead: prefetch_factor is its
default of 2, or what depth needs if that is more.
"""
from __future__ import annotations

import argparse
import heapq
import sys
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Sequence

sys.dont_write_bytecode = True
import common

Costs = Sequence[Sequence[float]]  # seconds, [sample][stage]


@dataclass
class Setup:
    """What is the same for every schedule. cores: > 0 when the work burns CPU, 0 when it sleeps."""

    workers: int = 12
    batch: int = 4
    depth: int = 8
    step_s: float = 0.1  # the consumer's work on a batch
    known: bool = True  # cost can be predicted
    cores: int = 0
    scale: float = 1.0  # of the papers' own times: polls, periods
    slow_workers: int = 0  # of a schedule that splits them; 0: every split is tried


@dataclass
class Outcome:
    """seconds: from the first request to the end of the consumer's last step."""

    seconds: float = 0.0
    busy: float = 0.0
    first_wait: float = 0.0
    waits: list[float] = field(default_factory=list)

    def p99(self) -> float:
        """Of the waits after the first."""
        return percentile(self.waits, 0.99)

    def as_dict(self) -> dict[str, float]:
        return {"seconds": self.seconds, "busy": self.busy, "first_wait": self.first_wait, "p99_wait": self.p99()}


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def bound(totals: Sequence[float], setup: Setup) -> float:
    """Seconds that no schedule can go below.

    The consumer cannot begin before the cheapest batch can be there, and then has its own work on every batch; or the
    workers have all the work to do, and then the last batch is worked on.
    """
    batches = -(-len(totals) // setup.batch)
    cheapest = sorted(totals)[: setup.batch]
    first = max(sum(cheapest) / setup.workers, cheapest[-1] if cheapest else 0.0)
    return max(first + batches * setup.step_s, sum(totals) / setup.workers + setup.step_s)


class Simulation:
    """Time, the consumer, and batches that are ready. A schedule says how samples become batches."""

    poll_s = 0.0  # the consumer looks again after so long; 0: it is woken
    splits = False  # workers between two kinds of work

    def __init__(self, costs: Costs, setup: Setup) -> None:
        self.costs, self.setup = costs, setup
        self.totals = [sum(stages) for stages in costs]
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.count = 0
        self.ready: deque[int] = deque()  # samples in each
        self.taken = 0
        self.waiting_since: float | None = None
        self.last_end = 0.0
        self.waits: list[float] = []

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, call, args))

    def offer(self, size: int) -> None:
        self.ready.append(size)
        if self.waiting_since is None:
            return
        if self.poll_s:
            passed = self.now - self.waiting_since
            polls = -(-passed // self.poll_s)
            self.after(max(0.0, polls * self.poll_s - passed), self.look)
        else:
            self.look()

    def look(self) -> None:
        """A consumer that waits takes a batch if there is one."""
        if not self.ready or self.waiting_since is None:
            return
        self.waits.append(self.now - self.waiting_since)
        self.waiting_since = None
        size = self.ready.popleft()
        self.taken += size
        self.last_end = self.now + self.setup.step_s
        self.after(self.setup.step_s, self.ask)
        self.on_taken(size)

    def ask(self) -> None:
        if self.taken == len(self.costs):
            return
        self.waiting_since = self.now
        self.look()

    def on_taken(self, size: int) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        raise NotImplementedError

    def run(self) -> Outcome:
        self.ask()
        self.begin()
        while self.events and self.taken < len(self.costs):
            self.now, _, call, args = heapq.heappop(self.events)
            call(*args)
        if self.taken != len(self.costs):
            raise RuntimeError(f"{type(self).__name__}: {self.taken} of {len(self.costs)} samples came")
        seconds = self.last_end
        return Outcome(seconds, len(self.waits) * self.setup.step_s / seconds, self.waits[0], self.waits[1:])


def prefetch_factor(depth: int, workers: int) -> int:
    return max(2, -(-depth // workers))


class BatchPerWorker(Simulation):
    """PyTorch: the batch is the task."""

    in_order = True

    def __init__(self, costs: Costs, setup: Setup) -> None:
        super().__init__(costs, setup)
        self.batches = [range(at, min(at + setup.batch, len(costs))) for at in range(0, len(costs), setup.batch)]
        self.prefetch = prefetch_factor(setup.depth, setup.workers)
        self.queues: list[deque[int]] = [deque() for _ in range(setup.workers)]
        self.tasks = [0] * setup.workers
        self.running = [False] * setup.workers
        self.turn = self.sent = self.delivered = 0
        self.done: dict[int, int] = {}  # finished before its turn: whose it was
        self.whose: deque[int] = deque()  # of the batches that are ready

    def begin(self) -> None:
        for _ in range(self.prefetch * self.setup.workers):
            self.put()

    def put(self) -> None:
        if self.sent == len(self.batches):
            return
        for _ in range(self.setup.workers):
            worker = self.turn
            self.turn = (self.turn + 1) % self.setup.workers
            if self.in_order or self.tasks[worker] < self.prefetch:
                break
        self.queues[worker].append(self.sent)
        self.tasks[worker] += 1
        self.sent += 1
        self.work(worker)

    def work(self, worker: int) -> None:
        if self.running[worker] or not self.queues[worker]:
            return
        self.running[worker] = True
        number = self.queues[worker].popleft()
        self.after(sum(self.totals[i] for i in self.batches[number]), self.finish, worker, number)

    def finish(self, worker: int, number: int) -> None:
        self.running[worker] = False
        self.work(worker)
        self.done[number] = worker
        if not self.in_order:
            self.deliver(number)
        while self.in_order and self.delivered in self.done:
            self.deliver(self.delivered)

    def deliver(self, number: int) -> None:
        self.delivered += 1
        self.whose.append(self.done.pop(number))
        self.offer(len(self.batches[number]))

    def on_taken(self, size: int) -> None:
        self.tasks[self.whose.popleft()] -= 1
        self.put()


class BatchAnyOrder(BatchPerWorker):
    in_order = False


class Pool(Simulation):
    """Samples are tasks; what is started and not yet taken is bounded. Subclasses choose who does what."""

    bounded = True

    def __init__(self, costs: Costs, setup: Setup) -> None:
        super().__init__(costs, setup)
        self.next = 0
        self.free = setup.workers
        self.filled = self.finished = 0
        self.limit = setup.depth * setup.batch

    def may_start(self) -> bool:
        return self.next < len(self.costs) and (not self.bounded or self.next - self.taken < self.limit)

    def begin(self) -> None:
        while self.free and self.may_start():
            self.free -= 1
            self.after(self.totals[self.next], self.finish, self.next)
            self.next += 1

    def finish(self, sample: int) -> None:
        self.free += 1
        self.place(sample)
        self.begin()

    def place(self, sample: int) -> None:
        """Batches hold what is finished."""
        self.filled += 1
        self.finished += 1
        if self.filled == self.setup.batch or self.finished == len(self.costs):
            size, self.filled = self.filled, 0
            self.offer(size)

    def on_taken(self, size: int) -> None:
        self.begin()


class Ideal(Pool):
    bounded = False


class Speedy(Pool):
    """Two pools by predicted cost; the composition of batches is fixed."""

    splits = True

    def __init__(self, costs: Costs, setup: Setup) -> None:
        super().__init__(costs, setup)
        self.short: deque[int] = deque()
        self.long: deque[int] = deque()
        self.free_long = setup.slow_workers or max(1, setup.workers // 2)
        self.free_short = max(1, setup.workers - self.free_long)
        mean = sum(self.totals) / max(1, len(self.totals))
        self.is_long = [setup.known and total > mean for total in self.totals]
        self.missing = [min(setup.batch, len(costs) - at) for at in range(0, len(costs), setup.batch)]

    def begin(self) -> None:
        while self.may_start():
            (self.long if self.is_long[self.next] else self.short).append(self.next)
            self.next += 1
        while self.free_long and (self.long or self.short):
            if not self.long and self.free_short:
                break  # a short-pool worker takes it
            self.free_long -= 1
            sample = (self.long or self.short).popleft()
            self.after(self.totals[sample], self.end_long, sample)
        while self.free_short and self.short:
            self.free_short -= 1
            sample = self.short.popleft()
            self.after(self.totals[sample], self.end_short, sample)
        if self.free_long and self.short:
            self.begin()

    def end_long(self, sample: int) -> None:
        self.free_long += 1
        self.place(sample)
        self.begin()

    def end_short(self, sample: int) -> None:
        self.free_short += 1
        self.place(sample)
        self.begin()

    def place(self, sample: int) -> None:
        batch = sample // self.setup.batch
        self.missing[batch] -= 1
        if self.missing[batch] == 0:
            self.offer(min(self.setup.batch, len(self.costs) - batch * self.setup.batch))


class Minato(Pool):
    """A time limit, workers for what passes it, and fast samples first."""

    POLL_S, PERIOD_S, ALPHA, BETA, THETA, STEP, AVERAGED = 0.01, 1.0, 2.0, 2.0, 0.7, 2, 10
    splits = True
    preempts = True
    adjusts = True

    def __init__(self, costs: Costs, setup: Setup) -> None:
        super().__init__(costs, setup)
        self.poll_s = self.POLL_S * setup.scale
        self.t_out = percentile(self.totals, 0.75)
        if sum(total > self.t_out for total in self.totals) > 0.3 * len(self.totals):
            self.t_out = percentile(self.totals, 0.9)
        self.fast = self.slow = 0  # finished, not yet in a batch
        self.temp: deque[tuple[int, float]] = deque()  # sample, seconds that are left
        self.workers = setup.workers
        self.slow_share = (setup.slow_workers or max(1, setup.workers // 4)) / setup.workers
        self.loading = self.resuming = 0  # busy
        self.built = 0  # samples in batches so far
        self.asleep_since: float | None = None  # the batch worker
        self.lengths: deque[float] = deque(maxlen=self.AVERAGED)
        self.busy_s = self.busy_at = 0.0

    def begin(self) -> None:
        if self.adjusts:
            self.after(self.PERIOD_S * self.setup.scale, self.adjust)
        self.start()

    # -- workers

    def slow_workers(self) -> int:
        return max(1, int(self.workers * self.slow_share + 0.5))

    def load_workers(self) -> int:
        return max(1, self.workers - self.slow_workers())

    def start(self) -> None:
        while self.loading < self.load_workers() and self.may_start():
            self.count_busy()
            self.loading += 1
            spent, left = self.first_try(self.next)
            self.after(spent, self.end_load, self.next, left)
            self.next += 1
        while self.resuming < self.slow_workers() and self.temp:
            self.count_busy()
            self.resuming += 1
            _, left = self.temp.popleft()
            self.after(left, self.end_slow)

    def first_try(self, sample: int) -> tuple[float, float]:
        """Seconds on a loading worker, and those that a slow worker then has to do."""
        total, done = self.totals[sample], 0.0
        if total <= self.t_out:
            return total, 0.0
        for stage in self.costs[sample]:
            if done + stage > self.t_out:
                if self.preempts:
                    return self.t_out, total - done
                return done + stage, total - done - stage
            done += stage
        return total, 0.0

    def end_load(self, sample: int, left: float) -> None:
        self.count_busy()
        self.loading -= 1
        if left > 0:
            self.temp.append((sample, left))
        else:
            self.fast += 1
        self.start()
        self.wake()

    def end_slow(self) -> None:
        self.count_busy()
        self.resuming -= 1
        self.slow += 1
        self.start()
        self.wake()

    # -- the batch worker: fast samples, else slow ones, else it sleeps

    def wake(self) -> None:
        if self.asleep_since is None:
            self.build()
            return
        passed = self.now - self.asleep_since
        polls = -(-passed // self.poll_s)
        self.asleep_since = None
        self.after(max(0.0, polls * self.poll_s - passed), self.build)

    def build(self) -> None:
        while (self.fast or self.slow) and len(self.ready) < self.setup.depth:
            if self.fast:
                self.fast -= 1
            else:
                self.slow -= 1
            self.filled += 1
            self.built += 1
            if self.filled == self.setup.batch or self.built == len(self.costs):
                size, self.filled = self.filled, 0
                self.offer(size)
        if self.asleep_since is None and not (self.fast or self.slow):
            self.asleep_since = self.now

    def on_taken(self, size: int) -> None:
        self.start()
        self.after(0.0, self.wake)

    # -- equations (1) and (2)

    def count_busy(self) -> None:
        self.busy_s += (self.loading + self.resuming) * (self.now - self.busy_at)
        self.busy_at = self.now

    def adjust(self) -> None:
        self.count_busy()
        period = self.PERIOD_S * self.setup.scale
        usage = min(1.0, self.busy_s / period / self.setup.cores) if self.setup.cores else 0.0
        self.busy_s = 0.0
        self.lengths.append(len(self.ready))
        queue = sum(self.lengths) / len(self.lengths) / self.setup.depth
        delta = self.ALPHA * (1.0 - queue) + self.BETA * (usage - self.THETA)
        delta = max(-self.STEP, min(self.STEP, round(delta)))
        self.workers = min(self.setup.workers, max(1, self.workers + delta))
        self.start()
        self.after(period, self.adjust)


class MinatoBetween(Minato):
    preempts = False


class MinatoFixed(Minato):
    adjusts = False


SCHEDULES: dict[str, type[Simulation]] = {
    "in order": BatchPerWorker,
    "out of order": BatchAnyOrder,
    "speedy": Speedy,
    "minato": Minato,
    "minato, between": MinatoBetween,
    "minato, fixed": MinatoFixed,
    "plain": Pool,
    "ideal": Ideal,
}


def simulate(name: str, costs: Costs, setup: Setup) -> Outcome:
    schedule = SCHEDULES[name]
    if not schedule.splits or setup.slow_workers:
        return schedule(costs, setup).run()
    tried = (schedule(costs, replace(setup, slow_workers=slow)).run() for slow in range(1, max(2, setup.workers)))
    return min(tried, key=lambda found: found.seconds)


# ---- costs -----------------------------------------------------------------------------------------------------------


def is_hit(number: int, share: float, runs: int) -> bool:
    """As the op `delay` does with runs of 1 and more."""
    return share > 0 and number % int(runs / share + 0.5) < runs


def philox(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox4x32-10, as the engine draws."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = b >> 32 ^ c1 ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def drawn_unit(number: int, place: int, seed: int = 0, epoch: int = 0) -> float:
    """The first number in [0, 1) that the op at this place of a pipeline draws for a sample."""
    stream = philox((number & 0xFFFFFFFF, number >> 32, epoch, 0), (seed & 0xFFFFFFFF, seed >> 32))
    block = philox((stream[2], stream[3], place, 0), stream[:2])
    return ((block[0] | block[1] << 32) >> 11) * 2.0**-53


def hashed_unit(number: int) -> float:
    """What `delay(..., hidden)` at random goes by."""
    return drawn_unit(number, 0, seed=0x64656C6179)


def between_runs(count: int, share: float, runs: int) -> range:
    """The numbers in order, from half way between two runs on, and round to there."""
    period = int(runs / share + 0.5) if runs and share else 1
    return range((period + runs) // 2, (period + runs) // 2 + count)


def made_costs(count: int, light_s: float, heavy_s: float, hits: Sequence[bool], stages: int) -> list[list[float]]:
    """A light stage for all, and a heavy step of so many stages for those that are hit."""
    return [[light_s, *([heavy_s / stages] * stages if hits[i] else [])] for i in range(count)]


def read_costs(path: str) -> list[list[float]]:
    with open(path, encoding="utf-8") as handle:
        found = [[float(word) / 1000 for word in line.split()] for line in handle if line.strip() and line[0] != "#"]
    if not found:
        sys.exit(f"{path}: no costs; a line has the milliseconds of a sample's stages")
    return found


# ---- the program -----------------------------------------------------------------------------------------------------


def tell(outcomes: dict[str, Outcome], least: float) -> None:
    print("%-16s %9s %8s %7s %11s" % ("", "seconds", "/ bound", "busy", "p99 wait s"))
    for name, found in outcomes.items():
        print("%-16s %9.2f %8.3f %7.3f %11.3f" % (name, found.seconds, found.seconds / least, found.busy, found.p99()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", help="a file of costs")
    parser.add_argument("--light", type=float, default=50, help="milliseconds of every sample")
    parser.add_argument("--heavy", type=float, default=3000, help="milliseconds more of those that are hit")
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--runs", type=int, default=16, help="0: at random")
    parser.add_argument("--stages", type=int, default=10, help="of the heavy step")
    parser.add_argument("--samples", type=int, default=640)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--depth", type=int, default=8, help="batches that may be ready")
    parser.add_argument("--asks", type=float, default=0.9, help="share of the supply that the consumer asks for")
    parser.add_argument("--hidden", action="store_true", help="no cost can be predicted")
    parser.add_argument("--cores", type=int, default=0, help="the work burns CPU on so many; 0: it sleeps")
    parser.add_argument("--out", help="a JSON file for the figures")
    args = parser.parse_args()
    if args.costs:
        costs = read_costs(args.costs)
    else:
        hits = [hashed_unit(i) < args.share if args.runs == 0 else is_hit(i, args.share, args.runs)
                for i in between_runs(args.samples, args.share, args.runs)]
        costs = made_costs(args.samples, args.light / 1000, args.heavy / 1000, hits, args.stages)
    totals = [sum(stages) for stages in costs]
    supply = args.workers * len(totals) / sum(totals)
    setup = Setup(args.workers, args.batch, args.depth, args.batch / (args.asks * supply), not args.hidden, args.cores)
    outcomes = {name: simulate(name, costs, setup) for name in SCHEDULES}
    least = bound(totals, setup)
    print("%d samples, mean %.0f ms, supply %.1f/s, bound %.2f s" % (
        len(totals), 1000 * sum(totals) / len(totals), supply, least))
    tell(outcomes, least)
    if args.out:
        common.write_json(args.out, {"bound_s": least, "setup": vars(setup),
                                     "schedules": {name: found.as_dict() for name, found in outcomes.items()}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
