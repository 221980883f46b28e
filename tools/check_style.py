#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Style that a script can see: banned calls, size caps, the licence line, leftovers, machine paths.

A line may say `lint: library memory` in a comment where memory that a library allocated is freed; nothing else can be
switched off.

    tools/check_style.py [ROOT]
"""
import os
import re
import sys

sys.dont_write_bytecode = True
import csource

FILE_LINES, FILE_WANTED, FUNCTION_LINES = 800, 600, 80
CODE = ("src", "include", "cli", "python", "examples", "tests", "bench", "tools", "web")
SHIPPED = ("src", "include", "cli", "python", "examples")

# call -> what to use; by the first part of the path.
EVERYWHERE = {
    "strcpy": "snprintf or memcpy", "strcat": "snprintf", "sprintf": "snprintf", "vsprintf": "vsnprintf", "gets": "fgets",
    "strtok": "strtok_r or a loop", "alloca": "a fixed buffer or core/memory.h", "usleep": "a condition", "sleep": "a condition",
    "rand": "core/rng.h", "srand": "core/rng.h", "mktemp": "mkstemp", "tmpnam": "mkstemp",
}
IN_CLI = {"atoi": "strtol with its checks", "atof": "strtod with its checks"}
IN_SHIPPED = {"system": "no shell: nothing here runs commands", "popen": "no shell: nothing here runs commands"}
IN_SRC = {
    "malloc": "psti_malloc", "calloc": "psti_calloc", "realloc": "psti_realloc", "free": "psti_free", "strdup": "psti_strdup",
    "strndup": "psti_strdup", "nanosleep": "a condition or futex", "clock_nanosleep": "a condition or futex", "exit": "an error code", "abort": "an error code",
}
ALLOCATOR = os.path.join("src", "core", "memory.c")
DELAY = os.path.join("src", "op", "delay.c")  # its result is the time that went by
MEMORY_NOTE = "lint: library memory"
PATHS = re.compile(r"/(?:home|work|root|tmp)/")
LEFTOVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
ISSUE = re.compile(r"\bissue[ #]*\d", re.IGNORECASE)
KILL_ZERO = re.compile(r"\bkill\s*\([^;]*,\s*0\s*\)")


def banned_in(path):
    top = path.split(os.sep)[0]
    calls = dict(EVERYWHERE)
    if top in SHIPPED:
        calls.update(IN_SHIPPED)
    if top == "cli":
        calls.update(IN_CLI)
    if top == "src" and path != ALLOCATOR:
        calls.update(IN_SRC)
    if path == DELAY:
        del calls["clock_nanosleep"]
    return calls


def check_calls(path, text):
    calls = banned_in(path)
    pattern = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(calls))
    raw = text.split("\n")
    for number, line in enumerate(csource.blank(text).split("\n")):
        for match in pattern.finditer(line):
            if match.group(1) == "free" and MEMORY_NOTE in raw[number]:
                continue
            yield number + 1, "%s is banned here: use %s" % (match.group(1), calls[match.group(1)])
        if KILL_ZERO.search(line):
            yield number + 1, "kill(pid, 0) says nothing about a process in another namespace: hold a socket or lock"


def check_functions(text):
    for name, line, length in csource.functions(text):
        if length > FUNCTION_LINES:
            yield line, "%s has %d lines, the cap is %d" % (name, length, FUNCTION_LINES)


def check_lines(path, lines):
    head = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
    if "SPDX-License-Identifier: Apache-2.0" not in head:
        yield 1, "the first line is the SPDX line"
    if len(lines) > FILE_LINES + 1:
        yield FILE_LINES, "%d lines, the cap is %d" % (len(lines) - 1, FILE_LINES)
    shipped = path.split(os.sep)[0] in SHIPPED
    checker = path == os.path.join("tools", "check_style.py")
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if LEFTOVER.search(line) and not checker:
            yield number, "a leftover note: do it or drop it"
        if ISSUE.search(line) and not checker:
            yield number, "the files speak of the project, not of its tracker"
        if shipped and PATHS.search(line):
            yield number, "a path of some machine"


def check(root):
    complaints, long_files = [], []
    for path in csource.files(root, CODE, (".c", ".h", ".py", ".sh", ".js", ".mjs", ".css")):
        text = csource.read(root, path)
        lines = text.split("\n")
        found = list(check_lines(path, lines))
        if path.endswith((".c", ".h")):
            found += list(check_calls(path, text)) + list(check_functions(text))
        complaints += ["%s:%d: %s" % (path, number, why) for number, why in sorted(found)]
        if FILE_WANTED < len(lines) - 1 <= FILE_LINES:
            long_files.append("note: %s has %d lines, %d are wanted" % (path, len(lines) - 1, FILE_WANTED))
    return complaints, long_files


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    complaints, notes = check(root)
    for line in notes + complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
