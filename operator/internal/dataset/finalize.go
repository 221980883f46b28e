// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
	"penstock.dev/operator/internal/metrics"
)

// finalize ends a dataset in order: nobody uses it; nodes are told; those that answer have dropped it; claim and volume
// go, and the engine's with the last dataset of the namespace; then the Dataset itself.
func (r *Controller) finalize(ctx context.Context, d *v1alpha1.Dataset, next *again) error {
	if !controllerutil.ContainsFinalizer(d, v1alpha1.FinalizerDataset) {
		return nil
	}
	next.in(5 * time.Second)
	s, err := cluster.Take(ctx, r.Client, r.API)
	if err != nil {
		return err
	}
	if pods, nodes := s.Users(d); len(pods)+len(nodes) > 0 {
		notReady(d, s.Caches, v1alpha1.ReasonInUse, "it is deleted when nobody uses it any more: "+users(pods, nodes))
		return nil
	}
	r.lister.forget(ctx, d)
	var waiting []string
	for i := range s.Caches {
		c := &s.Caches[i]
		if err := Drop(ctx, r.Entries, c, d.Namespace, d.Name); err != nil {
			return err
		}
		// An agent that is away finds out what its node is to hold when it is back.
		if cluster.StatusOf(c, d.Namespace, d.Name) != nil && s.Answers(c) {
			waiting = append(waiting, c.Name)
		}
	}
	if len(waiting) > 0 {
		notReady(d, s.Caches, v1alpha1.ReasonWaiting, "nodes remove it: "+some(waiting))
		return nil
	}
	return r.end(ctx, d)
}

// notReady says how far it is, and that it is not ready, whatever nodes have. The time of that stays what it was.
func notReady(d *v1alpha1.Dataset, caches []v1alpha1.NodeCache, reason, message string) {
	var was metav1.Condition
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondReady); c != nil {
		was = *c
	}
	summarize(d, caches)
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondReady); c != nil && was.Type != "" {
		*c = was
	}
	condition(d, v1alpha1.CondReady, false, reason, message)
}

func (r *Controller) end(ctx context.Context, d *v1alpha1.Dataset) error {
	r.ending.Lock()
	defer r.ending.Unlock()
	own, engine := volumesOf(d, "/")
	if err := own.remove(ctx, r.Client); err != nil {
		return err
	}
	var others v1alpha1.DatasetList
	if err := r.API.List(ctx, &others, client.InNamespace(d.Namespace)); err != nil {
		return err
	}
	last := true
	for i := range others.Items {
		last = last && others.Items[i].UID == d.UID
	}
	if last {
		if err := engine.remove(ctx, r.Client); err != nil {
			return err
		}
	}
	before := &v1alpha1.Dataset{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Namespace, Name: d.Name, Finalizers: d.Finalizers,
		ResourceVersion: d.ResourceVersion}}
	after := before.DeepCopy()
	controllerutil.RemoveFinalizer(after, v1alpha1.FinalizerDataset)
	err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return ignoreConflict(err)
	}
	controllerutil.RemoveFinalizer(d, v1alpha1.FinalizerDataset)
	metrics.RevisionChanges.DeleteLabelValues(d.Namespace, d.Name)
	return nil
}

func users(pods, nodes []string) string {
	var parts []string
	if len(pods) > 0 {
		parts = append(parts, "pods "+some(pods))
	}
	if len(nodes) > 0 {
		parts = append(parts, "open on nodes "+some(nodes))
	}
	return strings.Join(parts, "; ")
}

// some names the first few.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
