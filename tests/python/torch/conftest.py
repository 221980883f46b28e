# SPDX-License-Identifier: Apache-2.0
"""The tests of penstock.torch need torch and torchvision; without them none is collected, and a line says so."""

import importlib.util
import sys


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


collect_ignore_glob = []
if not (_has("torch.utils.data") and _has("torchvision.datasets")):
    print("torch or torchvision is missing: the tests of penstock.torch are not run", file=sys.stderr)
    collect_ignore_glob = ["test_*.py"]
