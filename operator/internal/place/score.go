// SPDX-License-Identifier: Apache-2.0

package place

import (
	"hash/fnv"
	"strings"
)

// What each part of a score may give at most. Bytes that need not be pulled outweigh everything else together.
const (
	weightHeld   = 8.0
	weightLost   = 3.0 // with a pod only
	weightRoom   = 1.0
	weightFit    = 0.5
	weightSpread = 1.0 // without a pod only: where one runs is no question of zones

	// Bytes that are on their way cost no second pull, but a pod would wait for them.
	onTheWay = 0.9
)

// Choice of a node, and what it costs.
type Choice struct {
	Node  string
	Score float64
	Pull  int64    // bytes that have to come
	New   bool     // the node is not to hold it yet
	Evict []string // datasets that have to go first

	index int
	tie   uint32
}

func (a *Choice) better(b *Choice) bool {
	if a.Score != b.Score {
		return a.Score > b.Score
	}
	if a.tie != b.tie {
		return a.tie < b.tie
	}
	return a.Node < b.Node
}

// judge scores one node for a dataset and what a pod asks for (nil: no pod yet), or says why not.
func judge(n *Node, d *Dataset, ask Resources, zones map[string]int) (Choice, Refusal) {
	c := Choice{Node: n.Name, tie: hash(d.Key, n.Name)}
	if lacking := n.Left.Lacks(ask); lacking != "" {
		return c, Refusal{Kind: lacks, What: lacking, Needed: ask[lacking], Had: n.Left[lacking], Most: n.Total[lacking]}
	}
	held := n.find(d.Key)
	var here, promised int64
	if held != nil {
		here, promised = min(held.Here, d.Bytes), min(held.Bytes, d.Bytes)
		if held.Failed {
			return c, Refusal{Kind: noRoom, Needed: d.Bytes, Had: here + n.Free, Most: n.Capacity}
		}
	}
	room, ok := judgeRoom(n, d, held, &c)
	if !ok {
		return c, Refusal{Kind: noRoom, Needed: d.Bytes, Had: here + n.Free + sum(n.spares(d.Key)), Most: n.Capacity}
	}
	c.New = held == nil
	c.Pull = d.Bytes - here
	total := float64(max(d.Bytes, 1))
	c.Score = weightHeld*(float64(here)+onTheWay*float64(max(promised-here, 0)))/total +
		weightRoom*room + weightFit*fit(n, ask)
	if ask == nil {
		c.Score += weightSpread * spread(n, held, zones)
	}
	return c, Refusal{}
}

// judgeRoom is 1 for an empty node down to 0.5 for one that gets full, and less where something has to go. Whether the
// dataset can be there at all is the second answer.
func judgeRoom(n *Node, d *Dataset, held *Copy, c *Choice) (float64, bool) {
	if held != nil {
		return 1, true
	}
	of := float64(max(n.Capacity, 1))
	if d.Bytes <= n.Free {
		return 0.5 + 0.5*float64(n.Free-d.Bytes)/of, true
	}
	free := n.Free
	for _, s := range n.spares(d.Key) {
		if free >= d.Bytes {
			break
		}
		free += s.Bytes
		c.Evict = append(c.Evict, s.Dataset)
	}
	if free >= d.Bytes {
		return 0.5 * (1 - float64(min(d.Bytes-n.Free, n.Capacity))/of), true
	}
	if !d.Partial {
		return 0, false
	}
	// Not all of it will fit: the part that does counts, and something has to.
	return 0.5 * float64(max(free, 0)) / float64(max(d.Bytes, 1)), free > 0
}

// fit prefers nodes on which little is left over, so that large pods find whole ones; and keeps pods without devices
// off nodes that have them. Without a pod it prefers nodes where one could start.
func fit(n *Node, ask Resources) float64 {
	total, left, asked := devices(n, ask)
	switch {
	case total == 0:
		return 0.5
	case ask == nil:
		return float64(max(left, 0)) / float64(total)
	case asked == 0:
		return 0
	}
	return 1 - float64(left-asked)/float64(total)
}

// devices that train: of the node, left there, and asked for.
func devices(n *Node, ask Resources) (total, left, asked int64) {
	for name, amount := range n.Total {
		if IsGPU(name) {
			total, left, asked = total+amount, left+n.Left[name], asked+ask[name]
		}
	}
	return total, left, asked
}

// spread prefers zones with fewer copies.
func spread(n *Node, held *Copy, zones map[string]int) float64 {
	others := zones[n.Zone]
	if held != nil {
		others--
	}
	return 1 / float64(1+max(others, 0))
}

// IsGPU tells whether a resource is a device that trains.
func IsGPU(resource string) bool { return strings.Contains(resource, "/gpu") }

func copiesByZone(nodes []Node, dataset string) map[string]int {
	zones := map[string]int{}
	for i := range nodes {
		if nodes[i].find(dataset) != nil {
			zones[nodes[i].Zone]++
		}
	}
	return zones
}

func sum(copies []Copy) (bytes int64) {
	for _, c := range copies {
		bytes += c.Bytes
	}
	return bytes
}

// Two datasets see the nodes in different orders, so that equal ones do not all go to the same node.
func hash(dataset, node string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(dataset))
	sum := h.Sum32() // its low bits follow the last letters: mixed once more
	sum = (sum ^ sum>>15) * 0x2c1b3c6d
	sum = (sum ^ sum>>12) * 0x297a2d39
	return sum ^ sum>>15
}
