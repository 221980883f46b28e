# SPDX-License-Identifier: Apache-2.0
"""Peak memory of the process against --memory, seen from outside, with pictures of 50 megapixels in the mix.

The kernel's high-water mark (VmHWM) stays under the budget + 24 MiB whatever the order, the error policy, the number of
workers and the pipeline; a budget that is too small is refused with a figure, and with that figure the run works; want of
memory is never taken for a bad sample; and nothing waits for memory that nobody gives back.
"""
import json
import os
import re
import subprocess
import tempfile
import time
import unittest

import numpy
from PIL import Image

PENSTOCK = os.environ["PENSTOCK"]
SLACK = 24 << 20
MIB = 1 << 20
CROP = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"
WHOLE = "decode | resize(256) | center_crop(224) | normalize(imagenet)"
HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


def smooth(width, height, seed):
    noise = numpy.random.default_rng(seed).integers(0, 256, (23, 34, 3), dtype=numpy.uint8)
    return Image.fromarray(noise).resize((width, height), Image.BICUBIC)


def high_water(process):
    """0 as long as the process is not yet the program."""
    try:
        if os.path.basename(os.readlink("/proc/%d/exe" % process.pid)) != os.path.basename(PENSTOCK):
            return 0
        with open("/proc/%d/status" % process.pid, encoding="ascii", errors="replace") as handle:
            match = HIGH_WATER.search(handle.read())
    except OSError:
        return 0
    return int(match.group(1)) << 10 if match else 0


class Run:
    """One `penstock feed`: status, peak, report, what it said."""

    def __init__(self, data, pipeline, mib, workers, *more, batch=32, limit_s=40):
        command = [PENSTOCK, "feed", data, "--pipeline", pipeline, "--batch", str(batch), "--workers", str(workers),
                   "--epochs", "1", "--seed", "1", "--memory", str(mib * MIB), "--json", *more]
        self.budget = mib * MIB
        self.peak = 0
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err)
            end = time.monotonic() + limit_s
            while process.poll() is None:
                self.peak = max(self.peak, high_water(process))
                if time.monotonic() > end:
                    process.kill()
                    process.wait()
                    raise AssertionError("still running after %d s: %s" % (limit_s, " ".join(command)))
                time.sleep(0.003)
            out.seek(0)
            err.seek(0)
            self.status, self.said = process.returncode, err.read()
            lines = out.read().strip().splitlines()
        self.report = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        self.peak = max(self.peak, self.report.get("peak_rss_bytes", 0))

    def figure(self):
        match = re.search(r"give at least (\d+) MiB", self.said)
        more = re.search(r"give (\d+) MiB more", self.said)
        return int(match.group(1)) if match else self.budget // MIB + int(more.group(1)) if more else 0


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.home = cls.scratch.name
        os.environ["XDG_CACHE_HOME"] = os.path.join(cls.home, "cache")
        cls.small = cls.folder("small", [(smooth(500, 375, i), {"quality": 90}) for i in range(8)] * 12)
        progressive = {"quality": 60, "progressive": True}
        big = smooth(8660, 5774, 1)
        cls.big420 = cls.add("mix420", 96, big, dict(progressive, subsampling=2))
        cls.big444 = cls.add("mix444", 96, big, dict(progressive, subsampling=0))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def folder(cls, name, pictures):
        path = os.path.join(cls.home, name)
        os.makedirs(path)
        for number, (picture, options) in enumerate(pictures):
            picture.save(os.path.join(path, "%03d.jpg" % number), **options)
        return path

    @classmethod
    def add(cls, name, count, picture, options):
        """The small pictures and one more, in the middle of the order."""
        path = cls.folder(name, [])
        for number in range(count):
            os.link(os.path.join(cls.small, "%03d.jpg" % number), os.path.join(path, "%03d.jpg" % number))
        picture.save(os.path.join(path, "%03d-big.jpg" % (count // 2)), **options)
        return path

    def hold(self, run):
        self.assertLess(run.peak, run.budget + SLACK, run.said)
        self.assertGreater(run.peak, 0)

    def test_large_progressive_files_stay_in_the_budget(self):
        for data, mib in ((self.big420, 800), (self.big444, 1100)):
            for workers, more in ((2, ("--order", "ready")), (4, ("--on-error", "skip:100"))):
                with self.subTest(data=os.path.basename(data), workers=workers, more=more):
                    run = Run(data, WHOLE, mib, workers, *more)
                    self.assertEqual(run.status, 0, run.said)
                    self.assertEqual(run.report["samples"], 97)
                    self.hold(run)
        run = Run(self.big420, CROP, 512, 2)
        self.assertEqual(run.status, 0, run.said)
        self.hold(run)

    def test_the_figure_of_a_refusal_is_enough(self):
        for mib in (128, 256):
            for more in ((), ("--order", "ready")):
                with self.subTest(mib=mib, more=more):
                    refused = Run(self.big420, WHOLE, mib, 2, *more)
                    self.assertNotEqual(refused.status, 0)
                    self.assertGreater(refused.figure(), mib, refused.said)
                    self.hold(refused)
                    run = Run(self.big420, WHOLE, refused.figure(), 2, *more)
                    self.assertEqual(run.status, 0, run.said)
                    self.hold(run)

    def test_want_of_memory_is_not_skipped(self):
        for more in ((), ("--order", "ready")):
            run = Run(self.big420, WHOLE, 256, 2, "--on-error", "skip:100", *more)
            self.assertNotEqual(run.status, 0, run.report)
            self.assertGreater(run.figure(), 256, run.said)
            self.hold(run)

    def test_threads_keep_nothing_beyond_the_budget(self):
        """What single samples take beyond a worker's share goes back to the system, not to sixteen heaps."""
        data = self.folder("middle", [(smooth(1000 + 30 * i, 900, i), {"quality": 85, "progressive": i % 3 == 0})
                                      for i in range(24)])
        for more in ((), ("--order", "ready")):
            run = Run(data, WHOLE, 48, 16, "--epochs", "4", *more, batch=4)
            self.assertEqual(run.status, 0, run.said)
            self.hold(run)

    def test_skipping_in_strict_order_does_not_wait_for_ever(self):
        """Samples that wait for a slow one must leave the slow one its memory."""
        data = self.add("slow", 96, smooth(6600, 4800, 2), {"quality": 60})
        run = Run(data, WHOLE, 352, 4, "--on-error", "skip:100", "--epochs", "2")
        self.assertEqual(run.status, 0, run.said)
        self.assertEqual(run.report["samples"], 2 * 97)
        self.hold(run)

    def test_the_cache_stays_in_the_budget(self):
        """Whatever it is told to take; a large picture that fitted without the cache, or beside it, still does."""
        for size, mib in (("auto", 256), (str(20 * MIB), 96), (str(60 * MIB), 128)):
            for more in ((), ("--order", "ready"), ("--on-error", "skip:100")):
                with self.subTest(size=size, mib=mib, more=more):
                    run = Run(self.small, CROP, mib, 2, "--cache", size, "--epochs", "3", *more, batch=8)
                    self.assertEqual(run.status, 0, run.said)
                    self.assertGreater(run.report["cache_hits"], 40)
                    self.hold(run)
        run = Run(self.big420, CROP, 800, 2, "--cache", "auto", "--epochs", "2")
        self.assertEqual(run.status, 0, run.said)
        self.assertEqual(run.report["samples"], 2 * 97)
        self.hold(run)

    def test_the_figure_of_a_refusal_counts_the_cache(self):
        for size in ("auto", str(64 * MIB)):
            with self.subTest(size=size):
                refused = Run(self.big420, WHOLE, 256, 2, "--cache", size)
                self.assertNotEqual(refused.status, 0)
                self.assertGreater(refused.figure(), 256, refused.said)
                run = Run(self.big420, WHOLE, refused.figure(), 2, "--cache", size)
                self.assertEqual(run.status, 0, run.said)
                self.hold(run)

    def test_pictures_of_any_shape_stay_in_the_budget(self):
        """Without a fixed shape finished pictures wait for their batch: they are bounded too, or refused."""
        data = self.folder("shapes", [(smooth(3000, 2000 + 10 * i, i), {"quality": 60}) for i in range(12)])
        for more in ((), ("--order", "ready"), ("--on-error", "skip:100")):
            with self.subTest(more=more):
                run = Run(data, "decode", 160, 2, *more, batch=8)
                self.hold(run)
                if run.status:
                    self.assertGreater(run.figure(), 160, run.said)
                    run = Run(data, "decode", run.figure(), 2, *more, batch=8)
                    self.hold(run)
                self.assertEqual(run.status, 0, run.said)
                self.assertEqual(run.report["samples"], 12)
                run = Run(data, "decode | to(f32)", 160, 2, *more, batch=8)
                self.hold(run)
                self.assertGreater(run.figure(), 160, run.said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
