// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
)

// A lease that is old is looked at again this much later. After a moment in which nobody could work, the operator or
// the API server or all of them, every lease is old, and every agent that lives renews its own in less.
const secondLook = v1alpha1.HeartbeatSeconds * time.Second

// sentry knows when each agent was last heard of, which ones are late, and when to look again.
type sentry struct {
	patience time.Duration // how old a lease may get

	now   time.Time
	after time.Duration
	heard map[string]time.Time // as the cache has it
	late  map[string]late
}

// late is an agent whose lease was found old, at that time.
type late struct{ heard, found time.Time }

func (s *sentry) read(ctx context.Context, from client.Reader, namespace string, now time.Time) error {
	var leases coordinationv1.LeaseList
	if err := from.List(ctx, &leases, client.InNamespace(namespace)); err != nil {
		return err
	}
	heard := map[string]time.Time{}
	for i := range leases.Items {
		if l := &leases.Items[i]; l.Spec.RenewTime != nil {
			heard[l.Name] = l.Spec.RenewTime.Time
		}
	}
	s.begin(heard, now)
	return nil
}

func (s *sentry) begin(heard map[string]time.Time, now time.Time) {
	still := map[string]late{}
	for node, l := range s.late {
		if heard[node].Equal(l.heard) {
			still[node] = l
		}
	}
	*s = sentry{patience: s.patience, now: now, heard: heard, late: still}
}

func (s *sentry) lookIn(d time.Duration) {
	if d = max(d, time.Second); s.after == 0 || d < s.after {
		s.after = d
	}
}

// missed tells whether nothing has been heard of a node's agent for too long. An agent that never had a lease is taken
// at its word: one of an earlier version has none.
func (s *sentry) missed(node string) bool {
	last, known := s.heard[node]
	if !known {
		return false
	}
	left := last.Add(s.patience).Sub(s.now)
	if left > secondLook {
		s.lookIn(left - secondLook)
		return false
	}
	if _, there := s.late[node]; !there {
		s.late[node] = late{heard: last, found: s.now}
	}
	if more := max(left, s.late[node].found.Add(secondLook).Sub(s.now)); more > 0 {
		s.lookIn(more)
		return false
	}
	return true
}

// notice writes into a NodeCache that its agent is gone: nobody else can, and what the agent said last is not true any
// more. The agent takes it back when it returns.
func (r *Controller) notice(ctx context.Context, c *v1alpha1.NodeCache) error {
	if c == nil || !cluster.EngineReady(c) || !r.sentry.missed(c.Name) {
		return nil
	}
	last := r.sentry.heard[c.Name]
	err := r.gone(ctx, c, last)
	if err != nil { // nobody can be heard: all begins anew
		clear(r.sentry.late)
	}
	return err
}

// gone asks the API server itself before it believes it: a cache may be behind.
func (r *Controller) gone(ctx context.Context, c *v1alpha1.NodeCache, last time.Time) error {
	var lease coordinationv1.Lease
	err := r.API.Get(ctx, client.ObjectKey{Namespace: r.Leases, Name: c.Name}, &lease)
	if err != nil || lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.Time.Equal(last) {
		return client.IgnoreNotFound(err)
	}
	before := c.DeepCopy()
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: v1alpha1.CondEngineReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonAgentGone,
		Message: "nothing was heard of the node's agent since " + last.UTC().Format(time.RFC3339),
	})
	log.FromContext(ctx).Info("an agent is gone", "node", c.Name, "since", last)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return client.IgnoreNotFound(ignoreConflict(r.Client.Status().Patch(ctx, c, patch)))
}
