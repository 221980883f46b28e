// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
	"penstock.dev/operator/internal/place"
)

// condition sets one; its time changes only with its status.
func condition(d *v1alpha1.Dataset, kind string, status bool, reason, message string) {
	word := metav1.ConditionFalse
	if status {
		word = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: kind, Status: word, Reason: reason,
		Message:            message,
		ObservedGeneration: d.Generation})
}

// tally is what the nodes say about a dataset.
type tally struct {
	ready, failed int
	done, total   int64
	problem       string // of the first node that failed
	reason        string
}

// summarize fills in nodes, columns and the conditions Ready and Degraded, from what nodes say.
func summarize(d *v1alpha1.Dataset, caches []v1alpha1.NodeCache) {
	t := tally{}
	d.Status.Nodes = nil
	for i := range caches {
		if e := cluster.EntryOf(&caches[i], d.Namespace, d.Name); e != nil {
			d.Status.Nodes = append(d.Status.Nodes, t.add(d, &caches[i], e))
		}
	}
	d.Status.ObservedGeneration = d.Generation
	d.Status.ShortRevision = d.Status.Revision[:min(12, len(d.Status.Revision))]
	d.Status.Size = ""
	if d.Status.Revision != "" {
		d.Status.Size = place.Bytes(d.Status.Bytes)
	}
	want := cluster.Replicas(d)
	d.Status.Ready = fmt.Sprintf("%d/%d", t.ready, max(want, len(d.Status.Nodes)))
	d.Status.Cached = "0 %"
	if t.total > 0 {
		d.Status.Cached = fmt.Sprintf("%d %%", 100*t.done/t.total)
	}
	readiness(d, &t, want)
	degradation(d, &t)
}

func (t *tally) add(d *v1alpha1.Dataset, c *v1alpha1.NodeCache, e *v1alpha1.CacheEntry) v1alpha1.DatasetNode {
	out := v1alpha1.DatasetNode{Name: c.Name, Phase: v1alpha1.PhasePending}
	t.total += e.Bytes
	st := cluster.StatusOf(c, d.Namespace, d.Name)
	if st == nil {
		return out
	}
	out.InUse = st.InUse
	if st.Revision != e.Revision && st.Phase != v1alpha1.PhaseFailed {
		return out // it speaks of another revision
	}
	out.Phase, out.BytesDone, out.Message = st.Phase, st.BytesDone, st.Message
	t.done += min(st.BytesDone, e.Bytes)
	switch st.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhasePartial:
		if cluster.EngineReady(c) {
			t.ready++
		} else {
			out.Message = "the node's engine is away"
		}
	case v1alpha1.PhaseFailed:
		t.failed++
		if t.problem == "" {
			t.reason, t.problem = st.Reason, explain(c.Name, st)
		}
	}
	return out
}

func explain(node string, st *v1alpha1.EntryStatus) string {
	text := node + ": " + st.Message
	if st.NeededBytes > 0 {
		text += fmt.Sprintf(" (%s needed, %s free)", place.Bytes(st.NeededBytes), place.Bytes(st.FreeBytes))
	}
	return text
}

// readiness says in one condition how far a dataset is, or what is in its way, the earliest first.
func readiness(d *v1alpha1.Dataset, t *tally, want int) {
	resolved := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondResolved)
	placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondPlaced)
	switch {
	case d.Status.Revision == "" && resolved != nil:
		condition(d, v1alpha1.CondReady, false, resolved.Reason, resolved.Message)
	case d.Status.Revision == "":
		condition(d, v1alpha1.CondReady, false, v1alpha1.ReasonWaiting, "the bucket has not been listed")
	case t.ready >= want:
		condition(d, v1alpha1.CondReady, true, v1alpha1.ReasonReady, fmt.Sprintf("on %d of %d nodes", t.ready, max(want,
			len(d.Status.Nodes))))
	case t.failed > 0:
		reason := v1alpha1.ReasonFailed
		if t.reason != "" {
			reason = t.reason
		}
		condition(d, v1alpha1.CondReady, false, reason, t.problem)
	case placed != nil && placed.Status != metav1.ConditionTrue:
		condition(d, v1alpha1.CondReady, false, placed.Reason, placed.Message)
	default:
		condition(d, v1alpha1.CondReady, false, v1alpha1.ReasonPulling, fmt.Sprintf("on %d of %d nodes", t.ready, want))
	}
}

func degradation(d *v1alpha1.Dataset, t *tally) {
	resolved := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondResolved)
	switch {
	case t.failed > 0:
		reason := v1alpha1.ReasonFailed
		if t.reason != "" {
			reason = t.reason
		}
		condition(d, v1alpha1.CondDegraded, true, reason, t.problem)
	case d.Status.Revision != "" && resolved != nil && resolved.Status != metav1.ConditionTrue:
		condition(d, v1alpha1.CondDegraded, true, resolved.Reason, "the bucket could not be listed again: "+resolved.Message)
	default:
		condition(d, v1alpha1.CondDegraded, false, v1alpha1.ReasonReady, "")
	}
}
