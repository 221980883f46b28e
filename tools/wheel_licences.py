#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the licences of the libraries that auditwheel copied into a wheel beside our own.

auditwheel leaves a list of components: the Debian package of each library. Their copyright files become
licenses/<package>.txt of the wheel's metadata. A library without one is an error: such a wheel may not be handed out.

    tools/wheel_licences.py FOLDER      FOLDER: the unpacked wheel
"""
import json
import pathlib
import sys

DOCS = pathlib.Path("/usr/share/doc")
OURS = "License-File: LICENSE\n"


def packages_of(info):
    """The Debian packages that the copied libraries come from, one entry a library."""
    with open(info / "sboms" / "auditwheel.cdx.json", encoding="utf-8") as handle:
        components = json.load(handle)["components"]
    return [c["name"] for c in components if c.get("purl", "").startswith("pkg:deb/")]


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
    packages = packages_of(info) if libraries else []
    if len(packages) != len(libraries):
        print("the packages of %s are not all known: %s" % (", ".join(libraries), ", ".join(packages) or "none"))
        return 1
    try:
        add(info, sorted(set(packages)))
    except (OSError, ValueError) as error:
        print("licences: %s" % error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
