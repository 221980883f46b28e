#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes what follows from operator/api: the types' copy functions and the resource definitions in deploy/base/crds and
# the chart. A test says when they are out of date.
#
#   tools/operator_generate.sh [DEST]   into DEST instead of the repository, for comparing
set -eu
cd "$(dirname "$0")/.."

tools=$(tools/operator_tools.sh controller-gen)
dest=${1:-$PWD}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
line="SPDX-License-Identifier: Apache-2.0"
echo "// $line" >"$scratch/go"
echo "# $line" >"$scratch/yaml"

mkdir -p "$dest/operator/api/v1alpha1" "$dest/deploy/base/crds" "$dest/deploy/chart/crds"
cd operator
"$tools/controller-gen" "object:headerFile=$scratch/go" paths=./api/... output:object:dir="$dest/operator/api/v1alpha1"
"$tools/controller-gen" "crd:headerFile=$scratch/yaml" paths=./api/... output:crd:dir="$dest/deploy/base/crds"
cp "$dest"/deploy/base/crds/penstock.dev_*.yaml "$dest/deploy/chart/crds/"
