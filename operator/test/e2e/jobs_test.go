// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/rig"
	"penstock.dev/operator/test/stand"
)

const (
	jobCount  = 4
	jobEpochs = 15
	backMost  = 5 * time.Second // until a job is on the engine again; asserted as convergeMost is
)

// feed starts a job as a pod's container would: with the folder, the socket and the revision, and nothing else.
func (tm *team) feed(n *stand.Node, name, dataset, revision string, more ...string) (*rig.Process, string) {
	tm.t.Helper()
	program, err := stand.Penstock()
	tm.must(err)
	ledger := filepath.Join(tm.t.TempDir(), name)
	p, err := w.Run(name, []string{"PENSTOCK_REVISION=" + revision}, program, append([]string{"feed",
		filepath.Join(n.Cache, "datasets", v1alpha1.DepotName(tm.name, dataset)), "--pipeline", "bytes", "--batch", "1",
		"--epochs", fmt.Sprint(jobEpochs), "--quiet", "--ledger", ledger}, more...)...)
	tm.must(err)
	return p, ledger
}

// onEngine asks that these processes, and no others, have jobs on a node's engine.
func onEngine(n *stand.Node, jobs []*rig.Process) func(context.Context) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.Control())
	}
	c := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	return func(context.Context) error {
		answer, err := c.Get("http://engine/v1/jobs")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var said struct{ Jobs []struct{ Pid int } }
		if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
			return err
		}
		for _, job := range jobs {
			if !slices.ContainsFunc(said.Jobs, func(one struct{ Pid int }) bool { return one.Pid == job.Pid() }) {
				return fmt.Errorf("%s is not there: %+v; %s", job.Name, said.Jobs, job.Tail())
			}
		}
		return nil
	}
}

// rows of a ledger without its head.
func rows(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	var out []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out, err
}

// Agent and engine are replaced while jobs run through the socket: the jobs end well, with everything delivered once
// and in its order.
func TestAgentAndEngineAreReplacedUnderJobs(t *testing.T) {
	tm := newTeam(t)
	files := stand.Files{}
	for key, content := range stand.MakeFiles(27, 40, 5_000) {
		files[strings.TrimSuffix(key, ".bin")+".jpg"] = content
	}
	tm.upload(files)
	tm.create(tm.dataset("photos", replicas(1)))
	tm.converge("ready", tm.held("photos", files, 1))
	on, err := tm.holders(tm.ctx, "photos", v1alpha1.PhaseReady)
	tm.must(err)
	n := on[0]
	d, err := tm.get(tm.ctx, "photos")
	tm.must(err)
	alone, ledger := tm.feed(n, "alone", "photos", d.Status.Revision, "--engine", "embedded")
	<-alone.Done()
	want, err := rows(ledger)
	tm.must(err)
	if len(want) != len(files)*jobEpochs {
		t.Fatalf("%d rows: %s", len(want), alone.Tail())
	}
	var jobs []*rig.Process
	var ledgers []string
	for i := range jobCount {
		p, ledger := tm.feed(n, fmt.Sprintf("job-%d", i), "photos", d.Status.Revision,
			"--engine", "unix:"+filepath.Join(n.Cache, "run"), "--step-ms", "50")
		jobs, ledgers = append(jobs, p), append(ledgers, ledger)
	}
	tm.eventually("all are on the engine", onEngine(n, jobs))
	n.Agent.Kill()
	tm.must(n.Daemon.End(time.Minute))
	begun := time.Now()
	tm.must(n.StartDaemon(tm.ctx))
	tm.must(w.startAgent(tm.ctx, n))
	tm.converge("jobs are on the new engine", onEngine(n, jobs))
	if took := time.Since(begun); strict && took > backMost {
		t.Errorf("%.1f s until all were on the engine again", took.Seconds())
	}
	for i, job := range jobs {
		tm.eventually(job.Name+" ends", func(context.Context) error {
			select {
			case <-job.Done():
				return nil
			default:
				return errors.New("it runs")
			}
		})
		got, err := rows(ledgers[i])
		tm.must(err)
		if status := job.ExitCode(); status != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: exit status %d, %d rows of %d: %s", job.Name, status, len(got), len(want), job.Tail())
		}
	}
	tm.converge("ready, and not in use", func(ctx context.Context) error {
		d, err := tm.get(ctx, "photos")
		if err == nil && slices.ContainsFunc(d.Status.Nodes, func(n v1alpha1.DatasetNode) bool { return n.InUse }) {
			err = errors.New("in use")
		}
		return errors.Join(err, tm.ready("photos")(ctx))
	})
	tm.calm()
}
