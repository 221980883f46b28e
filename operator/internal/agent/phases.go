// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

// What is done for an entry, and what its status says, by what the engine has of it.

// whole: all of it is there. It is read again now and then, and other revisions go.
func (r *round) whole(ctx context.Context, s *step) {
	m, rev := s.m, s.revision()
	s.status.Phase = v1alpha1.PhaseReady
	s.status.BytesDone, s.status.BytesTotal = rev.Bytes, rev.Bytes
	m.trouble = nil
	stamp(&m.completed, r.now)
	if s.source != nil { // it can be read, but not repaired
		explain(s.status, s.source)
	}
	if running := s.running(); running != nil {
		if running.Revision != "" && running.Revision != s.entry.Revision {
			r.stop(ctx, s, running.Revision)
			s.status.Phase = v1alpha1.PhaseReady
		}
		return
	}
	r.sweep(ctx, s, oldFor)
	if s.source != nil {
		return
	}
	if r.repin(ctx, s) {
		return
	}
	r.look(ctx, s)
}

// repin has the engine told, once, when what is there is not pinned as the entry wants it.
func (r *round) repin(ctx context.Context, s *step) bool {
	if s.revision().Pinned == s.m.pin || s.m.pinned {
		return false
	}
	r.begin(ctx, s, false)
	return true
}

// look has what is there read again when it is time for that: one dataset after the other.
func (r *round) look(ctx context.Context, s *step) {
	a := r.agent
	if a.CheckEvery <= 0 || a.memory.checking != "" || r.now.Before(s.m.nextCheck) || s.m.asked {
		return
	}
	r.begin(ctx, s, true)
	if s.m.asked {
		a.memory.checking = s.entry.Depot
	}
}

// sweep removes revisions that are not wanted any more, unless somebody reads them.
func (r *round) sweep(ctx context.Context, s *step, after time.Duration) {
	m := s.m
	if m.completed != nil && r.now.Sub(m.completed.Time) < after || !m.sweep.due(r.now) {
		return
	}
	for i := range s.held.Revisions {
		old := s.held.Revisions[i].Revision
		if old == s.entry.Revision {
			continue
		}
		if err := r.agent.Engine.Evict(ctx, s.entry.Depot, old); err != nil && !r.lost(err) {
			m.sweep.failed(r.now, retryMost)
		}
	}
}

// moving: a pull of it runs. A trouble is shown until there is more than when it came, so that what fails again and
// again does not seem to work in between.
func (r *round) moving(s *step, pull *engine.Pull) {
	m := s.m
	m.asked = true // one that an agent before this one began
	m.completed = nil
	stamp(&m.started, r.now)
	s.status.BytesDone = max(pull.BytesDone, here(s.held, s.entry.Revision))
	if pull.Bytes > 0 {
		s.status.BytesTotal = pull.Bytes
	}
	if m.trouble != nil && s.status.BytesDone <= m.troubleBytes {
		fail(s.status, m.trouble)
	} else {
		m.trouble = nil
		s.status.Phase = v1alpha1.PhasePulling
	}
	r.within(tickMoving)
}

// stop: a pull of another revision is in the way.
func (r *round) stop(ctx context.Context, s *step, revision string) {
	s.status.Reason, s.status.Message = v1alpha1.ReasonWaiting, "a pull of another revision is being stopped"
	if err := r.agent.Engine.Evict(ctx, s.entry.Depot, revision); err != nil && !r.lost(err) && !engine.IsConflict(err) {
		s.status.Message = refusedTrouble(err).message
	}
	r.within(tickMoving)
}

// partly: as much as fits is there. When there is more room, there will be more of it.
func (r *round) partly(ctx context.Context, s *step) {
	m, rev := s.m, s.revision()
	s.status.Phase = v1alpha1.PhasePartial
	s.status.BytesDone, s.status.BytesTotal = rev.BytesHere, max(rev.Bytes, s.entry.Bytes)
	stamp(&m.completed, r.now)
	m.settled, m.trouble = true, nil
	if s.source != nil {
		explain(s.status, s.source)
	}
	if s.running() != nil {
		m.asked = true
		r.within(tickMoving)
	}
	if s.source != nil || s.running() != nil {
		return
	}
	if r.repin(ctx, s) {
		return
	}
	if m.freeThen < 0 { // begun by an agent before this one
		m.freeThen = r.held.depot.FreeBytes
	}
	missing := s.status.BytesTotal - s.status.BytesDone
	more := r.held.depot.FreeBytes - m.freeThen
	if (more >= missing || more > s.status.BytesTotal/16) && more > 0 && !r.now.Before(m.nextGrow) {
		m.nextGrow = r.now.Add(jitter(growEvery))
		r.begin(ctx, s, false)
		return
	}
	r.look(ctx, s)
}

// missing: nothing of it, or not enough, and no pull runs.
func (r *round) missing(ctx context.Context, s *step) {
	m := s.m
	m.completed, m.settled = nil, false
	s.status.BytesDone = here(s.held, s.entry.Revision)
	if r.away != nil {
		return
	}
	if s.source != nil && !m.told {
		fail(s.status, s.source)
		r.within(tickMoving)
		return
	}
	if m.trouble != nil {
		fail(s.status, m.trouble)
		if m.trouble.word == engine.ReasonNoSpace {
			r.sweep(ctx, s, 0) // an older revision need not be in the way
			if r.held.depot.FreeBytes > m.freeThen {
				m.freeThen = r.held.depot.FreeBytes
				m.retry.forgive()
			}
		}
	}
	if !m.retry.due(r.now) {
		r.within(m.retry.next.Sub(r.now))
		return
	}
	if m.trouble == nil {
		stamp(&m.started, r.now)
	}
	r.begin(ctx, s, false)
	if s.m.asked && m.trouble == nil {
		s.status.Phase = v1alpha1.PhasePulling
	} else if m.trouble != nil {
		fail(s.status, m.trouble)
	}
}
