// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/place"
)

// HasEnded tells whether nothing of a pod runs any more.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsGated tells whether a pod waits for its dataset.
func IsGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates,
		func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.GatePlacing })
}

// Where a pod is or may go: its node, or those that its gate was lifted for.
func (s *Snapshot) Where(pod *corev1.Pod) []string {
	if pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
	}
	if PodKey(pod) == "" || IsGated(pod) || pod.Annotations[v1alpha1.AnnotationRev] == "" {
		return nil
	}
	if required := requiredAffinity(pod); required != nil && len(required.NodeSelectorTerms) > 0 {
		for _, e := range required.NodeSelectorTerms[0].MatchExpressions {
			if e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn {
				return s.named(e.Values)
			}
		}
	}
	return nil
}

// Ask is what the scheduler will want for a pod.
func Ask(pod *corev1.Pod) place.Resources {
	out := place.Resources{"pods": 1}
	always := corev1.ContainerRestartPolicyAlways
	for i := range pod.Spec.Containers {
		add(out, pod.Spec.Containers[i].Resources.Requests)
	}
	beside := place.Resources{} // init containers that go on running, so far
	most := place.Resources{}   // what init containers ask for at their worst moment
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		moment := place.Resources{}
		add(moment, c.Resources.Requests)
		for name, amount := range beside {
			moment[name] += amount
		}
		if c.RestartPolicy != nil && *c.RestartPolicy == always {
			add(beside, c.Resources.Requests)
		}
		for name, amount := range moment {
			most[name] = max(most[name], amount)
		}
	}
	for name, amount := range beside {
		out[name] += amount
	}
	for name, amount := range most {
		out[name] = max(out[name], amount)
	}
	add(out, pod.Spec.Overhead)
	return out
}

func add(to place.Resources, list corev1.ResourceList) {
	for name, amount := range resources(list) {
		to[name] += amount
	}
}

func resources(list corev1.ResourceList) place.Resources {
	out := make(place.Resources, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			out[string(name)] = q.MilliValue()
		} else {
			out[string(name)] = q.Value()
		}
	}
	return out
}

// Pod is what the scorer reads of a gated pod.
func (s *Snapshot) Pod(pod *corev1.Pod) place.Pod {
	return place.Pod{Name: pod.Namespace + "/" + pod.Name, Dataset: PodKey(pod), Ask: Ask(pod),
		Allowed: func(node string) string { return mayRun(pod, s.Nodes[node]) }}
}

// mayRun says why a pod may not run on a node, by the rules that the scheduler will apply; "" if it may.
func mayRun(pod *corev1.Pod, n *corev1.Node) string {
	if n == nil {
		return "gone"
	}
	if !hasLabels(n.Labels, pod.Spec.NodeSelector) {
		return "do not match the pod's nodeSelector"
	}
	if required := requiredAffinity(pod); required != nil && !slices.ContainsFunc(required.NodeSelectorTerms,
		func(t corev1.NodeSelectorTerm) bool { return matches(&t, n) }) {
		return "do not match the pod's node affinity"
	}
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod, t) {
			return "with a taint that the pod does not tolerate"
		}
	}
	return ""
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(log.Log,
			taint, false)
	})
}

func requiredAffinity(pod *corev1.Pod) *corev1.NodeSelector {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// matches: all of a term; an empty one matches nothing.
func matches(term *corev1.NodeSelectorTerm, n *corev1.Node) bool {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return false
	}
	for _, e := range term.MatchFields {
		if e.Key != "metadata.name" || !holds(&e, labels.Set{e.Key: n.Name}) {
			return false
		}
	}
	for _, e := range term.MatchExpressions {
		if !holds(&e, n.Labels) {
			return false
		}
	}
	return true
}

func holds(e *corev1.NodeSelectorRequirement, have labels.Set) bool {
	r, err := labels.NewRequirement(e.Key, operators[e.Operator], e.Values)
	return err == nil && r.Matches(have)
}
