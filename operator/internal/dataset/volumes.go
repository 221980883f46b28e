// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
)

// EngineClaim is the claim of each namespace for its node's engine.
const EngineClaim = "penstock-engine"

// A restricted pod may use a claim but no folder of its node, so each dataset has a volume and a claim, and each
// namespace one for the engine. The size means nothing, since nothing is written; a quota of the namespace would count
// it.
var volumeSize = resource.MustParse("1Mi")

// volume and its claim.
type volume struct {
	name      string // of the PersistentVolume
	namespace string
	claim     string
	path      string // on the node
	owner     string // label; "" for the engine's, which belong to no one dataset
}

// ClaimName is the claim of a dataset, in its namespace.
func ClaimName(dataset string) string { return "penstock-" + dataset }

func volumesOf(d *v1alpha1.Dataset, root string) (own, engine volume) {
	depot := v1alpha1.DepotName(d.Namespace, d.Name)
	sum := sha256.Sum256([]byte(d.Namespace))
	own = volume{name: "penstock-" + depot, namespace: d.Namespace, claim: ClaimName(d.Name), path: path.Join(root,
		"datasets", depot),
		owner: string(d.UID)}
	engine = volume{name: EngineClaim + "-" + hex.EncodeToString(sum[:4]), namespace: d.Namespace, claim: EngineClaim,
		path: path.Join(root, "run")}
	return own, engine
}

func (v *volume) labels() map[string]string {
	out := map[string]string{"app.kubernetes.io/managed-by": "penstock"}
	if v.owner != "" {
		out[v1alpha1.LabelOwner] = v.owner
	}
	return out
}

func (v *volume) persistentVolume() *corev1.PersistentVolume {
	kind := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.name, Labels: v.labels()},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: volumeSize},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: v.namespace, Name: v.claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: v.path, Type: &kind}},
		}}
}

func (v *volume) persistentVolumeClaim() *corev1.PersistentVolumeClaim {
	none := ""
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.namespace, Name: v.claim, Labels: v.labels()},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			StorageClassName: &none,
			VolumeName:       v.name,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: volumeSize}},
		}}
}

// ensure makes what is missing. A volume that belonged to an earlier claim (of a dataset of the same name, or one that
// somebody deleted) cannot be bound again; it goes, and the next reconcile makes another.
func (v *volume) ensure(ctx context.Context, c client.Client) error {
	var pv corev1.PersistentVolume
	var pvc corev1.PersistentVolumeClaim
	err := c.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: v.claim}, &pvc)
	claimed := err == nil
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	err = c.Get(ctx, client.ObjectKey{Name: v.name}, &pv)
	switch {
	case apierrors.IsNotFound(err):
		if err := ignoreExists(c.Create(ctx, v.persistentVolume())); err != nil {
			return err
		}
	case err != nil:
		return err
	case pv.DeletionTimestamp.IsZero() && v.isStale(&pv, &pvc, claimed):
		return client.IgnoreNotFound(c.Delete(ctx, &pv, client.Preconditions{UID: &pv.UID}))
	}
	if claimed {
		return nil
	}
	return ignoreExists(c.Create(ctx, v.persistentVolumeClaim()))
}

func (v *volume) isStale(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim, claimed bool) bool {
	if v.owner != "" && pv.Labels[v1alpha1.LabelOwner] != v.owner {
		return true
	}
	ref := pv.Spec.ClaimRef
	return pv.Status.Phase == corev1.VolumeReleased || ref != nil && ref.UID != "" && claimed && ref.UID != pvc.UID
}

// remove deletes claim and volume. The API server keeps both until nobody has them mounted.
func (v *volume) remove(ctx context.Context, c client.Client) error {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.namespace, Name: v.claim}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.name}}
	// Without asking first: what was made a moment ago is not in the cache yet.
	return errors.Join(client.IgnoreNotFound(c.Delete(ctx, pvc)), client.IgnoreNotFound(c.Delete(ctx, pv)))
}

// Another process, or an earlier reconcile whose writes the cache has not seen, may have made it. A namespace that is
// being deleted takes nothing new, and its dataset is about to go, too.
func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
