// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"slices"
	"testing"
)

func nodeOf(name string, free int64, gpus int64, copies ...Copy) Node {
	return Node{Name: name, Capacity: 100, Free: free, Copies: copies, Total: Resources{gpu: 8},
		Left: Resources{gpu: gpus}}
}

func only(d *Dataset) map[string]*Dataset { return map[string]*Dataset{d.Key: d} }

func planOne(nodes []Node, d *Dataset, gpus int64) Decision {
	return Plan(nodes, only(d), nil, []Pod{{Name: "p", Dataset: d.Key, Ask: Resources{gpu: gpus}}})[0]
}

func TestAPodGoesWhereItsBytesAre(t *testing.T) {
	d := &Dataset{Key: "d", Bytes: 40}
	nodes := []Node{nodeOf("empty", 100, 8), nodeOf("has", 60, 8, Copy{Dataset: "d", Bytes: 40, Here: 40, Serves: true}),
		nodeOf("other", 100, 8)}
	if got := planOne(nodes, d, 1); !slices.Equal(got.Start, []string{"has"}) {
		t.Errorf("got %+v", got)
	}
}

func TestAPodWaitsForTheCopyThatIsComingRatherThanASecondOne(t *testing.T) {
	d := &Dataset{Key: "d", Bytes: 40}
	nodes := []Node{nodeOf("empty", 100, 8), nodeOf("coming", 60, 8, Copy{Dataset: "d", Bytes: 40, Here: 1})}
	got := planOne(nodes, d, 1)
	if got.Start != nil || got.Wait == nil || got.Wait.Node != "coming" || got.Wait.New {
		t.Errorf("got %+v", got)
	}
}

func TestANodeThatServesButIsFullDoesNotHoldAPodBack(t *testing.T) {
	d := &Dataset{Key: "d", Bytes: 40}
	nodes := []Node{nodeOf("full", 60, 0, Copy{Dataset: "d", Bytes: 40, Here: 40, Serves: true}), nodeOf("empty", 100, 8)}
	got := planOne(nodes, d, 1)
	if got.Wait == nil || got.Wait.Node != "empty" || !got.Wait.New || got.Wait.Pull != 40 {
		t.Errorf("got %+v", got)
	}
}

func TestWholeNeedsRoomForAllOfItAndPartialForSome(t *testing.T) {
	nodes := []Node{nodeOf("small", 30, 8), nodeOf("smaller", 10, 8)}
	got := planOne(nodes, &Dataset{Key: "d", Bytes: 300}, 1)
	if got.Wait != nil || !got.Why.Never() || !got.Why.NeedsSpace() {
		t.Fatalf("whole: %+v", got)
	}
	if want := "0 of 2 nodes: 2 lack room (300 B needed, 30 B free)"; got.Why.String() != want {
		t.Errorf("got %q, want %q", got.Why, want)
	}
	if got := planOne(nodes, &Dataset{Key: "d", Bytes: 80}, 1); got.Wait != nil || got.Why.Never() {
		t.Errorf("it would fit on an empty node: %+v", got)
	}
	if got := planOne(nodes, &Dataset{Key: "d", Bytes: 300, Partial: true}, 1); got.Wait == nil ||
		got.Wait.Node != "small" {
		t.Errorf("partial: %+v", got)
	}
}

func TestOnlySparesMakeWayTheLongestUnusedFirst(t *testing.T) {
	d := &Dataset{Key: "d", Bytes: 40}
	n := nodeOf("n", 10, 8,
		Copy{Dataset: "needed", Bytes: 30}, Copy{Dataset: "late", Bytes: 30, Spare: true, LastUsed: 9},
		Copy{Dataset: "early", Bytes: 30, Spare: true, LastUsed: 3})
	if got := planOne([]Node{n}, d, 1); got.Wait == nil || !slices.Equal(got.Wait.Evict, []string{"early"}) {
		t.Errorf("one: %+v", got.Wait)
	}
	d.Bytes = 60
	if got := planOne([]Node{n}, d, 1); got.Wait == nil || !slices.Equal(got.Wait.Evict, []string{"early", "late"}) {
		t.Errorf("both: %+v", got.Wait)
	}
	d.Bytes = 71
	if got := planOne([]Node{n}, d, 1); got.Wait != nil {
		t.Errorf("what is needed went: %+v", got.Wait)
	}
}

func TestTwoPodsDoNotCountOnTheSameRoom(t *testing.T) {
	a, b := &Dataset{Key: "a", Bytes: 60}, &Dataset{Key: "b", Bytes: 60}
	pods := []Pod{{Name: "1", Dataset: "a", Ask: Resources{gpu: 4}}, {Name: "2", Dataset: "b", Ask: Resources{gpu: 4}},
		{Name: "3", Dataset: "a", Ask: Resources{gpu: 8}}}
	got := Plan([]Node{nodeOf("n", 100, 8)}, map[string]*Dataset{"a": a, "b": b}, nil, pods)
	if got[0].Wait == nil || got[1].Wait != nil || got[2].Wait != nil {
		t.Fatalf("got %+v", got)
	}
	if want := "0 of 1 nodes: 1 lacks room (60 B needed, 40 B free)"; got[1].Why.String() != want || got[1].Why.Never() {
		t.Errorf("bytes: %q", got[1].Why)
	}
	if want := "0 of 1 nodes: 1 lacks nvidia.com/gpu (8 needed, 4 left)"; got[2].Why.String() != want ||
		got[2].Why.Never() {
		t.Errorf("devices: %q", got[2].Why)
	}
}

func TestAPodThatWasLetGoStillCounts(t *testing.T) {
	d := &Dataset{Key: "d", Bytes: 40}
	nodes := []Node{nodeOf("n", 60, 8, Copy{Dataset: "d", Bytes: 40, Here: 40, Serves: true})}
	loose := []Loose{{Start: []string{"gone", "n"}, Ask: Resources{gpu: 6}}}
	got := Plan(nodes, only(d), loose, []Pod{{Dataset: "d", Ask: Resources{gpu: 4}}})[0]
	if got.Start != nil || got.Wait != nil {
		t.Errorf("got %+v", got)
	}
}

func TestWhoCanStartStartsBeforeWhoHasToWait(t *testing.T) {
	a, b := &Dataset{Key: "a", Bytes: 10}, &Dataset{Key: "b", Bytes: 10}
	nodes := []Node{nodeOf("n", 80, 8, Copy{Dataset: "b", Bytes: 10, Here: 10, Serves: true})}
	got := Plan(nodes, map[string]*Dataset{"a": a, "b": b}, nil,
		[]Pod{{Name: "1", Dataset: "a", Ask: Resources{gpu: 8}}, {Name: "2", Dataset: "b", Ask: Resources{gpu: 8}}})
	if got[1].Start == nil || got[0].Wait != nil {
		t.Errorf("got %+v", got)
	}
}

func TestAPodIsPutWhereItIsLeastInTheWay(t *testing.T) {
	d := &Dataset{Key: "d", Bytes: 10}
	mine := Copy{Dataset: "d", Bytes: 10, Here: 10, Serves: true}
	other := Copy{Dataset: "other", Bytes: 60, Here: 60, Serves: true}
	large := Copy{Dataset: "large", Bytes: 80, Here: 80, Serves: true}
	for what, nodes := range map[string][]Node{
		"beside less": {nodeOf("in-the-way", 10, 8, mine, large), nodeOf("best", 30, 8, mine, other)},
		"where nobody waits for a pull": {nodeOf("in-the-way", 30, 8, mine, Copy{Dataset: "x", Bytes: 60}),
			nodeOf("best", 10, 8, mine, large)},
		"where others have no other node": {nodeOf("in-the-way", 30, 8, mine, other), nodeOf("full", 40, 0, other),
			nodeOf("best", 10, 8, mine, large)},
		"not on a whole node": {nodeOf("in-the-way", 30, 8, mine, other), nodeOf("best", 30, 4, mine, other)},
	} {
		for _, names := range [][]string{{"x", "y"}, {"y", "x"}} { // whichever a tie would go to
			for i := range nodes {
				if nodes[i].Name != "full" {
					nodes[i].Name = names[min(i, 1)]
				}
			}
			if got := planOne(nodes, d, 4); len(got.Start) == 0 || got.Start[0] != names[1] {
				t.Errorf("%s, %s is best: %+v", what, names[1], got)
			}
		}
	}
}

func TestRulesOfPodAndDatasetAreKept(t *testing.T) {
	not := func(bad string) func(string) string {
		return func(node string) string {
			if node == bad {
				return "do not match"
			}
			return ""
		}
	}
	nodes := []Node{nodeOf("a", 100, 8, Copy{Dataset: "d", Bytes: 40, Here: 40, Serves: true}), nodeOf("b", 100, 8)}
	d := &Dataset{Key: "d", Bytes: 40}
	got := Plan(nodes, only(d), nil, []Pod{{Dataset: "d", Allowed: not("a")}})[0]
	if got.Start != nil || got.Wait == nil || got.Wait.Node != "b" {
		t.Errorf("pod: %+v", got)
	}
	d.Allowed = not("a")
	if got := planOne(nodes, d, 1); got.Start != nil || got.Wait == nil || got.Wait.Node != "b" {
		t.Errorf("dataset: %+v", got)
	}
	got = Plan(nodes[:1], only(d), nil, []Pod{{Dataset: "d"}})[0]
	if got.Why == nil || !got.Why.Never() || got.Why.String() != "0 of 1 nodes: 1 do not match" {
		t.Errorf("why: %v", got.Why)
	}
}

func TestReplicasSpreadOverZones(t *testing.T) {
	var nodes []Node
	for i := range 9 {
		n := nodeOf(fmt.Sprintf("n%d", i), 100, 8)
		n.Zone = fmt.Sprintf("z%d", i/3)
		nodes = append(nodes, n)
	}
	got, why := Replicas(nodes, &Dataset{Key: "d", Bytes: 40}, 3)
	zones := map[byte]bool{}
	for _, c := range got {
		zones[(c.Node[1]-'0')/3] = true
	}
	if len(got) != 3 || len(zones) != 3 || why != nil {
		t.Errorf("got %+v", got)
	}
	got, why = Replicas(nodes[:2], &Dataset{Key: "d", Bytes: 40}, 3)
	if len(got) != 2 || why == nil {
		t.Errorf("too few: %+v %v", got, why)
	}
}

func TestEqualNodesAreTakenInAnotherOrderByEachDataset(t *testing.T) {
	nodes := []Node{nodeOf("a", 100, 8), nodeOf("b", 100, 8), nodeOf("c", 100, 8), nodeOf("d", 100, 8)}
	first := map[string]bool{}
	for i := range 20 {
		d := &Dataset{Key: fmt.Sprint("d", i), Bytes: 1}
		one, _ := Replicas(nodes, d, 1)
		again, _ := Replicas([]Node{nodes[3], nodes[1], nodes[0], nodes[2]}, d, 1)
		if one[0].Node != again[0].Node {
			t.Fatal("the order of the nodes matters")
		}
		first[one[0].Node] = true
	}
	if len(first) != 4 {
		t.Errorf("only %v", first)
	}
}

func TestBytesForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 147209625600: "137.1 GiB",
		1 << 62: "4.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
