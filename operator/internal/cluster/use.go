// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/place"
)

// use is who uses what: what is asked for on each node, and which copies nobody would miss. Keys of copies are the
// node's name and the dataset's key.
type use struct {
	asked    map[string]place.Resources
	busy     map[string]bool
	wanted   map[string]bool // datasets that gated pods wait for
	lastUsed map[string]int64
	spare    map[string]bool
}

func (s *Snapshot) use() *use {
	u := &use{asked: map[string]place.Resources{}, busy: map[string]bool{}, wanted: map[string]bool{},
		lastUsed: map[string]int64{}, spare: map[string]bool{}}
	for i := range s.Pods {
		u.addPod(s, &s.Pods[i])
	}
	u.findSpares(s)
	return u
}

func (u *use) addPod(s *Snapshot, pod *corev1.Pod) {
	key := PodKey(pod)
	if key != "" && IsGated(pod) {
		u.wanted[key] = true
	}
	for _, node := range s.Where(pod) {
		if key != "" {
			u.busy[node+"/"+key] = true
		}
		if key != "" && pod.Status.StartTime != nil {
			u.lastUsed[node+"/"+key] = max(u.lastUsed[node+"/"+key], pod.Status.StartTime.Unix())
		}
	}
	if node := pod.Spec.NodeName; node != "" {
		if u.asked[node] == nil {
			u.asked[node] = place.Resources{}
		}
		for name, amount := range Ask(pod) {
			u.asked[node][name] += amount
		}
	}
}

// findSpares keeps as many copies of each dataset as it asks for, those first that are used and done; the rest may go
// if nobody uses them.
func (u *use) findSpares(s *Snapshot) {
	type copyOf struct {
		node string
		idle bool
		done bool
	}
	copies := map[string][]copyOf{}
	for i := range s.Caches {
		c := &s.Caches[i]
		for k := range c.Spec.Entries {
			e := &c.Spec.Entries[k]
			st := StatusOf(c, e.Namespace, e.Name)
			key := entryKey(e)
			copies[key] = append(copies[key], copyOf{node: c.Name, idle: !u.busy[c.Name+"/"+key] && (st == nil || !st.InUse),
				done: st != nil && (st.Phase == v1alpha1.PhaseReady || st.Phase == v1alpha1.PhasePartial)})
		}
	}
	for key, list := range copies {
		d := s.Datasets[key]
		if d == nil || d.Spec.Pinned || u.wanted[key] || !d.DeletionTimestamp.IsZero() {
			continue
		}
		slices.SortFunc(list, func(a, b copyOf) int {
			return cmp.Or(order(!a.idle, !b.idle), order(a.done, b.done), cmp.Compare(a.node, b.node))
		})
		for _, c := range list[min(Replicas(d), len(list)):] {
			u.spare[c.node+"/"+key] = c.idle
		}
	}
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Replicas is how many nodes are to hold a dataset before anybody asks.
func Replicas(d *v1alpha1.Dataset) int {
	if d.Spec.Placement.Replicas == nil {
		return 1
	}
	return int(*d.Spec.Placement.Replicas)
}

// Users are the pods that hold on to a dataset, as namespace-less names, and the nodes where some process has it open.
func (s *Snapshot) Users(d *v1alpha1.Dataset) (pods, nodes []string) {
	for i := range s.Pods {
		if pod := &s.Pods[i]; PodKey(pod) == Key(d) && !IsGated(pod) {
			pods = append(pods, pod.Name)
		}
	}
	for i := range s.Caches {
		c := &s.Caches[i]
		if st := StatusOf(c, d.Namespace, d.Name); st != nil && st.InUse && s.Answers(c) {
			nodes = append(nodes, c.Name)
		}
	}
	return pods, nodes
}

// Answers tells whether what a node's agent says is new: nobody waits for an agent that is away.
func (s *Snapshot) Answers(c *v1alpha1.NodeCache) bool {
	return EngineReady(c) && NodeReadyOrCordoned(s.Nodes[c.Name])
}

// NodeReadyOrCordoned tells whether the node runs, though it may take no new pods.
func NodeReadyOrCordoned(n *corev1.Node) bool {
	if n == nil {
		return false
	}
	open := *n
	open.Spec.Unschedulable = false
	return NodeReady(&open)
}
