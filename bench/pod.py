#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A feed as a restricted pod's, through the daemon of its node, beside an embedded one: CPU seconds per sample.

    bench/pod.py PHOTOS --penstock BINARY [--pairs 10] [--epochs 6] [--batch 32] [--json] [--out FILE]

The daemon, a user of its own, keeps the photos as a pulled dataset. Each pair has three feeds of it in turn, all in PID and mount namespaces of
their own that see the dataset's folder and the sockets alone: through the daemon as another user; embedded as the daemon's user, which compares
what it reads with the checksums of the pull, as the daemon does; and embedded as the other user, who compares nothing. The CPU seconds of the client
(with those that set its namespaces up, the same for all) and of the daemon are counted together. Nothing is cached. Needs root.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
import common

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "serve"))
import pod

OWNER, GUEST = 47001, 47002
LIMIT = 1.03


def cpu_ns(pid):
    """Of a process and the threads that it had, to the nanosecond: the kernel's clock of it."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def children_ns():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((used.ru_utime + used.ru_stime) * 1e9)


class Node:
    def __init__(self, args, ground):
        self.args, self.ground = args, ground
        self.run, self.datasets = ground / "run", ground / "datasets"
        who = {"user": OWNER, "group": OWNER, "extra_groups": []}
        env = {**os.environ, "HOME": str(ground), "PENSTOCK_DATASETS": str(self.datasets), "XDG_CACHE_HOME": str(ground / "cache")}
        for name in ("run", "datasets", "cache"):
            (ground / name).mkdir()
            os.chown(ground / name, OWNER, OWNER)
        subprocess.run([args.penstock, "pull", "photos", args.photos, "--quiet"], check=True, env=env, stdout=subprocess.DEVNULL, **who)
        self.child = subprocess.Popen([args.penstock, "serve", "--dir", self.run, "--datasets", self.datasets, "--allow-uid", "any", "--cache", "0"],
                                      stdout=subprocess.PIPE, text=True, env=env, **who)
        assert self.child.stdout.readline().startswith("serving ")

    def end(self):
        self.child.terminate()
        self.child.wait()

    def feed(self, uid, engine):
        """CPU microseconds per sample, of client and daemon together; what it said must be nothing."""
        argv = [self.args.penstock, "feed", "/penstock/data", "--pipeline", self.args.pipeline, "--batch", str(self.args.batch), "--json", "--quiet",
                "--epochs", str(self.args.epochs), "--cache", "0"]
        command = pod.command(self.ground / "pod", argv, {"/penstock/data": self.datasets / "photos", "/run/penstock": self.run}, uid=uid)
        before = children_ns() + cpu_ns(self.child.pid)
        done = subprocess.run(command, env=pod.environment(PENSTOCK_ENGINE=engine), capture_output=True, text=True)
        used = children_ns() + cpu_ns(self.child.pid) - before
        assert done.returncode == 0 and done.stderr == "", done
        return used / json.loads(done.stdout.splitlines()[-1])["samples"] / 1e3


def measure(args, ground):
    node = Node(args, ground)
    try:
        ways = [("through the daemon", GUEST, "unix:/run/penstock"), ("embedded", OWNER, ""), ("embedded, not compared", GUEST, "")][:args.ways]
        for _, uid, engine in ways:  # the page cache, and remembered listings
            node.feed(uid, engine)
        rounds = []
        for turn in range(args.pairs):
            order = ways if turn % 2 == 0 else ways[::-1]
            found = {name: node.feed(uid, engine) for name, uid, engine in order}
            rounds.append([found[name] for name, _, _ in ways])
        return [name for name, _, _ in ways], rounds
    finally:
        node.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--penstock", default="penstock")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pipeline", default=common.PIPELINE)
    parser.add_argument("--ways", type=int, choices=(2, 3), default=3, help="2: without the embedded feed that compares nothing")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", help="a file for the summary")
    args = parser.parse_args()
    args.penstock = shutil.which(args.penstock) or args.penstock
    why = pod.missing()
    if why:
        sys.exit("bench/pod.py: " + why)
    with tempfile.TemporaryDirectory(prefix="penstock-pod-") as name:
        os.chmod(name, 0o755)
        names, rounds = measure(args, Path(name))
    ratios = {names[i]: [one[0] / one[i] for one in rounds] for i in range(1, args.ways)}
    result = {"machine": common.machine(), "settings": {"pairs": args.pairs, "epochs": args.epochs, "batch": args.batch, "pipeline": args.pipeline},
              "us_per_sample": {n: [one[i] for one in rounds] for i, n in enumerate(names)},
              "ratios": {f"through the daemon / {name}": common.spread(values) for name, values in ratios.items()}, "limit": LIMIT}
    if args.out:
        common.write_json(args.out, result)
    if args.json:
        print(json.dumps(result))
        return
    for i, name in enumerate(names):
        values = [one[i] for one in rounds]
        print(f"{name:24} {statistics.median(values):8.0f} us CPU a sample ({min(values):.0f}..{max(values):.0f})")
    for name, values in ratios.items():
        print(f"the daemon over {name:24} {statistics.median(values):.3f} ({min(values):.3f}..{max(values):.3f}), limit {LIMIT}")


if __name__ == "__main__":
    main()
