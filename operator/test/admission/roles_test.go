// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordination "k8s.io/client-go/applyconfigurations/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/manifests"
	"penstock.dev/operator/test/rig"
)

func nodeCache(t *testing.T, name string) *v1alpha1.NodeCache {
	nc := &v1alpha1.NodeCache{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(t, client.IgnoreAlreadyExists(operator(t).Create(t.Context(), nc)))
	return &v1alpha1.NodeCache{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func patch(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }

func TestPodsOfTheBaseAreMade(t *testing.T) {
	agentOn(t, "node-0")
	agentOn(t, "node-1")
	must(t, rig.Eventually(t.Context(), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(rig.SystemNamespace)); err != nil {
			return err
		}
		running := 0
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != 2 {
			return fmt.Errorf("%d pods of the operator run", running)
		}
		return nil
	}))
}

func TestAgentWritesItsOwnStatusOnly(t *testing.T) {
	ctx := t.Context()
	here, other := nodeCache(t, "node-0"), nodeCache(t, "node-1")
	agent := agentOn(t, "node-0")
	mine := patch(`{"status":{"path":"/var/lib/penstock"}}`)

	must(t, agent.Status().Patch(ctx, here.DeepCopy(), mine))
	refused(t, "is on node-0, not on node-1", func(ctx context.Context) error {
		return agent.Status().Patch(ctx, other.DeepCopy(), mine)
	})
	refused(t, "cannot patch", func(ctx context.Context) error {
		return agent.Patch(ctx, here.DeepCopy(), patch(`{"spec":{"pool":"x"}}`))
	})
	refused(t, "cannot delete", func(ctx context.Context) error { return agent.Delete(ctx, here.DeepCopy()) })
	refused(t, "cannot create", func(ctx context.Context) error {
		return agent.Create(ctx, &v1alpha1.NodeCache{ObjectMeta: metav1.ObjectMeta{Name: "node-9"}})
	})

	// A token of the account that no pod on a node was given is nobody's.
	config, err := cluster.ServiceAccount(ctx, rig.NodeNamespace, rig.AgentAccount)
	loose := clientOf(t, config, err)
	refused(t, "is on no node, not on node-0", func(ctx context.Context) error {
		return loose.Status().Patch(ctx, here.DeepCopy(), mine)
	})
}

func TestAgentRenewsItsOwnLeaseOnly(t *testing.T) {
	ctx := t.Context()
	agent := agentOn(t, "node-0")
	apply := func(c client.Client, namespace, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			spec := coordination.LeaseSpec().WithHolderIdentity(name).WithRenewTime(metav1.NowMicro())
			return c.Apply(ctx, coordination.Lease(name, namespace).WithSpec(spec), client.FieldOwner("penstock-agent"))
		}
	}
	must(t, apply(agent, rig.NodeNamespace, "node-0")(ctx)) // makes it
	must(t, apply(agent, rig.NodeNamespace, "node-0")(ctx))
	refused(t, "is on node-0, not on node-1", apply(agent, rig.NodeNamespace, "node-1"))
	must(t, admin.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: rig.NodeNamespace, Name: "node-1"}}))
	refused(t, "is on node-0, not on node-1", apply(agent, rig.NodeNamespace, "node-1"))
	refused(t, "cannot patch", apply(agent, "kube-node-lease", "node-0"))
	mine := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: rig.NodeNamespace, Name: "node-0"}}
	refused(t, "cannot delete", func(ctx context.Context) error { return agent.Delete(ctx, mine.DeepCopy()) })
	refused(t, "cannot list", func(ctx context.Context) error { return agent.List(ctx, &coordinationv1.LeaseList{}) })
	must(t, operator(t).List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(rig.NodeNamespace)))
	refused(t, "cannot patch", apply(operator(t), rig.NodeNamespace, "node-0"))
}

func TestAgentSeesNoSecretsAndNoPods(t *testing.T) {
	agent := agentOn(t, "node-1")
	refused(t, "secrets", func(ctx context.Context) error { return agent.List(ctx, &corev1.SecretList{}) })
	refused(t, "pods", func(ctx context.Context) error { return agent.List(ctx, &corev1.PodList{}) })
	refused(t, "nodes", func(ctx context.Context) error {
		return agent.Get(ctx, client.ObjectKey{Name: "node-1"}, &corev1.Node{})
	})
}

// dataset-namespace is what a Kustomize user adds for his namespace.
func TestSecretsAreReadByName(t *testing.T) {
	ctx := t.Context()
	must(t, cluster.Namespace(ctx, "team", "restricted"))
	for _, name := range []string{"bucket-keys", "other"} {
		must(t, admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}))
	}
	who := map[string]client.Client{"operator": operator(t), "agent": agentOn(t, "node-0")}
	get := func(c client.Client, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.Get(ctx, client.ObjectKey{Namespace: "team", Name: name}, &corev1.Secret{})
		}
	}
	for _, c := range who {
		refused(t, "bucket-keys", get(c, "bucket-keys"))
	}
	roles, err := manifests.Kustomize("deploy/dataset-namespace")
	must(t, err)
	for _, o := range roles {
		o.SetNamespace("team")
		must(t, cluster.Apply(ctx, o))
	}
	for _, c := range who {
		must(t, rig.Eventually(ctx, get(c, "bucket-keys")))
		refused(t, "other", get(c, "other"))
		refused(t, "cannot list", func(ctx context.Context) error {
			return c.List(ctx, &corev1.SecretList{}, client.InNamespace("team"))
		})
	}
}

func TestOperatorKeepsItsCertificate(t *testing.T) {
	ctx, c := t.Context(), operator(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: rig.SystemNamespace, Name: rig.WebhookSecret}}
	must(t, c.Patch(ctx, secret, patch(`{"data":{"tls.crt":"eA=="}}`)))
	refused(t, "cannot create", func(ctx context.Context) error {
		return c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: rig.SystemNamespace, Name: "more"}})
	})
}

func TestOperatorDoesNotWriteNodes(t *testing.T) {
	c := operator(t)
	node := &corev1.Node{}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: "node-0"}, node))
	refused(t, "nodes", func(ctx context.Context) error {
		return c.Patch(ctx, node.DeepCopy(), patch(`{"metadata":{"labels":{"x":"y"}}}`))
	})
	refused(t, "cannot delete", func(ctx context.Context) error {
		return c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}})
	})
}

func volume(name, path string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "default", Name: "penstock-photos"},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
		},
	}
}

func TestOperatorMakesOnlyVolumesOfTheCache(t *testing.T) {
	ctx, c := t.Context(), operator(t)
	good := volume("penstock-photos-01234567", "/var/lib/penstock/datasets/photos-01234567")
	must(t, c.Create(ctx, good))
	create := func(v *corev1.PersistentVolume) func(context.Context) error {
		return func(ctx context.Context) error {
			v = v.DeepCopy()
			err := c.Create(ctx, v)
			if err == nil { // before the policy was known; for the next time
				_ = admin.Delete(ctx, v)
			}
			return err
		}
	}
	for _, path := range []string{"/", "/etc", "/var/lib/penstock", "/var/lib/penstock-other/x"} {
		refused(t, "below /var/lib/penstock", create(volume("penstock-bad", path)))
	}
	refused(t, "must not contain '..'", create(volume("penstock-bad", "/var/lib/penstock/../../etc")))
	refused(t, "names begin with penstock-", create(volume("bad", "/var/lib/penstock/datasets/x")))
	writable := volume("penstock-bad", "/var/lib/penstock/datasets/x")
	writable.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	refused(t, "for reading", create(writable))
	anybody := volume("penstock-bad", "/var/lib/penstock/datasets/x")
	anybody.Spec.ClaimRef = nil
	refused(t, "for one claim", create(anybody))

	theirs := volume("theirs", "/srv")
	must(t, admin.Create(ctx, theirs))
	refused(t, "names begin with penstock-", func(ctx context.Context) error { return c.Delete(ctx, theirs.DeepCopy()) })
	must(t, c.Delete(ctx, good))
	must(t, admin.Delete(ctx, theirs))
}

// The quickstart is accepted as it stands: a Job with the label and a Dataset among them.
func TestQuickstartIsAccepted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(manifests.Root(), "deploy", "quickstart.yaml"))
	must(t, err)
	objects, err := manifests.Parse(text)
	must(t, err)
	for _, o := range objects {
		must(t, cluster.Apply(t.Context(), o))
	}
	var d v1alpha1.Dataset
	must(t, admin.Get(t.Context(), client.ObjectKey{Namespace: "train", Name: "photos"}, &d))
	if d.Spec.Start != v1alpha1.WhenReady || d.Spec.Placement.Mode != v1alpha1.Whole || d.Spec.Revision != "Latest" {
		t.Errorf("defaults are missing: %+v", d.Spec)
	}
}
