// SPDX-License-Identifier: Apache-2.0

// Package agent makes a node what its NodeCache says, through the control socket of the node's engine alone, and says
// in NodeCache.status what is there. It starts no processes and opens no files.
//
// Everything runs on one goroutine, in passes. A pass asks the engine what it holds, compares that with the spec, says
// what is missing, and writes the status if it became another one. What a pass keeps for the next one (memory) may be
// lost at any moment: the engine's disk and the NodeCache have all that is needed to go on.
package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

const (
	tickMoving = time.Second     // between passes while something moves
	tickIdle   = 5 * time.Second // and while nothing does
	tickInfo   = time.Second     // between looks whether the engine is still the same one
	tickSoon   = 200 * time.Millisecond

	downAfter  = 3 * time.Second // an engine that is replaced is away for less; nobody needs to hear of that
	strayAfter = 15 * time.Second
)

// Engine is what an agent needs of its engine; see package engine.
type Engine interface {
	Info(ctx context.Context) (engine.Info, error)
	Depot(ctx context.Context) (engine.Depot, error)
	Dataset(ctx context.Context, name string) (engine.Dataset, error)
	SetLimits(ctx context.Context, l engine.Limits) error
	SetSource(ctx context.Context, name string, s engine.Source) error
	DropSource(ctx context.Context, name string) error
	Pull(ctx context.Context, name string, r engine.PullRequest) error
	Evict(ctx context.Context, name, revision string) error
}

// Cluster is what an agent needs of the API server.
type Cluster interface {
	// NodeCache of this node, or nil when there is none.
	NodeCache(ctx context.Context) (*v1alpha1.NodeCache, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Renew says that the agent lives. The operator takes one that did not for a while for gone.
	Renew(ctx context.Context, of *v1alpha1.NodeCache, at time.Time) error
	// Report writes the status.
	Report(ctx context.Context, of *v1alpha1.NodeCache, status *v1alpha1.NodeCacheStatus) error
	// Changed delivers something whenever the spec may have changed.
	Changed() <-chan struct{}
}

// Agent of one node.
type Agent struct {
	Engine  Engine
	Cluster Cluster
	Path    string // the cache's folder on the node, as it is reported
	Log     logr.Logger

	// CheckEvery is how often what is there is read again and compared; 0: never.
	CheckEvery time.Duration

	now    func() time.Time
	memory memory
	keys   keyring
	writer writer
	heart  heart

	up     atomic.Bool  // the engine answered
	passed atomic.Int64 // seconds since 1970 of the last pass's end
}

// memory is what passes keep for each other.
type memory struct {
	nodeCache string // uid: another one begins anew
	since     time.Time
	instance  string // of the engine; what follows was said to this one
	info      engine.Info
	limits    *engine.Limits
	downSince time.Time
	checking  string // the dataset that is being read again: one at a time
	entries   map[string]*entry
	leaving   map[string]*leaving
}

// Start runs passes until the context ends.
func (a *Agent) Start(ctx context.Context) error {
	a.begin()
	next := a.now()
	for {
		wait := tickInfo
		if due := next.Sub(a.now()); due <= 0 || a.engineChanged(ctx) {
			next = a.now().Add(a.pass(ctx))
			a.passed.Store(a.now().Unix())
		} else {
			wait = min(wait, due)
		}
		wait = max(min(wait, next.Sub(a.now())), 10*time.Millisecond)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-a.Cluster.Changed():
			next = a.now()
			timer.Stop()
		case <-timer.C:
		}
	}
}

func (a *Agent) begin() {
	if a.now == nil {
		a.now = time.Now
	}
	a.forget("")
	a.keys.read = a.Cluster.Secret
}

// Ready tells whether the engine answers, and Alive whether passes end.
func (a *Agent) Ready() bool { return a.up.Load() }
func (a *Agent) Alive() bool {
	last := a.passed.Load()
	return last == 0 || time.Since(time.Unix(last, 0)) < 5*time.Minute
}

// forget begins anew with the NodeCache of that uid.
func (a *Agent) forget(uid string) {
	a.memory = memory{
		nodeCache: uid, since: a.now(), instance: a.memory.instance, info: a.memory.info, limits: a.memory.limits,
		downSince: a.memory.downSince, entries: map[string]*entry{}, leaving: map[string]*leaving{},
	}
	a.writer.last = nil
	a.heart = heart{}
}

// engineChanged looks whether the engine went, came or was started anew: between passes, since it costs little.
func (a *Agent) engineChanged(ctx context.Context) bool {
	info, err := a.Engine.Info(ctx)
	if err != nil {
		return a.memory.downSince.IsZero() || a.up.Load()
	}
	return info.Instance != a.memory.instance || !a.memory.downSince.IsZero()
}

// pass does one round and tells when the next one is due.
func (a *Agent) pass(ctx context.Context) time.Duration {
	nc, err := a.Cluster.NodeCache(ctx)
	if err != nil {
		a.Log.Error(err, "the node's NodeCache cannot be read")
		return tickMoving
	}
	if nc == nil { // the node is being taken away, or the operator has not seen it yet: what is there stays
		_, _ = a.meet(ctx)
		return tickIdle
	}
	if string(nc.UID) != a.memory.nodeCache {
		a.forget(string(nc.UID))
		a.remember(nc)
	}
	a.beat(ctx, nc)
	held, err := a.meet(ctx)
	if err == nil {
		err = a.tellLimits(ctx, nc)
	}
	if err != nil {
		return a.passWithout(ctx, nc, err)
	}
	return a.passWith(ctx, nc, held)
}

// passWith is a pass while the engine is there.
func (a *Agent) passWith(ctx context.Context, nc *v1alpha1.NodeCache, held *view) time.Duration {
	round := &round{agent: a, held: held, now: a.now(), wait: tickIdle}
	wanted := map[string]bool{}
	for i := range nc.Spec.Entries {
		e := &nc.Spec.Entries[i]
		wanted[e.Depot] = true
		round.settle(ctx, e)
	}
	a.clear(ctx, round, wanted)
	a.keys.only(nc.Spec.Entries)
	if round.away != nil {
		return a.passWithout(ctx, nc, round.away)
	}
	status := a.statusWith(nc, held, round.entries)
	return min(round.wait, a.write(ctx, nc, status))
}

// passWithout is a pass while the engine is away.
func (a *Agent) passWithout(ctx context.Context, nc *v1alpha1.NodeCache, why error) time.Duration {
	a.lost(why)
	if a.now().Sub(a.memory.downSince) < downAfter {
		return tickSoon
	}
	return min(tickMoving, a.write(ctx, nc, a.statusWithout(nc, why)))
}

// meet asks the engine who it is and what it holds. One that was started anew has to be told everything again.
func (a *Agent) meet(ctx context.Context) (*view, error) {
	info, err := a.Engine.Info(ctx)
	if err != nil {
		a.lost(err)
		return nil, err
	}
	// One that does not say who it is may be another one whenever it was away.
	if info.Instance != a.memory.instance || info.Instance == "" && !a.memory.downSince.IsZero() {
		a.Log.Info("engine", "version", info.Version, "instance", info.Instance)
		a.memory.instance = info.Instance
		a.memory.limits = nil
		a.memory.checking = ""
		for _, m := range a.memory.entries {
			m.untold()
		}
	}
	held, err := look(ctx, a.Engine)
	if err != nil {
		a.lost(err)
		return nil, err
	}
	a.memory.info = info
	a.memory.downSince = time.Time{}
	a.up.Store(true)
	return held, nil
}

func (a *Agent) lost(why error) {
	if a.memory.downSince.IsZero() {
		a.memory.downSince = a.now()
		a.Log.Info("the engine is away", "why", why.Error())
	}
	a.up.Store(false)
}

const (
	highDefault = 95
	lowDefault  = 85
)

func (a *Agent) tellLimits(ctx context.Context, nc *v1alpha1.NodeCache) error {
	l := engine.Limits{LimitBytes: nc.Spec.LimitBytes, High: nc.Spec.HighWatermark, Low: nc.Spec.LowWatermark}
	if l.High == 0 {
		l.High = highDefault
	}
	if l.Low == 0 {
		l.Low = min(lowDefault, l.High-1)
	}
	if a.memory.limits != nil && *a.memory.limits == l {
		return nil
	}
	if err := a.Engine.SetLimits(ctx, l); engine.IsNotFound(err) {
		a.Log.Info("this engine keeps no limits", "version", a.memory.info.Version)
	} else if err != nil {
		return err
	}
	a.memory.limits = &l
	for _, m := range a.memory.entries { // what did not fit may fit now
		m.retry.forgive()
	}
	return nil
}
