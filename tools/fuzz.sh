#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer programs with address and undefined-behaviour sanitizers and runs each for a while. New inputs
# gather in build-fuzz/found/<name>; a crash leaves its input there too and makes this fail.
#
#   tools/fuzz.sh SECONDS [NAME...]
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
[ $# = 0 ] || shift

if [ ! -e build-fuzz/build.ninja ]; then
    CC=clang-14 meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
        -Dc_args=-fsanitize=fuzzer-no-link >/dev/null
fi
meson compile -C build-fuzz

names=$*
[ -n "$names" ] || names=$(find build-fuzz/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f | sed 's|.*/fuzz_||' | sort)
failed=""
for name in $names; do
    found=build-fuzz/found/$name
    mkdir -p "$found" "tests/fuzz/corpus/$name"
    dictionary=""
    [ ! -e "tests/fuzz/$name.dict" ] || dictionary="-dict=tests/fuzz/$name.dict"
    echo "fuzz: $name for $seconds s"
    # shellcheck disable=SC2086
    "build-fuzz/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
        $dictionary -artifact_prefix="$found/crash-" "$found" "tests/fuzz/corpus/$name" >"$found.log" 2>&1 ||
        failed="$failed $name"
    grep -E '^SUMMARY|Test unit written' "$found.log" || true
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec)' "$found.log" || tail -n 20 "$found.log"
done
if [ -n "$failed" ]; then
    echo "fuzz: FAILED:$failed; logs in build-fuzz/found"
    exit 1
fi
echo "fuzz: nothing found"
