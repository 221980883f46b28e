// SPDX-License-Identifier: Apache-2.0

// Package entry writes what nodes are to hold. Each dataset applies its entries with a field manager of its own, so two
// datasets never overwrite each other, and an entry goes when its manager applies nothing.
package entry

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
)

// Writer of entries. Who chooses nodes holds Choosing from reading the NodeCaches (uncached) to writing the entries:
// what one promises, the next must see.
type Writer struct {
	Client   client.Client
	Choosing sync.Mutex
}

// For is the entry that a dataset has on its nodes.
func For(d *v1alpha1.Dataset) v1alpha1.CacheEntry {
	return v1alpha1.CacheEntry{Namespace: d.Namespace, Name: d.Name, UID: string(d.UID),
		Depot:  v1alpha1.DepotName(d.Namespace, d.Name),
		Source: *d.Spec.Source.DeepCopy(), Revision: d.Status.Revision, Objects: d.Status.Objects, Bytes: d.Status.Bytes,
		Mode: d.Spec.Placement.Mode, Pinned: d.Spec.Pinned}
}

// Put makes the node's entry what is given, and writes nothing if it is that already.
func (w *Writer) Put(ctx context.Context, c *v1alpha1.NodeCache, e v1alpha1.CacheEntry) (bool, error) {
	if have := cluster.EntryOf(c, e.Namespace, e.Name); have != nil && equality.Semantic.DeepEqual(*have, e) {
		return false, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&e)
	if err != nil {
		return false, err
	}
	return true, w.apply(ctx, c, e.Depot, []any{fields})
}

// Drop takes the dataset's entry off the node, and writes nothing if there is none. A node that is gone has none.
func (w *Writer) Drop(ctx context.Context, c *v1alpha1.NodeCache, namespace, name string) (bool, error) {
	if cluster.EntryOf(c, namespace, name) == nil {
		return false, nil
	}
	err := w.apply(ctx, c, v1alpha1.DepotName(namespace, name), nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && w.gone(ctx, c) {
		return false, nil
	}
	return true, err
}

func (w *Writer) gone(ctx context.Context, c *v1alpha1.NodeCache) bool {
	var now v1alpha1.NodeCache
	err := w.Client.Get(ctx, client.ObjectKeyFromObject(c), &now)
	return apierrors.IsNotFound(err) || err == nil && now.UID != c.UID
}

// apply names the object's uid: without it, an apply to a NodeCache that has just gone would make a new one.
func (w *Writer) apply(ctx context.Context, c *v1alpha1.NodeCache, depot string, entries []any) error {
	spec := map[string]any{}
	if entries != nil {
		spec["entries"] = entries
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeCache",
		"metadata": map[string]any{"name": c.Name, "uid": string(c.UID)}, "spec": spec}}
	return w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("penstock-"+depot),
		client.ForceOwnership)
}
