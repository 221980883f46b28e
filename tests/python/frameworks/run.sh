#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests with the real packages that people train with: lightning, accelerate, datasets, webdataset. Not part of `make test`,
# since they need a current torch from PyPI:
#     python3 -m venv venv && venv/bin/pip install torch torchvision lightning accelerate datasets webdataset pytest numpy pillow
#     PYTHON=venv/bin/python tests/python/frameworks/run.sh build
# What is not installed is skipped, with a line for each. So is torchvision's reference training, unless PENSTOCK_REFERENCE names the
# folder references/classification of its repository.
set -eu
build=$(realpath "${1:-build}")
here=$(dirname "$(realpath "$0")")
PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1 exec "${PYTHON:-python3}" -m pytest -q -rs -p no:cacheprovider "$here" \
    --confcutdir="$here/.."
