// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/test/rig"
)

func patch(t *testing.T, o client.Object, change func()) {
	t.Helper()
	until(t, func(ctx context.Context) error {
		if err := cl.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		before := o.DeepCopyObject().(client.Object)
		change()
		return cl.Client.Patch(ctx, o, client.MergeFrom(before))
	})
}

func TestANewRevisionReachesTheNodes(t *testing.T) {
	ctx := t.Context()
	namespace(t, "renewed")
	d := newDataset("renewed", "data", gib, 2)
	must(t, cl.Client.Create(ctx, d))
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	listings.set("s3://renewed/data", engine.Pull{Revision: revision("c"), Objects: 4, Bytes: 2 * gib})
	patch(t, d, func() { d.Spec.Pinned = true }) // whatever changes has the bucket listed again
	until(t, func(ctx context.Context) error {
		var caches v1alpha1.NodeCacheList
		if err := cl.Client.List(ctx, &caches); err != nil {
			return err
		}
		have := 0
		for i := range caches.Items {
			e := cluster.EntryOf(&caches.Items[i], "renewed", "data")
			if e != nil && e.Revision == revision("c") && e.Bytes == 2*gib && e.Pinned {
				have++
			}
		}
		if have != 2 {
			return fmt.Errorf("%d nodes have the new revision", have)
		}
		return nil
	})
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if d.Status.Revision != revision("c") {
		t.Errorf("status: %+v", d.Status)
	}
}

// The operator may read a secret only where a role of the namespace says so, and reads it anew each time.
func TestSecretsAreReadByNameAndAnew(t *testing.T) {
	ctx := t.Context()
	namespace(t, "secrets")
	d := newDataset("secrets", "data", gib, 1)
	d.Spec.Source.S3.SecretRef = &v1alpha1.SecretRef{Name: "keys"}
	must(t, cl.Client.Create(ctx, d))
	untilCondition(t, d, v1alpha1.CondResolved, metav1.ConditionFalse, v1alpha1.ReasonSecretForbidden)
	keys := metav1.ObjectMeta{Namespace: "secrets", Name: "keys"}
	role := &rbacv1.Role{ObjectMeta: keys, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"keys"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: keys, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
		Name: "keys"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: rig.SystemNamespace, Name: rig.OperatorAccount}}}
	must(t, errors.Join(cl.Client.Create(ctx, role), cl.Client.Create(ctx, binding)))
	untilCondition(t, d, v1alpha1.CondResolved, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	secret := &corev1.Secret{ObjectMeta: keys, StringData: map[string]string{"AWS_ACCESS_KEY_ID": "one"}}
	must(t, cl.Client.Create(ctx, secret))
	untilCondition(t, d, v1alpha1.CondResolved, metav1.ConditionFalse, v1alpha1.ReasonSecretIncomplete)
	patch(t, secret, func() { secret.StringData = map[string]string{"AWS_SECRET_ACCESS_KEY": "hush"} })
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	patch(t, secret, func() { secret.StringData = map[string]string{"AWS_ACCESS_KEY_ID": "two"} })
	patch(t, d, func() { d.Spec.Pinned = true })
	until(t, func(context.Context) error {
		if got := listings.told(v1alpha1.DepotName("secrets", "data")); got.AccessKey != "two" || got.SecretKey != "hush" {
			return fmt.Errorf("the engine was told key %q", got.AccessKey)
		}
		return nil
	})
}

func TestAPodStartsAtOnceWhereTheDatasetAsksForIt(t *testing.T) {
	ctx := t.Context()
	agents.play(t, pulling)
	namespace(t, "at-once")
	d := newDataset("at-once", "data", gib, 1)
	d.Spec.Start = v1alpha1.AtOnce
	must(t, cl.Client.Create(ctx, d))
	pod := trainer("at-once", "train", "data", 1)
	must(t, cl.Client.Create(ctx, pod))
	until(t, func(ctx context.Context) error { return running(ctx, pod) })
}

func TestAPodThatPrefersRunsAtOnceAndItsDatasetFollows(t *testing.T) {
	ctx := t.Context()
	namespace(t, "near")
	d := newDataset("near", "data", gib, 0)
	must(t, cl.Client.Create(ctx, d))
	pod := trainer("near", "train", "data", 1)
	pod.Annotations = map[string]string{v1alpha1.AnnotationMode: v1alpha1.ModePreferred}
	must(t, cl.Client.Create(ctx, pod))
	if cluster.IsGated(pod) {
		t.Error("it is gated")
	}
	until(t, func(ctx context.Context) error { return running(ctx, pod) })
	until(t, func(ctx context.Context) error {
		nodes, err := holders(ctx, "near", "data")
		if err != nil || len(nodes) != 1 || nodes[0] != pod.Spec.NodeName {
			return fmt.Errorf("%w: the pod is on %s, the dataset on %v", err, pod.Spec.NodeName, nodes)
		}
		return nil
	})
}

func TestADatasetLargerThanEveryNodeRunsInPart(t *testing.T) {
	ctx := t.Context()
	agents.play(t, func(_ string, e *v1alpha1.CacheEntry) v1alpha1.EntryStatus {
		st := ready("", e)
		if e.Mode == v1alpha1.Partial {
			st.Phase, st.BytesDone = v1alpha1.PhasePartial, e.Bytes/10
		}
		return st
	})
	namespace(t, "part")
	d := newDataset("part", "data", 300*gib, 1)
	d.Spec.Placement.Mode = v1alpha1.Partial
	must(t, cl.Client.Create(ctx, d))
	pod := trainer("part", "train", "data", 1)
	must(t, cl.Client.Create(ctx, pod))
	until(t, func(ctx context.Context) error { return running(ctx, pod) })
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if d.Status.Cached != "10 %" || d.Status.Nodes[0].Phase != v1alpha1.PhasePartial {
		t.Errorf("status: %+v", d.Status)
	}
	must(t, errors.Join(cl.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)), cl.Client.Delete(ctx, d)))
	until(t, func(ctx context.Context) error { return isGone(ctx, d) })
}

// A copy that a pod had brought, and that nobody uses any more, makes way for another dataset; others do not.
func TestACopyThatNobodyNeedsMakesWay(t *testing.T) {
	ctx := t.Context()
	namespace(t, "room")
	old := newDataset("room", "old", 55*gib, 0)
	must(t, cl.Client.Create(ctx, old))
	pod := trainer("room", "train", "old", 1)
	must(t, cl.Client.Create(ctx, pod))
	until(t, func(ctx context.Context) error { return running(ctx, pod) })
	wants := newDataset("room", "wants", 55*gib, nodes)
	must(t, cl.Client.Create(ctx, wants))
	untilCondition(t, wants, v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonInsufficientSpace)
	must(t, cl.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	untilCondition(t, wants, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	left, err := holders(ctx, "room", "old")
	must(t, err)
	if len(left) != 0 {
		t.Errorf("the old one is still on %v", left)
	}
	must(t, errors.Join(cl.Client.Delete(ctx, wants), cl.Client.Delete(ctx, old)))
	until(t, func(ctx context.Context) error { return errors.Join(isGone(ctx, wants), isGone(ctx, old)) })
}

func TestPoolsSayWhatNodesMayTake(t *testing.T) {
	ctx := t.Context()
	limit := resource.MustParse("50Gi")
	pool := &v1alpha1.CachePool{ObjectMeta: metav1.ObjectMeta{Name: "a-first"},
		Spec: v1alpha1.CachePoolSpec{StorageLimit: &limit,
			NodeSelector: map[string]string{corev1.LabelHostname: "node-1"}, HighWatermark: 80, LowWatermark: 60}}
	must(t, cl.Client.Create(ctx, pool))
	is := func(pool string, limit int64, high int32) func(context.Context) error {
		return func(ctx context.Context) error {
			var c v1alpha1.NodeCache
			if err := cl.Client.Get(ctx, client.ObjectKey{Name: "node-1"}, &c); err != nil {
				return err
			}
			if c.Spec.Pool != pool || c.Spec.LimitBytes != limit || c.Spec.HighWatermark != high {
				return fmt.Errorf("%+v", c.Spec)
			}
			return nil
		}
	}
	until(t, is("a-first", 50*gib, 80))
	until(t, func(ctx context.Context) error {
		if err := cl.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if pool.Status.Nodes != 1 || pool.Status.ReadyNodes != 1 {
			return fmt.Errorf("%+v", pool.Status)
		}
		return nil
	})
	must(t, cl.Client.Delete(ctx, pool))
	until(t, is("all", 0, 95))
}

func TestANodeGoesAndComesBack(t *testing.T) {
	ctx := t.Context()
	namespace(t, "nodes")
	d := newDataset("nodes", "data", gib, nodes)
	must(t, cl.Client.Create(ctx, d))
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	var before, after v1alpha1.NodeCache
	must(t, cl.Client.Get(ctx, client.ObjectKey{Name: "node-2"}, &before))
	must(t, cl.RemoveNode(ctx, "node-2"))
	until(t, func(ctx context.Context) error { return isGone(ctx, before.DeepCopy()) })
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonNoNodes)
	must(t, cl.AddNode(ctx, rig.Node{Name: "node-2", GPUs: 8,
		Labels: map[string]string{"topology.kubernetes.io/zone": "z2"}}))
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	must(t, cl.Client.Get(ctx, client.ObjectKey{Name: "node-2"}, &after))
	if after.UID == before.UID || d.Status.Ready != "3/3" {
		t.Errorf("%s, ready %s", after.UID, d.Status.Ready)
	}
}

// Killed again and again at any moment, the operator still makes everything and leaves nothing.
func TestAnOperatorThatIsKilledLeavesNothingBehind(t *testing.T) {
	const kills, seed = 12, 7
	ctx := t.Context()
	random := rand.New(rand.NewPCG(seed, 0))
	namespace(t, "killed")
	operator.process.Kill()
	t.Cleanup(func() {
		operator.process.Kill()
		must(t, operator.start(context.Background()))
	})
	var all []*v1alpha1.Dataset
	for i := range kills {
		must(t, operator.startWith(ctx))
		d := newDataset("killed", fmt.Sprint("d", i), gib, 2)
		all = append(all, d)
		must(t, cl.Client.Create(ctx, d))
		if i >= 6 {
			must(t, cl.Client.Delete(ctx, all[i-6]))
		}
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond) // nothing is asserted about where it was
		operator.process.Kill()
	}
	must(t, operator.startWith(ctx))
	for _, d := range all[kills-6:] {
		untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}
	for _, d := range all[:kills-6] {
		until(t, func(ctx context.Context) error { return isGone(ctx, d) })
	}
	must(t, cl.Client.DeleteAllOf(ctx, &v1alpha1.Dataset{}, client.InNamespace("killed")))
	until(t, func(ctx context.Context) error {
		var claims corev1.PersistentVolumeClaimList
		if err := cl.Client.List(ctx, &claims, client.InNamespace("killed")); err != nil {
			return err
		}
		if len(claims.Items) > 0 {
			return fmt.Errorf("claim %s is left", claims.Items[0].Name)
		}
		return noOrphans(ctx, "killed")
	})
}
