#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches the npm packages that the page is built with, or those that its tests run, once: exactly those of the lock file, whose
# hashes npm checks, and without running anything of theirs. They are kept in the user's cache folder, in a folder named by the
# lock file's own hash, so that builds need neither npm nor network afterwards. A machine that cannot have them is told and left
# alone: the page is then not built, and its tests are skipped.
#
#   tools/web.sh page|tests            fetches
#   tools/web.sh --where page|tests    prints the folder, if it is there; fetches nothing
set -eu

where=no
if [ "${1:-}" = --where ]; then
    where=yes
    shift
fi
root=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in
page) from=$root/web ;;
tests) from=$root/tests/web ;;
*)
    echo "usage: tools/web.sh [--where] page|tests" >&2
    exit 2
    ;;
esac

kept=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/penstock/web
place=$kept/$1-$(sha256sum "$from/package-lock.json" | cut -c 1-16)
if [ -d "$place/node_modules" ]; then
    [ $where = no ] || echo "$place/node_modules"
    exit 0
fi
[ $where = no ] || exit 0

say() {
    echo "tools/web.sh: $*; $([ "$from" = "$root/web" ] && echo "the page is not built" || echo "the page's tests are skipped")" >&2
    exit 0
}

command -v npm >/dev/null 2>&1 || say "there is no npm"
mkdir -p "$kept" || say "no folder $kept"
scratch=$(mktemp -d "$kept/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
echo "fetching the npm packages of $1"
cp "$from/package.json" "$from/package-lock.json" "$scratch/"
(cd "$scratch" && npm ci --ignore-scripts --no-audit --no-fund >log 2>&1) || {
    tail -n 3 "$scratch/log" >&2
    say "npm could not fetch them"
}
# Another one may have been quicker.
mv -T "$scratch" "$place" 2>/dev/null || [ -d "$place/node_modules" ]
