// SPDX-License-Identifier: Apache-2.0

// Package admission tests deploy/base on a real API server: what the resource definitions, roles and policies allow and refuse.
package admission

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/test/rig"
)

var (
	cluster *rig.Rig
	admin   client.Client
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	r, err := rig.Start(ctx, rig.Options{Nodes: 2})
	if err == nil {
		defer r.Stop()
		cluster, admin = r, r.Client
		err = r.Deploy(ctx, rig.Deployment{WebhookPort: hook.start()})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func clientOf(t *testing.T, config *rest.Config, err error) client.Client {
	t.Helper()
	must(t, err)
	c, err := rig.NewClient(config)
	must(t, err)
	return c
}

func operator(t *testing.T) client.Client {
	config, err := cluster.ServiceAccount(t.Context(), rig.SystemNamespace, rig.OperatorAccount)
	return clientOf(t, config, err)
}

// agentOn waits for the pod that the DaemonSet has on the node, and comes as that pod.
func agentOn(t *testing.T, node string) client.Client {
	var found string
	must(t, rig.Eventually(t.Context(), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(rig.NodeNamespace)); err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Spec.NodeName == node && p.Status.Phase == corev1.PodRunning {
				found = p.Name
				return nil
			}
		}
		return fmt.Errorf("no agent runs on %s", node)
	}))
	config, err := cluster.Pod(t.Context(), rig.NodeNamespace, found)
	return clientOf(t, config, err)
}

// refused asks until the answer is a refusal with these words in it: a policy takes a moment to be known everywhere.
func refused(t *testing.T, words string, ask func(context.Context) error) {
	t.Helper()
	must(t, rig.Eventually(t.Context(), func(ctx context.Context) error {
		err := ask(ctx)
		switch {
		case err == nil:
			return fmt.Errorf("was allowed; a refusal with %q is wanted", words)
		case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words):
			return fmt.Errorf("was refused without %q: %w", words, err)
		}
		return nil
	}))
}
