#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian 12 packages that building, testing and measuring need. Does nothing, quickly, when
# all of them are there. `make demo` and `make test` call it first.
#
#   tools/setup.sh GROUP...     groups: build test lint python bench peers servers operator
#   tools/setup.sh --list GROUP...
set -eu

build="gcc libc6-dev make meson ninja-build pkg-config libjpeg62-turbo-dev libspng-dev libwebp-dev zlib1g-dev libdeflate-dev libflac-dev libkissfft-dev liburing-dev libjansson-dev libmicrohttpd-dev libhiredis-dev libcurl4-openssl-dev libexpat1-dev libssl-dev"
python="python3 python3-dev python3-pip python3-venv python3-numpy"
test="$python python3-pytest python3-lmdb python3-fsspec python3-pil python3-torch python3-torchvision python3-torchaudio python3-scipy python3-nibabel python3-soundfile clang-14 libclang-rt-14-dev mandoc qemu-user acl tmux nodejs chromium fonts-dejavu-core prometheus python3-prometheus-client"
lint="clang-14 clang-format-14 binutils python3 mandoc"
peers="python3-venv libavdevice59 libavfilter8 g++ libopencv-dev libturbojpeg0-dev"
# Debian's redis-tools has the server's program too; redis-server would only add a service that starts by itself.
servers="redis-tools python3-venv"
# Go and what is built with it come after the packages: Debian 12's own is too old.
operator="python3 python3-venv ca-certificates"
# Fetches what the page is built with. Where an npm is there from elsewhere, Debian's is not wanted.
npm="npm ca-certificates"
command -v npm >/dev/null 2>&1 && npm=""
bench="python3 python3-redis python3-numpy python3-pil python3-torch python3-torchvision python3-torchaudio python3-scipy python3-soundfile"

usage() {
    echo "usage: tools/setup.sh [--list] build|test|lint|python|bench|peers|servers|operator ..." >&2
    exit 2
}

list=no
if [ "${1:-}" = "--list" ]; then
    list=yes
    shift
fi
[ $# -gt 0 ] || usage

tools=$(dirname "$0")
wanted=""
scripts=""
for group in "$@"; do
    case $group in
    build)
        wanted="$wanted $build $npm"
        scripts="$scripts web.sh:page"
        ;;
    test)
        wanted="$wanted $test $npm"
        scripts="$scripts web.sh:tests"
        ;;
    lint) wanted="$wanted $lint" ;;
    python) wanted="$wanted $python" ;;
    bench) wanted="$wanted $bench" ;;
    peers) wanted="$wanted $peers" ;;
    servers)
        wanted="$wanted $servers"
        scripts="$scripts versitygw.sh"
        ;;
    operator)
        wanted="$wanted $operator"
        scripts="$scripts versitygw.sh go.sh"
        ;;
    *) usage ;;
    esac
done

if [ $list = yes ]; then
    echo "$wanted" | tr ' ' '\n' | sed '/^$/d' | sort -u
    exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "tools/setup.sh: no dpkg on this machine, so nothing is installed. Needed, by their Debian names:$wanted" >&2
    exit 0
fi

missing=""
for package in $(echo "$wanted" | tr ' ' '\n' | sort -u); do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
# What no package has. Quick where it is there.
finish() {
    for script in $scripts; do
        case $script in
        go.sh) "$tools/$script" >/dev/null ;; # it prints where Go is
        web.sh:*) "$tools/web.sh" "${script#*:}" ;;
        *) "$tools/$script" ;;
        esac
    done
}

if [ -z "$missing" ]; then
    finish
    exit 0
fi

if [ "$(id -u)" != 0 ]; then
    echo "tools/setup.sh: these packages are missing, and installing them needs root:$missing" >&2
    echo "tools/setup.sh: run as root: tools/setup.sh $*" >&2
    exit 1
fi

echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# $missing is a list of words on purpose.
# shellcheck disable=SC2086
apt-get install -q -y --no-install-recommends $missing
finish
