#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares each op with what torchvision's transforms v2 did to the same image and mask: v2_masks.npz, recorded by
record_v2.py. Masks must be equal; images may be 1 apart where a filter is involved and must be equal elsewhere.

    test_v2_masks.py APPLY_OP [FILE.npz]
"""
import json
import os
import subprocess
import sys

import numpy

sys.dont_write_bytecode = True
import record_v2

FILTERED = ("resize", "random_resized_crop")
NOT_RUN = 77


def text_of(value):
    return ",".join(str(part) for part in value) if isinstance(value, list) else str(value)


def apply(tool, case, array, kind):
    rows, cols = array.shape[:2]
    channels = array.shape[2] if array.ndim == 3 else 1
    command = [tool, case["op"], str(rows), str(cols), str(channels), kind]
    command += ["%s=%s" % (name, text_of(value)) for name, value in case["params"].items()]
    if case["window"]:
        command.append("window=" + text_of(case["window"]))
    done = subprocess.run(command, input=array.tobytes(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        return None, done.stderr.decode().strip()
    size = [int(word) for word in done.stderr.split()]
    shape = size + [channels] if array.ndim == 3 else size
    return numpy.frombuffer(done.stdout, numpy.uint8).reshape(shape), ""


def difference(mine, theirs, allowed):
    """What is wrong with `mine`, or an empty text."""
    if mine.shape != theirs.shape:
        return "size %s, not %s" % (mine.shape, theirs.shape)
    apart = numpy.abs(mine.astype(int) - theirs.astype(int))
    if apart.max(initial=0) > allowed:
        return "%d values differ, by up to %d (allowed: %d)" % ((apart > allowed).sum(), apart.max(), allowed)
    return ""


def check(tool, case, image, mask, expected):
    complaints = []
    allowed = 1 if case["op"] in FILTERED else 0
    for kind, array, theirs, most in (("image", image, expected[0], allowed), ("mask", mask, expected[1], 0)):
        mine, why = apply(tool, case, array, kind)
        why = why or difference(mine, theirs, most)
        if why:
            complaints.append("%s %s %s window %s on %s: %s" % (kind, case["op"], case["params"], case["window"],
                                                             case["picture"], why))
    return complaints


def main():
    tool = sys.argv[1]
    path = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "v2_masks.npz")
    if not os.path.exists(path):
        print("%s is not there: record it with record_v2.py where torchvision has transforms v2" % os.path.basename(path))
        return NOT_RUN
    stored = numpy.load(path)
    about = json.loads(stored["about"].tobytes())
    passed = failed = 0
    for number, case in enumerate(about["cases"]):
        size = record_v2.SIZES[case["picture"]]
        expected = stored["image%03d" % number], stored["mask%03d" % number]
        complaints = check(tool, case, record_v2.picture(*size), record_v2.labels(*size), expected)
        for line in complaints:
            print(line)
        failed += bool(complaints)
        passed += not complaints
    print("recorded with %s" % about["made_by"])
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
