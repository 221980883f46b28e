// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
)

const rev = "0123456789abcdef0123456789abcdef"

func resolvedDataset(replicas int32) *v1alpha1.Dataset {
	d := &v1alpha1.Dataset{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: "u", Generation: 3},
		Spec:   v1alpha1.DatasetSpec{Revision: "Latest", Placement: v1alpha1.Placement{Replicas: &replicas}},
		Status: v1alpha1.DatasetStatus{Revision: rev, Objects: 3, Bytes: 1000}}
	condition(d, v1alpha1.CondResolved, true, v1alpha1.ReasonListed, "")
	condition(d, v1alpha1.CondPlaced, true, v1alpha1.ReasonNodesChosen, "")
	return d
}

func nodeWith(name string, st *v1alpha1.EntryStatus) v1alpha1.NodeCache {
	c := v1alpha1.NodeCache{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Entries = []v1alpha1.CacheEntry{{Namespace: "ns", Name: "d", Revision: rev, Bytes: 1000}}
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.CondEngineReady,
		Status: metav1.ConditionTrue, Reason: "Serves"})
	if st != nil {
		st.Namespace, st.Name = "ns", "d"
		c.Status.Entries = []v1alpha1.EntryStatus{*st}
	}
	return c
}

func readyReason(d *v1alpha1.Dataset) string {
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondReady)
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

func TestStatusTellsTheWholeStory(t *testing.T) {
	full := &v1alpha1.EntryStatus{Revision: rev, Phase: v1alpha1.PhaseReady, BytesDone: 1000}
	half := &v1alpha1.EntryStatus{Revision: rev, Phase: v1alpha1.PhasePulling, BytesDone: 500}
	old := &v1alpha1.EntryStatus{Revision: "older", Phase: v1alpha1.PhaseReady, BytesDone: 900}
	small := &v1alpha1.EntryStatus{Revision: rev, Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonInsufficientSpace,
		Message:     "no room",
		NeededBytes: 2048, FreeBytes: 1024}
	for _, c := range []struct {
		what          string
		nodes         []*v1alpha1.EntryStatus
		ready, cached string
		reason        string
	}{
		{"both there", []*v1alpha1.EntryStatus{full, full}, "2/2", "100 %", "True Ready on 2 of 2 nodes"},
		{"one to come", []*v1alpha1.EntryStatus{full, half}, "1/2", "75 %", "False Pulling on 1 of 2 nodes"},
		{"not begun", []*v1alpha1.EntryStatus{full, nil}, "1/2", "50 %", "False Pulling on 1 of 2 nodes"},
		{"another revision", []*v1alpha1.EntryStatus{full, old}, "1/2", "50 %", "False Pulling on 1 of 2 nodes"},
		{"too small", []*v1alpha1.EntryStatus{full, small}, "1/2", "50 %",
			"False InsufficientSpace n1: no room (2.0 KiB needed, 1.0 KiB free)"},
		{"more than asked for", []*v1alpha1.EntryStatus{full, full, half}, "2/3", "83 %", "True Ready on 2 of 3 nodes"},
	} {
		d := resolvedDataset(2)
		var caches []v1alpha1.NodeCache
		for i, st := range c.nodes {
			caches = append(caches, nodeWith(fmt.Sprint("n", i), st))
		}
		summarize(d, caches)
		if d.Status.Ready != c.ready || d.Status.Cached != c.cached || readyReason(d) != c.reason {
			t.Errorf("%s: %s, %s, %s", c.what, d.Status.Ready, d.Status.Cached, readyReason(d))
		}
		before := d.DeepCopy()
		summarize(d, caches)
		if !equality.Semantic.DeepEqual(before, d) {
			t.Errorf("%s: a second time differs", c.what)
		}
	}
}

func TestWhatIsInTheWayIsTheReason(t *testing.T) {
	d := resolvedDataset(1)
	d.Status.Revision = ""
	condition(d, v1alpha1.CondResolved, false, v1alpha1.ReasonSecretNotFound, "no secret")
	summarize(d, nil)
	if got := readyReason(d); got != "False SecretNotFound no secret" {
		t.Error(got)
	}
	d = resolvedDataset(1)
	condition(d, v1alpha1.CondPlaced, false, v1alpha1.ReasonNoNodes, "none")
	summarize(d, nil)
	if got := readyReason(d); got != "False NoNodes none" || d.Status.Ready != "0/1" {
		t.Error(got, d.Status.Ready)
	}
	// What is there stays usable while the bucket cannot be listed again.
	d = resolvedDataset(1)
	condition(d, v1alpha1.CondResolved, false, v1alpha1.ReasonBucketUnreachable, "no route")
	summarize(d, []v1alpha1.NodeCache{nodeWith("n", &v1alpha1.EntryStatus{Revision: rev, Phase: v1alpha1.PhaseReady,
		BytesDone: 1000})})
	degraded := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondDegraded)
	if !strings.HasPrefix(readyReason(d), "True Ready") || degraded.Status != "True" ||
		degraded.Reason != v1alpha1.ReasonBucketUnreachable {
		t.Error(readyReason(d), degraded)
	}
}

func TestACopyWhoseEngineIsAwayIsNotReady(t *testing.T) {
	d := resolvedDataset(1)
	c := nodeWith("n", &v1alpha1.EntryStatus{Revision: rev, Phase: v1alpha1.PhaseReady, BytesDone: 1000})
	c.Status.Conditions[0].Status = metav1.ConditionFalse
	summarize(d, []v1alpha1.NodeCache{c})
	if d.Status.Ready != "0/1" || d.Status.Nodes[0].Message != "the node's engine is away" {
		t.Errorf("%s %+v", d.Status.Ready, d.Status.Nodes)
	}
}

func TestReplicasOfNoneIsReadyOnceListed(t *testing.T) {
	d := resolvedDataset(0)
	summarize(d, nil)
	if got := readyReason(d); !strings.HasPrefix(got, "True Ready") || d.Status.Ready != "0/0" {
		t.Error(got, d.Status.Ready)
	}
}

func TestADatasetThatGoesIsNotReadySinceOnce(t *testing.T) {
	d := resolvedDataset(1)
	condition(d, v1alpha1.CondReady, true, v1alpha1.ReasonReady, "")
	replicas := int32(0) // so that nodes say it is ready
	d.Spec.Placement.Replicas = &replicas
	notReady(d, nil, v1alpha1.ReasonInUse, "in use")
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.CondReady)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonInUse {
		t.Fatalf("%+v", c)
	}
	long := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	c.LastTransitionTime = long
	before := d.DeepCopy()
	notReady(d, nil, v1alpha1.ReasonInUse, "in use")
	if !equality.Semantic.DeepEqual(before.Status, d.Status) {
		t.Errorf("%+v, was %+v", d.Status, before.Status)
	}
}
