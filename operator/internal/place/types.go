// SPDX-License-Identifier: Apache-2.0

// Package place decides which nodes hold a dataset and where pods that need it run. It knows nothing of Kubernetes
// clients: what is known of the cluster goes in, decisions come out, and the same input gives the same decisions. The
// Dataset controller calls Replicas, the gate calls Plan; the simulation in its tests runs both on a made-up trace.
package place

import (
	"slices"
	"sort"
)

// Resources by name: cpu in thousandths, memory in bytes, devices in pieces.
type Resources map[string]int64

// Lacks returns a resource of which there is less than asked for, the first by name; "" if there is enough of all.
func (have Resources) Lacks(ask Resources) string {
	lacking := ""
	for name, amount := range ask {
		if amount > 0 && have[name] < amount && (lacking == "" || name < lacking) {
			lacking = name
		}
	}
	return lacking
}

func (have Resources) take(ask Resources) {
	for name, amount := range ask {
		have[name] -= amount
	}
}

func (have Resources) clone() Resources {
	out := make(Resources, len(have))
	for name, amount := range have {
		out[name] = amount
	}
	return out
}

// Copy of a dataset on a node: what lies there, or is to.
type Copy struct {
	Dataset string
	Bytes   int64 // that it takes when it is all there
	Here    int64 // that are there now
	Serves  bool  // a pod may start on it: all of it is there, or as much as its dataset asks for
	Failed  bool  // the node says that it cannot have it

	Spare    bool  // nobody would miss it: unpinned, unused, and more than its dataset asks for
	LastUsed int64 // seconds; the larger, the later
}

// Node that can hold datasets: its engine is up and pods may be bound to it.
type Node struct {
	Name, Zone string
	Capacity   int64 // bytes that datasets may take
	Free       int64 // bytes that one more could have; what Copies will still take is already off
	Copies     []Copy
	Total      Resources // what pods may ask for in all
	Left       Resources // and what is not taken

	worth float64 // of Copies; see outlook
}

func (n *Node) find(dataset string) *Copy {
	for i := range n.Copies {
		if n.Copies[i].Dataset == dataset {
			return &n.Copies[i]
		}
	}
	return nil
}

func (n *Node) clone() Node {
	out := *n
	out.Copies = slices.Clone(n.Copies)
	out.Left = n.Left.clone()
	return out
}

// spares are the copies that may go, the longest unused first. (Sparing the last copy of a dataset pulls more.)
func (n *Node) spares(but string) []Copy {
	var out []Copy
	for _, c := range n.Copies {
		if c.Spare && c.Dataset != but {
			out = append(out, c)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.LastUsed != b.LastUsed {
			return a.LastUsed < b.LastUsed
		}
		return a.Dataset < b.Dataset
	})
	return out
}

// Dataset to be placed.
type Dataset struct {
	Key     string
	Bytes   int64
	Partial bool // as much as fits will do
	// Allowed says why a node may not hold it; "" if it may. nil: every node may.
	Allowed func(node string) string
}

// Pod that needs a dataset.
type Pod struct {
	Name    string
	Dataset string
	Ask     Resources
	// Allowed says why it may not run on a node; "" if it may. nil: every node will do.
	Allowed func(node string) string
}

func allowed(f func(string) string, node string) string {
	if f == nil {
		return ""
	}
	return f(node)
}
