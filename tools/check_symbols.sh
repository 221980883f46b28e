#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says whether the library exports exactly the functions that the public header declares.
#
#   tools/check_symbols.sh libpenstock.so include/penstock.h
set -eu

if [ $# != 2 ]; then
    echo "usage: tools/check_symbols.sh LIBRARY HEADER" >&2
    exit 2
fi
[ -e "$1" ] || { echo "$1: no such library" >&2; exit 1; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Declarations may run over lines; the name is the word before the first parenthesis after PST_API.
grep -v '^ *#' "$2" | tr '\n' ' ' | grep -o 'PST_API [^(;]*(' | sed 's/ *($//; s/.*[ *]//' | sort -u >"$scratch/declared"
nm -D --defined-only "$1" | awk '$2 ~ /^[A-TV-Z]$/ { sub(/@.*/, "", $3); print $3 }' | sort -u >"$scratch/exported"

if cmp -s "$scratch/declared" "$scratch/exported"; then
    exit 0
fi
comm -23 "$scratch/declared" "$scratch/exported" | sed "s|^|declared in $2 but not exported: |"
comm -13 "$scratch/declared" "$scratch/exported" | sed "s|^|exported but not declared in $2: |"
exit 1
