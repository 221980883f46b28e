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

// feed starts a job; its samples are listed in the file that is returned.
func (tm *team) feed(name, folder string, environ []string, more ...string) (*rig.Process, string) {
	tm.t.Helper()
	program, err := stand.Penstock()
	tm.must(err)
	ledger := filepath.Join(tm.t.TempDir(), name)
	p, err := w.Run(name, environ, program, append([]string{"feed", folder, "--pipeline", "bytes", "--batch", "1",
		"--quiet", "--index-dir", "none", "--ledger", ledger}, more...)...)
	tm.must(err)
	return p, ledger
}

// feedAsPod is a job as a pod's container would be: with the folder, the socket and the revision, and nothing else.
func (tm *team) feedAsPod(name string, n *stand.Node, dataset string, more ...string) (*rig.Process, string) {
	tm.t.Helper()
	d, err := tm.get(tm.ctx, dataset)
	tm.must(err)
	environ := []string{"PENSTOCK_REVISION=" + d.Status.Revision, "PENSTOCK_ENGINE=unix:" + filepath.Join(n.Cache, "run")}
	return tm.feed(name, filepath.Join(n.Cache, "datasets", v1alpha1.DepotName(tm.name, dataset)), environ, more...)
}

// pictures are files of which jobs can be made.
func pictures(files stand.Files) stand.Files {
	out := stand.Files{}
	for key, content := range files {
		out[strings.TrimSuffix(key, ".bin")+".jpg"] = content
	}
	return out
}

// expected is what a job delivers that has all files in a folder of its own.
func (tm *team) expected(files stand.Files, more ...string) []string {
	tm.t.Helper()
	folder := tm.t.TempDir()
	tm.must(files.Write(folder))
	p, ledger := tm.feed("alone", folder, nil, more...)
	return tm.delivered(p, ledger)
}

// delivered waits for the end of a job, which has to be a good one, and returns its samples.
func (tm *team) delivered(job *rig.Process, ledger string) []string {
	tm.t.Helper()
	tm.eventually(job.Name+" ends", func(context.Context) error {
		select {
		case <-job.Done():
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if status := job.ExitCode(); status != 0 {
		tm.t.Errorf("%s: exit status %d: %s", job.Name, status, job.Tail())
	}
	got, err := rows(ledger)
	tm.must(err)
	return got
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

// unused waits until agents have seen that nobody reads a dataset any more: they look now and then.
func (tm *team) unused(name string) {
	tm.t.Helper()
	tm.eventually(name+" is not in use", func(ctx context.Context) error {
		d, err := tm.get(ctx, name)
		if err == nil && slices.ContainsFunc(d.Status.Nodes, func(n v1alpha1.DatasetNode) bool { return n.InUse }) {
			err = errors.New("in use")
		}
		return err
	})
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
	files := pictures(stand.MakeFiles(27, 40, 5_000))
	tm.upload(files)
	tm.create(tm.dataset("photos", replicas(1)))
	tm.converge("ready", tm.held("photos", files, 1))
	on, err := tm.holders(tm.ctx, "photos", v1alpha1.PhaseReady)
	tm.must(err)
	n := on[0]
	epochs := []string{"--epochs", fmt.Sprint(jobEpochs)}
	want := tm.expected(files, epochs...)
	if len(want) != len(files)*jobEpochs {
		t.Fatalf("%d rows", len(want))
	}
	var jobs []*rig.Process
	var ledgers []string
	for i := range jobCount {
		p, ledger := tm.feedAsPod(fmt.Sprintf("job-%d", i), n, "photos", append(epochs, "--step-ms", "50")...)
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
		if got := tm.delivered(job, ledgers[i]); !slices.Equal(got, want) {
			t.Errorf("%s: %d rows of %d, or others: %s", job.Name, len(got), len(want), job.Tail())
		}
	}
	tm.converge("ready", tm.ready("photos"))
	tm.unused("photos")
	tm.calm()
}
