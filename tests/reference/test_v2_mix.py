#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares mixup and cutmix with what torchvision's MixUp and CutMix did to the same batch with the same draws:
v2_mix.npz, recorded by record_mix.py. Boxes and lam must be equal, pasted values too, blended ones within 1e-6.

    test_v2_mix.py APPLY_MIX [FILE.npz]
"""
import json
import os
import subprocess
import sys

import numpy

sys.dont_write_bytecode = True
import record_mix as made

NOT_RUN = 77


def apply(tool, op, drawn):
    images, labels = made.batch()
    one_hot = numpy.eye(made.CLASSES, dtype=numpy.float32)[labels]
    lam, y, x = drawn
    sizes = (y, x, made.SLOTS, made.ROWS, made.COLS, made.CHANNELS, made.CLASSES)
    done = subprocess.run([tool, op, repr(lam)] + [str(n) for n in sizes], input=images.tobytes() + one_hot.tobytes(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    values = numpy.frombuffer(done.stdout, numpy.float32)
    told = [float(word) for word in done.stderr.split()]
    return values[:images.size].reshape(images.shape), values[images.size:].reshape(one_hot.shape), told


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "v2_mix.npz")
    if not os.path.exists(path):
        print("not run: %s is missing; record_mix.py makes it" % path)
        return NOT_RUN
    with numpy.load(path) as file:
        recorded = {name: file[name] for name in file.files}
    cases = json.loads(recorded["about"].tobytes())["cases"]
    wrong, exact = 0, 0
    for number, case in enumerate(cases):
        images, labels, told = apply(sys.argv[1], case["op"], case["drawn"])
        apart = [abs(images - recorded["image%02d" % number]).max(), abs(labels - recorded["label%02d" % number]).max()]
        allowed = 0 if case["op"] == "cutmix" else 1e-6
        exact += max(apart) == 0
        if apart[0] > allowed or apart[1] > 1e-6 or told != case["told"]:
            print("%s drawn %s: images %g apart, labels %g; told %s, not %s" % (case["op"], case["drawn"], *apart, told,
                                                                               case["told"]))
            wrong += 1
    print("%d cases, %d equal to the bit, %d wrong" % (len(cases), exact, wrong))
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
