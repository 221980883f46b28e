#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says whether the library exports exactly the functions that the public headers declare.
#
#   tools/check_symbols.sh libpenstock.so include/penstock.h include/penstock/*.h
set -eu

if [ $# -lt 2 ]; then
    echo "usage: tools/check_symbols.sh LIBRARY HEADER..." >&2
    exit 2
fi
library=$1
shift
[ -e "$library" ] || { echo "$library: no such library" >&2; exit 1; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Declarations may run over lines; the name is the word before the first parenthesis after PST_API.
cat "$@" | grep -v '^ *#' | tr '\n' ' ' | grep -o 'PST_API [^(;]*(' | sed 's/ *($//; s/.*[ *]//' | sort -u >"$scratch/declared"
nm -D --defined-only "$library" | awk '$2 ~ /^[A-TV-Z]$/ { sub(/@.*/, "", $3); print $3 }' | sort -u >"$scratch/exported"

if cmp -s "$scratch/declared" "$scratch/exported"; then
    exit 0
fi
comm -23 "$scratch/declared" "$scratch/exported" | sed "s|^|declared but not exported: |"
comm -13 "$scratch/declared" "$scratch/exported" | sed "s|^|exported but not declared in $*: |"
exit 1
