// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var shared *Rig

func TestMain(m *testing.M) {
	if os.Getenv("RIG_ORPHAN") != "" {
		orphan()
	}
	r, err := Start(context.Background(), Options{Nodes: 2, Bucket: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = r
	fmt.Printf("rig up in %s\n", time.Since(r.clock).Round(time.Millisecond))
	code := m.Run()
	r.Stop()
	os.Exit(code)
}

// orphan is a process that starts a child and is killed with it running.
func orphan() {
	r := &Rig{Dir: os.Getenv("RIG_ORPHAN")}
	p, err := r.Run("sleep", nil, "sleep", "1000")
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Pid())
	select {}
}

func pod(namespace, name string, gates ...string) *corev1.Pod {
	no, yes := false, true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "main", Image: "example.com/none",
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
		},
	}
	for _, gate := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return p
}

func (r *Rig) phase(ctx context.Context, of *corev1.Pod, want corev1.PodPhase) error {
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(of), of); err != nil {
		return err
	}
	if of.Status.Phase != want {
		return fmt.Errorf("pod %s is %s, not %s", of.Name, of.Status.Phase, want)
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPodRunsAndGatedPodWaits(t *testing.T) {
	ctx := t.Context()
	must(t, shared.Namespace(ctx, "gates", "restricted"))
	gated, plain := pod("gates", "gated", "example.com/gate"), pod("gates", "plain")
	must(t, shared.Client.Create(ctx, gated))
	must(t, shared.Client.Create(ctx, plain))
	must(t, Eventually(ctx, func(ctx context.Context) error { return shared.phase(ctx, plain, corev1.PodRunning) }))
	if !strings.HasPrefix(plain.Spec.NodeName, "node-") {
		t.Errorf("the pod is on %q", plain.Spec.NodeName)
	}
	// The plain one was made later and runs: the scheduler has been there.
	must(t, shared.phase(ctx, gated, corev1.PodPending))
	if gated.Spec.NodeName != "" {
		t.Errorf("the gated pod is on %q", gated.Spec.NodeName)
	}
	gated.Spec.SchedulingGates = nil
	must(t, shared.Client.Update(ctx, gated))
	must(t, Eventually(ctx, func(ctx context.Context) error { return shared.phase(ctx, gated, corev1.PodRunning) }))
}

func TestPodEndsWhenItIsTold(t *testing.T) {
	ctx := t.Context()
	must(t, shared.Namespace(ctx, "ends", ""))
	p := pod("ends", "short")
	must(t, shared.Client.Create(ctx, p))
	must(t, Eventually(ctx, func(ctx context.Context) error { return shared.phase(ctx, p, corev1.PodRunning) }))
	must(t, shared.Client.Patch(ctx, p, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+AnnotationEnd+`":""}}}`))))
	must(t, Eventually(ctx, func(ctx context.Context) error { return shared.phase(ctx, p, corev1.PodSucceeded) }))
}

func TestPodSecurityIsEnforced(t *testing.T) {
	ctx := t.Context()
	must(t, shared.Namespace(ctx, "strict", "restricted"))
	loose := pod("strict", "loose")
	loose.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	if err := shared.Client.Create(ctx, loose); !apierrors.IsForbidden(err) {
		t.Errorf("a pod with a hostPath: %v", err)
	}
}

func TestIdentityHasItsRolesOnly(t *testing.T) {
	ctx := t.Context()
	must(t, shared.Namespace(ctx, "who", ""))
	config, err := shared.ServiceAccount(ctx, "who", "default")
	must(t, err)
	c, err := NewClient(config)
	must(t, err)
	get := func() error {
		return c.Get(ctx, client.ObjectKey{Namespace: "who", Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})
	}
	if err := get(); !apierrors.IsForbidden(err) {
		t.Fatalf("without a role: %v", err)
	}
	must(t, shared.Client.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "who", Name: "read"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}}}))
	must(t, shared.Client.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "who", Name: "read"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "read"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "who", Name: "default"}}}))
	must(t, Eventually(ctx, func(context.Context) error { return get() }))
}

func TestTokenOfPodNamesItsNode(t *testing.T) {
	ctx := t.Context()
	must(t, shared.Namespace(ctx, "bound", ""))
	p := pod("bound", "here")
	must(t, shared.Client.Create(ctx, p))
	must(t, Eventually(ctx, func(ctx context.Context) error { return shared.phase(ctx, p, corev1.PodRunning) }))
	config, err := shared.Pod(ctx, "bound", "here")
	must(t, err)
	who, err := WhoAmI(ctx, config)
	must(t, err)
	if got := who.Extra["authentication.kubernetes.io/node-name"]; len(got) != 1 || got[0] != p.Spec.NodeName {
		t.Errorf("the token's node is %v, the pod is on %s", got, p.Spec.NodeName)
	}
}

func TestObjectsOutliveTheAPIServer(t *testing.T) {
	ctx := t.Context()
	must(t, shared.Namespace(ctx, "kept", ""))
	shared.StopAPIServer()
	if err := shared.Client.Get(ctx, client.ObjectKey{Name: "kept"}, &corev1.Namespace{}); err == nil {
		t.Error("a stopped server answers")
	}
	must(t, shared.StartAPIServer(ctx))
	must(t, shared.Client.Get(ctx, client.ObjectKey{Name: "kept"}, &corev1.Namespace{}))
}

func TestNodesComeAndGo(t *testing.T) {
	ctx := t.Context()
	must(t, shared.AddNode(ctx, Node{Name: "extra", GPUs: 8, Labels: map[string]string{"example.com/kind": "gpu"}}))
	must(t, shared.RemoveNode(ctx, "extra"))
	must(t, Eventually(ctx, func(ctx context.Context) error {
		if err := shared.Client.Get(ctx, client.ObjectKey{Name: "extra"}, &corev1.Node{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %v", err)
		}
		return nil
	}))
	must(t, shared.AddNode(ctx, Node{Name: "extra"}))
	must(t, shared.RemoveNode(ctx, "extra"))
}

func TestBucketChecksSignatures(t *testing.T) {
	ctx := t.Context()
	must(t, shared.S3.Put(ctx, BucketName, "a folder/x+y.bin", []byte("hello")))
	must(t, shared.S3.Delete(ctx, BucketName, "a folder/x+y.bin"))
	wrong := *shared.S3
	wrong.SecretKey = "another"
	if err := wrong.Put(ctx, BucketName, "x", nil); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("with a wrong key: %v", err)
	}
}

func TestProcessesEndWithTheirTest(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RIG_ORPHAN="+t.TempDir())
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var pid int
	_, err = fmt.Fscan(out, &pid)
	must(t, err)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	must(t, Eventually(t.Context(), func(context.Context) error {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err == nil && !strings.Contains(string(state), ") Z ") {
			return fmt.Errorf("still alive: %s", state)
		}
		return nil
	}))
}
