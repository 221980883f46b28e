// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"penstock.dev/operator/api/v1alpha1"
)

// Lift changes a gated pod so that it runs on one of those hosts, with that revision. The API server allows on a gated
// pod only what narrows it: expressions are added to every term there is (the terms are alternatives), and a term is
// made only where there was none. Everything else of the pod stays.
func Lift(pod *corev1.Pod, hosts []string, revision string) {
	here := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: hosts}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	a := pod.Spec.Affinity.NodeAffinity
	if a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, here)
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.AnnotationRev] = revision
	pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates,
		func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.GatePlacing })
}
