// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/stand"
)

func TestWhatTheSpecNamesComes(t *testing.T) {
	s := newScene(t, stand.MakeFiles(1, 20, 100_000))
	must(t, s.faultd.Rules(stand.Hold("bucket", 5)))
	s.cluster.spec(func(spec *v1alpha1.NodeCacheSpec) { spec.LimitBytes = 100 << 20 })
	s.want(s.entry(s.resolve()))
	s.eventually(func() error {
		got, _ := s.status()
		if got.Phase != v1alpha1.PhasePulling || got.BytesDone == 0 || got.BytesDone >= got.BytesTotal {
			return fmt.Errorf("no progress: %+v", got)
		}
		return nil
	})
	must(t, s.faultd.Rules())
	got := s.until(v1alpha1.PhaseReady, "")
	if got.BytesDone != s.files.Bytes() || got.StartedAt == nil || got.CompletedAt == nil {
		t.Errorf("status: %+v", got)
	}
	must(t, s.files.Same(s.node.Folder(depot, got.Revision)))
	_, node := s.status()
	if node.CapacityBytes != 100<<20 || node.UsedBytes < s.files.Bytes() || node.FreeBytes <= 0 ||
		node.FreeBytes > 100<<20-s.files.Bytes() || len(node.EngineInstance) != 16 || node.Path != s.node.Cache ||
		!meta.IsStatusConditionTrue(node.Conditions, v1alpha1.CondEngineReady) {
		t.Errorf("status: %+v", node)
	}
}

func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	s := newScene(t, stand.MakeFiles(2, 5, 1000))
	// Without a limit the file system says what is free, and everybody on this machine writes to that.
	s.cluster.spec(func(spec *v1alpha1.NodeCacheSpec) { spec.LimitBytes = 100 << 20 })
	s.want(s.entry(s.resolve()))
	s.until(v1alpha1.PhaseReady, "")
	s.settle()
	writes := s.cluster.written()
	s.start() // an agent that knows nothing finds everything in order
	s.settle()
	if got := s.cluster.written(); got != writes {
		t.Errorf("%d more writes", got-writes)
	}
}

// settle waits until an agent had time for a few passes.
func (s *scene) settle() {
	before, err := s.node.Engine().Info(s.t.Context())
	must(s.t, err)
	until := time.Now().Add(12 * time.Second)
	for time.Now().Before(until) {
		time.Sleep(100 * time.Millisecond)
	}
	after, err := s.node.Engine().Info(s.t.Context())
	must(s.t, err)
	if before.Instance != after.Instance {
		s.t.Fatal("the engine was started anew")
	}
}

// halfway begins a pull and returns when some of it is there, and cannot be all.
func (s *scene) halfway() {
	s.t.Helper()
	must(s.t, s.faultd.Rules(stand.Hold("bucket", 15)))
	s.want(s.entry(s.resolve()))
	s.eventually(func() error {
		if got, _ := s.status(); got.BytesDone < s.files.Bytes()/4 {
			return errNotYet
		}
		return nil
	})
}

// there are the files that have come so far.
func (s *scene) there() []string {
	s.t.Helper()
	got, _ := s.status()
	found, err := s.files.Found(s.node.Coming(depot, got.Revision))
	must(s.t, err)
	if len(found) == 0 || len(found) == len(s.files) {
		s.t.Fatalf("%d files are there", len(found))
	}
	return found
}

// finished asks that the pull came to its end and fetched none of what was there before.
func (s *scene) finished(before []string) {
	s.t.Helper()
	got := s.until(v1alpha1.PhaseReady, "")
	must(s.t, s.files.Same(s.node.Folder(depot, got.Revision)))
	asked, err := s.faultd.Asked("bucket")
	must(s.t, err)
	for _, key := range before {
		if asked["photos/"+key] {
			s.t.Errorf("%s was fetched again", key)
		}
	}
	if len(asked) == 0 {
		s.t.Error("nothing was asked for")
	}
}

func TestAPullGoesOnWhenTheEngineWasKilled(t *testing.T) {
	s := newScene(t, stand.MakeFiles(3, 40, 100_000))
	s.halfway()
	before := s.there()
	s.node.Daemon.Kill()
	must(t, s.faultd.Rules())
	must(t, s.faultd.Reset())
	must(t, s.node.StartDaemon(t.Context()))
	s.finished(before)
}

func TestAPullGoesOnWhenTheAgentWasReplaced(t *testing.T) {
	s := newScene(t, stand.MakeFiles(4, 40, 100_000))
	s.halfway()
	before := s.there()
	must(t, s.faultd.Reset())
	s.start()
	must(t, s.faultd.Rules())
	s.finished(before)
}

func TestABucketThatRefusesIsTriedAgain(t *testing.T) {
	s := newScene(t, stand.MakeFiles(5, 5, 1000))
	found := s.resolve()
	must(t, s.faultd.Rules(stand.Refuse(503)))
	s.want(s.entry(found))
	s.until(v1alpha1.PhaseFailed, v1alpha1.ReasonBucketUnreachable)
	must(t, s.faultd.Rules())
	s.until(v1alpha1.PhaseReady, "")
	must(t, s.faultd.Rules(stand.Refuse(503))) // what is there does not need the bucket
	s.start()
	s.settle()
	s.until(v1alpha1.PhaseReady, "")
}

func TestAnObjectThatChangesInMidPullIsNotMixed(t *testing.T) {
	s := newScene(t, stand.MakeFiles(6, 20, 50_000))
	found := s.resolve()
	// The last one of twenty: it is not asked for before some of the first sixteen are there.
	must(t, s.faultd.Rules(stand.ReplaceAtFirstGet("bucket", "photos/class02/00017.bin")))
	s.want(s.entry(found))
	s.eventually(func() error {
		got, _ := s.status()
		if got.Phase != v1alpha1.PhaseFailed ||
			got.Reason != v1alpha1.ReasonRevisionGone && got.Reason != v1alpha1.ReasonChanging {
			return fmt.Errorf("it is %q, %q", got.Phase, got.Reason)
		}
		return nil
	})
	turned := s.files["class02/00017.bin"]
	for i := range turned {
		turned[i] ^= 0xff
	}
	must(t, s.faultd.Rules())
	s.want(s.entry(s.resolve()))
	got := s.until(v1alpha1.PhaseReady, "")
	must(t, s.files.Same(s.node.Folder(depot, got.Revision)))
}

func TestADiskThatIsTooSmallSaysSoAndHoldsAPart(t *testing.T) {
	s := newScene(t, stand.MakeFiles(7, 30, 100_000))
	limit := s.files.Bytes() / 3
	s.cluster.spec(func(spec *v1alpha1.NodeCacheSpec) { spec.LimitBytes = limit })
	e := s.entry(s.resolve())
	s.want(e)
	got := s.until(v1alpha1.PhaseFailed, v1alpha1.ReasonInsufficientSpace)
	if got.NeededBytes < s.files.Bytes() || got.FreeBytes <= 0 || got.FreeBytes > limit {
		t.Errorf("needed %d, free %d", got.NeededBytes, got.FreeBytes)
	}
	e.Mode = v1alpha1.Partial
	s.want(e)
	got = s.until(v1alpha1.PhasePartial, "")
	if got.BytesDone < limit/2 || got.BytesDone > limit || got.BytesTotal != s.files.Bytes() {
		t.Errorf("%d of %d bytes, limit %d", got.BytesDone, got.BytesTotal, limit)
	}
	s.cluster.spec(func(spec *v1alpha1.NodeCacheSpec) { spec.LimitBytes = 10 * s.files.Bytes() })
	got = s.until(v1alpha1.PhaseReady, "")
	must(t, s.files.Same(s.node.Folder(depot, got.Revision)))
}

func TestASecretThatWasRotatedIsUsed(t *testing.T) {
	s := newScene(t, stand.MakeFiles(8, 5, 1000))
	must(t, s.faultd.Keys("old", "hush"))
	e := s.entry(s.resolve("old", "hush"))
	e.Source.S3.SecretRef = &v1alpha1.SecretRef{Name: "keys"}
	secret := func(access string) {
		s.cluster.lock.Lock()
		defer s.cluster.lock.Unlock()
		s.cluster.secrets["team/keys"] = &corev1.Secret{Data: map[string][]byte{
			"AWS_ACCESS_KEY_ID": []byte(access), "AWS_SECRET_ACCESS_KEY": []byte("hush")}}
	}
	s.want(e)
	s.until(v1alpha1.PhaseFailed, v1alpha1.ReasonSecretNotFound)
	secret("wrong")
	s.until(v1alpha1.PhaseFailed, v1alpha1.ReasonCredentialsInvalid)
	must(t, s.faultd.Keys("new", "hush"))
	secret("new")
	got := s.until(v1alpha1.PhaseReady, "")
	must(t, s.files.Same(s.node.Folder(depot, got.Revision)))
}

func TestWhatIsNotWantedGoesWhenNobodyReadsIt(t *testing.T) {
	s := newScene(t, stand.MakeFiles(9, 5, 1000))
	s.want(s.entry(s.resolve()))
	got := s.until(v1alpha1.PhaseReady, "")
	hold, err := s.node.Use(depot, got.Revision)
	must(t, err)
	s.eventually(func() error {
		if got, _ := s.status(); !got.InUse {
			return errNotYet
		}
		return nil
	})
	s.want()
	s.until(v1alpha1.PhaseRemoving, v1alpha1.ReasonInUse)
	must(t, s.files.Same(s.node.Folder(depot, got.Revision)))
	must(t, hold.Close())
	s.eventually(func() error {
		if got, _ := s.status(); got.Phase != "" {
			return fmt.Errorf("it is %s (%s)", got.Phase, got.Message)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(s.node.Cache, "datasets", depot)); !os.IsNotExist(err) {
		t.Errorf("its folder is there: %v", err)
	}
	_, node := s.status()
	if node.UsedBytes != 0 {
		t.Errorf("%d bytes are taken", node.UsedBytes)
	}
}

func TestWhatIsDamagedIsRepairedAtStart(t *testing.T) {
	s := newScene(t, stand.MakeFiles(10, 10, 20_000))
	s.want(s.entry(s.resolve()))
	got := s.until(v1alpha1.PhaseReady, "")
	folder := s.node.Folder(depot, got.Revision)
	s.stop()
	must(t, os.Remove(filepath.Join(folder, "class00/00000.bin")))
	damaged := filepath.Join(folder, "class01/00001.bin")
	must(t, os.Chmod(damaged, 0o644))
	file, err := os.OpenFile(damaged, os.O_WRONLY, 0)
	must(t, err)
	_, err = file.WriteAt([]byte("damage"), 10_000)
	must(t, err)
	must(t, file.Close())
	s.start()
	s.eventually(func() error { return s.files.Same(folder) })
	s.until(v1alpha1.PhaseReady, "")
}

// What is wanted whole is pinned in the engine, and no longer when a part would be enough.
func TestAPinIsTakenAway(t *testing.T) {
	s := newScene(t, stand.MakeFiles(9, 5, 1000))
	e := s.entry(s.resolve())
	is := func(want bool) func() error {
		return func() error {
			d, err := s.node.Engine().Dataset(t.Context(), depot)
			if err == nil && (len(d.Revisions) != 1 || d.Revisions[0].Pinned != want) {
				err = fmt.Errorf("not pinned %v: %+v", want, d.Revisions)
			}
			return err
		}
	}
	s.want(e)
	s.until(v1alpha1.PhaseReady, "")
	s.eventually(is(true))
	e.Mode = v1alpha1.Partial
	s.want(e)
	s.eventually(is(false))
	e.Pinned = true
	s.want(e)
	s.eventually(is(true))
	e.Pinned = false
	s.want(e)
	s.eventually(is(false))
	s.until(v1alpha1.PhaseReady, "")
}
