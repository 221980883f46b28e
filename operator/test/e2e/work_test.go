// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/stand"
)

// A Job knows nothing of datasets: the label in its template is all. Its pods come from the real controller manager.
func TestAJobOfTwoPodsRuns(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(28, 10, 20_000)
	tm.upload(files)
	tm.create(tm.dataset("photos", replicas(1)))
	two := int32(2)
	pod := tm.pod("", "photos")
	tm.create(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tm.name, Name: "train"},
		Spec: batchv1.JobSpec{Parallelism: &two, Completions: &two,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}}})
	tm.converge("both pods run where the data is", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := w.Client.List(ctx, &pods, client.InNamespace(tm.name)); err != nil {
			return err
		}
		running := 0
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning && p.Annotations[v1alpha1.AnnotationRev] != "" {
				running++
			}
		}
		if running != 2 {
			return fmt.Errorf("%d of %d pods run", running, len(pods.Items))
		}
		return nil
	})
	tm.must(tm.held("photos", files, 1)(tm.ctx)) // one copy for both
	tm.converge("figures are there", func(context.Context) error {
		o := w.operators[0]
		for series, want := range map[string]float64{
			fmt.Sprintf(`penstock_dataset_bytes{dataset="photos",namespace=%q}`, tm.name): float64(files.Bytes()),
			"penstock_gated_pods": 0,
		} {
			if got, err := o.figure(series); err != nil || got != want {
				return fmt.Errorf("%s is %.0f, not %.0f: %w", series, got, want, err)
			}
		}
		if waits, err := o.figure("penstock_gate_wait_seconds_count"); err != nil || waits < 2 {
			return fmt.Errorf("%.0f waits were counted: %w", waits, err)
		}
		return nil
	})
	background := metav1.DeletePropagationBackground
	tm.must(w.Client.Delete(tm.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tm.name, Name: "train"}},
		&client.DeleteOptions{PropagationPolicy: &background}))
}

// With AtOnce a pod starts while the pull has only begun, and gets everything all the same.
func TestAPodStartsAtOnceAndGetsEverything(t *testing.T) {
	tm := newTeam(t)
	files := pictures(stand.MakeFiles(29, 20, 100_000))
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 5)))
	tm.create(tm.dataset("photos", from, replicas(0), func(d *v1alpha1.Dataset) { d.Spec.Start = v1alpha1.AtOnce }))
	pod := tm.pod("train", "photos")
	tm.create(pod)
	tm.converge("the pod runs", tm.lifted("train"))
	tm.must(tm.is("photos", v1alpha1.CondResolved, metav1.ConditionTrue, "")(tm.ctx))
	on, err := tm.holders(tm.ctx, "photos", v1alpha1.PhasePulling)
	tm.must(err)
	tm.must(w.Client.Get(tm.ctx, client.ObjectKeyFromObject(pod), pod))
	if len(on) != 1 || on[0].Name != pod.Spec.NodeName {
		t.Fatalf("%d nodes pull, and the pod is on %s", len(on), pod.Spec.NodeName)
	}
	job, ledger := tm.feedAsPod("at-once", on[0], "photos")
	tm.must(w.faultd.Rules()) // the pull goes on underneath
	if got, want := tm.delivered(job, ledger), tm.expected(files); len(want) != 20 || !slices.Equal(got, want) {
		t.Errorf("%d samples of %d, or others: %s", len(got), len(want), job.Tail())
	}
	tm.converge("all of it is there", tm.held("photos", files, 1))
	tm.unused("photos")
	tm.must(w.Client.Delete(tm.ctx, pod))
}
