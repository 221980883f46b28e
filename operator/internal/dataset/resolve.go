// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/internal/source"
)

const (
	pollEvery  = 300 * time.Millisecond // while the engine lists
	retryFirst = time.Second
	retryMost  = 15 * time.Second

	relistAfter = 5 * time.Second // than the last one, when a node says that the bucket has changed
)

// Listing is what a bucket holds.
type Listing struct {
	Revision       string
	Objects, Bytes int64
}

// Engine is what the controller needs of one: engine.Client, in tests something smaller.
type Engine interface {
	SetSource(ctx context.Context, name string, s engine.Source) error
	DropSource(ctx context.Context, name string) error
	Pull(ctx context.Context, name string, r engine.PullRequest) error
	Dataset(ctx context.Context, name string) (engine.Dataset, error)
	Evict(ctx context.Context, name, revision string) error
}

// lister has buckets listed by the operator's engine, without waiting: a reconcile begins a listing, later ones ask for
// it. What it remembers is lost with the process; then the listing is begun again.
type lister struct {
	engine Engine

	lock    sync.Mutex          // guards what follows
	running map[types.UID]int64 // generation that the listing is of
	tries   map[types.UID]int
	next    map[types.UID]time.Time // not before, after a failure
}

func newLister(e Engine) *lister {
	return &lister{engine: e, running: map[types.UID]int64{}, tries: map[types.UID]int{}, next: map[types.UID]time.Time{}}
}

// wants says whether the bucket has to be listed now, and if not, when it will have to be (0: never).
func (l *lister) wants(d *v1alpha1.Dataset, now time.Time) (bool, time.Duration) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if _, ok := l.running[d.UID]; ok {
		return true, 0
	}
	if wait := l.next[d.UID].Sub(now); wait > 0 {
		return false, wait
	}
	resolved := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondResolved)
	if resolved == nil || resolved.Status != metav1.ConditionTrue || resolved.ObservedGeneration != d.Generation ||
		d.Status.ListedAt == nil {
		return true, 0
	}
	if outdated(d) {
		wait := d.Status.ListedAt.Add(relistAfter).Sub(now)
		return wait <= 0, max(wait, 0)
	}
	every := time.Duration(0)
	if d.Spec.RefreshInterval != nil && d.Spec.Revision == "Latest" {
		every = d.Spec.RefreshInterval.Duration
	}
	if every == 0 {
		return false, 0
	}
	wait := d.Status.ListedAt.Add(every).Sub(now)
	return wait <= 0, max(wait, 0)
}

// outdated tells whether a node has found that the bucket holds something else than was listed.
func outdated(d *v1alpha1.Dataset) bool {
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondDegraded)
	return d.Spec.Revision == "Latest" && c != nil && c.Status == metav1.ConditionTrue &&
		(c.Reason == v1alpha1.ReasonRevisionGone || c.Reason == v1alpha1.ReasonChanging)
}

// step begins a listing or asks for the one that runs. nil and no error: not yet.
func (l *lister) step(ctx context.Context, d *v1alpha1.Dataset, src func() (engine.Source, error)) (*Listing, error) {
	depot := v1alpha1.DepotName(d.Namespace, d.Name)
	l.lock.Lock()
	generation, running := l.running[d.UID]
	l.lock.Unlock()
	if running && generation == d.Generation {
		have, err := l.engine.Dataset(ctx, depot)
		if err != nil && !engine.IsNotFound(err) {
			return nil, err
		}
		if err == nil && have.Pull != nil {
			return l.read(ctx, d, have.Pull)
		}
		// The engine has been restarted and knows nothing of it.
	}
	from, err := src()
	if err != nil {
		return nil, err
	}
	if err := l.engine.SetSource(ctx, depot, from); err != nil {
		return nil, err
	}
	revision := ""
	if d.Spec.Revision != "Latest" {
		revision = d.Spec.Revision
	}
	err = l.engine.Pull(ctx, depot, engine.PullRequest{Revision: revision, Dry: true})
	if engine.IsConflict(err) { // of another generation, or there are many
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.lock.Lock()
	l.running[d.UID] = d.Generation
	l.lock.Unlock()
	return nil, nil
}

func (l *lister) read(ctx context.Context, d *v1alpha1.Dataset, pull *engine.Pull) (*Listing, error) {
	if pull.Running {
		return nil, nil
	}
	l.forgetRunning(d.UID)
	depot := v1alpha1.DepotName(d.Namespace, d.Name)
	// Keys are not kept longer than needed; that an engine may still hold a list harms nobody.
	_ = l.engine.DropSource(ctx, depot)
	_ = l.engine.Evict(ctx, depot, "")
	if pull.Error != nil {
		return nil, pull.Error
	}
	return &Listing{Revision: pull.Revision, Objects: pull.Objects, Bytes: pull.Bytes}, nil
}

func (l *lister) forgetRunning(uid types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.running, uid)
}

// failed notes a failure; the answer is when to try again.
func (l *lister) failed(uid types.UID, now time.Time) time.Duration {
	l.lock.Lock()
	defer l.lock.Unlock()
	wait := min(retryFirst<<min(l.tries[uid], 10), retryMost)
	l.tries[uid]++
	l.next[uid] = now.Add(wait)
	delete(l.running, uid)
	return wait
}

func (l *lister) succeeded(uid types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.tries, uid)
	delete(l.next, uid)
}

// forget everything of a dataset that is going.
func (l *lister) forget(ctx context.Context, d *v1alpha1.Dataset) {
	l.succeeded(d.UID)
	l.lock.Lock()
	_, running := l.running[d.UID]
	delete(l.running, d.UID)
	l.lock.Unlock()
	if running {
		depot := v1alpha1.DepotName(d.Namespace, d.Name)
		_ = l.engine.Evict(ctx, depot, "")
		_ = l.engine.DropSource(ctx, depot)
	}
}

// why turns a failure into a condition's reason and message.
func why(err error) (reason, message string) {
	var secret *source.SecretError
	if errors.As(err, &secret) {
		return secret.Reason, secret.Message
	}
	if engine.IsAway(err) {
		return v1alpha1.ReasonWaiting, "the operator's engine does not answer"
	}
	reasons := map[string]string{
		engine.ReasonCredentials: v1alpha1.ReasonCredentialsInvalid,
		engine.ReasonNotFound:    v1alpha1.ReasonBucketNotFound,
		engine.ReasonUnreachable: v1alpha1.ReasonBucketUnreachable,
		engine.ReasonChanging:    v1alpha1.ReasonChanging,
		engine.ReasonGone:        v1alpha1.ReasonRevisionGone,
		engine.ReasonEmpty:       v1alpha1.ReasonEmpty,
	}
	if reason, ok := reasons[engine.Reason(err)]; ok {
		return reason, err.Error()
	}
	return v1alpha1.ReasonFailed, err.Error()
}
