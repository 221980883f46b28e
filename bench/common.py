# SPDX-License-Identifier: Apache-2.0
"""What the benches share: running a program for its last JSON line, facts of the machine and of processes, medians."""
import json
import os
import platform
import socket
import subprocess
import sys
import threading
import time

PIPELINE = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def ask(folder, what):
    """What an engine's control socket answers, as an object."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.path.join(folder, "control.sock"))
        sock.sendall(b"GET %s HTTP/1.0\r\n\r\n" % what.encode())
        answer = b""
        while part := sock.recv(65536):
            answer += part
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def last_json(command):
    """Runs a program; returns the JSON object on the last line of its output. Ends the bench when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not lines:
        sys.exit("%s\nended with status %d\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return json.loads(lines[-1])


def machine():
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            model = next((line.split(":")[1].strip() for line in handle if line.startswith("model name")), model)
    except OSError:
        pass
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def env_of(build, **more):
    """The environment of a program that loads the package of a build folder and keeps to one thread of its own."""
    return {**os.environ, "PYTHONPATH": os.path.join(build, "python"), "LD_LIBRARY_PATH": build,
            "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **more}


def stat_fields(pid):
    """Of /proc/PID/stat, from the state on; None when there is no such process any more."""
    try:
        with open("/proc/%s/stat" % pid, encoding="ascii", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split()
    except OSError:
        return None


def family(pid=None):
    """A process, this one unless told, and its descendants."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = stat_fields(name)
        if fields:
            parents[int(name)] = int(fields[1])
    found = {pid or os.getpid()}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def cpu_seconds(pids=None):
    """User and system seconds of processes, threads included; of this one and its descendants unless told."""
    ticks = 0
    for pid in family() if pids is None else pids:
        fields = stat_fields(pid)
        ticks += int(fields[11]) + int(fields[12]) if fields else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes(kinds=("Pss",)):
    """By kind of /proc/PID/smaps_rollup, of this process and its descendants."""
    total = dict.fromkeys(kinds, 0)
    for pid in family():
        try:
            with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as handle:
                for line in handle:
                    kind = line.split(":")[0]
                    if kind in total:
                        total[kind] += int(line.split()[1]) << 10
        except OSError:
            pass
    return total


class BusyMeter(threading.Thread):
    """Reads the GPU driver's own busy figure; samples carry the time they were read."""

    def __init__(self):
        super().__init__(daemon=True)
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.samples = []
        self.start()

    def run(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.samples.append((time.perf_counter(), int(line)))

    def between(self, begin, end):
        inside = [busy for when, busy in self.samples if begin + 0.3 <= when <= end]
        return sum(inside) / len(inside) / 100 if inside else float("nan")


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values):
    return {"median": median(values), "min": min(values), "max": max(values), "runs": len(values)}


def need_program(path, how):
    if not os.access(path, os.X_OK):
        sys.exit("%s: no such program; %s" % (path, how))
    return path


def write_json(path, result):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(result, handle, indent=1)
        handle.write("\n")
    print("written: %s" % path)
