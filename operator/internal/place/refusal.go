// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"sort"
	"strings"
)

type kind int

const (
	fine kind = iota
	notAllowed
	lacks
	noRoom
)

// Refusal says why a node was not chosen.
type Refusal struct {
	Kind   kind
	What   string // the resource, or the rule
	Needed int64
	Had    int64
	Most   int64 // what it would have if nobody else were there
}

// never: waiting for others to go does not help.
func (r *Refusal) never() bool { return r.Kind == notAllowed || r.Needed > r.Most }

// Explanation of why nothing was chosen: one refusal of each node.
type Explanation struct {
	refusals []Refusal
}

func (e *Explanation) add(r Refusal) { e.refusals = append(e.refusals, r) }

// Never: no node could take it even if it were empty.
func (e *Explanation) Never() bool {
	for i := range e.refusals {
		if !e.refusals[i].never() {
			return false
		}
	}
	return true
}

// NeedsSpace: on some node nothing but bytes is short.
func (e *Explanation) NeedsSpace() bool {
	for i := range e.refusals {
		if e.refusals[i].Kind == noRoom {
			return true
		}
	}
	return false
}

// String counts the nodes by what they lack, with the best figure of them: "0 of 3 nodes: 2 lack nvidia.com/gpu (8
// needed, 4 left), 1 lacks room (3.0 GiB needed, 1.0 GiB free)".
func (e *Explanation) String() string {
	type group struct {
		nodes int
		best  Refusal
	}
	groups := map[string]*group{}
	for _, r := range e.refusals {
		key := fmt.Sprint(int(r.Kind), r.What)
		g := groups[key]
		if g == nil {
			g = &group{best: r}
			groups[key] = g
		}
		g.nodes++
		if r.Had > g.best.Had {
			g.best = r
		}
	}
	keys := make([]string, 0, len(groups))
	for key := range groups {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	parts := make([]string, 0, len(keys))
	for _, key := range keys {
		parts = append(parts, groups[key].best.say(groups[key].nodes))
	}
	if len(parts) == 0 {
		return "there are no nodes that hold datasets"
	}
	return fmt.Sprintf("0 of %d nodes: %s", len(e.refusals), strings.Join(parts, ", "))
}

func (r *Refusal) say(nodes int) string {
	s := "s"
	if nodes > 1 {
		s = ""
	}
	switch r.Kind {
	case lacks:
		return fmt.Sprintf("%d lack%s %s (%s needed, %s left)", nodes, s, r.What, amount(r.What, r.Needed), amount(r.What,
			r.Had))
	case noRoom:
		return fmt.Sprintf("%d lack%s room (%s needed, %s free)", nodes, s, Bytes(r.Needed), Bytes(r.Had))
	}
	return fmt.Sprintf("%d %s", nodes, r.What)
}

func amount(resource string, n int64) string {
	switch resource {
	case "memory", "ephemeral-storage":
		return Bytes(n)
	case "cpu":
		return fmt.Sprintf("%.2f", float64(n)/1000)
	}
	return fmt.Sprint(n)
}

// Bytes for people: "137.1 GiB".
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(max(n, 0)), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", max(n, 0))
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
