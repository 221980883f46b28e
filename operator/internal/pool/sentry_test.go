// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"
)

const patience = 40 * time.Second

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// looks lets time pass until the agent is missed, as the controller does, and returns how long that took.
func looks(t *testing.T, s *sentry, heard map[string]time.Time, now time.Time) time.Duration {
	t.Helper()
	begun := now
	for range 20 {
		s.begin(heard, now)
		if s.missed("node") {
			return now.Sub(begun)
		}
		if s.after <= 0 {
			t.Fatal("nobody looks again")
		}
		now = now.Add(s.after)
	}
	return -1
}

func TestAnAgentIsMissedAfterFortySeconds(t *testing.T) {
	if took := looks(t, &sentry{patience: patience}, map[string]time.Time{"node": noon}, noon); took != patience {
		t.Errorf("missed after %s", took)
	}
	ahead := map[string]time.Time{"node": noon.Add(5 * time.Second)} // its clock is
	if took := looks(t, &sentry{patience: patience}, ahead, noon); took != patience+5*time.Second {
		t.Errorf("missed after %s", took)
	}
}

// Nobody could work for a while: all leases are old, and who lives has a moment to renew its own.
func TestAnOldLeaseIsLookedAtTwice(t *testing.T) {
	s := &sentry{patience: patience}
	late := noon.Add(10 * time.Minute)
	if took := looks(t, s, map[string]time.Time{"node": noon}, late); took != secondLook {
		t.Errorf("missed after %s", took)
	}
	s = &sentry{patience: patience}
	s.begin(map[string]time.Time{"node": noon}, late)
	s.missed("node")
	late = late.Add(time.Hour)
	s.begin(map[string]time.Time{"node": noon.Add(time.Second)}, late) // it was heard of in between
	if s.missed("node") {
		t.Error("missed at the first look")
	}
}

func TestAnAgentWithoutALeaseIsNotMissed(t *testing.T) {
	s := &sentry{patience: patience}
	s.begin(nil, noon)
	if s.missed("node") || s.after != 0 {
		t.Errorf("missed, or looked at in %s", s.after)
	}
}
