// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
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
