# SPDX-License-Identifier: Apache-2.0
"""``python -m penstock``: the version, and what an engine would get on this machine; ``doctor`` says what is amiss."""

import argparse
import sys

from . import Engine, __version__, settings


def show() -> int:
    """Version and settings. Which way of reading "auto" becomes is known once an engine has tried."""
    found = settings()
    with Engine(1, 16 << 20) as engine:
        found["io"] = engine.settings["io"]
    print(f"penstock {__version__}")
    for name, value in found.items():
        print(f"  {name:<10} {value}")
    return 0


def main() -> int:
    if sys.argv[1:2] == ["_serve"]:  # the child of a local rank 0
        from ._local import serve_ranks

        return serve_ranks(sys.argv[2])
    about = "Without a command: the version, and what the settings become on this machine."
    parser = argparse.ArgumentParser(prog="python -m penstock", description=about)
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command")
    doctor = commands.add_parser("doctor", help="look at this installation and machine; 1 = something is bad")
    doctor.add_argument("--json", action="store_true", help="as one JSON object")
    args = parser.parse_args()
    if args.command is None:
        return show()
    from . import _doctor

    return _doctor.main(args.json)


if __name__ == "__main__":
    sys.exit(main())
