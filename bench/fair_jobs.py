#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs on one served engine, each as fast as it can: what each gets of the workers, and how many threads that takes.

    bench/fair_jobs.py --build DIR [--photos DIR] [--rounds 3] [--seconds 6] [--skip 3] [--out FILE]

Each job is a process of its own that takes batches of 16 and does nothing with them, from --skip to --skip + --seconds
after all have begun. Settings:

4 equal, asleep      samples of 5 ms, 12 workers
4 equal, burning     samples that burn 1 ms of CPU, as many workers as `penstock serve` chooses
4 equal, photos      decode | random_resized_crop(224) | hflip | normalize, the same workers (with --photos)
cheap and dear       one job's samples sleep 2 ms, the other's 50 ms, 12 workers; and burning 0.2 and 5 ms, the
                     workers that it chooses; and `uneven`, where a fifth of the dear job's take 250 ms, the others 2

Told: samples a second of each; the fastest of equal jobs by the slowest, at most 1.1; what each had of the workers'
time (the seconds of its stages); the engine's worker threads, and the CPU seconds of engine and jobs, both as a
multiple of the quota, at most 1.1 where workers were not asked for. Medians over rounds.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

sys.dont_write_bytecode = True
import common
import lanes

BATCH, APART, OVER = 16, 1.1, 1.1
HEAD = "decode | center_crop(%d)" % lanes.SIDE


@dataclass(frozen=True)
class Setting:
    """The pipelines of the jobs. workers: 0 lets the engine choose."""

    name: str
    pipelines: tuple[str, ...]
    workers: int = 0
    photos: bool = False

    @property
    def equal(self) -> bool:
        return len(set(self.pipelines)) == 1


def delayed(ms: float, how: str, *more: str) -> str:
    return " | ".join((HEAD, f"delay({ms:g}, {how})", *more, "to(f32, nchw)"))


SETTINGS = (
    Setting("4 equal, asleep", (delayed(5, "sleep"),) * 4, 12),
    Setting("4 equal, burning", (delayed(1, "burn"),) * 4),
    Setting("4 equal, photos", (common.PIPELINE,) * 4, photos=True),
    Setting("cheap and dear, asleep", (delayed(2, "sleep"), delayed(50, "sleep")), 12),
    Setting("cheap and dear, burning", (delayed(0.2, "burn"), delayed(5, "burn"))),
    Setting("cheap and dear, uneven", (delayed(2, "sleep"), delayed(
        2, "sleep", "delay(250, share=0.2, runs=16, stages=10, hidden, sleep)")), 12),
)


# ---- one job ---------------------------------------------------------------------------------------------------------


def run_job(spec: dict) -> dict:
    """Batches as they come; what came, and what workers spent, between two points of the clock."""
    import numpy  # noqa: F401  else the first batch would wait for it
    import penstock

    def spent() -> float:
        return sum(seconds for _, _, seconds in loader.stats()["stages"])

    with penstock.Loader(spec["data"], spec["pipeline"], BATCH, engine=spec["engine"], order="ready", shuffle=True,
                         seed=spec["number"], ready_depth=4) as loader:
        batches, samples, cpu = iter(loader), 0, 0.0
        next(batches)
        print("stands", flush=True)
        since, until = (float(word) for word in sys.stdin.readline().split())
        before = None
        while time.monotonic() < until:
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                continue
            if before is None and time.monotonic() >= since:
                before, cpu, begin = spent(), time.process_time(), time.monotonic()
            samples += BATCH if before is not None else 0
            del batch
        seconds = time.monotonic() - begin
        return {"rate": samples / seconds, "worker_s": spent() - (before or 0.0), "seconds": seconds,
                "cpu_s": time.process_time() - cpu}


# ---- all of them -----------------------------------------------------------------------------------------------------


class Threads(threading.Thread):
    """Looks at a process from time to time: its worker threads, and how many of them are on a core or wait for one."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most, self.running, self.ends = pid, 0, [], threading.Event()

    def run(self) -> None:
        while not self.ends.wait(0.1):
            states = []
            for task in os.listdir("/proc/%d/task" % self.pid):
                try:
                    with open("/proc/%d/task/%s/stat" % (self.pid, task), encoding="ascii", errors="replace") as handle:
                        head, _, rest = handle.read().rpartition(")")
                except OSError:
                    continue
                if "(pst-work" in head:
                    states.append(rest.split()[0])
            self.most = max(self.most, len(states))
            self.running.append(states.count("R"))


def serve(setting: Setting, args: argparse.Namespace, folder: str) -> tuple[subprocess.Popen, str]:
    where = os.path.join(folder, "engine")
    command = [os.path.join(args.build, "penstock"), "serve", "--socket", where, "--cache", "0", "--memory", "512M",
               *(["--workers", str(setting.workers)] if setting.workers else [])]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    return child, "unix:" + where


def start_jobs(setting: Setting, data: str, engine: str, args: argparse.Namespace) -> list[subprocess.Popen]:
    env = common.env_of(args.build)
    jobs = []
    for number, pipeline in enumerate(setting.pipelines):
        spec = {"data": data, "pipeline": pipeline, "engine": engine, "number": number}
        jobs.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), "--job", json.dumps(spec)], env=env,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for one in jobs:
        assert one.stdout is not None
        if not one.stdout.readline():
            sys.exit("a job of %s did not start" % setting.name)
    return jobs


def one_run(setting: Setting, data: str, args: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        child, engine = serve(setting, args, folder)
        try:
            jobs = start_jobs(setting, data, engine, args)
            since = time.monotonic() + args.skip
            watch, before = Threads(child.pid), common.cpu_seconds([child.pid])
            watch.start()
            begin = time.monotonic()
            told = together(jobs, since, since + args.seconds)
            used = (common.cpu_seconds([child.pid]) - before) / (time.monotonic() - begin)
            watch.ends.set()
            watch.join()
        finally:
            child.terminate()
            child.communicate()
    rates, times = [one["rate"] for one in told], [one["worker_s"] for one in told]
    used += sum(one["cpu_s"] / one["seconds"] for one in told)
    return {"rates": rates, "apart": max(rates) / min(rates), "times": [one / sum(times) for one in times],
            "threads": watch.most, "runnable": sum(watch.running) / len(watch.running), "cores_used": used}


def together(jobs: list[subprocess.Popen], since: float, until: float) -> list[dict]:
    for one in jobs:
        assert one.stdin is not None
        one.stdin.write("%f %f\n" % (since, until))
        one.stdin.flush()
    told = [one.communicate(timeout=600)[0] for one in jobs]
    if any(one.returncode for one in jobs):
        sys.exit("a job ended with status %s" % [one.returncode for one in jobs])
    return [json.loads(text.splitlines()[-1]) for text in told]


def measure(setting: Setting, data: str, args: argparse.Namespace) -> dict:
    rounds = [one_run(setting, data, args) for _ in range(args.rounds)]
    found = {key: common.spread([one[key] for one in rounds]) for key in ("apart", "threads", "runnable", "cores_used")}
    found.update({key: [common.median(list(each)) for each in zip(*(one[key] for one in rounds))]
                  for key in ("rates", "times")})
    print("%-24s samples/s %s; most / least %.3f (%.3f to %.3f)" % (
        setting.name, " ".join("%.0f" % rate for rate in found["rates"]), found["apart"]["median"],
        found["apart"]["min"], found["apart"]["max"]))
    print("%-24s worker time %s; %d worker threads, %.1f runnable, %.2f cores used" % (
        "", " ".join("%.3f" % one for one in found["times"]), found["threads"]["max"], found["runnable"]["median"],
        found["cores_used"]["median"]), flush=True)
    return {"workers": setting.workers, "pipelines": setting.pipelines, **found, "rounds": rounds}


def judge(results: dict[str, dict], cores: int) -> list[dict]:
    found = []
    for setting in SETTINGS:
        one = results.get(setting.name)
        if one and setting.equal:
            found.append(lanes.verdict("%s: the fastest at most %g of the slowest" % (setting.name, APART),
                                       one["apart"]["median"], one["apart"]["median"] <= APART))
        if one and not setting.workers:
            found.append(lanes.verdict("%s: worker threads at most %g of the quota" % (setting.name, OVER),
                                       one["threads"]["max"] / cores, one["threads"]["max"] <= OVER * cores))
            used = one["cores_used"]["median"]
            found.append(lanes.verdict("%s: cores used at most %g of the quota" % (setting.name, OVER), used / cores,
                                       used <= OVER * cores))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="the build folder, with penstock and python/ in it")
    parser.add_argument("--photos", default=os.environ.get("PENSTOCK_PHOTOS"), help="a folder of pictures")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--skip", type=float, default=3)
    parser.add_argument("--only", default="", help="settings with this in their name")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.job:
        print(json.dumps(run_job(json.loads(args.job))), flush=True)
        return 0
    if not args.build:
        parser.error("--build names the build folder")
    args.build = os.path.abspath(args.build)
    common.need_program(os.path.join(args.build, "penstock"), "build it: ninja penstock")
    with tempfile.TemporaryDirectory() as folder:
        made = lanes.make_pictures(os.path.join(folder, "pictures"), 4000)
        results = {one.name: measure(one, args.photos if one.photos else made, args) for one in SETTINGS
                   if args.only in one.name and (args.photos or not one.photos)}
    print()
    verdicts = judge(results, len(os.sched_getaffinity(0)))
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "rounds": args.rounds, "seconds": args.seconds,
                                     "skip": args.skip, "settings": results, "verdicts": verdicts})
    return 0 if all(one["met"] for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
