#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the tests of several build folders and closes with one line, `N passed, N failed`.

    tools/run_tests.py test     quick and full in build/, and what sanitizers can run in build-asan/ and build-tsan/
    tools/run_tests.py long     the suites that take hours

Which tests run where is said by their suites: sanitizer builds run `quick`, and of `full` what is also in `asan` or
`tsan`; what is in `nosan` (Python, timing) is left out there. A build that fails counts as one failed test. Skipped tests
are listed: they were not run.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOOD = {"OK", "EXPECTEDFAIL"}
SAID = 15  # lines of a failed test that are shown again at the end
MESON = shutil.which("meson") or "meson"


@dataclass
class Leg:
    """One build folder, how it is set up, and which suites run in it."""
    folder: str
    setup: list = field(default_factory=list)
    suites: list = field(default_factory=list)
    without: list = field(default_factory=list)
    env: dict = field(default_factory=dict)
    wrapper: str = ""
    stretch: int = 1  # times the tests' own time limits


def still_addresses():
    """Thread sanitizer wants a quiet address space; some containers do not allow to ask for one."""
    ok = subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return "setarch -R" if ok else ""


def legs_of(what):
    if what == "long":
        return [Leg("build", suites=["long"])]
    sanitizer = ["-Dbuildtype=debugoptimized", "-Db_lundef=false"]
    asan = Leg("build-asan", sanitizer + ["-Db_sanitize=address,undefined"], ["quick", "asan"], ["nosan"], stretch=4, env={
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    })
    tsan = Leg("build-tsan", sanitizer + ["-Db_sanitize=thread"], ["quick", "tsan"], ["nosan"], stretch=6,
               wrapper=still_addresses(), env={"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"})
    return [Leg("build", ["-Dpython=enabled"], ["quick", "full"]), asan, tsan]


def call(command, env=None):
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def configure(leg):
    if os.path.exists(os.path.join(ROOT, leg.folder, "build.ninja")):
        return call([MESON, "setup", "--reconfigure", leg.folder] + leg.setup)  # packages may have come since
    return call([MESON, "setup", leg.folder] + leg.setup)


def test_command(leg):
    command = [MESON, "test", "-C", leg.folder, "--no-rebuild", "--print-errorlogs", "-t", str(leg.stretch)]
    for suite in leg.suites:
        command += ["--suite", suite]
    for suite in leg.without:
        command += ["--no-suite", suite]
    return command + (["--wrapper", leg.wrapper] if leg.wrapper else [])


@dataclass
class Result:
    """One test of one build folder."""
    folder: str
    name: str
    result: str
    said: str = ""


def read_logs(leg):
    """The results of the last run. The log's name depends on the wrapper."""
    results = []
    for path in glob.glob(os.path.join(ROOT, leg.folder, "meson-logs", "testlog*.json")):
        with open(path, encoding="utf-8", errors="replace") as log:
            records = [json.loads(line) for line in log if line.strip()]
        results += [Result(leg.folder, record["name"], record["result"], record.get("stdout", "") + record.get("stderr", ""))
                    for record in records]
    return results


def last_words(result):
    """The end of what a test printed, without the frames of interpreter and test runner in a dump of stacks."""
    lines = [line for line in result.said.splitlines() if line.strip() and "dist-packages" not in line and "<frozen" not in line]
    return lines[-SAID:]


def run_leg(leg):
    """Builds and tests; returns the results."""
    for path in glob.glob(os.path.join(ROOT, leg.folder, "meson-logs", "testlog*")):
        os.unlink(path)
    if configure(leg) != 0 or call([MESON, "compile", "-C", leg.folder]) != 0:
        return [Result(leg.folder, "the build itself", "FAIL")]
    code = call(test_command(leg), dict(os.environ, **leg.env))
    results = read_logs(leg)
    if not results or (code != 0 and all(r.result in GOOD | {"SKIP"} for r in results)):
        results.append(Result(leg.folder, "meson test (exit status %d)" % code, "FAIL"))
    return results


def report(results, seconds):
    bad = [r for r in results if r.result not in GOOD | {"SKIP"}]
    skipped = [r for r in results if r.result == "SKIP"]
    good = len(results) - len(bad) - len(skipped)
    print()
    for r in skipped:
        print("not run (skipped): %s: %s" % (r.folder, r.name))
    for r in bad:
        print("%s: %s: %s" % (r.result, r.folder, r.name))
        for line in last_words(r):
            print("    " + line)
    for folder in sorted({r.folder for r in bad}):
        print("log: %s/meson-logs/testlog*.txt" % folder)
    print("%d tests in %.0f s" % (len(results), seconds))
    print("%d passed, %d failed" % (good, len(bad)), flush=True)
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["test", "long"])
    parser.add_argument("--only", metavar="FOLDER", help="one build folder instead of all")
    args = parser.parse_args()
    start = time.monotonic()
    results = []
    for leg in legs_of(args.what):
        if args.only in (None, leg.folder):
            results += run_leg(leg)
    return report(results, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
