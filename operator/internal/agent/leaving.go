// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sort"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

// leaving is a dataset that the spec named once. It stays here, and in the status, until nothing of it is on the disk.
type leaving struct {
	namespace, name, revision string

	retry   retry
	trouble *trouble
}

// clear removes what the spec does not name any more. What this NodeCache never named may be from one before it, whose
// entries the operator is about to say again, so that has a while.
func (a *Agent) clear(ctx context.Context, r *round, wanted map[string]bool) {
	names := map[string]bool{}
	for name := range a.memory.leaving {
		names[name] = true
	}
	for name := range r.held.datasets {
		names[name] = true
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		if !wanted[name] {
			sorted = append(sorted, name)
		}
	}
	sort.Strings(sorted)
	for _, name := range sorted {
		delete(a.memory.entries, name)
		if r.away != nil {
			return
		}
		a.clearOne(ctx, r, name)
	}
}

func (a *Agent) clearOne(ctx context.Context, r *round, name string) {
	l := a.memory.leaving[name]
	if l == nil {
		if r.now.Sub(a.memory.since) < strayAfter {
			return
		}
		a.Log.Info("removing what no entry names", "dataset", name)
		l = &leaving{}
		a.memory.leaving[name] = l
	}
	held := r.held.datasets[name]
	if l.retry.due(r.now) && !a.remove(ctx, r, name, l, held != nil && len(held.Revisions) > 0) {
		delete(a.memory.leaving, name)
		return
	}
	r.within(tickMoving)
	if l.name == "" {
		return
	}
	s := v1alpha1.EntryStatus{
		Namespace: l.namespace, Name: l.name, Revision: l.revision, Phase: v1alpha1.PhaseRemoving,
	}
	if held != nil {
		s.InUse = inUse(held)
		s.BytesDone = here(held, l.revision)
	}
	if l.trouble != nil {
		s.Reason, s.Message = l.trouble.reason, l.trouble.message
	}
	r.entries = append(r.entries, s)
}

// remove takes a dataset and the engine's knowledge of its source away. True: it is not gone yet.
func (a *Agent) remove(ctx context.Context, r *round, name string, l *leaving, there bool) bool {
	err := a.Engine.Evict(ctx, name, "")
	switch {
	case err == nil && !there:
		if err = a.Engine.DropSource(ctx, name); err == nil {
			a.Log.Info("removed", "dataset", name)
			return false
		}
		l.trouble = refusedTrouble(err)
	case err == nil: // the next pass looks whether it went
		l.trouble = nil
		r.within(tickSoon)
		return true
	case engine.IsInUse(err):
		l.trouble = newTrouble(v1alpha1.ReasonInUse, "a process has it open", retryFirst)
	default:
		l.trouble = refusedTrouble(err)
	}
	r.lost(err)
	l.retry.failed(r.now, min(l.trouble.most, retryMost))
	return true
}
