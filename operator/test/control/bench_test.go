// SPDX-License-Identifier: Apache-2.0

// Package control tests the operator on a real API server, as the account and with the roles and policies that are
// shipped. Agents and the engine are played by the tests: what they say is what a case needs.
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/test/rig"
)

const (
	nodes    = 3
	capacity = int64(100) << 30
	root     = "/var/lib/penstock"
)

var (
	cl       *rig.Rig
	listings = &fakeEngine{answers: map[string]engine.Pull{}, pulls: map[string]string{}}
	agents   = &players{}
	operator *program
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r, err := rig.Start(ctx, rig.Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer r.Stop()
		cl = r
		if err := bringUp(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if code != 0 {
			fmt.Fprintln(os.Stderr, operator.process.Tail())
		}
		return code
	}())
}

func bringUp(ctx context.Context) error {
	for i := range nodes {
		n := rig.Node{Name: fmt.Sprintf("node-%d", i), GPUs: 8,
			Labels: map[string]string{"topology.kubernetes.io/zone": fmt.Sprintf("z%d", i)}}
		if err := cl.AddNode(ctx, n); err != nil {
			return err
		}
	}
	port, err := rig.FreePort()
	if err != nil {
		return err
	}
	if err := cl.Deploy(ctx, rig.Deployment{WebhookPort: port}); err != nil {
		return err
	}
	socket := filepath.Join(cl.Dir, "engine.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(l, listings) }()
	go agents.run(ctx)
	operator = &program{socket: socket, webhook: port}
	if err := operator.build(); err != nil {
		return err
	}
	if err := operator.start(ctx); err != nil {
		return err
	}
	pool := &v1alpha1.CachePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	return cl.Client.Create(ctx, pool)
}

// program is the operator as it is shipped.
type program struct {
	binary, socket string
	webhook        int
	metrics        int
	process        *rig.Process
}

func (p *program) build() error {
	p.binary = filepath.Join(cl.Dir, "penstock-operator")
	out, err := exec.Command("go", "build", "-o", p.binary, "penstock.dev/operator/cmd/penstock-operator").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (p *program) start(ctx context.Context) error { return p.startWith(ctx, "--leader-elect") }

// startWith waits until it is ready to answer for the webhook.
func (p *program) startWith(ctx context.Context, more ...string) error {
	account, err := cl.ServiceAccount(ctx, rig.SystemNamespace, rig.OperatorAccount)
	if err != nil {
		return err
	}
	file := filepath.Join(cl.Dir, "operator.kubeconfig")
	if err := rig.WriteKubeconfig(account, file); err != nil {
		return err
	}
	if p.metrics, err = rig.FreePort(); err != nil {
		return err
	}
	health, err := rig.FreePort()
	if err != nil {
		return err
	}
	args := append([]string{"--kubeconfig", file, "--engine", p.socket, "--webhook-host=127.0.0.1",
		fmt.Sprintf("--webhook-port=%d", p.webhook),
		fmt.Sprintf("--metrics-address=127.0.0.1:%d", p.metrics), fmt.Sprintf("--health-address=127.0.0.1:%d", health)},
		more...)
	p.process, err = cl.Run("operator", nil, p.binary, args...)
	if err != nil {
		return err
	}
	return rig.Eventually(ctx, func(ctx context.Context) error {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", health))
		if err != nil {
			return fmt.Errorf("%w\n%s", err, p.process.Tail())
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s\n%s", res.Status, p.process.Tail())
		}
		return nil
	})
}

// fakeEngine lists buckets as it is told: by url.
type fakeEngine struct {
	lock    sync.Mutex
	answers map[string]engine.Pull
	pulls   map[string]string // dataset: url
	sources map[string]engine.Source
	last    map[string]engine.Source // also after it was told to forget
}

// told is what it was last told about a dataset's source.
func (f *fakeEngine) told(depot string) engine.Source {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.last[depot]
}

func (f *fakeEngine) set(url string, answer engine.Pull) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.answers[url] = answer
}

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.sources == nil {
		f.sources, f.last = map[string]engine.Source{}, map[string]engine.Source{}
	}
	name := strings.TrimPrefix(r.URL.Path, "/v1/datasets/")
	if base, ok := strings.CutSuffix(name, "/source"); ok {
		var s engine.Source
		_ = json.NewDecoder(r.Body).Decode(&s)
		f.sources[base] = s
		if r.Method == http.MethodPut {
			f.last[base] = s
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	switch r.Method {
	case http.MethodPost:
		f.pulls[name] = f.sources[name].URL
		w.WriteHeader(http.StatusAccepted)
	case http.MethodDelete:
		delete(f.pulls, name)
	case http.MethodGet:
		out := engine.Dataset{Name: name}
		if url, ok := f.pulls[name]; ok {
			pull, known := f.answers[url]
			if !known {
				pull = engine.Pull{Error: &engine.PullError{Reason: engine.ReasonNotFound, Message: "there is no " + url}}
			}
			out.Pull = &pull
		}
		_ = json.NewEncoder(w).Encode(out)
	}
}

// players are the agents of all nodes: each entry gets the phase that say returns; by default it is there at once.
type players struct {
	lock sync.Mutex
	say  func(node string, e *v1alpha1.CacheEntry) v1alpha1.EntryStatus
}

func ready(_ string, e *v1alpha1.CacheEntry) v1alpha1.EntryStatus {
	return v1alpha1.EntryStatus{Namespace: e.Namespace, Name: e.Name, Revision: e.Revision, Phase: v1alpha1.PhaseReady,
		BytesDone: e.Bytes, BytesTotal: e.Bytes}
}

func pulling(_ string, e *v1alpha1.CacheEntry) v1alpha1.EntryStatus {
	return v1alpha1.EntryStatus{Namespace: e.Namespace, Name: e.Name, Revision: e.Revision, Phase: v1alpha1.PhasePulling,
		BytesDone: e.Bytes / 2, BytesTotal: e.Bytes}
}

func (p *players) play(t *testing.T, say func(string, *v1alpha1.CacheEntry) v1alpha1.EntryStatus) {
	p.lock.Lock()
	p.say = say
	p.lock.Unlock()
	t.Cleanup(func() {
		p.lock.Lock()
		defer p.lock.Unlock()
		p.say = nil
	})
}

func (p *players) run(ctx context.Context) {
	for ctx.Err() == nil {
		var caches v1alpha1.NodeCacheList
		if cl.Client.List(ctx, &caches) == nil {
			for i := range caches.Items {
				p.one(ctx, &caches.Items[i])
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (p *players) one(ctx context.Context, c *v1alpha1.NodeCache) {
	p.lock.Lock()
	say := p.say
	p.lock.Unlock()
	if say == nil {
		say = ready
	}
	before := c.DeepCopy()
	c.Status.Path, c.Status.CapacityBytes, c.Status.UsedBytes = root, capacity, 0
	c.Status.Entries = nil
	for i := range c.Spec.Entries {
		e := &c.Spec.Entries[i]
		st := say(c.Name, e)
		c.Status.Entries = append(c.Status.Entries, st)
		if st.Phase != v1alpha1.PhaseFailed {
			c.Status.UsedBytes += e.Bytes
		}
	}
	c.Status.FreeBytes = capacity - c.Status.UsedBytes
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.CondEngineReady,
		Status: metav1.ConditionTrue, Reason: "Serves"})
	if !reflect.DeepEqual(before.Status, c.Status) {
		_ = cl.Client.Status().Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
}

// ---- what tests ask ----

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, ask func(ctx context.Context) error) {
	t.Helper()
	must(t, rig.Eventually(t.Context(), ask))
}

func namespace(t *testing.T, name string) {
	t.Helper()
	must(t, cl.Namespace(t.Context(), name, "restricted"))
}

func revision(digit string) string { return strings.Repeat(digit, 32) }

// newDataset is of a public bucket that the engine lists with one answer.
func newDataset(ns, name string, bytes int64, replicas int32) *v1alpha1.Dataset {
	listings.set("s3://"+ns+"/"+name, engine.Pull{Dry: true, Revision: revision("a"), Objects: 3, Bytes: bytes})
	return &v1alpha1.Dataset{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: v1alpha1.DatasetSpec{Source: v1alpha1.Source{S3: &v1alpha1.S3Source{Bucket: ns, Prefix: name}},
			Placement: v1alpha1.Placement{Replicas: &replicas}}}
}

// untilCondition waits for a condition of a dataset.
func untilCondition(t *testing.T, d *v1alpha1.Dataset, kind string, status metav1.ConditionStatus,
	reason string) *metav1.Condition {
	t.Helper()
	var got *metav1.Condition
	until(t, func(ctx context.Context) error {
		if err := cl.Client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		got = meta.FindStatusCondition(d.Status.Conditions, kind)
		if got == nil || got.Status != status || got.Reason != reason {
			return fmt.Errorf("%s of %s is %+v, not %s %s\n%s", kind, d.Name, got, status, reason, operator.process.Tail())
		}
		return nil
	})
	return got
}

// holders are the nodes that are to hold a dataset.
func holders(ctx context.Context, ns, name string) ([]string, error) {
	var caches v1alpha1.NodeCacheList
	var out []string
	if err := cl.Client.List(ctx, &caches); err != nil {
		return nil, err
	}
	for i := range caches.Items {
		if cluster.EntryOf(&caches.Items[i], ns, name) != nil {
			out = append(out, caches.Items[i].Name)
		}
	}
	return out, nil
}
