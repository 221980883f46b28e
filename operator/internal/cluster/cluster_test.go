// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
)

func nodeOf(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("4")}}}
}

func cacheOf(name string, free int64, entries ...v1alpha1.CacheEntry) v1alpha1.NodeCache {
	return v1alpha1.NodeCache{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeCacheSpec{Entries: entries},
		Status: v1alpha1.NodeCacheStatus{CapacityBytes: 1000, FreeBytes: free,
			Conditions: []metav1.Condition{{Type: v1alpha1.CondEngineReady, Status: metav1.ConditionTrue}}}}
}

func entryOf(name string, bytes int64) v1alpha1.CacheEntry {
	return v1alpha1.CacheEntry{Namespace: "ns", Name: name, Revision: "r", Bytes: bytes, Mode: v1alpha1.Whole}
}

func statusOf(name string, phase v1alpha1.EntryPhase, done int64) v1alpha1.EntryStatus {
	return v1alpha1.EntryStatus{Namespace: "ns", Name: name, Revision: "r", Phase: phase, BytesDone: done}
}

func TestFreeBytesCountWhatWasToldButNotBegun(t *testing.T) {
	c := cacheOf("n", 500, entryOf("told", 100), entryOf("pulling", 200), entryOf("ready", 50))
	c.Status.Entries = []v1alpha1.EntryStatus{statusOf("pulling", v1alpha1.PhasePulling, 20), statusOf("ready",
		v1alpha1.PhaseReady, 50),
		statusOf("going", v1alpha1.PhaseRemoving, 70)}
	if got := freeBytes(&c); got != 500-100+70 {
		t.Errorf("got %d", got)
	}
	c.Status.Entries[1].Revision = "older"
	if got := freeBytes(&c); got != 500-100-50+70 {
		t.Errorf("another revision: got %d", got)
	}
}

func datasetOf(name string, replicas int32) *v1alpha1.Dataset {
	return &v1alpha1.Dataset{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1alpha1.DatasetSpec{Placement: v1alpha1.Placement{Replicas: &replicas}}}
}

func userOf(dataset, node string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "user",
		Labels: map[string]string{v1alpha1.LabelDataset: dataset}},
		Spec: corev1.PodSpec{NodeName: node}}
}

func TestOnlyCopiesThatNobodyWouldMissAreSpare(t *testing.T) {
	snapshot := func() *Snapshot {
		s := &Snapshot{Now: time.Now(), Nodes: map[string]*corev1.Node{},
			Datasets: map[string]*v1alpha1.Dataset{"ns/d": datasetOf("d", 1)}}
		for _, name := range []string{"a", "b", "c"} {
			s.Nodes[name] = nodeOf(name, nil)
			c := cacheOf(name, 0, entryOf("d", 100))
			c.Status.Entries = []v1alpha1.EntryStatus{statusOf("d", v1alpha1.PhaseReady, 100)}
			s.Caches = append(s.Caches, c)
		}
		return s
	}
	spares := func(s *Snapshot) string {
		out := ""
		for _, n := range s.Place() {
			if n.Copies[0].Spare {
				out += n.Name
			}
		}
		return out
	}
	s := snapshot()
	if got := spares(s); got != "bc" {
		t.Errorf("one is kept: %s", got)
	}
	s.Pods = []corev1.Pod{userOf("d", "b")}
	if got := spares(s); got != "ac" {
		t.Errorf("the used one is kept: %s", got)
	}
	s.Caches[2].Status.Entries[0].InUse = true
	if got := spares(s); got != "a" {
		t.Errorf("the open one is kept: %s", got)
	}
	s = snapshot()
	s.Datasets["ns/d"].Spec.Pinned = true
	if got := spares(s); got != "" {
		t.Errorf("pinned: %s", got)
	}
	s = snapshot()
	waiting := userOf("d", "")
	waiting.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GatePlacing}}
	s.Pods = []corev1.Pod{waiting}
	if got := spares(s); got != "" {
		t.Errorf("waited for: %s", got)
	}
}

func TestWhatPodsAskForIsOffTheirNodes(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	ask := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
	pod := userOf("d", "a")
	pod.Spec.Containers = []corev1.Container{{Resources: ask("1")}, {Resources: ask("500m")}}
	pod.Spec.InitContainers = []corev1.Container{{Resources: ask("250m"), RestartPolicy: &always}, {Resources: ask("2")}}
	if got := Ask(&pod)["cpu"]; got != 2250 {
		t.Errorf("an init container that is larger than the rest, and one beside it: %d", got)
	}
	pod.Spec.InitContainers = pod.Spec.InitContainers[:1]
	if got := Ask(&pod)["cpu"]; got != 1750 {
		t.Errorf("one beside it: %d", got)
	}
	s := &Snapshot{Nodes: map[string]*corev1.Node{"a": nodeOf("a", nil)}, Caches: []v1alpha1.NodeCache{cacheOf("a", 0)},
		Pods: []corev1.Pod{pod}}
	if got := s.Place()[0].Left["cpu"]; got != 8000-1750 {
		t.Errorf("left: %d", got)
	}
}

func TestNodesThatAreNotUpAreNotPlacedOn(t *testing.T) {
	for what, change := range map[string]func(n *corev1.Node, c *v1alpha1.NodeCache){
		"cordoned": func(n *corev1.Node, _ *v1alpha1.NodeCache) { n.Spec.Unschedulable = true },
		"not ready": func(n *corev1.Node,
			_ *v1alpha1.NodeCache) {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		},
		"engine away": func(_ *corev1.Node, c *v1alpha1.NodeCache) { c.Status.Conditions[0].Status = metav1.ConditionFalse },
	} {
		n, c := nodeOf("a", nil), cacheOf("a", 0)
		change(n, &c)
		s := &Snapshot{Nodes: map[string]*corev1.Node{"a": n}, Caches: []v1alpha1.NodeCache{c}}
		if len(s.Place()) != 0 {
			t.Error(what)
		}
	}
}

func TestANodeMayBeAwayForAWhile(t *testing.T) {
	now := time.Now()
	n, c := nodeOf("a", nil), cacheOf("a", 0)
	s := &Snapshot{Now: now, Nodes: map[string]*corev1.Node{"a": n}}
	for _, away := range []time.Duration{time.Minute, time.Hour} {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			LastTransitionTime: metav1.NewTime(now.Add(-away))}
		if got := s.Lives(&c); got != (away < DownGrace) {
			t.Errorf("node: %s: %t", away, got)
		}
		n.Status.Conditions[0].Status = corev1.ConditionTrue
		c.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-away))
		c.Status.Conditions[0].Status = metav1.ConditionFalse
		if got := s.Lives(&c); got != (away < DownGrace) {
			t.Errorf("engine: %s: %t", away, got)
		}
		c.Status.Conditions[0].Status = metav1.ConditionTrue
	}
	delete(s.Nodes, "a")
	if s.Lives(&c) {
		t.Error("a node that is gone")
	}
}

func TestTheSchedulersRulesAreKnown(t *testing.T) {
	term := func(op corev1.NodeSelectorOperator, key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op,
			Values: values}}}
	}
	n := nodeOf("a", map[string]string{"disk": "ssd", "size": "5"}, corev1.Taint{Key: "gpu", Value: "yes",
		Effect: corev1.TaintEffectNoSchedule})
	tolerant := []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	for i, c := range []struct {
		terms    []corev1.NodeSelectorTerm
		selector map[string]string
		tolerate bool
		fits     bool
	}{
		{nil, nil, true, true},
		{nil, nil, false, false},
		{nil, map[string]string{"disk": "ssd"}, true, true},
		{nil, map[string]string{"disk": "hdd"}, true, false},
		{[]corev1.NodeSelectorTerm{term("In", "disk", "hdd"), term("In", "disk", "ssd")}, nil, true, true},
		{[]corev1.NodeSelectorTerm{term("NotIn", "disk", "ssd")}, nil, true, false},
		{[]corev1.NodeSelectorTerm{term("NotIn", "other", "ssd")}, nil, true, true},
		{[]corev1.NodeSelectorTerm{term("Exists", "size")}, nil, true, true},
		{[]corev1.NodeSelectorTerm{term("DoesNotExist", "size")}, nil, true, false},
		{[]corev1.NodeSelectorTerm{term("Gt", "size", "4")}, nil, true, true},
		{[]corev1.NodeSelectorTerm{term("Lt", "size", "4")}, nil, true, false},
		{[]corev1.NodeSelectorTerm{{}}, nil, true, false},
		{[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In",
			Values: []string{"a"}}}}}, nil, true, true},
		{[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In",
			Values: []string{"b"}}}}}, nil, true, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: c.selector}}
		if c.tolerate {
			pod.Spec.Tolerations = tolerant
		}
		if c.terms != nil {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: c.terms}}}
		}
		if got := mayRun(pod, n); (got == "") != c.fits {
			t.Errorf("case %d: %q", i, got)
		}
	}
}

func TestUsersAreThoseThatHoldOn(t *testing.T) {
	user, gated, other := userOf("d", "a"), userOf("d", ""), userOf("e", "a")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GatePlacing}}
	c := cacheOf("a", 0)
	c.Status.Entries = []v1alpha1.EntryStatus{{Namespace: "ns", Name: "d", InUse: true}}
	s := &Snapshot{Nodes: map[string]*corev1.Node{"a": nodeOf("a", nil)}, Caches: []v1alpha1.NodeCache{c},
		Pods: []corev1.Pod{user, gated, other}}
	pods, nodes := s.Users(datasetOf("d", 1))
	if fmt.Sprint(pods, nodes) != "[user] [a]" {
		t.Errorf("%v %v", pods, nodes)
	}
	s.Nodes["a"].Status.Conditions[0].Status = corev1.ConditionUnknown
	if _, nodes := s.Users(datasetOf("d", 1)); nodes != nil {
		t.Errorf("nobody waits for a node that does not answer: %v", nodes)
	}
}
