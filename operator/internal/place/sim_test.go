// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// A cluster of 100 nodes and 200 datasets, and a trace of jobs that is the same for both ways of choosing: Plan, and
// first fit (the first node with GPUs takes the pod, whatever it holds). Everything else is the same for both: a pod
// waits until its node has the dataset, spare copies make way, longest unused first. Time is in seconds.
const (
	simSeed     = 20261116
	simNodes    = 100
	simDatasets = 200
	simJobs     = 2500
	gpu         = "nvidia.com/gpu"
	gib         = int64(1) << 30
	pullRate    = 1 * gib // a second
)

type simJob struct {
	at, seconds float64
	pods        int
	gpus        int64
	dataset     string
}

type simPod struct {
	Pod
	seconds float64
	since   float64
	node    int // that it runs on, or waits for; -1
}

type simEvent struct {
	at   float64
	what func()
}

type simQueue []simEvent

func (q simQueue) Len() int           { return len(q) }
func (q simQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q simQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)        { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

type sim struct {
	t        *testing.T
	now      float64
	nodes    []Node
	datasets map[string]*Dataset
	queue    simQueue
	waiting  []*simPod
	running  map[string]int // dataset and node: pods
	firstFit bool

	pulled int64
	pulls  int
	waited float64
	pods   int
	checks int
}

func simTrace(gap float64, seed uint64) ([]Node, map[string]*Dataset, []simJob) {
	random := rand.New(rand.NewPCG(seed, 1))
	nodes := make([]Node, simNodes)
	for i := range nodes {
		capacity := []int64{1000, 2000, 4000}[i%3] * gib
		nodes[i] = Node{Name: fmt.Sprintf("node-%03d", i), Zone: fmt.Sprintf("zone-%d", i%4), Capacity: capacity,
			Free:  capacity,
			Total: Resources{gpu: 8}, Left: Resources{gpu: 8}}
	}
	datasets := map[string]*Dataset{}
	weights := make([]float64, simDatasets)
	total := 0.0
	for i := range weights {
		bytes := int64(math.Exp(math.Log(80)+1.2*random.NormFloat64()) * float64(gib))
		key := fmt.Sprintf("data-%03d", i)
		datasets[key] = &Dataset{Key: key, Bytes: min(max(bytes, gib), 2500*gib), Partial: i%10 == 9}
		total += 1 / math.Pow(float64(i+1), 1.0)
		weights[i] = total
	}
	var jobs []simJob
	at := 0.0
	for len(jobs) < simJobs {
		at += random.ExpFloat64() * gap
		i, _ := slices.BinarySearch(weights, random.Float64()*total)
		jobs = append(jobs, simJob{at: at, seconds: math.Exp(math.Log(5400) + random.NormFloat64()),
			pods: []int{1, 1, 1, 1, 2, 4}[random.IntN(6)], gpus: []int64{1, 2, 4, 8, 8}[random.IntN(5)],
			dataset: fmt.Sprintf("data-%03d", min(i, simDatasets-1))})
	}
	return nodes, datasets, jobs
}

func (s *sim) later(seconds float64, what func()) {
	heap.Push(&s.queue, simEvent{at: s.now + seconds, what: what})
}

func (s *sim) run(jobs []simJob) {
	for i, job := range jobs {
		heap.Push(&s.queue, simEvent{at: job.at, what: func() { s.arrive(i, job) }})
	}
	for len(s.queue) > 0 {
		next := heap.Pop(&s.queue).(simEvent)
		s.now = next.at
		next.what()
		if len(s.queue) > 0 && s.queue[0].at == s.now {
			continue
		}
		s.step()
	}
	if len(s.waiting) > 0 {
		s.t.Errorf("%d pods were never placed", len(s.waiting))
	}
}

func (s *sim) arrive(number int, job simJob) {
	for k := range job.pods {
		s.waiting = append(s.waiting, &simPod{seconds: job.seconds, since: s.now, node: -1,
			Pod: Pod{Name: fmt.Sprintf("job-%d-%d", number, k), Dataset: job.dataset, Ask: Resources{gpu: job.gpus}}})
	}
}

// step lets the way of choosing decide, until nothing changes any more.
func (s *sim) step() {
	s.spare()
	if s.firstFit {
		s.stepFirstFit()
		return
	}
	pods := make([]Pod, len(s.waiting))
	for i, pod := range s.waiting {
		pods[i] = pod.Pod
	}
	decisions := Plan(s.nodes, s.datasets, nil, pods)
	var still []*simPod
	for i, pod := range s.waiting {
		switch d := decisions[i]; {
		case d.Start != nil:
			s.start(pod, s.index(d.Start[0]))
			continue
		case d.Wait != nil && d.Wait.New:
			s.pull(s.index(d.Wait.Node), s.datasets[pod.Dataset], d.Wait.Evict)
		}
		still = append(still, pod)
	}
	s.waiting = still
	s.check()
}

// check: no pod waits while a node that serves its dataset has room for it; and none waits for nothing while a node
// has room for the pod and for the dataset.
func (s *sim) check() {
	left := make([]Resources, len(s.nodes))
	for i := range s.nodes {
		left[i] = s.nodes[i].Left
	}
	for _, pod := range s.waiting {
		coming := false
		for i := range s.nodes {
			held := s.nodes[i].find(pod.Dataset)
			coming = coming || held != nil && !held.Serves
			if left[i].Lacks(pod.Ask) == "" && held != nil && held.Serves {
				s.t.Fatalf("%s waits at %.0f while %s serves %s and has %v", pod.Name, s.now, s.nodes[i].Name, pod.Dataset, left[i])
			}
		}
		if coming {
			continue
		}
		for i := range s.nodes {
			n := &s.nodes[i]
			if n.Left.Lacks(pod.Ask) == "" && n.Free >= s.datasets[pod.Dataset].Bytes && !s.promised(i) {
				s.t.Fatalf("%s waits for nothing at %.0f while %s has room", pod.Name, s.now, n.Name)
			}
		}
	}
	s.checks++
}

// promised tells whether something is on its way to the node: another pod counts on its GPUs.
func (s *sim) promised(i int) bool {
	for _, c := range s.nodes[i].Copies {
		if !c.Serves {
			return true
		}
	}
	return false
}

func (s *sim) stepFirstFit() {
	var still []*simPod
	for _, pod := range s.waiting {
		if pod.node < 0 {
			pod.node = s.firstNode(pod)
		}
		if pod.node < 0 {
			still = append(still, pod)
			continue
		}
		held := s.nodes[pod.node].find(pod.Dataset)
		if held != nil && held.Serves {
			s.nodes[pod.node].Left[gpu] += pod.Ask[gpu]
			s.start(pod, pod.node)
			continue
		}
		still = append(still, pod)
	}
	s.waiting = still
}

// firstNode is the first with GPUs and room, by name; its GPUs are the pod's from now on.
func (s *sim) firstNode(pod *simPod) int {
	d := s.datasets[pod.Dataset]
	for i := range s.nodes {
		c, refusal := judge(&s.nodes[i], d, pod.Ask, nil)
		if refusal.Kind != fine {
			continue
		}
		if c.New {
			s.pull(i, d, c.Evict)
		}
		s.nodes[i].Left.take(pod.Ask)
		return i
	}
	return -1
}

func (s *sim) pull(i int, d *Dataset, evict []string) {
	n := &s.nodes[i]
	for _, gone := range evict {
		at := slices.IndexFunc(n.Copies, func(c Copy) bool { return c.Dataset == gone })
		if at < 0 || !n.Copies[at].Spare {
			s.t.Fatalf("%s would lose %s, which it has not or needs", n.Name, gone)
		}
		n.Free += n.Copies[at].Bytes
		n.Copies = slices.Delete(n.Copies, at, at+1)
	}
	bytes := min(d.Bytes, n.Free)
	if bytes < d.Bytes && !d.Partial {
		s.t.Fatalf("%s is too small for %s", n.Name, d.Key)
	}
	n.Free -= bytes
	n.Copies = append(n.Copies, Copy{Dataset: d.Key, Bytes: bytes})
	s.pulls++
	s.pulled += bytes
	s.later(float64(bytes)/float64(pullRate), func() {
		held := n.find(d.Key)
		held.Here, held.Serves = held.Bytes, true
	})
}

func (s *sim) start(pod *simPod, i int) {
	n := &s.nodes[i]
	d := s.datasets[pod.Dataset]
	if lacking := n.Left.Lacks(pod.Ask); lacking != "" {
		s.t.Fatalf("%s started on %s, which lacks %s", pod.Name, n.Name, lacking)
	}
	held := n.find(pod.Dataset)
	s.pulled += d.Bytes - held.Bytes // of a partial copy: the rest comes from the bucket each time
	n.Left.take(pod.Ask)
	s.running[n.Name+"/"+pod.Dataset]++
	s.pods++
	s.waited += s.now - pod.since
	s.later(pod.seconds, func() {
		n.Left[gpu] += pod.Ask[gpu]
		s.running[n.Name+"/"+pod.Dataset]--
		n.find(pod.Dataset).LastUsed = int64(s.now)
	})
}

// spare says which copies may go: those that serve, that no pod runs on, and that none waits for.
func (s *sim) spare() {
	wanted := map[string]bool{}
	for _, pod := range s.waiting {
		wanted[pod.Dataset] = true
	}
	for i := range s.nodes {
		for k := range s.nodes[i].Copies {
			c := &s.nodes[i].Copies[k]
			c.Spare = c.Serves && s.running[s.nodes[i].Name+"/"+c.Dataset] == 0 && !wanted[c.Dataset]
		}
	}
}

func (s *sim) index(name string) int {
	return slices.IndexFunc(s.nodes, func(n Node) bool { return n.Name == name })
}

func simulate(t *testing.T, gap float64, seed uint64, firstFit bool) *sim {
	nodes, datasets, jobs := simTrace(gap, seed)
	s := &sim{t: t, nodes: nodes, datasets: datasets, running: map[string]int{}, firstFit: firstFit}
	s.run(jobs)
	return s
}

// offered is what all jobs ask for, as a share of the GPUs there are until the last one comes.
func offered(jobs []simJob) float64 {
	sum := 0.0
	for _, j := range jobs {
		sum += float64(j.pods) * float64(j.gpus) * j.seconds
	}
	return sum / (jobs[len(jobs)-1].at * 8 * simNodes)
}

// atLeast is a bound that nobody can reach: each dataset comes once to as many nodes as its pods fill at their most, as
// if all nodes were empty then, nobody ever waited, and disks had no end.
func atLeast(datasets map[string]*Dataset, jobs []simJob) (bytes int64) {
	type change struct {
		at   float64
		gpus int64
	}
	changes := map[string][]change{}
	for _, j := range jobs {
		all := int64(j.pods) * j.gpus
		changes[j.dataset] = append(changes[j.dataset], change{j.at, all}, change{j.at + j.seconds, -all})
	}
	for key, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.at, b.at) })
		var now, most int64
		for _, c := range list {
			now += c.gpus
			most = max(most, now)
		}
		bytes += datasets[key].Bytes * ((most + 7) / 8)
	}
	return bytes
}

// compare runs one trace both ways, logs a row of the table and returns the ratio of bytes.
func compare(t *testing.T, gap float64, seed uint64) float64 {
	t.Helper()
	_, datasets, jobs := simTrace(gap, seed)
	plan, first := simulate(t, gap, seed, false), simulate(t, gap, seed, true)
	if plan.pods != first.pods || plan.checks == 0 {
		t.Errorf("not the same trace: %d and %d pods", plan.pods, first.pods)
	}
	tib := func(bytes int64) float64 { return float64(bytes) / float64(gib) / 1024 }
	ratio := float64(plan.pulled) / float64(first.pulled)
	t.Logf("%8d  %5.0f %%  %5d  %7.1f  %7.1f  %5.3f  %5.3f  %6.0f  %6.0f", seed, 100*offered(jobs), plan.pulls,
		tib(plan.pulled), tib(first.pulled), ratio, float64(atLeast(datasets, jobs))/float64(first.pulled),
		plan.waited/float64(plan.pods), first.waited/float64(first.pods))
	return ratio
}

// Seconds between jobs, and most of first fit's bytes that may be pulled. From 80 % of all GPUs on pods queue for whole
// nodes, and data has to follow the GPUs that are left. The last one asks for nearly all that there are: it is in the
// table to show where it ends.
var simLoads = []struct{ gap, most float64 }{{200, 0.6}, {130, 0.6}, {105, 0.6}, {90, 0.8}}

func TestATracePullsFarLessThanFirstFitAndNobodyWaitsInVain(t *testing.T) {
	t.Logf("%d nodes, %d datasets, %d jobs", simNodes, simDatasets, simJobs)
	t.Log("    seed  offered  pulls      TiB  1st fit  ratio  bound  wait s  1st fit")
	seeds := []uint64{simSeed}
	if os.Getenv("PENSTOCK_LONG") == "1" {
		seeds = append(seeds, 1, 2, 3)
	}
	loads := simLoads
	if os.Getenv("PENSTOCK_LONG") != "1" {
		loads = loads[:3] // with the last one many wait, and each step decides about all of them
	}
	ratios := make([][]float64, len(loads))
	t.Run("traces", func(t *testing.T) {
		for i, load := range loads {
			ratios[i] = make([]float64, len(seeds))
			for j, seed := range seeds {
				t.Run(fmt.Sprintf("every %.0f s, seed %d", load.gap, seed), func(t *testing.T) {
					t.Parallel()
					ratios[i][j] = compare(t, load.gap, seed)
				})
			}
		}
	})
	for i, load := range loads {
		mean := 0.0
		for _, ratio := range ratios[i] {
			mean += ratio / float64(len(seeds))
		}
		t.Logf("a job every %.0f s: %.3f of the bytes that first fit pulls", load.gap, mean)
		if mean > load.most {
			t.Errorf("a job every %.0f s: more than %.1f", load.gap, load.most)
		}
	}
}
