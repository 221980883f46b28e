// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Node is a fake node: kwok keeps it ready and says that the pods on it run.
type Node struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
	GPUs   int64 // as nvidia.com/gpu
	CPU    string
	Memory string
}

//go:embed stages.yaml
var stages []byte

// AnnotationEnd on a running pod makes it end well.
const AnnotationEnd = "rig.penstock.dev/end"

func (r *Rig) startKwok(ctx context.Context) error {
	if err := os.WriteFile(r.file("stages.yaml"), stages, 0o644); err != nil {
		return err
	}
	path := r.file("admin.kubeconfig")
	if err := WriteKubeconfig(r.admin, path); err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	// Its own server has to be reachable for nothing but the health check.
	p, err := r.runTool("kwok", "--kubeconfig="+path, "--config="+r.file("stages.yaml"), "--manage-all-nodes",
		"--node-lease-duration-seconds=40",
		fmt.Sprintf("--server-address=127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return p.until("healthy", Patience, func() error {
		return answers(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
	})
}

// AddNode makes the node and waits until it is Ready.
func (r *Rig) AddNode(ctx context.Context, want Node) error {
	if want.CPU == "" {
		want.CPU = "32"
	}
	if want.Memory == "" {
		want.Memory = "256Gi"
	}
	has := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(want.CPU),
		corev1.ResourceMemory: resource.MustParse(want.Memory),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	if want.GPUs > 0 {
		has["nvidia.com/gpu"] = *resource.NewQuantity(want.GPUs, resource.DecimalSI)
	}
	labels := map[string]string{
		corev1.LabelHostname: want.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}
	for key, value := range want.Labels {
		labels[key] = value
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: want.Name, Labels: labels,
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Spec:   corev1.NodeSpec{Taints: want.Taints},
		Status: corev1.NodeStatus{Capacity: has, Allocatable: has},
	}
	if err := r.Client.Create(ctx, node); err != nil {
		return err
	}
	return Eventually(ctx, func(ctx context.Context) error {
		if err := r.Client.Get(ctx, client.ObjectKey{Name: want.Name}, node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == len(want.Taints) {
				return nil
			}
		}
		return fmt.Errorf("node %s is not ready", want.Name)
	})
}

// RemoveNode deletes the node as a cluster's autoscaler would. Pods on it are left to the garbage collector.
func (r *Rig) RemoveNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return r.Client.Delete(ctx, node)
}
