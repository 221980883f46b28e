// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

const (
	revA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	revB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// fakeEngine has the manners of penstock serve and does nothing by itself: tests say how pulls go.
type fakeEngine struct {
	instance string
	away     bool
	limits   engine.Limits
	free     int64
	sources  map[string]engine.Source
	data     map[string]*engine.Dataset
	said     []string
	refuse   error // of the next pull
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{instance: "1", free: 1 << 30,
		sources: map[string]engine.Source{}, data: map[string]*engine.Dataset{}}
}

func (f *fakeEngine) say(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// count is how often something was said that begins so.
func (f *fakeEngine) count(prefix string) int {
	n := 0
	for _, s := range f.said {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (f *fakeEngine) gone() error {
	if f.away {
		return &engine.AwayError{Socket: "fake", Cause: errors.New("connection refused")}
	}
	return nil
}

func (f *fakeEngine) Info(context.Context) (engine.Info, error) {
	return engine.Info{Version: "0.1", Protocol: 3, Instance: f.instance}, f.gone()
}

func (f *fakeEngine) Depot(context.Context) (engine.Depot, error) {
	d := engine.Depot{LimitBytes: f.limits.LimitBytes, CapacityBytes: f.limits.LimitBytes, FreeBytes: f.free}
	for name, one := range f.data {
		for _, r := range one.Revisions {
			r.Name = name
			d.TakenBytes += r.BytesHere
			d.Revisions = append(d.Revisions, r)
		}
		if one.Pull != nil {
			p := *one.Pull
			p.Name = name
			d.Pulls = append(d.Pulls, p)
		}
	}
	return d, f.gone()
}

func (f *fakeEngine) Dataset(_ context.Context, name string) (engine.Dataset, error) {
	if f.data[name] == nil {
		return engine.Dataset{}, &engine.RefusedError{Status: http.StatusNotFound}
	}
	return *f.data[name], f.gone()
}

func (f *fakeEngine) SetLimits(_ context.Context, l engine.Limits) error {
	f.say("limits %d %d %d", l.LimitBytes, l.High, l.Low)
	f.limits = l
	return f.gone()
}

func (f *fakeEngine) SetSource(_ context.Context, name string, s engine.Source) error {
	f.say("source %s %s %s", name, s.URL, s.AccessKey)
	f.sources[name] = s
	return f.gone()
}

func (f *fakeEngine) DropSource(_ context.Context, name string) error {
	f.say("drop %s", name)
	delete(f.sources, name)
	return f.gone()
}

func (f *fakeEngine) Pull(_ context.Context, name string, r engine.PullRequest) error {
	f.say("pull %s %.1s pin=%v partial=%v check=%v", name, r.Revision, r.Pin, r.Partial, r.Check)
	if err := f.refuse; err != nil {
		f.refuse = nil
		return err
	}
	if f.data[name] == nil {
		f.data[name] = &engine.Dataset{}
	}
	f.data[name].Pull = &engine.Pull{Running: true, Revision: r.Revision}
	if rev := f.data[name].Find(r.Revision); rev != nil {
		rev.Pinned = r.Pin
		if rev.State != engine.StateComplete {
			rev.State = engine.StatePulling
		}
	}
	if d := f.data[name]; d.Find(r.Revision) == nil {
		d.Revisions = append(d.Revisions, engine.Revision{
			Revision: r.Revision, State: engine.StatePulling, Bytes: 1000, Pinned: r.Pin,
		})
	}
	return f.gone()
}

func (f *fakeEngine) Evict(_ context.Context, name, revision string) error {
	f.say("evict %s %.1s", name, revision)
	d := f.data[name]
	if d == nil {
		return nil
	}
	var stay []engine.Revision
	for _, r := range d.Revisions {
		if revision != "" && r.Revision != revision {
			stay = append(stay, r)
		} else if r.InUse {
			return &engine.RefusedError{Status: http.StatusConflict, Reason: engine.ReasonInUse, Message: "in use"}
		}
	}
	d.Revisions = stay
	if d.Pull != nil && (revision == "" || d.Pull.Revision == revision) {
		d.Pull = nil
	}
	if len(stay) == 0 {
		delete(f.data, name)
	}
	return nil
}

// done ends a pull well; part says how much came of 1000 bytes.
func (f *fakeEngine) done(name string, bytes int64) {
	d := f.data[name]
	d.Pull.Running = false
	r := d.Find(d.Pull.Revision)
	r.State, r.BytesHere = engine.StateComplete, bytes
	if bytes < r.Bytes {
		r.State = engine.StatePartial
	}
}

func (f *fakeEngine) fail(name string, why engine.PullError) {
	d := f.data[name]
	d.Pull.Running, d.Pull.Error = false, &why
	d.Find(d.Pull.Revision).State = engine.StateIncomplete
}

// fakeCluster has one NodeCache and some secrets.
type fakeCluster struct {
	nc      *v1alpha1.NodeCache
	secrets map[string]*corev1.Secret
	reads   int
	writes  int
	beats   []time.Time
	deaf    error // of the lease
	fails   error
}

func (f *fakeCluster) NodeCache(context.Context) (*v1alpha1.NodeCache, error) {
	if f.nc == nil {
		return nil, nil
	}
	return f.nc.DeepCopy(), nil
}

func (f *fakeCluster) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	f.reads++
	if s := f.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (f *fakeCluster) Report(_ context.Context, _ *v1alpha1.NodeCache, s *v1alpha1.NodeCacheStatus) error {
	f.writes++
	if f.fails == nil {
		f.nc.Status = *s.DeepCopy()
	}
	return f.fails
}

func (f *fakeCluster) Renew(_ context.Context, _ *v1alpha1.NodeCache, at time.Time) error {
	if f.deaf == nil {
		f.beats = append(f.beats, at)
	}
	return f.deaf
}

func (f *fakeCluster) Changed() <-chan struct{} { return nil }

// scene is an agent between the two, with a clock of its own.
type scene struct {
	t       *testing.T
	agent   *Agent
	engine  *fakeEngine
	cluster *fakeCluster
	clock   time.Time
}

func newScene(t *testing.T, entries ...v1alpha1.CacheEntry) *scene {
	s := &scene{t: t, engine: newFakeEngine(), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	nc := &v1alpha1.NodeCache{}
	nc.Name, nc.UID, nc.Generation = "node", "uid-1", 1
	nc.Spec = v1alpha1.NodeCacheSpec{LimitBytes: 5000, HighWatermark: 90, LowWatermark: 80, Entries: entries}
	s.cluster = &fakeCluster{nc: nc, secrets: map[string]*corev1.Secret{}}
	s.restart()
	return s
}

// restart is another agent in the old one's place.
func (s *scene) restart() {
	s.agent = &Agent{Engine: s.engine, Cluster: s.cluster, Path: "/cache", Log: logr.Discard()}
	s.agent.now = func() time.Time { return s.clock }
	s.agent.begin()
}

// passes runs so many, each when it is due.
func (s *scene) passes(n int) {
	for range n {
		s.clock = s.clock.Add(s.agent.pass(context.Background()))
	}
}

func (s *scene) wait(d time.Duration) {
	for until := s.clock.Add(d); s.clock.Before(until); {
		s.passes(1)
	}
}

func (s *scene) status(name string) v1alpha1.EntryStatus {
	s.t.Helper()
	for _, e := range s.cluster.nc.Status.Entries {
		if e.Name == name {
			return e
		}
	}
	return v1alpha1.EntryStatus{}
}

func (s *scene) phase(name string, want v1alpha1.EntryPhase, reason string) {
	s.t.Helper()
	if got := s.status(name); got.Phase != want || got.Reason != reason {
		s.t.Fatalf("%s is %q, reason %q (%s); want %q, %q", name, got.Phase, got.Reason, got.Message, want, reason)
	}
}

func (s *scene) secret(name, access string) {
	s.cluster.secrets["team/"+name] = &corev1.Secret{Data: map[string][]byte{
		"AWS_ACCESS_KEY_ID": []byte(access), "AWS_SECRET_ACCESS_KEY": []byte("hush"),
	}}
}

func photos(change ...func(*v1alpha1.CacheEntry)) v1alpha1.CacheEntry {
	e := v1alpha1.CacheEntry{
		Namespace: "team", Name: "photos", UID: "u1", Depot: v1alpha1.DepotName("team", "photos"),
		Source:   v1alpha1.Source{S3: &v1alpha1.S3Source{Bucket: "bucket", Prefix: "photos", Region: "us-east-1"}},
		Revision: revA, Objects: 10, Bytes: 1000, Mode: v1alpha1.Whole,
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func withSecret(e *v1alpha1.CacheEntry)  { e.Source.S3.SecretRef = &v1alpha1.SecretRef{Name: "keys"} }
func partially(e *v1alpha1.CacheEntry)   { e.Mode = v1alpha1.Partial }
func pinned(e *v1alpha1.CacheEntry)      { e.Pinned = true }
func otherUID(e *v1alpha1.CacheEntry)    { e.UID = "u2" }
func otherBucket(e *v1alpha1.CacheEntry) { e.Source.S3.Bucket = "other" }
func secondRev(e *v1alpha1.CacheEntry)   { e.Revision = revB }

// depot is what photos is called on the disk.
var depot = v1alpha1.DepotName("team", "photos")
