#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the licences of the libraries that auditwheel copied into a wheel beside our own.

The copyright files of the Debian packages they come from become licenses/<package>.txt of the wheel's metadata. A library
without one is an error: such a wheel may not be handed out.

    tools/wheel_licences.py FOLDER      FOLDER: the unpacked wheel
"""
import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path("/usr/share/doc")
OURS = "License-File: LICENSE\n"


def package_of(library):
    """The Debian package of a library that auditwheel copied: its name without the hash that was put in."""
    name = re.sub(r"-[0-9a-f]{8}(?=\.)", "", library)
    found = subprocess.run(["dpkg-query", "-S", "*/" + name], stdout=subprocess.PIPE, text=True, check=False).stdout
    return found.partition(":")[0] or None


def add(info, packages):
    """Copies each licence and names it in the metadata."""
    for package in packages:
        (info / "licenses" / (package + ".txt")).write_bytes((DOCS / package / "copyright").read_bytes())
    metadata = (info / "METADATA").read_text(encoding="utf-8")
    if OURS not in metadata:
        raise ValueError("the metadata does not name our own LICENSE")
    lines = "".join("License-File: %s.txt\n" % package for package in packages)
    (info / "METADATA").write_text(metadata.replace(OURS, OURS + lines, 1), encoding="utf-8")


def main():
    wheel = pathlib.Path(sys.argv[1])
    (info,) = wheel.glob("*.dist-info")
    libraries = sorted(path.name for folder in wheel.glob("*.libs") for path in folder.iterdir())
    packages = {library: package_of(library) for library in libraries}
    unknown = [library for library in libraries if not packages[library]]
    if unknown:
        print("no package is known for %s" % ", ".join(unknown))
        return 1
    try:
        add(info, sorted(set(packages.values())))
    except (OSError, ValueError) as error:
        print("licences: %s" % error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
