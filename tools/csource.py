# SPDX-License-Identifier: Apache-2.0
"""What the checkers share: which files belong to the project, and C text without comments and strings."""
import os
import re

SKIP = re.compile(r"^(build.*|dist|\.git|\.pytest_cache|__pycache__|.*\.egg-info|results|corpus)$")

TOKEN = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL)


def files(root, tops, suffixes):
    """Paths relative to root, sorted, of the files below `tops` whose names end in one of `suffixes`."""
    found = []
    for top in tops:
        for folder, below, names in os.walk(os.path.join(root, top)):
            below[:] = [name for name in below if not SKIP.match(name)]
            found += [os.path.join(folder, name) for name in names if name.endswith(suffixes)]
    return sorted(os.path.relpath(path, root) for path in found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as handle:
        return handle.read()


def blank(text):
    """The same text with comments and the insides of literals blanked out; lines stay where they are."""
    def wipe(match):
        token = match.group(0)
        keep = token[0] if token[0] in "\"'" else ""
        inner = re.sub(r"[^\n]", " ", token[len(keep):len(token) - len(keep)])
        return keep + inner + keep
    return TOKEN.sub(wipe, text)


def functions(text):
    """(name, first line, lines of the body) of each function; the opening brace stands in the first column."""
    lines = blank(text).split("\n")
    start = None
    for number, line in enumerate(lines):
        if line == "{":
            start = number
        elif line.startswith("}") and start is not None:
            head = " ".join(lines[max(0, start - 8):start])
            names = re.findall(r"\b(\w+)\s*\(", head[head.rfind(";") + 1:].rpartition("}")[2])
            names = [n for n in names if n != "__attribute__"]
            yield (names[0] if names else "?"), start + 1, number - start - 1
            start = None
