// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/rig"
	"penstock.dev/operator/test/stand"
)

// team is a namespace with a dataset's secret in it, of one test.
type team struct {
	t    *testing.T
	ctx  context.Context
	name string
}

const secretName = "bucket-keys"

// newTeam makes a namespace for restricted pods. At the test's end everything in it goes, and must go.
func newTeam(t *testing.T) *team {
	t.Helper()
	name := strings.ToLower(t.Name())
	name = name[:min(len(name), 40)]
	tm := &team{t: t, ctx: context.Background(), name: name}
	tm.must(w.Namespace(tm.ctx, name, "restricted"))
	tm.must(w.Client.Create(tm.ctx, w.S3.Secret(name, secretName)))
	tm.allowSecret(secretName)
	t.Cleanup(tm.leave)
	return tm
}

// allowSecret lets operator and agents read one secret, as deploy/dataset-namespace does.
func (tm *team) allowSecret(name string) {
	tm.t.Helper()
	meta := metav1.ObjectMeta{Namespace: tm.name, Name: "penstock-secrets"}
	tm.must(w.Client.Create(tm.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get"}}}}))
	tm.must(w.Client.Create(tm.ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{
			{Kind: "ServiceAccount", Namespace: rig.SystemNamespace, Name: rig.OperatorAccount},
			{Kind: "ServiceAccount", Namespace: rig.NodeNamespace, Name: rig.AgentAccount},
		}}))
}

// leave deletes the namespace and waits until nothing of it is left anywhere.
func (tm *team) leave() {
	if tm.t.Failed() {
		tm.t.Log(w.tails())
	}
	// What has finalizers goes first: for what it finds in its way the namespace's controller waits, and not shortly.
	for _, kind := range []client.Object{&corev1.Pod{}, &v1alpha1.Dataset{}} {
		if err := w.Client.DeleteAllOf(tm.ctx, kind, client.InNamespace(tm.name)); err != nil {
			tm.t.Error(err)
		}
	}
	if err := rig.Eventually(tm.ctx, tm.noDatasets); err != nil {
		tm.t.Errorf("the datasets do not go: %v", err)
	}
	err := w.Client.Delete(tm.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tm.name}})
	if err != nil && !apierrors.IsNotFound(err) {
		tm.t.Error(err)
	}
	if err := rig.Eventually(tm.ctx, tm.gone); err != nil {
		tm.t.Errorf("the namespace does not go: %v", err)
	}
}

func (tm *team) gone(ctx context.Context) error {
	err := w.Client.Get(ctx, client.ObjectKey{Name: tm.name}, &corev1.Namespace{})
	if err == nil {
		return fmt.Errorf("namespace %s is there", tm.name)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	return orphans(ctx, tm.name)
}

func (tm *team) must(err error) {
	tm.t.Helper()
	if err != nil {
		tm.t.Fatal(err)
	}
}

// converge waits for something to come right, which it must, and says how long it took.
func (tm *team) converge(what string, ask func(context.Context) error) {
	tm.t.Helper()
	begun := time.Now()
	err := rig.Eventually(tm.ctx, ask)
	took := time.Since(begun)
	times.note(tm.t.Name(), what, took)
	if err != nil {
		tm.t.Fatalf("%s: %v\n%s", what, err, w.tails())
	}
	tm.t.Logf("converged in %.1f s: %s", took.Seconds(), what) // tools/test_operator.py prints these
	if strict && took > convergeMost {
		tm.t.Errorf("%s took %.1f s", what, took.Seconds())
	}
}

// eventually is the same for what is only on the way.
func (tm *team) eventually(what string, ask func(context.Context) error) {
	tm.t.Helper()
	if err := rig.Eventually(tm.ctx, ask); err != nil {
		tm.t.Fatalf("%s: %v\n%s", what, err, w.tails())
	}
}

// upload puts files into the bucket below a folder of the team.
func (tm *team) upload(files stand.Files) {
	tm.t.Helper()
	for key, content := range files {
		tm.must(w.S3.Put(tm.ctx, rig.BucketName, tm.name+"/"+key, content))
	}
}

// dataset in the team's folder of the real bucket.
func (tm *team) dataset(name string, change ...func(*v1alpha1.Dataset)) *v1alpha1.Dataset {
	two := int32(2)
	d := &v1alpha1.Dataset{ObjectMeta: metav1.ObjectMeta{Namespace: tm.name, Name: name}, Spec: v1alpha1.DatasetSpec{
		Source: v1alpha1.Source{S3: &v1alpha1.S3Source{Bucket: rig.BucketName, Prefix: tm.name, Endpoint: w.S3.Endpoint,
			Region: rig.BucketRegion, PathStyle: true, SecretRef: &v1alpha1.SecretRef{Name: secretName}}},
		Placement: v1alpha1.Placement{Replicas: &two},
	}}
	for _, c := range change {
		c(d)
	}
	return d
}

// fromFaultd reads the same folder from the bucket that fails as it is told.
func (tm *team) fromFaultd(files stand.Files) func(*v1alpha1.Dataset) {
	tm.t.Helper()
	folder := tm.t.TempDir()
	tm.must(files.Write(folder))
	tm.must(w.faultd.Folder(tm.name, folder))
	tm.must(w.faultd.Rules())
	tm.t.Cleanup(func() { _ = w.faultd.Rules() })
	return func(d *v1alpha1.Dataset) {
		d.Spec.Source.S3.Bucket, d.Spec.Source.S3.Prefix = tm.name, ""
		d.Spec.Source.S3.Endpoint, d.Spec.Source.S3.SecretRef = w.faultd.URL, nil
	}
}

func replicas(n int32) func(*v1alpha1.Dataset) {
	return func(d *v1alpha1.Dataset) { d.Spec.Placement.Replicas = &n }
}

func partial(d *v1alpha1.Dataset) { d.Spec.Placement.Mode = v1alpha1.Partial }

func (tm *team) create(o client.Object) {
	tm.t.Helper()
	tm.must(w.Client.Create(tm.ctx, o))
}

func (tm *team) get(ctx context.Context, name string) (*v1alpha1.Dataset, error) {
	var d v1alpha1.Dataset
	err := w.Client.Get(ctx, client.ObjectKey{Namespace: tm.name, Name: name}, &d)
	return &d, err
}

// edit changes a dataset's spec.
func (tm *team) edit(name string, change func(*v1alpha1.Dataset)) {
	tm.t.Helper()
	tm.eventually("edit "+name, func(ctx context.Context) error {
		d, err := tm.get(ctx, name)
		if err != nil {
			return err
		}
		change(d)
		return w.Client.Update(ctx, d)
	})
}

// is asks for a condition of a dataset; reason "" is any.
func (tm *team) is(name, kind string, status metav1.ConditionStatus, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		d, err := tm.get(ctx, name)
		if err != nil {
			return err
		}
		c := condition(d.Status.Conditions, kind)
		if c == nil || c.Status != status || reason != "" && c.Reason != reason {
			return fmt.Errorf("%s: %s is %+v, not %s %s; nodes %+v", name, kind, c, status, reason, d.Status.Nodes)
		}
		return nil
	}
}

func (tm *team) ready(name string) func(context.Context) error {
	return tm.is(name, v1alpha1.CondReady, metav1.ConditionTrue, "")
}

// holders are the nodes on which the whole dataset is, by what their agents say.
func (tm *team) holders(ctx context.Context, name string, phase v1alpha1.EntryPhase) ([]*stand.Node, error) {
	var out []*stand.Node
	for _, n := range w.nodes {
		var nc v1alpha1.NodeCache
		if err := w.Client.Get(ctx, client.ObjectKey{Name: n.Name}, &nc); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, err
		}
		for _, e := range nc.Status.Entries {
			if e.Namespace == tm.name && e.Name == name && e.Phase == phase {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

// held compares the bytes on every node that says it has the dataset, and asks for so many nodes.
func (tm *team) held(name string, files stand.Files, nodes int) func(context.Context) error {
	return func(ctx context.Context) error {
		d, err := tm.get(ctx, name)
		if err != nil {
			return err
		}
		on, err := tm.holders(ctx, name, v1alpha1.PhaseReady)
		if err != nil {
			return err
		}
		if len(on) != nodes {
			return fmt.Errorf("%s is on %d nodes, not on %d: %+v", name, len(on), nodes, d.Status.Nodes)
		}
		for _, n := range on {
			if err := files.Same(n.Folder(v1alpha1.DepotName(tm.name, name), d.Status.Revision)); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		return nil
	}
}

// pod that trains on a dataset, as the restricted level wants it.
func (tm *team) pod(name, dataset string) *corev1.Pod {
	no, yes := false, true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.name, Name: name,
			Labels: map[string]string{v1alpha1.LabelDataset: dataset}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "train", Image: "example.com/none",
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
		},
	}
}

func condition(all []metav1.Condition, kind string) *metav1.Condition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}
