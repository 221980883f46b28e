# SPDX-License-Identifier: Apache-2.0
"""What the benches share: running a program for its last JSON line, facts of the machine, medians."""
import json
import os
import platform
import subprocess
import sys

PIPELINE = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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
