# SPDX-License-Identifier: Apache-2.0
"""``python -m penstock``: the version, and what an engine would get on this machine."""

from . import __version__, settings


def main() -> None:
    print(f"penstock {__version__}")
    for name, value in settings().items():
        print(f"  {name:<10} {value}")


if __name__ == "__main__":
    main()
