// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/internal/source"
)

// lists is an engine that lists one bucket; calls are written down.
type lists struct {
	calls []string
	pull  *engine.Pull
	next  engine.Pull // what a pull that is begun becomes
	err   error
}

func (l *lists) note(words ...string) { l.calls = append(l.calls, strings.Join(words, " ")) }

func (l *lists) SetSource(_ context.Context, _ string, s engine.Source) error {
	l.note("source", s.URL)
	return nil
}
func (l *lists) DropSource(context.Context, string) error { l.note("drop"); return nil }
func (l *lists) Evict(context.Context, string, string) error {
	l.note("evict")
	l.pull = nil
	return nil
}
func (l *lists) Pull(_ context.Context, _ string, r engine.PullRequest) error {
	l.note("pull", r.Revision)
	if l.err != nil {
		return l.err
	}
	next := l.next
	l.pull = &next
	return nil
}
func (l *lists) Dataset(context.Context, string) (engine.Dataset, error) {
	if l.pull == nil {
		return engine.Dataset{}, &engine.RefusedError{Status: 404}
	}
	return engine.Dataset{Pull: l.pull}, nil
}

func photos() (engine.Source, error) { return engine.Source{URL: "s3://b/photos"}, nil }

func TestAListingIsBegunAskedForAndForgotten(t *testing.T) {
	ctx := context.Background()
	e := &lists{next: engine.Pull{Running: true}}
	l := newLister(e)
	d := resolvedDataset(1)
	for range 2 {
		if got, err := l.step(ctx, d, photos); got != nil || err != nil {
			t.Fatal(got, err)
		}
	}
	*e.pull = engine.Pull{Revision: rev, Objects: 2, Bytes: 7}
	got, err := l.step(ctx, d, photos)
	if err != nil || got == nil || *got != (Listing{Revision: rev, Objects: 2, Bytes: 7}) {
		t.Fatal(got, err)
	}
	if want := "source s3://b/photos|pull |drop|evict"; strings.Join(e.calls, "|") != want {
		t.Errorf("got %s", strings.Join(e.calls, "|"))
	}
}

func TestAListingIsBegunAgainWhenTheEngineHasForgotten(t *testing.T) {
	ctx := context.Background()
	e := &lists{next: engine.Pull{Running: true}}
	l := newLister(e)
	d := resolvedDataset(1)
	d.Spec.Revision = rev
	_, _ = l.step(ctx, d, photos)
	e.pull = nil // it was restarted
	_, _ = l.step(ctx, d, photos)
	want := strings.Repeat("|source s3://b/photos|pull "+rev, 2)[1:]
	if got := strings.Join(e.calls, "|"); got != want {
		t.Errorf("got %s", got)
	}
}

func TestAnEngineThatIsBusyIsAskedLater(t *testing.T) {
	l := newLister(&lists{err: &engine.RefusedError{Status: 409}})
	if got, err := l.step(context.Background(), resolvedDataset(1), photos); got != nil || err != nil {
		t.Error(got, err)
	}
}

func TestWhenABucketIsListed(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	hour := &metav1.Duration{Duration: time.Hour}
	listed := func(ago time.Duration) *v1alpha1.Dataset {
		d := resolvedDataset(1)
		d.Status.ListedAt = &metav1.Time{Time: now.Add(-ago)}
		return d
	}
	refreshed := func(ago time.Duration) *v1alpha1.Dataset {
		d := listed(ago)
		d.Spec.RefreshInterval = hour
		return d
	}
	edited := listed(0)
	edited.Generation++
	pinned := refreshed(2 * time.Hour)
	pinned.Spec.Revision = rev
	failed := listed(0)
	condition(failed, v1alpha1.CondResolved, false, v1alpha1.ReasonBucketUnreachable, "")
	changed := func(ago time.Duration, revision string) *v1alpha1.Dataset {
		d := listed(ago)
		d.Spec.Revision = revision
		condition(d, v1alpha1.CondDegraded, true, v1alpha1.ReasonRevisionGone, "")
		return d
	}
	for what, c := range map[string]struct {
		d    *v1alpha1.Dataset
		due  bool
		wait time.Duration
	}{
		"changed":               {changed(time.Minute, "Latest"), true, 0},
		"changed a moment ago":  {changed(time.Second, "Latest"), false, relistAfter - time.Second},
		"changed, but not ours": {changed(time.Minute, rev), false, 0},
		"never listed":          {&v1alpha1.Dataset{}, true, 0},
		"listed":                {listed(100 * time.Hour), false, 0},
		"fresh":                 {refreshed(20 * time.Minute), false, 40 * time.Minute},
		"old":                   {refreshed(2 * time.Hour), true, 0},
		"edited":                {edited, true, 0},
		"of a revision":         {pinned, false, 0},
		"failed a while ago":    {failed, true, 0},
	} {
		due, wait := newLister(nil).wants(c.d, now)
		if due != c.due || wait != c.wait {
			t.Errorf("%s: %t %s", what, due, wait)
		}
	}
}

func TestFailuresAreTriedAgainEverMoreSeldom(t *testing.T) {
	l := newLister(nil)
	d := resolvedDataset(1)
	now := time.Now()
	condition(d, v1alpha1.CondResolved, false, v1alpha1.ReasonFailed, "")
	var waits []time.Duration
	for range 7 {
		waits = append(waits, l.failed(d.UID, now))
	}
	if waits[0] != retryFirst || waits[1] != 2*retryFirst || waits[6] != retryMost {
		t.Errorf("%v", waits)
	}
	if due, wait := l.wants(d, now); due || wait != retryMost {
		t.Errorf("%t %s", due, wait)
	}
	l.succeeded(d.UID)
	if due, _ := l.wants(d, now); !due {
		t.Error("a success ends the waiting")
	}
}

func TestReasonsOfFailures(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&engine.PullError{Reason: engine.ReasonCredentials, Message: "m"}, v1alpha1.ReasonCredentialsInvalid},
		{&engine.PullError{Reason: engine.ReasonNotFound, Message: "m"}, v1alpha1.ReasonBucketNotFound},
		{&engine.PullError{Reason: engine.ReasonUnreachable, Message: "m"}, v1alpha1.ReasonBucketUnreachable},
		{&engine.PullError{Reason: engine.ReasonChanging, Message: "m"}, v1alpha1.ReasonChanging},
		{&engine.PullError{Reason: engine.ReasonGone, Message: "m"}, v1alpha1.ReasonRevisionGone},
		{&engine.PullError{Reason: engine.ReasonEmpty, Message: "m"}, v1alpha1.ReasonEmpty},
		{&engine.PullError{Reason: engine.ReasonIO, Message: "m"}, v1alpha1.ReasonFailed},
		{&engine.AwayError{Cause: errors.New("x")}, v1alpha1.ReasonWaiting},
		{&source.SecretError{Reason: v1alpha1.ReasonSecretNotFound, Message: "m"}, v1alpha1.ReasonSecretNotFound},
	} {
		if got, message := why(c.err); got != c.want || message == "" {
			t.Errorf("%v: %s %q", c.err, got, message)
		}
	}
}
