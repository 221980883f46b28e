// SPDX-License-Identifier: Apache-2.0

package place

// Most bytes are pulled not for want of room on disks but because a dataset's nodes are full of other pods when the
// next one comes. So a pod is put where it is least in the way: what it costs is how much of the node's openness it
// takes, times what the node's other copies are worth to pods to come.

const (
	// A node of which no device is taken has an openness of 1, since it takes every pod; one with half of them left has
	// half of this.
	openPartly = 0.4
	// Somebody waits for a copy that is on its way: without the node's devices its bytes would be pulled in vain.
	worthAwaited = 20.0
)

// outlook is what copies are worth. A dataset is expected to be asked for as often as it has copies: they come from
// pods that did. What one of them is worth is that, times its bytes, and less the more open the other nodes are that
// serve it.
type outlook struct {
	copies map[string]float64
	open   map[string]float64 // of all nodes that serve it
	most   float64            // that a node is worth
}

func newOutlook(nodes []Node) *outlook {
	o := &outlook{copies: map[string]float64{}, open: map[string]float64{}}
	for i := range nodes {
		own := openness(devicesLeft(&nodes[i], nil))
		for _, c := range nodes[i].Copies {
			o.copies[c.Dataset]++
			if c.Serves {
				o.open[c.Dataset] += own
			}
		}
	}
	for i := range nodes {
		n := &nodes[i]
		n.worth = 0
		for k := range n.Copies {
			n.worth += o.worth(n, &n.Copies[k])
		}
		o.most = max(o.most, n.worth)
	}
	return o
}

// worth of one copy on a node.
func (o *outlook) worth(n *Node, c *Copy) float64 {
	all := o.copies[c.Dataset] * float64(c.Bytes)
	if c.Serves {
		return all / (1 + max(o.open[c.Dataset]-openness(devicesLeft(n, nil)), 0))
	}
	return worthAwaited * all / (1 + o.open[c.Dataset])
}

// lost is what others lose when a pod takes what it asks for, from 0 to 1.
func (o *outlook) lost(n *Node, d *Dataset, ask Resources) float64 {
	if o.most == 0 {
		return 0
	}
	others := n.worth
	if own := n.find(d.Key); own != nil {
		others = max(others-o.worth(n, own), 0)
	}
	return min(others/o.most, 1) * (openness(devicesLeft(n, nil)) - openness(devicesLeft(n, ask)))
}

func devicesLeft(n *Node, ask Resources) (left, total int64) {
	total, left, asked := devices(n, ask)
	return left - asked, total
}

func openness(left, total int64) float64 {
	switch {
	case left <= 0:
		return 0
	case left >= total:
		return 1
	}
	return openPartly * float64(left) / float64(total)
}
