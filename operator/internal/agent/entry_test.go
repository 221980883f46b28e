// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

// ready is a scene with the entry pulled.
func ready(t *testing.T, e v1alpha1.CacheEntry) *scene {
	s := newScene(t, e)
	s.secret("keys", "one")
	s.passes(2)
	s.engine.done(depot, 1000)
	s.wait(3 * time.Second)
	s.phase("photos", v1alpha1.PhaseReady, "")
	s.engine.said = nil
	return s
}

func TestKeysComeFromTheSecret(t *testing.T) {
	s := newScene(t, photos(withSecret))
	s.wait(3 * time.Second)
	s.phase("photos", v1alpha1.PhaseFailed, v1alpha1.ReasonSecretNotFound)
	if s.engine.count("source") != 0 || s.engine.count("pull") != 0 {
		t.Errorf("said %v", s.engine.said)
	}
	s.secret("keys", "one")
	delete(s.cluster.secrets["team/keys"].Data, "AWS_SECRET_ACCESS_KEY")
	s.wait(4 * time.Second)
	s.phase("photos", v1alpha1.PhaseFailed, v1alpha1.ReasonSecretIncomplete)
	s.secret("keys", "one")
	s.wait(4 * time.Second)
	s.phase("photos", v1alpha1.PhasePulling, "")
	if got := s.engine.sources[depot]; got.AccessKey != "one" || got.SecretKey != "hush" {
		t.Errorf("access %q", got.AccessKey)
	}
}

func TestASecretOfAnotherNamespaceIsNotRead(t *testing.T) {
	s := newScene(t, photos(withSecret))
	s.cluster.secrets["other/keys"] = s.cluster.secrets["team/keys"]
	s.secret("keys", "one")
	s.cluster.secrets["other/keys"], s.cluster.secrets["team/keys"] = s.cluster.secrets["team/keys"], nil
	s.wait(5 * time.Second)
	s.phase("photos", v1alpha1.PhaseFailed, v1alpha1.ReasonSecretNotFound)
}

func TestARotatedSecretIsToldWithinSeconds(t *testing.T) {
	s := ready(t, photos(withSecret))
	reads := s.cluster.reads
	s.secret("keys", "two")
	s.wait(16 * time.Second)
	if got := s.engine.sources[depot].AccessKey; got != "two" {
		t.Errorf("the engine has %q", got)
	}
	if got := s.cluster.reads - reads; got > 3 {
		t.Errorf("the secret was read %d times in 16 seconds", got)
	}
	s.cluster.secrets["team/keys"] = nil // made anew: jobs go on with what is known
	s.wait(16 * time.Second)
	s.phase("photos", v1alpha1.PhaseReady, v1alpha1.ReasonSecretNotFound)
	if s.engine.count("drop") != 0 || s.engine.sources[depot].AccessKey != "two" {
		t.Error("the keys were taken away")
	}
}

func TestRefusedKeysAreReadAgainAtOnce(t *testing.T) {
	s := newScene(t, photos(withSecret))
	s.secret("keys", "old")
	s.passes(1)
	s.clock = s.clock.Add(2 * time.Second)
	s.secret("keys", "new")
	s.engine.fail(depot, engine.PullError{Reason: engine.ReasonCredentials, Message: "403"})
	begun := s.clock
	for s.engine.sources[depot].AccessKey != "new" && s.clock.Sub(begun) < time.Minute {
		s.passes(1)
	}
	if took := s.clock.Sub(begun); took > 3*time.Second || !s.engine.data[depot].Pull.Running {
		t.Errorf("it took %v", took)
	}
}

func TestADatasetMadeAnewIsANewSource(t *testing.T) {
	s := ready(t, photos())
	s.cluster.nc.Spec.Entries[0] = photos(func(e *v1alpha1.CacheEntry) { e.UID = "u3" })
	s.wait(time.Second)
	if s.engine.count("source") != 1 {
		t.Errorf("said %v", s.engine.said)
	}
	s.cluster.nc.Spec.Entries[0] = photos(otherUID, otherBucket, secondRev)
	s.wait(time.Second)
	if s.engine.sources[depot].URL != "s3://other/photos/" || s.engine.count("pull "+depot+" b") != 1 {
		t.Errorf("said %v", s.engine.said)
	}
	if s.engine.count("drop") != 0 {
		t.Error("its source was dropped after it was told")
	}
}

func TestAnOldRevisionStaysUntilTheNewOneIsThereAndNobodyReadsIt(t *testing.T) {
	s := ready(t, photos())
	s.cluster.nc.Spec.Entries[0] = photos(secondRev)
	s.wait(5 * time.Minute)
	if s.engine.count("evict") != 0 {
		t.Fatalf("said %v", s.engine.said)
	}
	s.phase("photos", v1alpha1.PhasePulling, "")
	s.engine.data[depot].Find(revA).InUse = true
	s.engine.done(depot, 1000)
	s.wait(time.Minute)
	s.phase("photos", v1alpha1.PhaseReady, "")
	s.wait(10 * time.Minute)
	if s.engine.data[depot].Find(revA) == nil {
		t.Error("it went while it was read")
	}
	s.engine.data[depot].Find(revA).InUse = false
	s.wait(time.Minute)
	if s.engine.data[depot].Find(revA) != nil || s.engine.data[depot].Find(revB) == nil {
		t.Errorf("revisions: %+v", s.engine.data[depot].Revisions)
	}
}

func TestAPodThatHasNotOpenedTheOldRevisionYetHasAWhile(t *testing.T) {
	s := ready(t, photos())
	s.cluster.nc.Spec.Entries[0] = photos(secondRev)
	s.passes(2)
	s.engine.done(depot, 1000)
	s.wait(time.Minute)
	if s.engine.data[depot].Find(revA) == nil {
		t.Error("it had no time")
	}
	s.wait(2 * time.Minute)
	if s.engine.data[depot].Find(revA) != nil {
		t.Errorf("said %v", s.engine.said)
	}
}

func TestAPullOfAnotherRevisionIsStopped(t *testing.T) {
	s := newScene(t, photos())
	s.passes(2)
	s.cluster.nc.Spec.Entries[0] = photos(secondRev)
	s.passes(1)
	if s.engine.count("evict "+depot+" a") != 1 {
		t.Errorf("said %v", s.engine.said)
	}
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhasePulling, "")
	if got := s.status("photos").Revision; got != revB {
		t.Errorf("revision %s", got)
	}
}

func TestWhatFitsInPartIsPartial(t *testing.T) {
	s := newScene(t, photos(partially))
	s.passes(1)
	if s.engine.count("pull "+depot+" a pin=false partial=true") != 1 {
		t.Errorf("said %v", s.engine.said)
	}
	s.engine.free = 50
	s.engine.done(depot, 600)
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhasePartial, "")
	if got := s.status("photos"); got.BytesDone != 600 || got.BytesTotal != 1000 {
		t.Errorf("status: %+v", got)
	}
	writes := s.cluster.writes
	s.wait(5 * time.Minute)
	if s.engine.count("pull") != 1 || s.cluster.writes != writes {
		t.Errorf("said %v", s.engine.said)
	}
	s.engine.free = 500 // something else went
	s.wait(time.Minute)
	if s.engine.count("pull") != 2 {
		t.Errorf("said %v", s.engine.said)
	}
	s.phase("photos", v1alpha1.PhasePartial, "") // jobs have it all the while
	s.engine.done(depot, 1000)
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhaseReady, "")
}

func TestAPartIsFoundInOrderByANewAgent(t *testing.T) {
	s := newScene(t, photos(partially))
	s.passes(1)
	s.engine.done(depot, 600)
	s.wait(10 * time.Second)
	s.phase("photos", v1alpha1.PhasePartial, "")
	writes := s.cluster.writes
	s.restart()
	s.agent.CheckEvery = time.Hour
	s.wait(10 * time.Second)
	if s.engine.count("pull "+depot+" a pin=false partial=true check=true") != 1 || s.engine.count("pull") != 2 {
		t.Errorf("said %v", s.engine.said)
	}
	s.engine.done(depot, 600)
	s.wait(10 * time.Second)
	if s.cluster.writes != writes {
		t.Errorf("%d more writes", s.cluster.writes-writes)
	}
}

func TestWhatDoesNotFitIsTriedAtOnceWhenAPartIsEnough(t *testing.T) {
	s := newScene(t, photos())
	s.passes(1)
	s.engine.fail(depot, engine.PullError{Reason: engine.ReasonNoSpace, Message: "full", NeededBytes: 1000, FreeBytes: 7})
	s.passes(1)
	s.agent.memory.entries[depot].retry.next = s.clock.Add(time.Hour)
	s.cluster.nc.Spec.Entries[0] = photos(partially)
	s.passes(1)
	if s.engine.count("pull "+depot+" a pin=false partial=true") != 1 {
		t.Errorf("said %v", s.engine.said)
	}
}

// A pin follows the entry both ways, of what is there whole and of what is there in part, and is said once.
func TestAPinFollowsTheEntry(t *testing.T) {
	for _, here := range []int64{1000, 600} {
		s := newScene(t, photos(partially))
		s.passes(1)
		s.engine.done(depot, here)
		s.wait(10 * time.Second)
		for i, change := range []func(*v1alpha1.CacheEntry){pinned, partially, pinned, partially} {
			s.cluster.nc.Spec.Entries[0] = photos(partially, change)
			s.wait(10 * time.Second)
			if got := s.engine.data[depot].Revisions[0].Pinned; got != (i%2 == 0) || s.engine.count("pull") != 2+i {
				t.Fatalf("%d bytes, change %d: pinned %v; said %v", here, i, got, s.engine.said)
			}
			s.engine.done(depot, here)
			s.wait(10 * time.Second)
		}
		writes := s.cluster.writes
		s.restart()
		s.wait(time.Minute)
		if s.engine.count("pull") != 5 || s.cluster.writes != writes {
			t.Errorf("%d bytes: said %v", here, s.engine.said)
		}
	}
}

func TestWhatIsNoLongerWantedGoes(t *testing.T) {
	s := ready(t, photos())
	s.engine.data[depot].Revisions[0].InUse = true
	s.cluster.nc.Spec.Entries = nil
	s.wait(3 * time.Second)
	s.phase("photos", v1alpha1.PhaseRemoving, v1alpha1.ReasonInUse)
	writes := s.cluster.writes
	s.wait(time.Minute)
	if s.cluster.writes != writes || s.engine.count("drop") != 0 {
		t.Errorf("%d more writes; said %v", s.cluster.writes-writes, s.engine.said)
	}
	s.engine.data[depot].Revisions[0].InUse = false
	s.wait(5 * time.Second)
	if s.engine.data[depot] != nil || s.engine.count("drop") != 1 || len(s.cluster.nc.Status.Entries) != 0 {
		t.Errorf("said %v; status %+v", s.engine.said, s.cluster.nc.Status.Entries)
	}
}

func TestWhatWasRemovedWhileTheAgentWasAwayGoesAtOnce(t *testing.T) {
	s := ready(t, photos())
	s.cluster.nc.Spec.Entries = nil
	s.restart()
	s.wait(3 * time.Second)
	if s.engine.data[depot] != nil || len(s.cluster.nc.Status.Entries) != 0 {
		t.Errorf("said %v; status %+v", s.engine.said, s.cluster.nc.Status.Entries)
	}
}

func TestAnAgentThatWasStartedAnewGoesOnWithARunningPull(t *testing.T) {
	s := newScene(t, photos())
	s.passes(2)
	started := s.status("photos").StartedAt
	s.clock = s.clock.Add(time.Minute)
	s.restart()
	s.engine.data[depot].Pull.BytesDone = 500
	s.wait(2 * time.Second)
	s.phase("photos", v1alpha1.PhasePulling, "")
	if got := s.status("photos"); got.BytesDone != 500 || !got.StartedAt.Equal(started) || s.engine.count("pull") != 1 {
		t.Errorf("status %+v; said %v", got, s.engine.said)
	}
	s.engine.fail(depot, engine.PullError{Reason: engine.ReasonIO, Message: "disk"})
	s.wait(time.Second)
	s.phase("photos", v1alpha1.PhaseFailed, v1alpha1.ReasonFailed)
}

func TestWhatIsThereIsReadAgainAtStartAndNowAndThen(t *testing.T) {
	s := ready(t, photos())
	s.restart()
	s.agent.CheckEvery = time.Hour
	s.wait(10 * time.Second)
	check := "pull " + depot + " a pin=true partial=false check=true"
	if s.engine.count(check) != 1 {
		t.Fatalf("said %v", s.engine.said)
	}
	s.phase("photos", v1alpha1.PhaseReady, "") // while it is read
	s.engine.data[depot].Pull.Running = false
	s.wait(40 * time.Minute)
	if s.engine.count(check) != 1 {
		t.Errorf("said %v", s.engine.said)
	}
	s.wait(25 * time.Minute)
	if s.engine.count(check) != 2 {
		t.Errorf("said %v", s.engine.said)
	}
	s.engine.data[depot].Pull = &engine.Pull{Error: &engine.PullError{Reason: engine.ReasonGone, Message: "gone"}}
	s.wait(5 * time.Minute) // it is all there, whatever the bucket holds by now
	s.phase("photos", v1alpha1.PhaseReady, "")
	if s.engine.count(check) != 2 {
		t.Errorf("said %v", s.engine.said)
	}
}
