// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/manifests"
	"penstock.dev/operator/test/stand"
)

// kubectl as the administrator.
func kubectl(args ...string) (string, error) {
	program, err := manifests.Tool("kubectl")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(program, append([]string{"--kubeconfig", w.Dir + "/admin.kubeconfig"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestADatasetComesToTwoOfThreeNodes(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(1, 30, 40_000)
	tm.upload(files)
	tm.create(tm.dataset("photos"))
	tm.converge("ready on two nodes", tm.ready("photos"))
	tm.converge("same bytes on both", tm.held("photos", files, 2))

	d, err := tm.get(tm.ctx, "photos")
	tm.must(err)
	if d.Status.Ready != "2/2" || d.Status.Bytes != files.Bytes() || d.Status.Objects != 30 ||
		len(d.Status.Revision) != 32 ||
		d.Status.ShortRevision != d.Status.Revision[:12] || !strings.HasPrefix(d.Status.Cached, "100") {
		t.Errorf("status: %+v", d.Status)
	}
	out, err := kubectl("get", "datasets", "-n", tm.name)
	tm.must(err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if head := strings.Fields(lines[0]); strings.Join(head, " ") != "NAME REVISION SIZE READY CACHED AGE" {
		t.Errorf("columns: %v", head)
	}
	if len(lines) != 2 || !strings.Contains(lines[1], d.Status.ShortRevision) || !strings.Contains(lines[1], "2/2") {
		t.Errorf("kubectl says\n%s", out)
	}
	if out, err := kubectl("wait", "-n", tm.name, "--for=condition=Ready", "--timeout=10s", "dset/photos"); err != nil {
		t.Errorf("kubectl wait: %v %s", err, out)
	}
	tm.calm()
}

func TestProgressIsVisible(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(2, 20, 100_000)
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 5)))
	tm.create(tm.dataset("photos", from))
	seen := map[string]bool{}
	tm.eventually("progress", func(ctx context.Context) error {
		d, err := tm.get(ctx, "photos")
		if err != nil {
			return err
		}
		seen[d.Status.Cached] = true
		for _, n := range d.Status.Nodes {
			if n.Phase == v1alpha1.PhasePulling && n.BytesDone > 0 && len(seen) > 2 {
				return nil
			}
		}
		return fmt.Errorf("seen %v; %+v", seen, d.Status.Nodes)
	})
	tm.must(tm.is("photos", v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonPulling)(tm.ctx))
	tm.must(w.faultd.Rules())
	tm.converge("ready", tm.ready("photos"))
}

// lifted is no error when the pod's gate is gone and it runs.
func (tm *team) lifted(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		var p corev1.Pod
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: tm.name, Name: name}, &p); err != nil {
			return err
		}
		if len(p.Spec.SchedulingGates) > 0 || p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("%s: gates %v, %s, conditions %+v",
				name, p.Spec.SchedulingGates, p.Status.Phase, p.Status.Conditions)
		}
		return nil
	}
}

func TestAPodWaitsForItsDataset(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(3, 20, 100_000)
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 5)))
	tm.create(tm.dataset("photos", from, replicas(0)))
	pod := tm.pod("train", "photos")
	tm.eventually("a pod is made", func(ctx context.Context) error { return w.Client.Create(ctx, pod.DeepCopy()) })
	tm.must(w.Client.Get(tm.ctx, client.ObjectKeyFromObject(pod), pod))
	if len(pod.Spec.SchedulingGates) != 1 || pod.Spec.SchedulingGates[0].Name != v1alpha1.GatePlacing {
		t.Fatalf("gates %v", pod.Spec.SchedulingGates)
	}
	tm.eventually("it is pulled for the pod", func(ctx context.Context) error {
		on, err := tm.holders(ctx, "photos", v1alpha1.PhasePulling)
		if err == nil && len(on) == 0 {
			err = errors.New("nobody pulls")
		}
		return err
	})
	tm.must(w.Client.Get(tm.ctx, client.ObjectKeyFromObject(pod), pod))
	if len(pod.Spec.SchedulingGates) != 1 {
		t.Error("the gate was lifted before a node was ready")
	}
	tm.must(w.faultd.Rules())
	tm.converge("pod runs", tm.lifted("train"))

	tm.must(w.Client.Get(tm.ctx, client.ObjectKeyFromObject(pod), pod))
	on, err := tm.holders(tm.ctx, "photos", v1alpha1.PhaseReady)
	tm.must(err)
	if !slices.ContainsFunc(on, func(n *stand.Node) bool { return n.Name == pod.Spec.NodeName }) {
		t.Errorf("the pod is on %s", pod.Spec.NodeName)
	}
	d, err := tm.get(tm.ctx, "photos")
	tm.must(err)
	if pod.Annotations[v1alpha1.AnnotationRev] != d.Status.Revision {
		t.Errorf("annotations %v", pod.Annotations)
	}
	tm.mounts(pod)
	tm.must(tm.held("photos", files, 1)(tm.ctx))
	tm.calm()
}

// mounts looks at what the webhook and the operator gave a pod.
func (tm *team) mounts(pod *corev1.Pod) {
	tm.t.Helper()
	c := pod.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	if env[v1alpha1.EnvPath] != v1alpha1.MountDefault || env[v1alpha1.EnvEngine] != "unix:"+v1alpha1.MountEngine {
		tm.t.Errorf("environment %v", env)
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil || !v.PersistentVolumeClaim.ReadOnly {
			continue
		}
		tm.eventually("claim "+v.PersistentVolumeClaim.ClaimName, func(ctx context.Context) error {
			var claim corev1.PersistentVolumeClaim
			err := w.Client.Get(ctx, client.ObjectKey{Namespace: tm.name, Name: v.PersistentVolumeClaim.ClaimName}, &claim)
			if err == nil && claim.Status.Phase != corev1.ClaimBound {
				err = fmt.Errorf("the claim is %s", claim.Status.Phase)
			}
			return err
		})
	}
}
