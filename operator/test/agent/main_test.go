// SPDX-License-Identifier: Apache-2.0

// Package agent tests the agent with a real engine and a bucket that fails as it is told. The API server is one in
// memory: test/e2e has the real one.
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/agent"
	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/test/rig"
	"penstock.dev/operator/test/stand"
)

// lister is the engine that tells revisions, as the operator's does.
var lister *stand.Node

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "pa")
		if err != nil {
			panic(err)
		}
		r := &rig.Rig{Dir: dir}
		defer r.Stop()
		if lister, err = stand.NewNode(r, "lister"); err == nil {
			err = lister.StartDaemon(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// cluster is an API server with one NodeCache and some secrets.
type cluster struct {
	lock    sync.Mutex
	nc      v1alpha1.NodeCache
	secrets map[string]*corev1.Secret
	writes  int
	changed chan struct{}
}

func (c *cluster) NodeCache(context.Context) (*v1alpha1.NodeCache, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.nc.DeepCopy(), nil
}

func (c *cluster) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if s := c.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (c *cluster) Report(_ context.Context, _ *v1alpha1.NodeCache, s *v1alpha1.NodeCacheStatus) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.writes++
	c.nc.Status = *s.DeepCopy()
	return nil
}

func (c *cluster) Renew(context.Context, *v1alpha1.NodeCache, time.Time) error { return nil }

func (c *cluster) Changed() <-chan struct{} { return c.changed }

// spec changes what the node is to hold.
func (c *cluster) spec(change func(*v1alpha1.NodeCacheSpec)) {
	c.lock.Lock()
	change(&c.nc.Spec)
	c.nc.Generation++
	c.lock.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// scene is one node with everything around it.
type scene struct {
	t       *testing.T
	rig     *rig.Rig
	node    *stand.Node
	faultd  *stand.Faultd
	bucket  string // its folder
	files   stand.Files
	cluster *cluster
	stop    func() // the agent
}

func newScene(t *testing.T, files stand.Files) *scene {
	t.Helper()
	t.Parallel() // they wait most of the time
	dir, err := os.MkdirTemp("", "pa")
	must(t, err)
	s := &scene{t: t, rig: &rig.Rig{Dir: dir}, files: files, bucket: filepath.Join(dir, "bucket")}
	t.Cleanup(s.rig.Stop)
	t.Cleanup(func() { s.stop() })
	must(t, files.Write(filepath.Join(s.bucket, "photos")))
	s.faultd, err = stand.StartFaultd(t.Context(), s.rig, "faultd")
	must(t, err)
	must(t, s.faultd.Folder("bucket", s.bucket))
	s.node, err = stand.NewNode(s.rig, "node")
	must(t, err)
	must(t, s.node.StartDaemon(t.Context()))
	s.cluster = &cluster{changed: make(chan struct{}, 1), secrets: map[string]*corev1.Secret{}}
	s.cluster.nc.Name, s.cluster.nc.UID = "node", "uid"
	s.start()
	return s
}

// start starts an agent; one that runs is stopped without a word, as by a kill: it has nothing to put in order.
func (s *scene) start() {
	if s.stop != nil {
		s.stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	log := logr.Discard()
	if testing.Verbose() {
		log = testr.New(s.t)
	}
	a := &agent.Agent{Engine: s.node.Engine(), Cluster: s.cluster, Path: s.node.Cache, CheckEvery: time.Hour, Log: log}
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Start(ctx) }()
	s.stop = func() { cancel(); <-done }
}

func (s *scene) source() v1alpha1.Source {
	return v1alpha1.Source{S3: &v1alpha1.S3Source{
		Bucket: "bucket", Prefix: "photos", Region: "us-east-1", Endpoint: s.faultd.URL, PathStyle: true,
	}}
}

// resolve is what the operator does before it writes an entry.
func (s *scene) resolve(keys ...string) engine.Pull {
	s.t.Helper()
	from := engine.Source{URL: "s3://bucket/photos", Region: "us-east-1", Endpoint: s.faultd.URL, PathStyle: true}
	if len(keys) == 2 {
		from.AccessKey, from.SecretKey = keys[0], keys[1]
	}
	found, err := lister.Resolve(s.t.Context(), "list-"+filepath.Base(s.rig.Dir), from)
	must(s.t, err)
	return found
}

func (s *scene) entry(found engine.Pull) v1alpha1.CacheEntry {
	return v1alpha1.CacheEntry{
		Namespace: "team", Name: "photos", UID: "u1", Depot: depot, Source: s.source(), Revision: found.Revision,
		Objects: found.Objects, Bytes: found.Bytes, Mode: v1alpha1.Whole,
	}
}

var depot = v1alpha1.DepotName("team", "photos")

func (s *scene) want(entries ...v1alpha1.CacheEntry) {
	s.cluster.spec(func(spec *v1alpha1.NodeCacheSpec) { spec.Entries = entries })
}

// status of the dataset and of the node.
func (s *scene) status() (v1alpha1.EntryStatus, v1alpha1.NodeCacheStatus) {
	nc, _ := s.cluster.NodeCache(s.t.Context())
	for _, e := range nc.Status.Entries {
		if e.Name == "photos" {
			return e, nc.Status
		}
	}
	return v1alpha1.EntryStatus{}, nc.Status
}

// until waits for a phase and reason.
func (s *scene) until(phase v1alpha1.EntryPhase, reason string) v1alpha1.EntryStatus {
	s.t.Helper()
	var got v1alpha1.EntryStatus
	s.eventually(func() error {
		if got, _ = s.status(); got.Phase != phase || got.Reason != reason {
			return fmt.Errorf("it is %q, %q (%s), not %q, %q", got.Phase, got.Reason, got.Message, phase, reason)
		}
		return nil
	})
	return got
}

func (s *scene) eventually(ask func() error) {
	s.t.Helper()
	err := rig.Eventually(s.t.Context(), func(context.Context) error { return ask() })
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.node.Daemon.Tail())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// written is how often the status was written.
func (c *cluster) written() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.writes
}

var errNotYet = errors.New("not yet")
