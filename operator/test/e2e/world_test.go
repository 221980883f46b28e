// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the whole: a control plane, the operator, and three nodes with an agent and an engine each, all of
// them real programs with the identities and Roles of deploy/base. Only kubelets are missing: no container runs.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/manifests"
	"penstock.dev/operator/test/rig"
	"penstock.dev/operator/test/stand"
)

const (
	nodeCount = 3
	poolName  = "all"
	poolLimit = "64Mi"
)

// world is what all tests share.
type world struct {
	*rig.Rig
	nodes       []*stand.Node
	lister      *stand.Node // the engine beside the operator
	operators   []*operator
	faultd      *stand.Faultd
	programs    string
	webhookPort int
}

var w *world

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctx := context.Background()
		dir, err := os.MkdirTemp("", "pe") // sockets lie in it, whose paths must be short
		if err != nil {
			panic(err)
		}
		begun := time.Now()
		w = &world{}
		keep := os.Getenv("PENSTOCK_KEEP") != ""
		if w.Rig, err = rig.Start(ctx, rig.Options{Dir: dir, Bucket: true}); err == nil {
			err = w.start(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		fmt.Printf("e2e: everything runs after %.1f s, in %s\n", time.Since(begun).Seconds(), dir)
		code := m.Run()
		times.print()
		w.Stop()
		if !keep {
			_ = os.RemoveAll(dir)
		}
		return code
	}())
}

func (w *world) start(ctx context.Context) error {
	var err error
	if w.programs, err = build(w.Dir); err != nil {
		return err
	}
	if w.webhookPort, err = rig.FreePort(); err != nil {
		return err
	}
	for i := range nodeCount {
		if err := w.AddNode(ctx, rig.Node{Name: nodeName(i), GPUs: 8}); err != nil {
			return err
		}
	}
	if err := w.Deploy(ctx, rig.Deployment{CacheRoot: w.Dir, WebhookPort: w.webhookPort}); err != nil {
		return err
	}
	if w.faultd, err = stand.StartFaultd(ctx, w.Rig, "faultd"); err != nil {
		return err
	}
	if w.lister, err = stand.NewNode(w.Rig, "op"); err != nil {
		return err
	}
	if err := w.lister.StartDaemon(ctx); err != nil {
		return err
	}
	for i := range nodeCount {
		n, err := stand.NewNode(w.Rig, nodeName(i))
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, n)
		if err := n.StartDaemon(ctx); err != nil {
			return err
		}
		if err := w.startAgent(ctx, n); err != nil {
			return err
		}
	}
	if err := w.startOperator(ctx); err != nil {
		return err
	}
	limit := resource.MustParse(poolLimit)
	pool := &v1alpha1.CachePool{Spec: v1alpha1.CachePoolSpec{StorageLimit: &limit, HighWatermark: 95, LowWatermark: 85}}
	pool.Name = poolName
	if err := w.Client.Create(ctx, pool); err != nil {
		return err
	}
	return rig.Eventually(ctx, w.nodesReady)
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// build makes the two programs from this checkout.
func build(dir string) (string, error) {
	bin := filepath.Join(dir, "bin") + string(filepath.Separator)
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/penstock-operator", "./cmd/penstock-agent")
	cmd.Dir = filepath.Join(manifests.Root(), "operator")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

// podOn finds a running pod of deploy/base by its component, on that node unless it is empty.
func (w *world) podOn(ctx context.Context, namespace, component, node string) (*corev1.Pod, error) {
	var pods corev1.PodList
	err := w.Client.List(ctx, &pods, client.InNamespace(namespace),
		client.MatchingLabels{"app.kubernetes.io/component": component})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp == nil && p.Spec.NodeName != "" && (node == "" || p.Spec.NodeName == node) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no pod %s on %s", component, node)
}

// identity writes the kubeconfig with which a program of that pod would run.
func (w *world) identity(ctx context.Context, namespace, component, node, file string) (string, error) {
	path := filepath.Join(w.Dir, file)
	return path, rig.Eventually(ctx, func(ctx context.Context) error {
		pod, err := w.podOn(ctx, namespace, component, node)
		if err != nil {
			return err
		}
		config, err := w.Pod(ctx, namespace, pod.Name)
		if err != nil {
			return err
		}
		return rig.WriteKubeconfig(config, path)
	})
}

// startAgent starts a node's agent as the DaemonSet's pod there.
func (w *world) startAgent(ctx context.Context, n *stand.Node) error {
	kubeconfig, err := w.identity(ctx, rig.NodeNamespace, "agent", n.Name, n.Name+".kubeconfig")
	if err != nil {
		return err
	}
	return n.StartAgent(filepath.Join(w.programs, "penstock-agent"), kubeconfig)
}

// nodesReady is no error when every node's agent has said that its engine is there.
func (w *world) nodesReady(ctx context.Context) error {
	for i := range nodeCount {
		var nc v1alpha1.NodeCache
		if err := w.Client.Get(ctx, client.ObjectKey{Name: nodeName(i)}, &nc); err != nil {
			return err
		}
		c := condition(nc.Status.Conditions, v1alpha1.CondEngineReady)
		if c == nil || c.Status != "True" || nc.Spec.LimitBytes == 0 {
			return fmt.Errorf("node-%d is not ready: %+v", i, nc.Status)
		}
	}
	return nil
}

// tails is the end of what everybody printed, for a failure's message.
func (w *world) tails() string {
	var out strings.Builder
	for _, o := range w.operators {
		fmt.Fprintf(&out, "--- %s\n%s\n", o.process.Name, o.process.Tail())
	}
	for _, n := range w.nodes {
		fmt.Fprintf(&out, "--- agent of %s\n%s\n", n.Name, n.Agent.Tail())
	}
	return out.String()
}
