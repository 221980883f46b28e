// SPDX-License-Identifier: Apache-2.0

package place

import "sort"

// Decision about one gated pod: it starts, or waits for a node, or there is none.
type Decision struct {
	Start []string // nodes that serve its dataset, of which at least one has room for it now
	Wait  *Choice  // the node whose copy it waits for
	Why   *Explanation
}

// Plan decides about all gated pods together, in the order given, so that two of them do not count on the same room.
// First every pod starts for which a node that serves its dataset has room, whatever others wait for; then the rest
// choose nodes. loose are pods that were let go but are not bound yet: Start says where each may go.
func Plan(nodes []Node, datasets map[string]*Dataset, loose []Loose, pods []Pod) []Decision {
	p := newPlanner(nodes)
	for i := range loose {
		p.settle(loose[i].Start, loose[i].Ask)
	}
	out := make([]Decision, len(pods))
	for i := range pods {
		if d := datasets[pods[i].Dataset]; d != nil {
			out[i].Start = p.start(d, &pods[i])
		}
	}
	for i := range pods {
		if d := datasets[pods[i].Dataset]; d != nil && out[i].Start == nil {
			out[i].Wait, out[i].Why = p.choose(d, &pods[i])
		}
	}
	return out
}

// Loose pod: let go, but not bound yet.
type Loose struct {
	Start []string
	Ask   Resources
}

// Replicas chooses up to want further nodes for a dataset that no pod asks for yet. With fewer than want, the
// explanation says what the others lack.
func Replicas(nodes []Node, d *Dataset, want int) ([]Choice, *Explanation) {
	p := newPlanner(nodes)
	var out []Choice
	for len(out) < want {
		best, why := p.best(d, nil, func(n *Node) bool { return n.find(d.Key) == nil })
		if best == nil {
			return out, why
		}
		p.promise(d, best)
		out = append(out, *best)
	}
	return out, nil
}

// planner works on a copy of the nodes on which each decision leaves its mark.
type planner struct {
	nodes   []Node
	names   map[string]int
	outlook *outlook // at the beginning
}

func newPlanner(nodes []Node) *planner {
	p := &planner{nodes: make([]Node, len(nodes)), names: make(map[string]int, len(nodes))}
	for i := range nodes {
		p.nodes[i] = nodes[i].clone()
		p.names[nodes[i].Name] = i
	}
	p.outlook = newOutlook(p.nodes)
	return p
}

// settle takes what a loose pod asks for off the first of its nodes that has it.
func (p *planner) settle(nodes []string, ask Resources) {
	for _, name := range nodes {
		i, ok := p.names[name]
		if ok && p.nodes[i].Left.Lacks(ask) == "" {
			p.nodes[i].Left.take(ask)
			return
		}
	}
}

// start returns the nodes that serve the pod's dataset, the best first, if one of them has room for the pod. The others
// are named, too: room may come, and the scheduler knows more.
func (p *planner) start(d *Dataset, pod *Pod) []string {
	zones := copiesByZone(p.nodes, d.Key)
	var now []Choice
	var later []string
	for i := range p.nodes {
		n := &p.nodes[i]
		held := n.find(d.Key)
		if held == nil || !held.Serves || allowed(d.Allowed, n.Name)+allowed(pod.Allowed, n.Name) != "" {
			continue
		}
		c, refusal := judge(n, d, pod.Ask, zones)
		if refusal.Kind != fine {
			later = append(later, n.Name)
			continue
		}
		c.index = i
		c.Score -= weightLost * p.outlook.lost(n, d, pod.Ask)
		now = append(now, c)
	}
	if len(now) == 0 {
		return nil
	}
	sort.Slice(now, func(i, j int) bool { return now[i].better(&now[j]) })
	p.nodes[now[0].index].Left.take(pod.Ask)
	out := make([]string, 0, len(now)+len(later))
	for i := range now {
		out = append(out, now[i].Node)
	}
	return append(out, later...)
}

func (p *planner) choose(d *Dataset, pod *Pod) (*Choice, *Explanation) {
	best, why := p.best(d, pod, nil)
	if best == nil {
		return nil, why
	}
	p.nodes[best.index].Left.take(pod.Ask)
	p.promise(d, best)
	return best, nil
}

func (p *planner) best(d *Dataset, pod *Pod, only func(*Node) bool) (*Choice, *Explanation) {
	zones := copiesByZone(p.nodes, d.Key)
	why := &Explanation{}
	var best *Choice
	for i := range p.nodes {
		n := &p.nodes[i]
		if only != nil && !only(n) {
			continue
		}
		c, refusal := p.judge(n, d, pod, zones)
		if refusal.Kind != fine {
			why.add(refusal)
			continue
		}
		c.index = i
		if best == nil || c.better(best) {
			best = &c
		}
	}
	return best, why
}

func (p *planner) judge(n *Node, d *Dataset, pod *Pod, zones map[string]int) (Choice, Refusal) {
	if rule := allowed(d.Allowed, n.Name); rule != "" {
		return Choice{}, Refusal{Kind: notAllowed, What: rule}
	}
	if pod == nil {
		return judge(n, d, nil, zones)
	}
	if rule := allowed(pod.Allowed, n.Name); rule != "" {
		return Choice{}, Refusal{Kind: notAllowed, What: rule}
	}
	c, refusal := judge(n, d, pod.Ask, zones)
	c.Score -= weightLost * p.outlook.lost(n, d, pod.Ask)
	return c, refusal
}

// promise notes that the node is to hold the dataset, and what goes for it.
func (p *planner) promise(d *Dataset, c *Choice) {
	n := &p.nodes[c.index]
	if !c.New {
		return
	}
	for _, gone := range c.Evict {
		for i := range n.Copies {
			if n.Copies[i].Dataset == gone {
				n.Free += n.Copies[i].Bytes
				n.Copies = append(n.Copies[:i], n.Copies[i+1:]...)
				break
			}
		}
	}
	takes := min(d.Bytes, max(n.Free, 0))
	n.Free -= takes
	n.Copies = append(n.Copies, Copy{Dataset: d.Key, Bytes: takes})
}
