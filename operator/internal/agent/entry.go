// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

const (
	// A pod whose gate was lifted for the revision before may not have opened it yet.
	oldFor = 2 * time.Minute
	// What a look that failed for the bucket's sake is put off by.
	checkAgain = 10 * time.Minute
	// Between tries to bring more of what is there in part, since each lists the bucket.
	growEvery = 30 * time.Second
)

// entry is what passes remember of one entry of the spec.
type entry struct {
	uid, revision string
	mode          v1alpha1.PlacementMode

	told   bool // the engine knows this source
	source engine.Source

	asked bool // a pull was begun, and its end was not seen yet
	check bool // it is one that reads again what is there

	settled bool // as much as fits was there: a pull may bring more, and jobs can have it all the while

	trouble      *trouble // of the last pull
	troubleBytes int64    // that were there when it failed: the trouble is over when there are more
	retry        retry

	sweep     retry     // of other revisions
	nextCheck time.Time // when what is there is to be read again
	nextGrow  time.Time
	freeThen  int64 // what was free when the last pull ended; -1: unknown

	pin, pinned        bool // what the entry wants, and whether that was said
	started, completed *metav1.Time
}

// untold is for an engine that was started anew.
func (m *entry) untold() {
	m.told, m.asked, m.check, m.pinned = false, false, false, false
	m.retry.forgive()
}

// remember takes from the status what an agent before this one knew.
func (a *Agent) remember(nc *v1alpha1.NodeCache) {
	for i := range nc.Status.Entries {
		s := &nc.Status.Entries[i]
		depot := v1alpha1.DepotName(s.Namespace, s.Name)
		a.memory.leaving[depot] = &leaving{namespace: s.Namespace, name: s.Name, revision: s.Revision}
		for k := range nc.Spec.Entries {
			e := &nc.Spec.Entries[k]
			if e.Depot == depot && e.Revision == s.Revision {
				m := newEntry(e, a.now())
				m.started, m.completed = s.StartedAt, s.CompletedAt
				m.settled = s.Phase == v1alpha1.PhasePartial
				a.memory.entries[depot] = m
			}
		}
	}
}

func newEntry(e *v1alpha1.CacheEntry, now time.Time) *entry {
	return &entry{uid: e.UID, revision: e.Revision, mode: e.Mode, pin: pin(e), nextCheck: now, freeThen: -1}
}

// entryOf returns what is remembered of it. A dataset that was made anew under its old name has another source, and is
// a new one; another revision of the same one keeps its source.
func (a *Agent) entryOf(e *v1alpha1.CacheEntry) *entry {
	m := a.memory.entries[e.Depot]
	switch {
	case m == nil || m.uid != e.UID:
		m = newEntry(e, a.now())
		a.memory.entries[e.Depot] = m
	case m.revision != e.Revision:
		fresh := newEntry(e, a.now())
		fresh.told, fresh.source, fresh.asked = m.told, m.source, false
		m = fresh
		a.memory.entries[e.Depot] = m
	case m.mode != e.Mode: // less may be enough
		m.mode = e.Mode
		m.retry.forgive()
	}
	if m.pin != pin(e) {
		m.pin, m.pinned = pin(e), false
	}
	a.memory.leaving[e.Depot] = &leaving{namespace: e.Namespace, name: e.Name, revision: e.Revision}
	return m
}

// round is one pass over the entries.
type round struct {
	agent   *Agent
	held    *view
	now     time.Time
	wait    time.Duration // until the next pass
	away    error         // the engine went meanwhile
	entries []v1alpha1.EntryStatus
}

func (r *round) within(d time.Duration) { r.wait = max(min(r.wait, d), tickSoon) }

// lost notes that the engine is away, and tells whether that is what err says.
func (r *round) lost(err error) bool {
	if engine.IsAway(err) {
		r.away = err
	}
	return engine.IsAway(err)
}

// settle makes the engine do what an entry asks for, and says how far it is.
func (r *round) settle(ctx context.Context, e *v1alpha1.CacheEntry) {
	s := v1alpha1.EntryStatus{
		Namespace: e.Namespace, Name: e.Name, Revision: e.Revision, Phase: v1alpha1.PhasePending, BytesTotal: e.Bytes,
	}
	if e.Depot != v1alpha1.DepotName(e.Namespace, e.Name) {
		fail(&s, newTrouble(v1alpha1.ReasonFailed, "the entry's depot is not that of its name", retryLong))
	} else if r.away == nil {
		r.step(ctx, &step{entry: e, m: r.agent.entryOf(e), held: r.held.of(e.Depot), status: &s})
	}
	r.entries = append(r.entries, s)
}

// step is what settling one entry works with.
type step struct {
	entry  *v1alpha1.CacheEntry
	m      *entry
	held   *engine.Dataset
	status *v1alpha1.EntryStatus
	source *trouble // why the engine may not get at the bucket
}

func (s *step) revision() *engine.Revision { return s.held.Find(s.entry.Revision) }

func (s *step) running() *engine.Pull {
	if s.held.Pull != nil && s.held.Pull.Running {
		return s.held.Pull
	}
	return nil
}

func (r *round) step(ctx context.Context, s *step) {
	s.status.InUse = inUse(s.held)
	s.source = r.tellSource(ctx, s)
	r.seeEnd(s)
	rev, running := s.revision(), s.running()
	switch {
	case rev != nil && rev.State == engine.StateComplete:
		r.whole(ctx, s)
	case running != nil && running.Revision != "" && running.Revision != s.entry.Revision:
		r.stop(ctx, s, running.Revision)
	case rev != nil && s.entry.Mode == v1alpha1.Partial &&
		(rev.State == engine.StatePartial || running != nil && s.m.settled):
		r.partly(ctx, s)
	case running != nil:
		r.moving(s, running)
	default:
		r.missing(ctx, s)
	}
	s.status.StartedAt, s.status.CompletedAt = s.m.started, s.m.completed
}

// tellSource says where the dataset comes from, when the engine does not know it or the keys are new.
func (r *round) tellSource(ctx context.Context, s *step) *trouble {
	source, trouble := r.agent.keys.source(ctx, s.entry, r.now)
	if source == nil || (s.m.told && s.m.source == *source) {
		return trouble
	}
	if err := r.agent.Engine.SetSource(ctx, s.entry.Depot, *source); err != nil {
		if !r.lost(err) {
			trouble = refusedTrouble(err)
		}
		return trouble
	}
	if s.m.told {
		r.agent.Log.Info("new keys", "dataset", s.entry.Depot)
	}
	s.m.told, s.m.source = true, *source
	s.m.retry.forgive() // new keys may open what the old ones did not
	return trouble
}

// seeEnd notes how a pull ended that was begun here.
func (r *round) seeEnd(s *step) {
	m, pull := s.m, s.held.Pull
	if !m.asked || s.running() != nil {
		return
	}
	m.asked = false
	wasCheck := m.check
	m.check = false
	if r.agent.memory.checking == s.entry.Depot {
		r.agent.memory.checking = ""
	}
	rev := s.revision()
	good := rev != nil && (rev.State == engine.StateComplete ||
		rev.State == engine.StatePartial && s.entry.Mode == v1alpha1.Partial)
	failed := pull != nil && pull.Error != nil
	switch {
	case good && !failed:
		m.trouble = nil
		m.retry.forgive()
		m.freeThen = r.held.depot.FreeBytes
		m.nextCheck = r.now.Add(jitter(max(r.agent.CheckEvery, time.Second)))
	case good && wasCheck: // it is there; only the bucket could not be asked
		m.nextCheck = r.now.Add(jitter(checkAgain))
	case failed:
		r.failed(s, pullTrouble(pull.Error))
	default:
		r.failed(s, newTrouble(v1alpha1.ReasonFailed, "the pull ended without all of it", retryMost))
	}
}

func (r *round) failed(s *step, t *trouble) {
	m := s.m
	m.trouble, m.troubleBytes, m.freeThen = t, here(s.held, s.entry.Revision), r.held.depot.FreeBytes
	m.retry.failed(r.now, t.most)
	r.agent.Log.Info("pull failed", "dataset", s.entry.Depot, "reason", t.reason, "message", t.message)
	if t.word == engine.ReasonCredentials {
		r.agent.keys.distrust(s.entry.Namespace, secretOf(s.entry))
		r.within(tickMoving)
	}
}

// begin asks for a pull.
func (r *round) begin(ctx context.Context, s *step, check bool) {
	e := s.entry
	err := r.agent.Engine.Pull(ctx, e.Depot, engine.PullRequest{
		Revision: e.Revision, Pin: pin(e), Partial: e.Mode == v1alpha1.Partial, Check: check,
	})
	switch {
	case err == nil:
		s.m.asked, s.m.check = true, check
		s.m.pinned = true
		r.within(tickSoon)
	case r.lost(err):
	case engine.IsConflict(err): // others come first
		if s.m.trouble == nil && s.status.Phase == v1alpha1.PhasePending {
			s.status.Reason, s.status.Message = v1alpha1.ReasonWaiting, err.Error()
		}
		r.within(tickMoving)
	default:
		r.failed(s, refusedTrouble(err))
	}
}

// pin tells whether the engine must not take it away for another one. What the spec wants whole would only be pulled
// again, and take the other one's place in turn; what is there in part makes way.
func pin(e *v1alpha1.CacheEntry) bool { return e.Pinned || e.Mode != v1alpha1.Partial }

// fail shows a trouble.
func fail(s *v1alpha1.EntryStatus, t *trouble) {
	s.Phase = v1alpha1.PhaseFailed
	explain(s, t)
}

func explain(s *v1alpha1.EntryStatus, t *trouble) {
	s.Reason, s.Message, s.NeededBytes, s.FreeBytes = t.reason, t.message, t.needed, t.free
}

// here is how much of a revision is there.
func here(d *engine.Dataset, revision string) int64 {
	if rev := d.Find(revision); rev != nil {
		return rev.BytesHere
	}
	return 0
}

func stamp(at **metav1.Time, now time.Time) {
	if *at == nil {
		t := metav1.NewTime(now.UTC().Truncate(time.Second))
		*at = &t
	}
}
