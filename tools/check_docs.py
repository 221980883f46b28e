#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Says where the documentation points to files that are not there, or leaves a setting out.

Relative links and pictures of every Markdown file must exist; every field of the public options structs and every variable
of the environment that is read must be in docs/settings.md; every room below src/ has its page in docs/internals/.

    tools/check_docs.py [ROOT]
"""
import glob
import os
import re
import sys

sys.dont_write_bytecode = True
import csource

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
OPTIONS = re.compile(r"typedef struct (pst_\w+_options) \{(.*?)\n\} \1;", re.DOTALL)


def check_links(root):
    pages = glob.glob(os.path.join(root, "*.md")) + [os.path.join(root, p) for p in csource.files(root, ("docs", "bench"), (".md",))]
    for page in sorted(pages):
        with open(page, encoding="utf-8") as handle:
            for number, line in enumerate(handle, 1):
                for target in LINK.findall(line):
                    if "://" not in target and not os.path.exists(os.path.join(os.path.dirname(page), target)):
                        yield "%s:%d: %s does not exist" % (os.path.relpath(page, root), number, target)


def option_fields(header):
    """(struct, field) of each member of an options struct."""
    for name, body in OPTIONS.findall(re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)):
        for line in body.split("\n"):
            pointer = re.search(r"\(\*(\w+)\)\(", line)
            fields = [pointer.group(1)] if pointer else re.findall(r"(\w+)\s*(?=[,;])", line)
            yield from ((name, field) for field in fields if field != "size")


def check_settings(root):
    for path in csource.files(root, ("include",), (".h",)):
        page = csource.read(root, os.path.join("docs", "settings.md"))
        for struct, field in option_fields(csource.read(root, path)):
            if "`%s`" % field not in page:
                yield "docs/settings.md: %s of %s is missing" % (field, struct)


def check_environment(root):
    for path in csource.files(root, ("src", "cli", "python"), (".c",)):
        for name in re.findall(r'getenv\("(PENSTOCK_\w+)"', csource.read(root, path)):
            if "`%s`" % name not in csource.read(root, os.path.join("docs", "settings.md")):
                yield "docs/settings.md: %s, which %s reads, is missing" % (name, path)


def check_rooms(root):
    for folder in sorted(glob.glob(os.path.join(root, "src", "*", ""))):
        room = os.path.basename(os.path.dirname(folder))
        if os.listdir(folder) and not os.path.exists(os.path.join(root, "docs", "internals", room + ".md")):
            yield "docs/internals/%s.md: the room's page is missing" % room


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    complaints = list(check_links(root)) + list(check_settings(root))
    complaints += list(check_environment(root)) + list(check_rooms(root))
    print("\n".join(complaints), end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
