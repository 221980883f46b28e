// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
)

// Setup registers the controller: for Datasets, and for everything that they depend on.
func (r *Controller) Setup(m ctrl.Manager) error {
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return strings.HasPrefix(o.GetName(), "penstock-")
	}))
	labelled := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.LabelDataset] != ""
	}))
	return ctrl.NewControllerManagedBy(m).
		Named("dataset").
		For(&v1alpha1.Dataset{}).
		Watches(&v1alpha1.NodeCache{}, handler.EnqueueRequestsFromMapFunc(r.ofCache)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod), labelled).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim), ours).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofVolume), ours).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// ofCache: the datasets that a node holds or is to hold; and those that wait for a node, since this may be one.
func (r *Controller) ofCache(ctx context.Context, o client.Object) []reconcile.Request {
	c := o.(*v1alpha1.NodeCache)
	seen := map[reconcile.Request]bool{}
	for i := range c.Spec.Entries {
		seen[request(c.Spec.Entries[i].Namespace, c.Spec.Entries[i].Name)] = true
	}
	for i := range c.Status.Entries {
		seen[request(c.Status.Entries[i].Namespace, c.Status.Entries[i].Name)] = true
	}
	var all v1alpha1.DatasetList
	if r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			if d := &all.Items[i]; len(d.Status.Nodes) < cluster.Replicas(d) {
				seen[request(d.Namespace, d.Name)] = true
			}
		}
	}
	out := make([]reconcile.Request, 0, len(seen))
	for one := range seen {
		out = append(out, one)
	}
	return out
}

func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{request(o.GetNamespace(), o.GetLabels()[v1alpha1.LabelDataset])}
}

func (r *Controller) ofClaim(ctx context.Context, o client.Object) []reconcile.Request {
	return r.claimed(ctx, o.GetNamespace(), o.GetName())
}

func (r *Controller) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return r.claimed(ctx, ref.Namespace, ref.Name)
}

// claimed: the dataset of a claim, or all of the namespace if it is the engine's.
func (r *Controller) claimed(ctx context.Context, namespace, claim string) []reconcile.Request {
	if claim != EngineClaim {
		return []reconcile.Request{request(namespace, strings.TrimPrefix(claim, "penstock-"))}
	}
	var all v1alpha1.DatasetList
	if r.Client.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	out := []reconcile.Request{request(namespace, "engine")} // a dataset may have that name
	for i := range all.Items {
		out = append(out, request(namespace, all.Items[i].Name))
	}
	return out
}
