// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/test/manifests"
)

// Penstock is the engine's program: PENSTOCK_BIN, or the one in build/.
func Penstock() (string, error) {
	path := os.Getenv("PENSTOCK_BIN")
	if path == "" {
		path = filepath.Join(manifests.Root(), "build", "penstock")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: make builds it", err)
	}
	return path, nil
}

// Build makes a program of this module, as in Build("./cmd/penstock-agent"), and returns its path.
func (r *Rig) Build(ctx context.Context, program string) (string, error) {
	path := r.file(filepath.Base(program))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, program)
	cmd.Dir = filepath.Join(manifests.Root(), "operator")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w: %s", program, err, said)
	}
	return path, nil
}

// AgentOn waits for the pod that the DaemonSet has on the node, and is that pod.
func (r *Rig) AgentOn(ctx context.Context, node string) (*rest.Config, error) {
	var found string
	err := Eventually(ctx, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.InNamespace(NodeNamespace)); err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Spec.NodeName == node && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				found = p.Name
				return nil
			}
		}
		return fmt.Errorf("no agent's pod runs on %s", node)
	})
	if err != nil {
		return nil, err
	}
	return r.Pod(ctx, NodeNamespace, found)
}
