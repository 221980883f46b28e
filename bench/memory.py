#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory seen from outside against --memory, with 50-megapixel progressive JPEGs in the mix.

    bench/memory.py [--data DIR] [--budgets MIB,MIB,...] [--big 3] [--workers 2] [--out FILE]

The kernel's high-water mark of the process (VmHWM) is read while it runs. It must stay under the budget + 24 MiB; a budget
that cannot hold one such file must be refused with the figure that is needed. Ends with status 1 when one of these fails.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy
from PIL import Image

sys.dont_write_bytecode = True
import common

SLACK = 24 << 20
HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


def peak_of(command):
    """(exit status, peak bytes, standard output, standard error)."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        peak = 0
        while process.poll() is None:
            try:
                if os.path.basename(os.readlink("/proc/%d/exe" % process.pid)) != os.path.basename(command[0]):
                    continue  # not yet the program
                with open("/proc/%d/status" % process.pid, encoding="ascii", errors="replace") as handle:
                    match = HIGH_WATER.search(handle.read())
            except OSError:
                break
            peak = max(peak, int(match.group(1)) << 10 if match else 0)
            time.sleep(0.002)
        process.wait()
        out.seek(0)
        err.seek(0)
        return process.returncode, peak, out.read(), err.read()


def make_big(folder, count):
    """Smooth noise, 8660 x 5774, progressive 4:2:0."""
    os.makedirs(folder, exist_ok=True)
    for number in range(count):
        noise = numpy.random.default_rng(number).integers(0, 256, (91, 136, 3), dtype=numpy.uint8)
        picture = Image.fromarray(noise).resize((8660, 5774), Image.BICUBIC)
        picture.save(os.path.join(folder, "big%02d.jpg" % number), quality=70, progressive=True, subsampling=2)


def copy_small(data, folder):
    """Copies: links that lead out of the folder are not followed."""
    for place, _, names in os.walk(data):
        for name in names:
            if name.lower().endswith((".jpg", ".jpeg")):
                target = os.path.join(folder, os.path.basename(place))
                os.makedirs(target, exist_ok=True)
                shutil.copyfile(os.path.join(place, name), os.path.join(target, name))


def run_budget(args, data, budget):
    command = [args.penstock, "feed", data, "--pipeline", common.PIPELINE, "--batch", "32", "--workers", str(args.workers),
               "--epochs", "2", "--seed", "1", "--memory", str(budget), "--json"]
    code, peak, out, err = peak_of(command)
    said = (err.strip().splitlines() or [""])[-1]
    row = {"budget": budget, "peak": peak, "status": code, "message": said if code else ""}
    if code == 0:
        row["samples_per_s"] = common.json.loads(out.strip().splitlines()[-1])["samples_per_s"]
        row["good"] = peak <= budget + SLACK
        verdict = "ok" if row["good"] else "TOO MUCH"
        print("%8d MiB: peak %8.1f MiB, %6.0f img/s: %s" % (budget >> 20, peak / 2**20, row["samples_per_s"], verdict))
    else:
        row["good"] = bool(re.search(r"\d", said)) and peak <= budget + SLACK
        print("%8d MiB: refused: %s%s" % (budget >> 20, said, "" if row["good"] else "   NO FIGURE, OR TOO MUCH"))
    sys.stdout.flush()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEG files (made up if not given)")
    parser.add_argument("--budgets", default="32,256,384,512,1024", help="in MiB")
    parser.add_argument("--big", type=int, default=3, help="files of 50 megapixels (3)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--penstock", default=os.path.join(common.ROOT, "build", "penstock"))
    parser.add_argument("--out", default=os.path.join(common.ROOT, "build", "memory.json"))
    args = parser.parse_args()
    common.need_program(args.penstock, "run make first")
    with tempfile.TemporaryDirectory() as scratch:
        mix = os.path.join(scratch, "mix")
        if args.data:
            copy_small(args.data, mix)
        else:
            subprocess.run([args.penstock, "synth", "images", mix, "--count", "200", "--seed", "1"], check=True)
        make_big(os.path.join(mix, "big"), args.big)
        rows = [run_budget(args, mix, int(size) << 20) for size in args.budgets.split(",")]
    common.write_json(args.out, {"machine": common.machine(), "workers": args.workers, "rows": rows})
    bad = [row for row in rows if not row["good"]]
    print("%d passed, %d failed" % (len(rows) - len(bad), len(bad)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
