// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

// other is a control socket of another version: a pull is over as soon as it was asked for twice.
type other struct {
	info, depot, coming, done string // what is answered
	limits                    int    // the status of what is said about limits
	sources, pulls            int
}

func (o *other) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch path := r.Method + " " + r.URL.Path; {
	case path == "GET /v1/engine":
		fmt.Fprint(w, o.info)
	case path == "GET /v1/datasets/":
		inner := []string{"", o.coming, o.done}[min(o.pulls, 2)]
		if o.pulls == 1 {
			o.pulls++
		}
		fmt.Fprintf(w, o.depot, inner)
	case path == "PUT /v1/datasets/":
		w.WriteHeader(o.limits)
		fmt.Fprint(w, `{"error": "no such page"}`)
	case strings.HasSuffix(path, "/source"):
		o.sources++
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
		o.pulls++
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"queued": true}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (o *other) serve(t *testing.T) *engine.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "pv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "control.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: o}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return engine.New(socket)
}

// An agent works with an engine that says less than this version's, and with one that says more.
func TestEnginesOfOtherVersions(t *testing.T) {
	one := `"name": "` + depot + `", "revision": "` + revA + `", "bytes": 1000`
	versions := map[string]*other{
		"earlier": {
			info:   `{"version": "0.0.9"}`,
			depot:  `{"capacity_bytes": 5000, "revisions": [%s]}`,
			coming: `{` + one + `, "state": "incomplete"}`,
			done:   `{` + one + `, "state": "complete", "bytes_here": 1000}`,
			limits: http.StatusNotFound,
		},
		"later": {
			info: `{"version": "9", "protocol": 12, "instance": "0123456789abcdef", "features": ["x"], "load": {"cpu": 0.5}}`,
			depot: `{"capacity_bytes": 5000, "limit_bytes": 5000, "taken_bytes": 1000, "free_bytes": 4000, "tiers": [{"a": 1}],
				"revisions": [%s], "pulls": [{"name": "` + depot + `", "running": false, "lanes": [1, 2]}]}`,
			coming: `{` + one + `, "state": "verifying", "bytes_here": 10, "verified": 0.25}`,
			done:   `{` + one + `, "state": "complete", "bytes_here": 1000, "pinned": true, "heat": null}`,
			limits: http.StatusNoContent,
		},
	}
	for name, o := range versions {
		s := newScene(t, photos())
		s.agent.Engine = o.serve(t)
		s.wait(30 * time.Second)
		s.phase("photos", v1alpha1.PhaseReady, "")
		st := s.cluster.nc.Status
		if st.CapacityBytes != 5000 || st.FreeBytes != 4000 || st.UsedBytes != 1000 || o.sources != 1 ||
			!meta.IsStatusConditionTrue(st.Conditions, v1alpha1.CondEngineReady) {
			t.Errorf("%s: %d sources, status %+v", name, o.sources, st)
		}
		writes := s.cluster.writes
		s.wait(time.Minute)
		if s.cluster.writes != writes {
			t.Errorf("%s: %d more writes", name, s.cluster.writes-writes)
		}
	}
}

// One that does not say who it is could be another one after any moment in which nobody answered.
func TestAnEngineWithoutANameIsToldAgainWhenItWasAway(t *testing.T) {
	s := newScene(t, photos())
	s.engine.instance = ""
	s.passes(2)
	s.engine.done(depot, 1000)
	s.wait(10 * time.Second)
	s.engine.away = true
	s.wait(time.Second)
	s.engine.away = false
	s.engine.said = nil
	s.wait(10 * time.Second)
	if s.engine.count("limits") != 1 || s.engine.count("source") != 1 {
		t.Errorf("said %v", s.engine.said)
	}
}
