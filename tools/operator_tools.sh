#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the programs of operator/tools/go.mod that are not built yet, and prints the folder that they are in. A program is
# kept until go.sum or the Go that built it changes, so this is quick but for the first time (a kube-apiserver alone takes
# minutes). They lie outside the checkout, for all checkouts; PENSTOCK_TOOLS names another folder. build-tools/bin links there.
#
#   tools/operator_tools.sh [PROGRAM...]    all of them, if none is named
set -eu
cd "$(dirname "$0")/.."

all="etcd kube-apiserver kube-scheduler kube-controller-manager kubectl kwok controller-gen kustomize helm"
place=${PENSTOCK_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock/tools}
version=v1.36.4
component=k8s.io/component-base/version

package_of() {
    case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    kube*) echo "k8s.io/kubernetes/cmd/$1" ;;
    kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
    controller-gen) echo sigs.k8s.io/controller-tools/cmd/controller-gen ;;
    kustomize) echo sigs.k8s.io/kustomize/kustomize/v5 ;;
    helm) echo helm.sh/helm/v4/cmd/helm ;;
    *)
        echo "tools/operator_tools.sh: no such program: $1" >&2
        exit 2
        ;;
    esac
}

go=$(tools/go.sh)
stamp=$({ "$go" version; echo "$version"; cat operator/tools/go.mod operator/tools/go.sum; } | sha256sum | cut -c 1-16)
bin=$place/bin-$stamp
mkdir -p "$bin" build-tools
touch "$bin"
find "$place" -maxdepth 1 -name 'bin-*' -mtime +30 -exec rm -rf {} + # those of go.sums that nobody has any more

for program in ${*:-$all}; do
    [ ! -x "$bin/$program" ] || continue
    package=$(package_of "$program")
    echo "building $program" >&2
    # Written beside and renamed, so that two of these at a time do no harm.
    (cd operator/tools && GOFLAGS="-buildvcs=false -mod=readonly" nice -n 10 "$go" build -p 2 -trimpath \
        -ldflags "-s -w -X $component.gitVersion=$version -X $component.gitMajor=1 -X $component.gitMinor=36" \
        -o "$bin/.$program.$$" "$package") >&2
    mv "$bin/.$program.$$" "$bin/$program"
done
ln -sfn "$bin" build-tools/bin
echo "$bin"
