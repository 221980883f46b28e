// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
)

const (
	writeEvery = time.Second
	// How long a status that was written may take to come back by the watch.
	echoWithin = 10 * time.Second

	reasonConnected = "Connected"
	reasonAway      = "Away"
)

// writer keeps writes apart, and knows what was written last.
type writer struct {
	last *v1alpha1.NodeCacheStatus
	at   time.Time
}

// before is the newest status that is known: the watch may be behind.
func (a *Agent) before(nc *v1alpha1.NodeCache) *v1alpha1.NodeCacheStatus {
	if a.writer.last != nil && a.now().Sub(a.writer.at) < echoWithin {
		return a.writer.last
	}
	return &nc.Status
}

func (a *Agent) statusWith(
	nc *v1alpha1.NodeCache, held *view, entries []v1alpha1.EntryStatus,
) *v1alpha1.NodeCacheStatus {
	before := a.before(nc)
	s := &v1alpha1.NodeCacheStatus{
		ObservedGeneration: nc.Generation,
		CapacityBytes:      held.capacity(),
		UsedBytes:          held.depot.TakenBytes,
		FreeBytes:          held.depot.FreeBytes,
		Path:               a.Path,
		EngineVersion:      a.memory.info.Version,
		EngineProtocol:     a.memory.info.Protocol,
		EngineInstance:     a.memory.info.Instance,
		Entries:            sorted(entries),
	}
	if nc.Spec.LimitBytes == 0 { // others write to that file system, too
		s.CapacityBytes = steady(before.CapacityBytes, s.CapacityBytes, s.CapacityBytes)
		s.FreeBytes = steady(before.FreeBytes, s.FreeBytes, s.CapacityBytes)
	}
	s.Capacity, s.Used = size(s.CapacityBytes), size(s.UsedBytes)
	a.condition(s, before, metav1.ConditionTrue, reasonConnected, "the engine answers")
	return s
}

// statusWithout is the last one, with the engine being away: what was there still is, but nobody can serve it.
func (a *Agent) statusWithout(nc *v1alpha1.NodeCache, why error) *v1alpha1.NodeCacheStatus {
	before := a.before(nc)
	s := before.DeepCopy()
	s.ObservedGeneration = nc.Generation
	s.Path = a.Path
	if s.EngineDownSince == "" {
		s.EngineDownSince = a.memory.downSince.UTC().Format(time.RFC3339)
	}
	known := map[string]*v1alpha1.EntryStatus{}
	for i := range s.Entries {
		known[s.Entries[i].Namespace+"/"+s.Entries[i].Name] = &s.Entries[i]
	}
	s.Entries = nil
	for i := range nc.Spec.Entries {
		e := &nc.Spec.Entries[i]
		at := e.Namespace + "/" + e.Name
		one := v1alpha1.EntryStatus{Namespace: e.Namespace, Name: e.Name, BytesTotal: e.Bytes}
		if known[at] != nil && known[at].Revision == e.Revision {
			one = *known[at]
		}
		delete(known, at)
		one.Revision, one.Phase, one.InUse = e.Revision, v1alpha1.PhasePending, false
		one.Reason, one.Message = v1alpha1.ReasonWaiting, "the engine is away"
		one.NeededBytes, one.FreeBytes = 0, 0
		s.Entries = append(s.Entries, one)
	}
	for _, one := range known {
		one.Phase = v1alpha1.PhaseRemoving
		s.Entries = append(s.Entries, *one)
	}
	s.Entries = sorted(s.Entries)
	a.condition(s, before, metav1.ConditionFalse, reasonAway, newTrouble("", why.Error(), 0).message)
	return s
}

func (a *Agent) condition(s, before *v1alpha1.NodeCacheStatus, is metav1.ConditionStatus, reason, message string) {
	s.Conditions = append([]metav1.Condition(nil), before.Conditions...)
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.CondEngineReady, Status: is, Reason: reason, Message: message,
		ObservedGeneration: 0, // it does not speak of the spec
		LastTransitionTime: metav1.NewTime(a.now().UTC().Truncate(time.Second)),
	})
}

// write writes the status unless it is there already, at most once a second. Returns when it wants to be called again.
func (a *Agent) write(ctx context.Context, nc *v1alpha1.NodeCache, s *v1alpha1.NodeCacheStatus) time.Duration {
	if equality.Semantic.DeepEqual(s, a.before(nc)) {
		return tickIdle
	}
	if a.heart.refused { // the operator would say the opposite, and the two would take turns
		return tickMoving
	}
	if since := a.now().Sub(a.writer.at); since < writeEvery {
		return writeEvery - since
	}
	a.writer.at = a.now()
	if err := a.Cluster.Report(ctx, nc, s); err != nil {
		a.Log.Info("the status could not be written", "why", err.Error())
		a.writer.last = nil
		return tickMoving
	}
	a.writer.last = s
	return tickIdle
}

// steady keeps a number as it was while the new one is about the same.
func steady(was, is, of int64) int64 {
	if d := is - was; was > 0 && max(d, -d) <= max(of/256, 64<<20) {
		return was
	}
	return is
}

func sorted(entries []v1alpha1.EntryStatus) []v1alpha1.EntryStatus {
	sort.SliceStable(entries, func(i, k int) bool {
		if entries[i].Namespace != entries[k].Namespace {
			return entries[i].Namespace < entries[k].Namespace
		}
		return entries[i].Name < entries[k].Name
	})
	return entries
}

// size is bytes as people read them.
func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
