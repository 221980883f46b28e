// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
)

// What pods carry. A pod opts in by the label; the annotations are optional.
const (
	LabelDataset     = "penstock.dev/dataset"     // label: the dataset's name, in the pod's namespace
	AnnotationMode   = "penstock.dev/mode"        // required (default) or preferred
	AnnotationMount  = "penstock.dev/mount-path"  // default /penstock/data
	GatePlacing      = "penstock.dev/placing"     // scheduling gate of pods that require their dataset
	AnnotationRev    = "penstock.dev/revision"    // written by the operator when it lifts the gate
	FinalizerDataset = "penstock.dev/placed"      // of Dataset
	LabelOwner       = "penstock.dev/dataset-uid" // of volumes and claims that the operator makes

	ModeRequired  = "required"
	ModePreferred = "preferred"

	EnvPath     = "PENSTOCK_DATASET"  // the folder to read, in the pod
	EnvRevision = "PENSTOCK_REVISION" // from AnnotationRev by the downward API; empty where a pod only prefers its data
	EnvEngine   = "PENSTOCK_ENGINE"   // unix:/run/penstock

	MountDefault = "/penstock/data"
	MountEngine  = "/run/penstock"
)

// DepotName is a dataset's name on a node's disk. Two namespaces may have datasets of one name.
func DepotName(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return name + "-" + hex.EncodeToString(sum[:4])
}
