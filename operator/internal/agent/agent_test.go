// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

func TestAnEntryIsPulledAndReported(t *testing.T) {
	s := newScene(t, photos())
	s.passes(1)
	want := "limits 5000 90 80\nsource " + depot + " s3://bucket/photos/ \npull " + depot +
		" a pin=true partial=false check=false"
	if got := strings.Join(s.engine.said, "\n"); got != want {
		t.Errorf("said\n%s\nwant\n%s", got, want)
	}
	s.phase("photos", v1alpha1.PhasePulling, "")
	s.engine.data[depot].Pull.BytesDone = 400
	s.wait(2 * time.Second)
	if got := s.status("photos"); got.BytesDone != 400 || got.BytesTotal != 1000 || got.StartedAt == nil {
		t.Errorf("in between: %+v", got)
	}
	s.engine.done(depot, 1000)
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhaseReady, "")
	if got := s.status("photos"); got.BytesDone != 1000 || got.CompletedAt == nil {
		t.Errorf("at the end: %+v", got)
	}
	st := s.cluster.nc.Status
	if st.CapacityBytes != 5000 || st.UsedBytes != 1000 || st.FreeBytes != s.engine.free || st.Path != "/cache" ||
		st.EngineInstance != "1" || st.EngineProtocol != 3 || st.Capacity != "4.9 KiB" || st.ObservedGeneration != 1 {
		t.Errorf("status: %+v", st)
	}
	if !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.CondEngineReady) {
		t.Errorf("conditions: %+v", st.Conditions)
	}
}

func TestWhatIsSettledIsLeftAlone(t *testing.T) {
	s := newScene(t, photos())
	s.passes(2)
	s.engine.done(depot, 1000)
	s.wait(10 * time.Second)
	writes, said := s.cluster.writes, len(s.engine.said)
	s.wait(time.Minute)
	s.restart()
	s.wait(time.Minute)
	if s.cluster.writes != writes {
		t.Errorf("%d more writes", s.cluster.writes-writes)
	}
	// A new agent cannot know what the engine was told, so it says limits and sources again, but begins no pull.
	if got := s.engine.said[said:]; len(got) != 2 || s.engine.count("pull") != 1 {
		t.Errorf("said %v", got)
	}
}

func TestProgressIsWrittenOnceASecond(t *testing.T) {
	s := newScene(t, photos())
	s.passes(1)
	begun, writes := s.clock, s.cluster.writes
	for s.clock.Before(begun.Add(20 * time.Second)) {
		s.engine.data[depot].Pull.BytesDone++
		s.agent.pass(t.Context())
		s.clock = s.clock.Add(100 * time.Millisecond)
	}
	if got := s.cluster.writes - writes; got > 21 || got < 15 {
		t.Errorf("%d writes in 20 seconds", got)
	}
}

func TestNoSpaceSaysNeededAndFree(t *testing.T) {
	s := newScene(t, photos())
	s.passes(1)
	s.engine.fail(depot, engine.PullError{Reason: engine.ReasonNoSpace, Message: "full", NeededBytes: 1000, FreeBytes: 7})
	s.clock = s.clock.Add(time.Second)
	s.passes(1)
	s.phase("photos", v1alpha1.PhaseFailed, v1alpha1.ReasonInsufficientSpace)
	if got := s.status("photos"); got.NeededBytes != 1000 || got.FreeBytes != 7 || got.Message != "full" {
		t.Errorf("status: %+v", got)
	}
	// The next try is an hour away, unless something else goes or the limit grows.
	failAgain := func() int {
		for !s.engine.data[depot].Pull.Running {
			s.passes(1)
		}
		s.engine.fail(depot, engine.PullError{Reason: engine.ReasonNoSpace, Message: "full", NeededBytes: 1000, FreeBytes: 7})
		s.agent.pass(t.Context())
		s.agent.memory.entries[depot].retry.next = s.clock.Add(time.Hour)
		s.wait(10 * time.Second)
		return s.engine.count("pull")
	}
	pulls := failAgain()
	s.engine.free++
	s.passes(1)
	if got := s.engine.count("pull"); got != pulls+1 {
		t.Errorf("%d pulls after something went, %d before", got, pulls)
	}
	pulls = failAgain()
	s.cluster.nc.Spec.LimitBytes = 50000
	s.passes(1)
	if got := s.engine.count("pull"); got != pulls+1 {
		t.Errorf("%d pulls after the limit grew, %d before", got, pulls)
	}
	s.phase("photos", v1alpha1.PhaseFailed, v1alpha1.ReasonInsufficientSpace)
	s.engine.data[depot].Pull.BytesDone = 1
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhasePulling, "")
}

func TestEveryWordOfTheEngineHasAReason(t *testing.T) {
	for word, reason := range map[string]string{
		engine.ReasonCredentials: v1alpha1.ReasonCredentialsInvalid,
		engine.ReasonNotFound:    v1alpha1.ReasonBucketNotFound,
		engine.ReasonUnreachable: v1alpha1.ReasonBucketUnreachable,
		engine.ReasonChanging:    v1alpha1.ReasonChanging,
		engine.ReasonGone:        v1alpha1.ReasonRevisionGone,
		engine.ReasonEmpty:       v1alpha1.ReasonEmpty,
		engine.ReasonDamaged:     v1alpha1.ReasonFailed,
		engine.ReasonIO:          v1alpha1.ReasonFailed,
		engine.ReasonOther:       v1alpha1.ReasonFailed,
		"a word of next year":    v1alpha1.ReasonFailed,
	} {
		s := newScene(t, photos())
		s.passes(1)
		s.engine.fail(depot, engine.PullError{Reason: word, Message: "why"})
		s.wait(time.Second)
		s.phase("photos", v1alpha1.PhaseFailed, reason)
	}
}

func TestAFailedPullIsTriedAgainLaterEachTime(t *testing.T) {
	s := newScene(t, photos())
	for range 5 * 60 {
		s.clock = s.clock.Add(time.Second)
		s.agent.pass(t.Context())
		if p := s.engine.data[depot].Pull; p.Running {
			s.engine.fail(depot, engine.PullError{Reason: engine.ReasonUnreachable, Message: "503"})
		}
	}
	if got := s.engine.count("pull"); got < 20 || got > 32 {
		t.Errorf("%d pulls in five minutes", got)
	}
}

func TestAPullThatMustWaitIsPending(t *testing.T) {
	s := newScene(t, photos())
	s.engine.refuse = &engine.RefusedError{Status: http.StatusConflict, Message: "eight pulls run already"}
	s.passes(1)
	s.phase("photos", v1alpha1.PhasePending, v1alpha1.ReasonWaiting)
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhasePulling, "")
}

func TestAnEngineThatWasStartedAnewIsToldEverything(t *testing.T) {
	s := newScene(t, photos())
	s.passes(2)
	s.engine.instance = "2"
	s.engine.data[depot].Pull = nil
	s.engine.data[depot].Revisions[0].State = engine.StateIncomplete
	s.engine.said = nil
	if !s.agent.engineChanged(t.Context()) {
		t.Error("it was not noticed")
	}
	s.passes(1)
	if s.engine.count("limits") != 1 || s.engine.count("source") != 1 || s.engine.count("pull") != 1 {
		t.Errorf("said %v", s.engine.said)
	}
	s.wait(2 * time.Second)
	if got := s.cluster.nc.Status.EngineInstance; got != "2" {
		t.Errorf("instance %s", got)
	}
}

func TestAnEngineThatIsAwayMakesEntriesPending(t *testing.T) {
	s := newScene(t, photos())
	s.passes(2)
	s.engine.done(depot, 1000)
	s.wait(3 * time.Second)
	writes := s.cluster.writes
	s.engine.away = true
	s.wait(2 * time.Second)
	if s.cluster.writes != writes {
		t.Error("an engine that is replaced was called away")
	}
	s.wait(5 * time.Second)
	s.phase("photos", v1alpha1.PhasePending, v1alpha1.ReasonWaiting)
	st := s.cluster.nc.Status
	if !meta.IsStatusConditionFalse(st.Conditions, v1alpha1.CondEngineReady) || st.EngineDownSince == "" {
		t.Errorf("status: %+v", st)
	}
	writes = s.cluster.writes
	s.wait(time.Minute)
	if s.cluster.writes != writes || s.agent.Ready() {
		t.Errorf("%d more writes", s.cluster.writes-writes)
	}
	s.engine.away = false
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhaseReady, "")
	if st := s.cluster.nc.Status; st.EngineDownSince != "" || !s.agent.Ready() {
		t.Errorf("status: %+v", st)
	}
}

func TestAStatusThatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	s := newScene(t, photos())
	s.cluster.fails = errors.New("the API server is away")
	s.wait(5 * time.Second)
	s.engine.done(depot, 1000)
	s.wait(5 * time.Second)
	s.cluster.fails = nil
	s.wait(3 * time.Second)
	s.phase("photos", v1alpha1.PhaseReady, "")
}

func TestWithoutANodeCacheEverythingStays(t *testing.T) {
	s := newScene(t, photos())
	s.passes(1)
	s.engine.done(depot, 1000)
	s.passes(1)
	nc := s.cluster.nc
	s.cluster.nc = nil
	s.wait(10 * time.Minute)
	nc = nc.DeepCopy()
	nc.UID, nc.Status, nc.Spec.Entries = "uid-2", v1alpha1.NodeCacheStatus{}, nil
	s.cluster.nc = nc
	s.wait(10 * time.Second) // the operator has not said again what the node is to hold
	if s.engine.count("evict") != 0 {
		t.Fatalf("said %v", s.engine.said)
	}
	nc.Spec.Entries = append(nc.Spec.Entries, photos())
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhaseReady, "")
	if got := s.engine.count("pull"); got != 1 {
		t.Errorf("%d pulls", got)
	}
}

func TestWhatNobodyNamesGoesAfterAWhile(t *testing.T) {
	s := newScene(t)
	s.engine.data["stray-00000000"] = &engine.Dataset{Revisions: []engine.Revision{{Revision: revA}}}
	s.wait(10 * time.Second)
	if s.engine.count("evict") != 0 {
		t.Error("it had no time")
	}
	s.wait(20 * time.Second)
	if s.engine.data["stray-00000000"] != nil || len(s.cluster.nc.Status.Entries) != 0 {
		t.Errorf("it is there: %+v", s.cluster.nc.Status.Entries)
	}
}

func TestADepotNameThatIsNotTheEntrysIsRefused(t *testing.T) {
	s := newScene(t, photos(func(e *v1alpha1.CacheEntry) { e.Depot = "../../etc" }))
	s.wait(5 * time.Second)
	s.phase("photos", v1alpha1.PhaseFailed, v1alpha1.ReasonFailed)
	if len(s.engine.said) != 1 { // the limits
		t.Errorf("said %v", s.engine.said)
	}
}

func TestTheLeaseIsRenewedInTime(t *testing.T) {
	s := newScene(t, photos())
	begun := s.clock
	s.wait(5 * time.Minute)
	if len(s.cluster.beats) == 0 || !s.cluster.beats[0].Equal(begun) {
		t.Fatalf("beats %v", s.cluster.beats)
	}
	for i := 1; i < len(s.cluster.beats); i++ {
		gap := s.cluster.beats[i].Sub(s.cluster.beats[i-1])
		if gap < v1alpha1.HeartbeatSeconds*time.Second || gap > v1alpha1.LeaseSeconds*time.Second/2 {
			t.Errorf("%s between two", gap)
		}
	}
	s.engine.away = true // an engine that is away is said in the status: the agent lives
	beats := len(s.cluster.beats)
	s.wait(time.Minute)
	if len(s.cluster.beats) < beats+3 {
		t.Errorf("%d beats in a minute", len(s.cluster.beats)-beats)
	}
}

// What the operator says of an agent that is gone is taken back by the next one.
func TestAnAgentThatIsBackSaysSo(t *testing.T) {
	s := ready(t, photos())
	meta.SetStatusCondition(&s.cluster.nc.Status.Conditions, metav1.Condition{
		Type: v1alpha1.CondEngineReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonAgentGone})
	s.cluster.deaf = errors.New("forbidden")
	s.restart()
	s.wait(time.Minute)
	if meta.IsStatusConditionTrue(s.cluster.nc.Status.Conditions, v1alpha1.CondEngineReady) {
		t.Error("it was written while the lease was not")
	}
	s.cluster.deaf = nil
	s.wait(3 * time.Second)
	if !meta.IsStatusConditionTrue(s.cluster.nc.Status.Conditions, v1alpha1.CondEngineReady) {
		t.Errorf("conditions: %+v", s.cluster.nc.Status.Conditions)
	}
}
