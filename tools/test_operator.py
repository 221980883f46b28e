#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the programs that the operator's tests run, runs the tests and closes with one line, `N passed, N failed`.

    tools/test_operator.py PENSTOCK [PACKAGE...]    PENSTOCK: the engine that the tests start; packages as for go test

A package that cannot be built, and formatting, columns or `go vet` with complaints, count as one failed test each.
Skipped tests are listed: they were not run. One package at a time: several clusters on two cores would only be in each
other's way. How long the cluster took to come right after each fault is printed; with PENSTOCK_STRICT_TIMES=1 more than
30 s is a failure.
"""
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPERATOR = os.path.join(ROOT, "operator")
CONVERGED = "converged in "  # what test/e2e says after each fault
GO_COLUMNS = 120
SAID = 60  # lines of a failed test that are shown again at the end, after those of its own


def output_of(script):
    return subprocess.run([os.path.join(ROOT, "tools", script)], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def wide_lines():
    """Lines of Go beyond the limit. A marker of controller-gen has to be one line, and what it makes is as it is."""
    for folder, _, names in os.walk(OPERATOR):
        for name in names:
            if name.endswith(".go") and not name.startswith("zz_generated"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    for number, line in enumerate(file, 1):
                        if len(line.rstrip("\n")) > GO_COLUMNS and "// +" not in line:
                            yield "%s:%d: more than %d columns" % (os.path.relpath(path, ROOT), number, GO_COLUMNS)


def check_source(go):
    """Formatting, columns and go vet; returns complaints by name."""
    root = subprocess.run([go, "env", "GOROOT"], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    gofmt = os.path.join(root, "bin", "gofmt")
    bad = {}
    for name, command in (("gofmt", [gofmt, "-l", "."]), ("go vet", [go, "vet", "./..."])):
        done = subprocess.run(command, cwd=OPERATOR, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
        if done.returncode != 0 or (name == "gofmt" and done.stdout):
            bad[name] = done.stdout.splitlines()
    wide = list(wide_lines())
    if wide:
        bad["columns"] = wide
    return bad


class Tally:
    """What `go test -json` has said so far."""

    def __init__(self):
        self.said, self.results = {}, {}

    def take(self, line):
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="", flush=True)
            return
        package, test = event.get("Package", event.get("ImportPath", "")).removeprefix("penstock.dev/operator/"), event.get("Test", "")
        top = test.split("/")[0]
        if "Output" in event:
            text = event["Output"].rstrip("\n")
            self.said.setdefault((package, top), []).append(text)
            if CONVERGED in text:
                print("  %s: %s" % (top, text[text.index(CONVERGED):]), flush=True)
        if event["Action"] in ("pass", "fail", "skip") and "/" not in test:
            self.results[package, test] = event["Action"]
            self.tell(package, test, event)

    @staticmethod
    def tell(package, test, event):
        if test or event["Action"] != "skip":
            print("%-5s %6.1f s  %s %s" % (event["Action"], event.get("Elapsed", 0), package, test), flush=True)

    def failures(self):
        """Tests that failed, and packages that failed although none of their tests did."""
        failed = [key for key, result in self.results.items() if result == "fail"]
        tests = {package for package, test in failed if test}
        return [(package, test) for package, test in failed if test or package not in tests]

    def count(self, result):
        return sum(1 for (_, test), is_ in self.results.items() if test and is_ == result)


def run_tests(go, bin_folder, penstock, packages):
    env = dict(os.environ, PENSTOCK_TOOLS_BIN=bin_folder, PENSTOCK_BIN=os.path.abspath(penstock))
    command = [go, "test", "-json", "-count=1", "-p", "1", "-timeout", "25m"] + (packages or ["./..."])
    print("+ " + " ".join(command), flush=True)
    tally = Tally()
    with subprocess.Popen(command, cwd=OPERATOR, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        for line in child.stdout:
            tally.take(line)
    return tally, child.returncode


def report(tally, bad, code, seconds):
    for (package, test), result in sorted(tally.results.items()):
        if result == "skip" and test:
            print("not run (skipped): %s %s" % (package, test))
    failed = tally.failures()
    for key in failed:
        bad["%s %s" % key] = tally.said.get(key, [])
    if code != 0 and not failed:
        bad["go test (exit status %d)" % code] = []
    for name, lines in bad.items():
        print("FAIL: " + name)
        first = [line for line in lines[:-SAID] if "_test.go:" in line]
        for line in first + lines[-SAID:]:
            print("    " + line)
    print("operator: %.0f s" % seconds)
    print("%d passed, %d failed" % (tally.count("pass"), len(bad)), flush=True)
    return 1 if bad else 0


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    start = time.monotonic()
    go, bin_folder = output_of("go.sh"), output_of("operator_tools.sh")
    print("programs are there after %.0f s" % (time.monotonic() - start), flush=True)
    bad = check_source(go)
    tally, code = run_tests(go, bin_folder, sys.argv[1], sys.argv[2:])
    return report(tally, bad, code, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
