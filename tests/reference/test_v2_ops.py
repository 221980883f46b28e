#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares each op with what the functions of torchvision's transforms v2 gave for the same picture, as a Pillow image and
as a uint8 tensor: v2_ops.npz, recorded by record_ops.py. Each case says how far apart values may be.

    test_v2_ops.py APPLY_OP [FILE.npz]
"""
import json
import os
import sys

import numpy

sys.dont_write_bytecode = True
import record_ops
from test_v2_masks import apply, difference

# Ops with an arithmetic for each kind of input; the others have one for both.
WITH_LIKE = ("adjust_", "grayscale", "autocontrast")


def main():
    tool = sys.argv[1]
    path = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "v2_ops.npz")
    stored = numpy.load(path)
    about = json.loads(stored["about"].tobytes())
    image, failed, exact = record_ops.picture(), 0, 0
    for number, case in enumerate(about["cases"]):
        like = {"like": case["like"]} if case["op"].startswith(WITH_LIKE) else {}
        asked = {"op": case["op"], "params": {**case["params"], **like}, "window": None}
        theirs = stored["out%03d" % number]
        mine, why = apply(tool, asked, image, "image")
        why = why or difference(mine, theirs, case["allowed"])
        failed += bool(why)
        exact += not why and bool((mine == theirs).all())
        if why:
            print("%s %s on %s: %s" % (case["op"], case["params"], case["like"], why))
    total = len(about["cases"])
    print("recorded with %s" % about["made_by"])
    print("%d passed, %d of them to the bit, %d failed" % (total - failed, exact, failed))
    return 1 if failed or total < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
