// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"
)

func TestAnAgentIsMissedAfterFortySeconds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &sentry{now: now, heard: map[string]time.Time{
		"new": now.Add(-3 * time.Second), "late": now.Add(-39 * time.Second), "gone": now.Add(-40 * time.Second),
		"ahead": now.Add(5 * time.Second), // its clock is
	}}
	for node, want := range map[string]bool{"new": false, "late": false, "gone": true, "ahead": false, "never": false} {
		if _, missed := s.missed(node); missed != want {
			t.Errorf("%s: missed %v", node, missed)
		}
	}
	if s.after != time.Second { // when "late" has to be looked at
		t.Errorf("next look after %s", s.after)
	}
}
