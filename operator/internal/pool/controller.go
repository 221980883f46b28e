// SPDX-License-Identifier: Apache-2.0

// Package pool makes a NodeCache for every node that a CachePool chooses, with the pool's limits, and removes it when
// no pool does. It goes with its node. There is one request for everything: who is chosen by several pools depends on
// all of them.
package pool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
)

const manager = "penstock-operator"

// Controller of NodeCaches.
type Controller struct {
	Client client.Client
	API    client.Reader // without a cache
	Leases string        // the namespace of the agents' leases
	// Patience is how old an agent's lease may get until the agent is taken for gone.
	Patience time.Duration

	sentry sentry // only the one worker touches it
}

// Setup registers the controller.
func (r *Controller) Setup(m ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "pools"}}}
	})
	// A node's heartbeats are none of our business.
	nodes := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !labels.Equals(before.Labels, now.Labels) || !now.DeletionTimestamp.IsZero() ||
			cluster.NodeReadyOrCordoned(before) != cluster.NodeReadyOrCordoned(now)
	}})
	return ctrl.NewControllerManagedBy(m).
		Named("pool").
		Watches(&v1alpha1.CachePool{}, all).
		Watches(&v1alpha1.NodeCache{}, all).
		Watches(&corev1.Node{}, all, nodes).
		Complete(r)
}

// Reconcile all pools.
func (r *Controller) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var pools v1alpha1.CachePoolList
	var caches v1alpha1.NodeCacheList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&pools, &caches, &nodes} {
		if err := r.Client.List(ctx, list); err != nil {
			return ctrl.Result{}, err
		}
	}
	slices.SortFunc(pools.Items, func(a, b v1alpha1.CachePool) int { return strings.Compare(a.Name, b.Name) })
	have := map[string]*v1alpha1.NodeCache{}
	for i := range caches.Items {
		have[caches.Items[i].Name] = &caches.Items[i]
	}
	var wrong []error
	r.sentry.patience = r.Patience
	if err := r.sentry.read(ctx, r.Client, r.Leases, time.Now()); err != nil {
		return ctrl.Result{}, err
	}
	counts := map[string]*v1alpha1.CachePoolStatus{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		pool := choose(pools.Items, n)
		c := have[n.Name]
		if pool == nil || !n.DeletionTimestamp.IsZero() {
			continue
		}
		if c != nil && !ownedBy(c, n) { // of an earlier node of that name: it goes, and another one comes
			continue
		}
		delete(have, n.Name)
		if counts[pool.Name] == nil {
			counts[pool.Name] = &v1alpha1.CachePoolStatus{}
		}
		counts[pool.Name].Nodes++
		wrong = append(wrong, r.notice(ctx, c))
		if c != nil && cluster.EngineReady(c) && cluster.NodeReadyOrCordoned(n) {
			counts[pool.Name].ReadyNodes++
		}
		wrong = append(wrong, r.apply(ctx, c, n, pool))
	}
	for _, c := range have {
		if c.DeletionTimestamp.IsZero() {
			wrong = append(wrong, client.IgnoreNotFound(r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID})))
		}
	}
	for i := range pools.Items {
		wrong = append(wrong, r.report(ctx, &pools.Items[i], counts[pools.Items[i].Name]))
	}
	return ctrl.Result{RequeueAfter: r.sentry.after}, errors.Join(wrong...)
}

// choose is the first pool by name that wants the node.
func choose(pools []v1alpha1.CachePool, n *corev1.Node) *v1alpha1.CachePool {
	for i := range pools {
		if pools[i].DeletionTimestamp.IsZero() &&
			labels.SelectorFromSet(pools[i].Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
			return &pools[i]
		}
	}
	return nil
}

func ownedBy(c *v1alpha1.NodeCache, n *corev1.Node) bool {
	return slices.ContainsFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == n.UID })
}

// apply makes the node's NodeCache what the pool says, apart from its entries, and writes nothing if it is that.
func (r *Controller) apply(ctx context.Context, c *v1alpha1.NodeCache, n *corev1.Node, pool *v1alpha1.CachePool) error {
	want := limits(pool)
	if c != nil {
		got := v1alpha1.NodeCacheSpec{Pool: c.Spec.Pool, LimitBytes: c.Spec.LimitBytes, HighWatermark: c.Spec.HighWatermark,
			LowWatermark: c.Spec.LowWatermark}
		if got.Pool == want.Pool && got.LimitBytes == want.LimitBytes && got.HighWatermark == want.HighWatermark &&
			got.LowWatermark == want.LowWatermark || !c.DeletionTimestamp.IsZero() {
			return nil
		}
	}
	spec := map[string]any{"pool": want.Pool, "limitBytes": want.LimitBytes, "highWatermark": int64(want.HighWatermark),
		"lowWatermark": int64(want.LowWatermark)}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeCache",
		"metadata": map[string]any{"name": n.Name, "ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": "Node", "name": n.Name, "uid": string(n.UID)}}},
		"spec": spec}}
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager),
		client.ForceOwnership)
	return ignoreConflict(err)
}

// ignoreConflict: somebody wrote in between, and that brings all of them back here.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func limits(pool *v1alpha1.CachePool) v1alpha1.NodeCacheSpec {
	out := v1alpha1.NodeCacheSpec{Pool: pool.Name, HighWatermark: pool.Spec.HighWatermark,
		LowWatermark: pool.Spec.LowWatermark}
	if pool.Spec.StorageLimit != nil {
		out.LimitBytes = pool.Spec.StorageLimit.Value()
	}
	return out
}

func (r *Controller) report(ctx context.Context, pool *v1alpha1.CachePool, count *v1alpha1.CachePoolStatus) error {
	if count == nil {
		count = &v1alpha1.CachePoolStatus{}
	}
	if pool.Status == *count {
		return nil
	}
	before := pool.DeepCopy()
	pool.Status = *count
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, pool, client.MergeFrom(before)))
}
