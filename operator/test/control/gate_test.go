// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
)

func eachItem(list client.ObjectList, what func(client.Object)) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		what(o.(client.Object))
		return nil
	})
}

// trainer is a restricted pod that asks for a dataset and GPUs.
func trainer(ns, name, dataset string, gpus int64) *corev1.Pod {
	no, yes := false, true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{v1alpha1.LabelDataset: dataset}},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes,
				SeccompProfile: &corev1.SeccompProfile{
					Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "train", Image: "example.com/none",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
		}}
}

func TestAGatedPodRunsWhereItsDatasetIs(t *testing.T) {
	ctx := t.Context()
	agents.play(t, pulling)
	namespace(t, "gated")
	d := newDataset("gated", "data", gib, 1)
	must(t, cl.Client.Create(ctx, d))
	pod := trainer("gated", "train", "data", 1)
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpIn,
					Values: []string{"linux"}}}},
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "nowhere", Operator: corev1.NodeSelectorOpExists}}}}}}}
	must(t, cl.Client.Create(ctx, pod))
	if !cluster.IsGated(pod) || len(pod.Spec.Volumes) < 2 || len(pod.Spec.Containers[0].Env) != 3 {
		t.Fatalf("what the webhook made: %+v", pod.Spec)
	}
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonPulling)
	untilEvent(t, pod, "WaitingForDataset", "comes to node")
	must(t, cl.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	if !cluster.IsGated(pod) {
		t.Fatal("it was let go too early")
	}
	agents.play(t, ready)
	until(t, func(ctx context.Context) error { return running(ctx, pod) })
	nodes, err := holders(ctx, "gated", "data")
	must(t, err)
	if len(nodes) != 1 || pod.Spec.NodeName != nodes[0] {
		t.Errorf("the pod is on %s, the dataset on %v", pod.Spec.NodeName, nodes)
	}
	if pod.Annotations[v1alpha1.AnnotationRev] != revision("a") {
		t.Errorf("annotations: %v", pod.Annotations)
	}
	for i, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchExpressions) != 2 {
			t.Errorf("term %d: %+v", i, term)
		}
	}
}

func running(ctx context.Context, pod *corev1.Pod) error {
	if err := cl.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("%s is %s: %+v\n%s", pod.Name, pod.Status.Phase, pod.Status.Conditions, operator.process.Tail())
	}
	return nil
}

// untilEvent waits for an event about an object with that reason and text.
func untilEvent(t *testing.T, o client.Object, reason, text string) {
	t.Helper()
	until(t, func(ctx context.Context) error {
		var list corev1.EventList
		if err := cl.Client.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
			return err
		}
		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.UID == o.GetUID() && e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("no event %s %q, but %v\n%s", reason, text, seen, operator.process.Tail())
	})
}

// The node with the dataset is full, so the next pod has it brought to another one.
func TestAPodBringsItsDatasetToANodeWithRoom(t *testing.T) {
	ctx := t.Context()
	namespace(t, "more")
	d := newDataset("more", "data", gib, 1)
	must(t, cl.Client.Create(ctx, d))
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	first, second := trainer("more", "first", "data", 5), trainer("more", "second", "data", 5)
	must(t, cl.Client.Create(ctx, first))
	until(t, func(ctx context.Context) error { return running(ctx, first) })
	must(t, cl.Client.Create(ctx, second))
	until(t, func(ctx context.Context) error { return running(ctx, second) })
	nodes, err := holders(ctx, "more", "data")
	must(t, err)
	if len(nodes) != 2 || first.Spec.NodeName == second.Spec.NodeName {
		t.Errorf("pods on %s and %s, dataset on %v", first.Spec.NodeName, second.Spec.NodeName, nodes)
	}
}

func TestAPodThatCanNeverRunIsTold(t *testing.T) {
	ctx := t.Context()
	namespace(t, "never")
	d := newDataset("never", "data", gib, 1)
	must(t, cl.Client.Create(ctx, d))
	pod := trainer("never", "greedy", "data", 64)
	must(t, cl.Client.Create(ctx, pod))
	untilEvent(t, pod, "CannotBePlaced", "nvidia.com/gpu (64 needed")
	lost := trainer("never", "lost", "no-such", 1)
	must(t, cl.Client.Create(ctx, lost))
	untilEvent(t, lost, "DatasetNotFound", "never/no-such")
}

func TestADatasetInUseIsDeletedWhenItIsNot(t *testing.T) {
	ctx := t.Context()
	namespace(t, "used")
	d := newDataset("used", "data", gib, 2)
	must(t, cl.Client.Create(ctx, d))
	pod := trainer("used", "train", "data", 1)
	must(t, cl.Client.Create(ctx, pod))
	until(t, func(ctx context.Context) error { return running(ctx, pod) })
	must(t, cl.Client.Delete(ctx, d))
	got := untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonInUse)
	if !strings.Contains(got.Message, "pods train") {
		t.Errorf("message: %s", got.Message)
	}
	nodes, err := holders(ctx, "used", "data")
	must(t, err)
	if len(nodes) != 2 {
		t.Errorf("it was taken from under the pod: on %v", nodes)
	}
	must(t, cl.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	until(t, func(ctx context.Context) error { return isGone(ctx, d) })
	until(t, func(ctx context.Context) error {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "used", Name: "penstock-data"}}
		engine := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "used", Name: "penstock-engine"}}
		return errors.Join(isGone(ctx, claim), isGone(ctx, engine), noOrphans(ctx, "used"))
	})
}
