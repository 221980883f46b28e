// SPDX-License-Identifier: Apache-2.0

// Package admission tests deploy/base on a real API server: what the resource definitions, roles and policies allow and
// refuse.
package admission

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

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

func agentOn(t *testing.T, node string) client.Client {
	config, err := cluster.AgentOn(t.Context(), node)
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
