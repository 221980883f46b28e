// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
	"penstock.dev/operator/internal/entry"
	"penstock.dev/operator/internal/metrics"
	"penstock.dev/operator/internal/place"
)

// Exists asks whether a dataset is still there and to stay: an entry of one that has gone would stay for ever.
func Exists(ctx context.Context, api client.Reader, d *v1alpha1.Dataset) (bool, error) {
	var now v1alpha1.Dataset
	if err := api.Get(ctx, client.ObjectKeyFromObject(d), &now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return now.UID == d.UID && now.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(&now,
		v1alpha1.FinalizerDataset), nil
}

// Promise tells the chosen node to hold the dataset, and what makes way for it to go. The snapshot is brought up to
// date.
func Promise(ctx context.Context, w *entry.Writer, s *cluster.Snapshot, d *v1alpha1.Dataset,
	choice *place.Choice) error {
	i := slices.IndexFunc(s.Caches, func(c v1alpha1.NodeCache) bool { return c.Name == choice.Node })
	if i < 0 {
		return nil
	}
	for _, key := range choice.Evict {
		gone := s.Datasets[key]
		if gone == nil {
			continue
		}
		if err := Drop(ctx, w, &s.Caches[i], gone.Namespace, gone.Name); err != nil {
			return err
		}
		metrics.Evictions.WithLabelValues("room").Inc()
		log.FromContext(ctx).Info("a copy makes way", "node", choice.Node, "copy", key, "for", cluster.Key(d))
	}
	return Put(ctx, w, &s.Caches[i], d)
}

// Put tells a node to hold a dataset.
func Put(ctx context.Context, w *entry.Writer, c *v1alpha1.NodeCache, d *v1alpha1.Dataset) error {
	e := entry.For(d)
	wrote, err := w.Put(ctx, c, e)
	if err != nil || !wrote {
		return err
	}
	if have := cluster.EntryOf(c, d.Namespace, d.Name); have != nil {
		*have = e
	} else {
		c.Spec.Entries = append(c.Spec.Entries, e)
	}
	return nil
}

// Drop tells a node to hold it no longer.
func Drop(ctx context.Context, w *entry.Writer, c *v1alpha1.NodeCache, namespace, name string) error {
	_, err := w.Drop(ctx, c, namespace, name)
	if err == nil {
		c.Spec.Entries = slices.DeleteFunc(c.Spec.Entries,
			func(e v1alpha1.CacheEntry) bool { return e.Namespace == namespace && e.Name == name })
	}
	return err
}

// sweep takes entries of a dataset that is not there off all nodes. There are none, unless somebody removed its
// finalizer.
func (r *Controller) sweep(ctx context.Context, namespace, name string) error {
	var caches v1alpha1.NodeCacheList
	if err := r.Client.List(ctx, &caches); err != nil {
		return err
	}
	for i := range caches.Items {
		if cluster.EntryOf(&caches.Items[i], namespace, name) == nil {
			continue
		}
		var d v1alpha1.Dataset
		if err := r.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &d); !apierrors.IsNotFound(err) {
			return err // it is there, and the cache will know
		}
		if err := Drop(ctx, r.Entries, &caches.Items[i], namespace, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *Controller) someAway(d *v1alpha1.Dataset, s *cluster.Snapshot) bool {
	for i := range s.Caches {
		if cluster.EntryOf(&s.Caches[i], d.Namespace, d.Name) != nil && !s.Answers(&s.Caches[i]) {
			return true
		}
	}
	return false
}
