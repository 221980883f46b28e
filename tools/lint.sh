#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every check that needs no test to run. Goes through all of them and says at the end which failed.
# clang-format is pinned to 14: other versions format differently.
#
#   tools/lint.sh            checks
#   tools/lint.sh --format   formats every C file instead
set -u
cd "$(dirname "$0")/.." || exit 1

python=${PYTHON:-/usr/bin/python3}
failed=""

step() {
    name=$1
    shift
    echo "lint: $name"
    "$@" || failed="$failed, $name"
}

sources() {
    find src include cli python examples tests bench -name corpus -prune -o \( -name '*.c' -o -name '*.h' \) -print
}

formatted() {
    command -v clang-format-14 >/dev/null || { echo "clang-format-14 is not installed"; return 1; }
    unformatted=$(sources | xargs clang-format-14 --dry-run -Werror 2>&1 | sed -n 's/^\([^ :]*\.[ch]\):[0-9]*:.*/\1/p' | sort -u)
    [ -z "$unformatted" ] || { echo "$unformatted"; echo "(make format does it)"; return 1; }
}

# $1: compiler. Warnings are errors.
builds() {
    if [ ! -e "build-lint/$1/build.ninja" ]; then
        CC=$1 meson setup "build-lint/$1" -Dwerror=true >/dev/null || return 1
    fi
    meson compile -C "build-lint/$1" >build-lint/$1.log 2>&1 || { tail -n 60 "build-lint/$1.log"; return 1; }
}

exports() {
    library=$(find build-lint/gcc -maxdepth 1 -name 'libpenstock.so*' -type f | head -n 1)
    if [ -z "$library" ]; then
        echo "build-lint/gcc has no libpenstock.so"
        return 1
    fi
    tools/check_symbols.sh "$library" include/penstock.h include/penstock/*.h
}

manuals() {
    [ -z "$(find man -name '*.[1-9]')" ] || mandoc -T lint -W warning man/*.[1-9]
}

if [ "${1:-}" = --format ]; then
    sources | xargs clang-format-14 -i
    exit
fi

mkdir -p build-lint
step "formatting" formatted
step "include arrows" "$python" tools/check_includes.py
step "style" "$python" tools/check_style.py
step "documentation" "$python" tools/check_docs.py
step "gcc without warnings" builds gcc
step "clang without warnings" builds clang-14
step "exported symbols" exports
step "manual pages" manuals

if [ -n "$failed" ]; then
    echo "lint: FAILED: ${failed#, }"
    exit 1
fi
echo "lint: clean"
