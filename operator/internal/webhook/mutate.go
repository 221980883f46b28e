// SPDX-License-Identifier: Apache-2.0

// Package webhook changes labelled pods as they are made: they get the dataset and the engine as volumes, the
// environment that says where they are, and a gate or a preference. It also has the certificate that the API server
// checks.
package webhook

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/dataset"
)

const (
	volumeData   = "penstock-data"
	volumeEngine = "penstock-engine"
	nameMost     = 50
)

// Mutate changes a labelled pod. Doing it twice is the same as once. near is asked only for pods that prefer nodes: the
// part of the dataset (0 to 1) that each host has. An error is for whoever makes the pod.
func Mutate(pod *corev1.Pod, near func() map[string]float64) error {
	name := pod.Labels[v1alpha1.LabelDataset]
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 || len(name) > nameMost {
		return fmt.Errorf("label %s: %q is no dataset's name", v1alpha1.LabelDataset, name)
	}
	mount, err := mountPath(pod)
	if err != nil {
		return err
	}
	mode := cmp.Or(pod.Annotations[v1alpha1.AnnotationMode], v1alpha1.ModeRequired)
	switch mode {
	case v1alpha1.ModeRequired:
		addGate(pod)
	case v1alpha1.ModePreferred:
		prefer(pod, near())
	default:
		return fmt.Errorf("annotation %s: %q is neither %s nor %s", v1alpha1.AnnotationMode, mode, v1alpha1.ModeRequired,
			v1alpha1.ModePreferred)
	}
	addVolume(pod, volumeData, dataset.ClaimName(name))
	addVolume(pod, volumeEngine, dataset.EngineClaim)
	for i := range pod.Spec.InitContainers {
		addToContainer(&pod.Spec.InitContainers[i], mount)
	}
	for i := range pod.Spec.Containers {
		addToContainer(&pod.Spec.Containers[i], mount)
	}
	return nil
}

func mountPath(pod *corev1.Pod) (string, error) {
	at := cmp.Or(pod.Annotations[v1alpha1.AnnotationMount], v1alpha1.MountDefault)
	if !path.IsAbs(at) || path.Clean(at) != at || at == "/" || strings.Contains(at, ":") {
		return "", fmt.Errorf("annotation %s: %q is no folder's path", v1alpha1.AnnotationMount, at)
	}
	if at == v1alpha1.MountEngine || strings.HasPrefix(at, v1alpha1.MountEngine+"/") {
		return "", fmt.Errorf("annotation %s: %s is the engine's", v1alpha1.AnnotationMount, at)
	}
	return at, nil
}

// A pod that names its node is not scheduled, and the API server refuses a gate on it.
func addGate(pod *corev1.Pod) {
	has := slices.ContainsFunc(pod.Spec.SchedulingGates,
		func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.GatePlacing })
	if !has && pod.Spec.NodeName == "" {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.GatePlacing})
	}
}

// prefer adds one term for each weight.
func prefer(pod *corev1.Pod, near map[string]float64) {
	hosts := map[int32][]string{}
	for host, part := range near {
		weight := min(int32(100*part), 100)
		if weight > 0 {
			hosts[weight] = append(hosts[weight], host)
		}
	}
	if len(hosts) == 0 {
		return
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	a := pod.Spec.Affinity.NodeAffinity
	weights := make([]int32, 0, len(hosts))
	for weight := range hosts {
		weights = append(weights, weight)
	}
	slices.Sort(weights)
	slices.Reverse(weights)
	for _, weight := range weights {
		slices.Sort(hosts[weight])
		term := corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
				Values: hosts[weight]}}}}
		same := func(t corev1.PreferredSchedulingTerm) bool {
			return t.Weight == weight && len(t.Preference.MatchExpressions) == 1 &&
				slices.Equal(t.Preference.MatchExpressions[0].Values, hosts[weight])
		}
		if !slices.ContainsFunc(a.PreferredDuringSchedulingIgnoredDuringExecution, same) {
			a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, term)
		}
	}
}

func addVolume(pod *corev1.Pod, name, claim string) {
	want := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true}}}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			pod.Spec.Volumes[i] = want
			return
		}
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, want)
}

// addToContainer leaves alone what the container says itself.
func addToContainer(c *corev1.Container, mount string) {
	addMount(c, volumeData, mount)
	addMount(c, volumeEngine, v1alpha1.MountEngine)
	addEnv(c, corev1.EnvVar{Name: v1alpha1.EnvPath, Value: mount})
	addEnv(c, corev1.EnvVar{Name: v1alpha1.EnvRevision,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			APIVersion: "v1", FieldPath: "metadata.annotations['" + v1alpha1.AnnotationRev + "']"}}})
	addEnv(c, corev1.EnvVar{Name: v1alpha1.EnvEngine, Value: "unix:" + v1alpha1.MountEngine})
}

func addMount(c *corev1.Container, volume, at string) {
	taken := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == at })
	if !taken {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: at, ReadOnly: true})
	}
}

func addEnv(c *corev1.Container, e corev1.EnvVar) {
	if !slices.ContainsFunc(c.Env, func(have corev1.EnvVar) bool { return have.Name == e.Name }) {
		c.Env = append(c.Env, e)
	}
}
