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

// sentry knows when each agent was last heard of, and when the next one could be missed.
type sentry struct {
	leases string // their namespace
	now    time.Time
	after  time.Duration
	heard  map[string]time.Time
}

func (s *sentry) read(ctx context.Context, from client.Reader) error {
	var leases coordinationv1.LeaseList
	if err := from.List(ctx, &leases, client.InNamespace(s.leases)); err != nil {
		return err
	}
	s.heard = map[string]time.Time{}
	for i := range leases.Items {
		if l := &leases.Items[i]; l.Spec.RenewTime != nil {
			s.heard[l.Name] = l.Spec.RenewTime.Time
		}
	}
	return nil
}

// missed tells since when nothing has been heard of a node's agent, if that is too long. An agent that never had a lease
// is taken at its word: one of an earlier version has none.
func (s *sentry) missed(node string) (time.Time, bool) {
	last, known := s.heard[node]
	if !known {
		return last, false
	}
	left := last.Add(v1alpha1.LeaseSeconds * time.Second).Sub(s.now)
	if left <= 0 {
		return last, true
	}
	if s.after == 0 || left < s.after {
		s.after = max(left, time.Second)
	}
	return last, false
}

// notice writes into a NodeCache that its agent is gone: nobody else can, and what the agent said last is not true any
// more. The agent takes it back when it returns.
func (r *Controller) notice(ctx context.Context, c *v1alpha1.NodeCache, s *sentry) error {
	if c == nil {
		return nil
	}
	last, gone := s.missed(c.Name)
	if !gone || !cluster.EngineReady(c) {
		return nil
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
