// SPDX-License-Identifier: Apache-2.0

// Package dataset makes of each Dataset what it says: the bucket is listed, nodes are chosen and told, volumes and
// claims exist, and status says how far it is. A reconcile that finds everything as it should be writes nothing.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/internal/entry"
	"penstock.dev/operator/internal/metrics"
	"penstock.dev/operator/internal/place"
	"penstock.dev/operator/internal/source"
)

// Controller of Datasets.
type Controller struct {
	Client  client.Client // reads from the cache
	API     client.Reader // does not
	Entries *entry.Writer
	Events  events.EventRecorder

	lister *lister
	ending sync.Mutex // two datasets that end together must agree which is the last of its namespace
}

// New returns a controller that has buckets listed by that engine.
func New(c client.Client, api client.Reader, e Engine, w *entry.Writer, recorder events.EventRecorder) *Controller {
	return &Controller{Client: c, API: api, Entries: w, Events: recorder, lister: newLister(e)}
}

// again keeps the earliest of several times to come back.
type again struct{ after time.Duration }

func (a *again) in(d time.Duration) {
	if d > 0 && (a.after == 0 || d < a.after) {
		a.after = d
	}
}

// Reconcile one Dataset.
func (r *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var d v1alpha1.Dataset
	err := r.Client.Get(ctx, req.NamespacedName, &d)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.sweep(ctx, req.Namespace, req.Name)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	before := d.DeepCopy()
	next := &again{}
	if !d.DeletionTimestamp.IsZero() {
		err := r.finalize(ctx, &d, next)
		return r.finish(ctx, before, &d, next, err)
	}
	if !controllerutil.ContainsFinalizer(&d, v1alpha1.FinalizerDataset) {
		controllerutil.AddFinalizer(&d, v1alpha1.FinalizerDataset)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, &d, patch); err != nil {
			return ctrl.Result{}, ignoreConflict(client.IgnoreNotFound(err))
		}
		before = d.DeepCopy()
	}
	r.resolve(ctx, &d, next)
	s, err := cluster.Take(ctx, r.Client, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	s.Datasets[cluster.Key(&d)] = &d
	err = errors.Join(r.place(ctx, &d, s, next), r.ensureVolumes(ctx, &d, s))
	summarize(&d, s.Caches)
	if due, wait := r.lister.wants(&d, time.Now()); due { // what nodes say may make it so
		next.in(pollEvery)
	} else {
		next.in(wait)
	}
	return r.finish(ctx, before, &d, next, err)
}

// finish writes the status, if anything of it is new.
func (r *Controller) finish(ctx context.Context, before, d *v1alpha1.Dataset, next *again, err error) (ctrl.Result,
	error) {
	result := ctrl.Result{RequeueAfter: next.after}
	if !controllerutil.ContainsFinalizer(d, v1alpha1.FinalizerDataset) { // it is gone
		return ctrl.Result{}, err
	}
	if equality.Semantic.DeepEqual(before.Status, d.Status) {
		return result, err
	}
	r.announce(before, d)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return result, errors.Join(err, ignoreConflict(client.IgnoreNotFound(r.Client.Status().Patch(ctx, d, patch))))
}

// announce says as events what people wait for.
func (r *Controller) announce(before, d *v1alpha1.Dataset) {
	if d.Status.Revision != before.Status.Revision && d.Status.Revision != "" {
		metrics.RevisionChanges.WithLabelValues(d.Namespace, d.Name).Inc()
		r.Events.Eventf(d, nil, corev1.EventTypeNormal, v1alpha1.ReasonListed, "List", "revision %s: %d objects, %s",
			d.Status.ShortRevision, d.Status.Objects, d.Status.Size)
	}
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.CondReady)
	now := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondReady)
	if now == nil || was != nil && was.Reason == now.Reason {
		return
	}
	switch now.Reason {
	case v1alpha1.ReasonReady:
		r.Events.Eventf(d, nil, corev1.EventTypeNormal, now.Reason, "Place", "%s", now.Message)
	case v1alpha1.ReasonPulling, v1alpha1.ReasonListing, v1alpha1.ReasonWaiting, v1alpha1.ReasonNodesChosen:
	default:
		r.Events.Eventf(d, nil, corev1.EventTypeWarning, now.Reason, "Place", "%s", now.Message)
	}
}

// resolve has the bucket listed when it is time, and notes what it holds or what is wrong.
func (r *Controller) resolve(ctx context.Context, d *v1alpha1.Dataset, next *again) {
	now := time.Now()
	due, wait := r.lister.wants(d, now)
	next.in(wait)
	if !due {
		return
	}
	listing, err := r.lister.step(ctx, d, func() (engine.Source, error) {
		return source.Read(ctx, r.API, d.Namespace, &d.Spec.Source)
	})
	switch {
	case err != nil:
		next.in(r.lister.failed(d.UID, now))
		reason, message := why(err)
		if was := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondResolved); was == nil || was.Message != message {
			log.FromContext(ctx).Info("the bucket cannot be listed", "reason", reason, "message", message)
		}
		condition(d, v1alpha1.CondResolved, false, reason, message)
	case listing == nil:
		next.in(pollEvery)
		if d.Status.Revision == "" && meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondResolved) == nil {
			condition(d, v1alpha1.CondResolved, false, v1alpha1.ReasonListing, "the bucket is being listed")
		}
	default:
		r.lister.succeeded(d.UID)
		d.Status.Revision, d.Status.Objects, d.Status.Bytes = listing.Revision, listing.Objects, listing.Bytes
		d.Status.ListedAt = &metav1.Time{Time: now.Truncate(time.Second)}
		condition(d, v1alpha1.CondResolved, true, v1alpha1.ReasonListed, fmt.Sprintf("%d objects, %s", listing.Objects,
			place.Bytes(listing.Bytes)))
		_, wait := r.lister.wants(d, now)
		next.in(wait)
	}
}

// place tells nodes what to hold: those that do already get the current revision, and if they are too few, more are
// chosen.
func (r *Controller) place(ctx context.Context, d *v1alpha1.Dataset, s *cluster.Snapshot, next *again) error {
	if d.Status.Revision == "" {
		condition(d, v1alpha1.CondPlaced, false, v1alpha1.ReasonWaiting, "the bucket has not been listed")
		return nil
	}
	live, err := r.keep(ctx, d, s)
	if err != nil {
		return err
	}
	if r.someAway(d, s) {
		next.in(time.Minute) // so that it is seen when they are away for too long
	}
	if live >= cluster.Replicas(d) {
		r.placed(d, s)
		return nil
	}
	next.in(retryMost) // nodes may get room without anything that is watched
	return r.choose(ctx, d, s)
}

// keep updates entries, takes them off nodes that the dataset may no longer be on, and counts those that can be
// counted on.
func (r *Controller) keep(ctx context.Context, d *v1alpha1.Dataset, s *cluster.Snapshot) (live int, err error) {
	rule := s.Dataset(d).Allowed
	for i := range s.Caches {
		c := &s.Caches[i]
		if cluster.EntryOf(c, d.Namespace, d.Name) == nil {
			continue
		}
		st := cluster.StatusOf(c, d.Namespace, d.Name)
		if rule(c.Name) != "" && s.Nodes[c.Name] != nil && (st == nil || !st.InUse) {
			if err := Drop(ctx, r.Entries, c, d.Namespace, d.Name); err != nil {
				return 0, err
			}
			continue
		}
		if err := Put(ctx, r.Entries, c, d); err != nil {
			return 0, err
		}
		short := st != nil && st.Phase == v1alpha1.PhaseFailed && st.Reason == v1alpha1.ReasonInsufficientSpace
		if s.Lives(c) && !short {
			live++
		}
	}
	return live, nil
}

// choose adds nodes. It reads the NodeCaches anew: what others were promised a moment ago has to be seen.
func (r *Controller) choose(ctx context.Context, d *v1alpha1.Dataset, s *cluster.Snapshot) error {
	r.Entries.Choosing.Lock()
	defer r.Entries.Choosing.Unlock()
	if ok, err := Exists(ctx, r.API, d); err != nil || !ok {
		return err
	}
	fresh, err := cluster.Take(ctx, r.Client, r.API)
	if err != nil {
		return err
	}
	fresh.Datasets[cluster.Key(d)] = d
	s.Caches = fresh.Caches
	live, err := r.keep(ctx, d, s)
	if err != nil {
		return err
	}
	choices, lack := place.Replicas(fresh.Place(), s.Dataset(d), cluster.Replicas(d)-live)
	for _, choice := range choices {
		if err := Promise(ctx, r.Entries, s, d, &choice); err != nil {
			return err
		}
	}
	if lack == nil {
		if err := r.dropFailed(ctx, d, s); err != nil {
			return err
		}
		r.placed(d, s)
		return nil
	}
	reason := v1alpha1.ReasonNoNodes
	if lack.NeedsSpace() {
		reason = v1alpha1.ReasonInsufficientSpace
	}
	condition(d, v1alpha1.CondPlaced, false, reason, fmt.Sprintf("%d of %d nodes chosen; %s", live+len(choices),
		cluster.Replicas(d), lack))
	return nil
}

// dropFailed takes the dataset off nodes that turned out too small, once others have been found.
func (r *Controller) dropFailed(ctx context.Context, d *v1alpha1.Dataset, s *cluster.Snapshot) error {
	for i := range s.Caches {
		c := &s.Caches[i]
		st := cluster.StatusOf(c, d.Namespace, d.Name)
		if st == nil || st.Phase != v1alpha1.PhaseFailed || st.Reason != v1alpha1.ReasonInsufficientSpace || st.InUse {
			continue
		}
		if err := Drop(ctx, r.Entries, c, d.Namespace, d.Name); err != nil {
			return err
		}
	}
	return nil
}

func (r *Controller) placed(d *v1alpha1.Dataset, s *cluster.Snapshot) {
	nodes := 0
	for i := range s.Caches {
		if cluster.EntryOf(&s.Caches[i], d.Namespace, d.Name) != nil {
			nodes++
		}
	}
	message := fmt.Sprintf("%d nodes", nodes)
	if nodes == 1 {
		message = "1 node"
	}
	condition(d, v1alpha1.CondPlaced, true, v1alpha1.ReasonNodesChosen, message)
}

// ensureVolumes waits for the first node that says where its cache is: all nodes have it in the same place.
func (r *Controller) ensureVolumes(ctx context.Context, d *v1alpha1.Dataset, s *cluster.Snapshot) error {
	root := ""
	for i := range s.Caches {
		if root = s.Caches[i].Status.Path; root != "" {
			break
		}
	}
	if root == "" {
		return nil
	}
	own, engine := volumesOf(d, root)
	return errors.Join(own.ensure(ctx, r.Client), engine.ensure(ctx, r.Client))
}

// ignoreConflict: somebody wrote in between, and that brings the object back here.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}
