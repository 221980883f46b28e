// SPDX-License-Identifier: Apache-2.0

// Package cluster turns what the API server knows into what package place reads: nodes with their room, copies and what
// is left of their devices, and pods with what they ask for. Nothing here writes.
package cluster

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/place"
)

const zoneLabel = corev1.LabelTopologyZone

// DownGrace is how long a node or its engine may be away before its copies are no longer counted on: a restart must not
// make everything be pulled elsewhere.
const DownGrace = 10 * time.Minute

// Snapshot of the cluster.
type Snapshot struct {
	Nodes    map[string]*corev1.Node
	Caches   []v1alpha1.NodeCache // sorted by name
	Datasets map[string]*v1alpha1.Dataset
	Pods     []corev1.Pod // sorted by age; without those that have ended
	Now      time.Time
}

// Take reads the cluster; NodeCaches from a reader of their own, since who is about to write their specs must not
// decide by an old one.
func Take(ctx context.Context, cached, caches client.Reader) (*Snapshot, error) {
	s := &Snapshot{Nodes: map[string]*corev1.Node{}, Datasets: map[string]*v1alpha1.Dataset{}, Now: time.Now()}
	var nodes corev1.NodeList
	var cacheList v1alpha1.NodeCacheList
	var datasets v1alpha1.DatasetList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&nodes, &datasets, &pods} {
		if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	if err := caches.List(ctx, &cacheList); err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		s.Nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for i := range datasets.Items {
		s.Datasets[Key(&datasets.Items[i])] = &datasets.Items[i]
	}
	for i := range pods.Items {
		if !HasEnded(&pods.Items[i]) {
			s.Pods = append(s.Pods, pods.Items[i])
		}
	}
	s.Caches = cacheList.Items
	s.sort()
	return s, nil
}

func (s *Snapshot) sort() {
	slices.SortFunc(s.Caches, func(a, b v1alpha1.NodeCache) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(s.Pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
}

// Key of a dataset: namespace and name.
func Key(d *v1alpha1.Dataset) string { return d.Namespace + "/" + d.Name }

// PodKey is the key of the dataset that a pod asks for; "" if none.
func PodKey(pod *corev1.Pod) string {
	if name := pod.Labels[v1alpha1.LabelDataset]; name != "" {
		return pod.Namespace + "/" + name
	}
	return ""
}

func entryKey(e *v1alpha1.CacheEntry) string { return e.Namespace + "/" + e.Name }

// StatusOf is what a node says about a dataset; nil if nothing.
func StatusOf(c *v1alpha1.NodeCache, namespace, name string) *v1alpha1.EntryStatus {
	for i := range c.Status.Entries {
		if e := &c.Status.Entries[i]; e.Namespace == namespace && e.Name == name {
			return e
		}
	}
	return nil
}

// EntryOf is what a node is to hold of a dataset; nil if nothing.
func EntryOf(c *v1alpha1.NodeCache, namespace, name string) *v1alpha1.CacheEntry {
	for i := range c.Spec.Entries {
		if e := &c.Spec.Entries[i]; e.Namespace == namespace && e.Name == name {
			return e
		}
	}
	return nil
}

// EngineReady tells whether the node's agent says that its engine serves.
func EngineReady(c *v1alpha1.NodeCache) bool {
	return c.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.CondEngineReady)
}

// NodeReady tells whether pods can be bound to the node.
func NodeReady(n *corev1.Node) bool {
	if n == nil || n.Spec.Unschedulable || !n.DeletionTimestamp.IsZero() {
		return false
	}
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return n.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// Lives tells whether a copy on the node is to be counted on: the node is there, or not away for long.
func (s *Snapshot) Lives(c *v1alpha1.NodeCache) bool {
	n := s.Nodes[c.Name]
	if n == nil || !n.DeletionTimestamp.IsZero() || !c.DeletionTimestamp.IsZero() {
		return false
	}
	for i := range n.Status.Conditions {
		at := n.Status.Conditions[i]
		if at.Type == corev1.NodeReady && at.Status != corev1.ConditionTrue &&
			s.Now.Sub(at.LastTransitionTime.Time) > DownGrace {
			return false
		}
	}
	engine := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.CondEngineReady)
	return engine == nil || engine.Status == "True" || s.Now.Sub(engine.LastTransitionTime.Time) <= DownGrace
}

// Place is what the scorer reads: the nodes whose engines are up and to which pods can be bound.
func (s *Snapshot) Place() []place.Node {
	u := s.use()
	var out []place.Node
	for i := range s.Caches {
		c := &s.Caches[i]
		n := s.Nodes[c.Name]
		if !EngineReady(c) || !NodeReady(n) {
			continue
		}
		total := resources(n.Status.Allocatable)
		left := resources(n.Status.Allocatable)
		for name, amount := range u.asked[c.Name] {
			left[name] -= amount
		}
		out = append(out, place.Node{Name: c.Name, Zone: n.Labels[zoneLabel], Capacity: c.Status.CapacityBytes,
			Free: freeBytes(c), Copies: s.copies(c, u), Total: total, Left: left})
	}
	return out
}

// freeBytes is what one more dataset could have: what the node says, less what it has been told but not begun, and with
// what it has been told to remove.
func freeBytes(c *v1alpha1.NodeCache) int64 {
	free := c.Status.FreeBytes
	for i := range c.Spec.Entries {
		e := &c.Spec.Entries[i]
		st := StatusOf(c, e.Namespace, e.Name)
		begun := st != nil && st.Revision == e.Revision && st.Phase != v1alpha1.PhasePending
		if !begun { // pulls that run have reserved their bytes, and what failed takes none
			free -= max(takes(c, e, st), 0)
		}
	}
	for i := range c.Status.Entries {
		if st := &c.Status.Entries[i]; EntryOf(c, st.Namespace, st.Name) == nil {
			free += st.BytesDone
		}
	}
	return free
}

// takes is how much of the disk an entry has when it is done.
func takes(c *v1alpha1.NodeCache, e *v1alpha1.CacheEntry, st *v1alpha1.EntryStatus) int64 {
	if e.Mode == v1alpha1.Partial && st != nil && st.Phase == v1alpha1.PhasePartial {
		return st.BytesDone
	}
	if e.Mode == v1alpha1.Partial {
		return min(e.Bytes, c.Status.CapacityBytes)
	}
	return e.Bytes
}

func (s *Snapshot) copies(c *v1alpha1.NodeCache, u *use) []place.Copy {
	out := make([]place.Copy, 0, len(c.Spec.Entries))
	for i := range c.Spec.Entries {
		e := &c.Spec.Entries[i]
		st := StatusOf(c, e.Namespace, e.Name)
		one := place.Copy{Dataset: entryKey(e), Bytes: takes(c, e, st), Spare: u.spare[c.Name+"/"+entryKey(e)],
			LastUsed: u.lastUsed[c.Name+"/"+entryKey(e)]}
		if st != nil && st.Revision == e.Revision {
			one.Here = st.BytesDone
			one.Serves = Serves(s.Datasets[entryKey(e)], st.Phase)
			one.Failed = st.Phase == v1alpha1.PhaseFailed && st.Reason == v1alpha1.ReasonInsufficientSpace
		}
		if st != nil && st.CompletedAt != nil {
			one.LastUsed = max(one.LastUsed, st.CompletedAt.Unix())
		}
		out = append(out, one)
	}
	return out
}

// Serves tells whether a pod may start on a copy in that phase.
func Serves(d *v1alpha1.Dataset, phase v1alpha1.EntryPhase) bool {
	switch phase {
	case v1alpha1.PhaseReady, v1alpha1.PhasePartial:
		return true
	case v1alpha1.PhasePulling:
		return d != nil && d.Spec.Start == v1alpha1.AtOnce
	}
	return false
}

// Dataset is what the scorer reads of a dataset.
func (s *Snapshot) Dataset(d *v1alpha1.Dataset) *place.Dataset {
	return &place.Dataset{Key: Key(d), Bytes: d.Status.Bytes, Partial: d.Spec.Placement.Mode == v1alpha1.Partial,
		Allowed: func(node string) string {
			if n := s.Nodes[node]; n == nil || !hasLabels(n.Labels, d.Spec.Placement.NodeSelector) {
				return "without the labels that the dataset asks for"
			}
			return ""
		}}
}

func hasLabels(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// Hosts are the values of the hostname label, which need not be the nodes' names.
func (s *Snapshot) Hosts(nodes []string) []string {
	out := make([]string, 0, len(nodes))
	for _, name := range nodes {
		if n := s.Nodes[name]; n != nil && n.Labels[corev1.LabelHostname] != "" {
			name = n.Labels[corev1.LabelHostname]
		}
		out = append(out, name)
	}
	return out
}

// named are the nodes of hostnames: the other way round.
func (s *Snapshot) named(hosts []string) []string {
	names := map[string]string{}
	for name, n := range s.Nodes {
		if host := n.Labels[corev1.LabelHostname]; host != "" {
			names[host] = name
		}
	}
	out := make([]string, 0, len(hosts))
	for _, host := range hosts {
		if name, ok := names[host]; ok {
			host = name
		}
		out = append(out, host)
	}
	return out
}
