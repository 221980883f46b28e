#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one page of the files in this folder and the chart library, as C source that the daemon answers `/` with.

The modules below js/ are joined in the order of their imports, each in a function of its own; of import and export
only the forms `import {a, b} from "./x.js";` on a line of its own and `export` before a function or constant are
understood, and anything else is an error. Style and script are inlined, and named by their hashes in the
Content-Security-Policy: nothing else can run on the page.

    web/bundle.py --uplot FOLDER [--c FILE] [--html FILE] [--csp FILE] [--licence FILE]

FOLDER: the unpacked npm package. --html and --csp are what the tests' stand-in for the daemon serves.
"""
import argparse
import base64
import gzip
import hashlib
import os
import pathlib
import re
import sys

HERE = pathlib.Path(os.path.dirname(os.path.abspath(__file__)))
LIMIT = 150_000  # bytes of the whole page, gzipped
IMPORT = re.compile(r'^import \{([\w, ]+)\} from "\./(\w+\.js)";$')
EXPORT = re.compile(r"^export (?:function|const) (\w+)")


C_SOURCE = """/* SPDX-License-Identifier: Apache-2.0
 * Made by web/bundle.py: the page, gzipped, and its policy. */
#include "serve/page.h"

const unsigned char psti_page_gz[] = {
%s
};
const size_t psti_page_gz_size = sizeof(psti_page_gz);
const char psti_page_csp[] = "%s";
"""


class Broken(Exception):
    """What is wrong with the sources."""


def lines_of(path):
    """A module's lines without indentation and without lines that are comments."""
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        # Joined lines of a template or of a comment could not be told from code.
        if line.count("`") % 2 or "/*" in line:
            raise Broken("%s:%d: a template over several lines, or a comment with /*" % (path.name, number))
        if line.strip() and not line.lstrip().startswith("//"):
            yield line


class Joined:
    """The modules as functions that return what they export, in the order in which each finds what it imports."""

    def __init__(self):
        self.lines, self.exports = [], {}

    def module(self, name):
        if name in self.exports:
            if self.exports[name] is None:
                raise Broken("%s imports itself by way of others" % name)
            return
        self.exports[name] = None
        body, exported = [], []
        for line in lines_of(HERE / "js" / name):
            match = IMPORT.match(line)
            if match:
                body.append(self.take(name, match.group(2), match.group(1)))
                continue
            if re.match(r"import\b|export\b", line) and not EXPORT.match(line):
                raise Broken("%s: %s" % (name, line))
            exported += EXPORT.findall(line)
            body.append(re.sub(r"^export ", "", line).strip())
        self.exports[name] = exported
        self.lines += ["const %s = (() => {" % variable(name)] + body + ["return {%s};" % ", ".join(exported), "})();"]

    def take(self, name, source, words):
        self.module(source)
        missing = {word.strip() for word in words.split(",")} - set(self.exports[source])
        if missing:
            raise Broken("%s wants %s, which %s does not export" % (name, ", ".join(sorted(missing)), source))
        return "const {%s} = %s;" % (words, variable(source))


def variable(name):
    return "of_" + name.partition(".")[0]


def script_of(uplot, licence):
    joined = Joined()
    joined.module("main.js")
    chart = (uplot / "dist" / "uPlot.iife.min.js").read_text(encoding="utf-8").strip()
    script = "/*! uPlot\n%s\n*/\n%s\n(() => {\n\"use strict\";\n%s\n})();\n" % (
        licence.replace("*/", "* /"), chart, "\n".join(joined.lines))
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise Broken("the script would end the element it stands in")
    return script


def style_of(uplot):
    chart = (uplot / "dist" / "uPlot.min.css").read_text(encoding="utf-8")
    style = chart + "\n" + (HERE / "style.css").read_text(encoding="utf-8")
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    style = "\n".join(line.strip() for line in style.split("\n") if line.strip())
    if "<" in style or re.search(r"url\(|@import", style):
        raise Broken("the style would fetch something, or end its element")
    return style


def hash_of(text):
    return "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_of(uplot, licence):
    """The page and its policy."""
    style, script = style_of(uplot), script_of(uplot, licence)
    page = (HERE / "index.html").read_text(encoding="utf-8")
    page = re.sub(r"<!--(?!STYLE|SCRIPT).*?-->\n?", "", page, flags=re.DOTALL)
    page = "\n".join(line.strip() for line in page.split("\n"))
    if page.count("<!--STYLE-->") != 1 or page.count("<!--SCRIPT-->") != 1 or re.search(r" (?:style|on\w+)=", page):
        raise Broken("index.html has no place for style and script, or some of its own")
    page = page.replace("<!--STYLE-->", "<style>%s</style>" % style)
    page = page.replace("<!--SCRIPT-->", "<script>%s</script>" % script)
    policy = ("default-src 'none'; script-src %s; style-src %s; img-src data:; connect-src 'self'; base-uri 'none'; "
              "form-action 'none'; frame-ancestors 'none'" % (hash_of(script), hash_of(style)))
    return page, policy


def c_source(packed, policy):
    rows = [packed[i:i + 20] for i in range(0, len(packed), 20)]
    data = "\n".join("    " + ",".join(str(byte) for byte in row) + "," for row in rows)
    return C_SOURCE % (data, policy)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uplot", required=True, type=pathlib.Path)
    for name in ("c", "html", "csp", "licence"):
        parser.add_argument("--" + name, type=pathlib.Path)
    args = parser.parse_args()
    try:
        licence = (args.uplot / "LICENSE").read_text(encoding="utf-8").strip()
        page, policy = page_of(args.uplot, licence)
        packed = gzip.compress(page.encode(), 9, mtime=0)
        if len(packed) > LIMIT:
            raise Broken("%d bytes gzipped, the limit is %d" % (len(packed), LIMIT))
    except (Broken, OSError) as error:
        print("bundle.py: %s" % error, file=sys.stderr)
        return 1
    texts = {args.c: c_source(packed, policy), args.html: page, args.csp: policy, args.licence: licence + "\n"}
    for path, text in texts.items():
        if path:
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
