// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/rig"
	"penstock.dev/operator/test/stand"
)

// s3 changes the source.
func s3(change func(*v1alpha1.S3Source)) func(*v1alpha1.Dataset) {
	return func(d *v1alpha1.Dataset) { change(d.Spec.Source.S3) }
}

func TestHostileSpecsAreRefused(t *testing.T) {
	tm := newTeam(t)
	every := func(interval time.Duration) func(*v1alpha1.Dataset) {
		return func(d *v1alpha1.Dataset) { d.Spec.RefreshInterval = &metav1.Duration{Duration: interval} }
	}
	web := func(url string) func(*v1alpha1.Dataset) {
		return func(d *v1alpha1.Dataset) { d.Spec.Source = v1alpha1.Source{HTTP: &v1alpha1.HTTPSource{URL: url}} }
	}
	plain := v1alpha1.HTTPSource{URL: "https://a/b"}
	hostile := map[string]func(*v1alpha1.Dataset){
		"shell in the bucket":       s3(func(s *v1alpha1.S3Source) { s.Bucket = "a$(reboot)" }),
		"shell in the prefix":       s3(func(s *v1alpha1.S3Source) { s.Prefix = "a;rm -rf /" }),
		"backticks in the prefix":   s3(func(s *v1alpha1.S3Source) { s.Prefix = "`id`" }),
		"a newline in the prefix":   s3(func(s *v1alpha1.S3Source) { s.Prefix = "a\nb" }),
		"up from the prefix":        s3(func(s *v1alpha1.S3Source) { s.Prefix = "../../etc" }),
		"up inside of the prefix":   s3(func(s *v1alpha1.S3Source) { s.Prefix = "a/../../b" }),
		"an absolute prefix":        s3(func(s *v1alpha1.S3Source) { s.Prefix = "/etc" }),
		"a long prefix":             s3(func(s *v1alpha1.S3Source) { s.Prefix = strings.Repeat("a", 513) }),
		"a file as endpoint":        s3(func(s *v1alpha1.S3Source) { s.Endpoint = "file:///etc/passwd" }),
		"shell in the endpoint":     s3(func(s *v1alpha1.S3Source) { s.Endpoint = "http://a/$(id)" }),
		"someone in the endpoint":   s3(func(s *v1alpha1.S3Source) { s.Endpoint = "http://root:x@a" }),
		"shell in the region":       s3(func(s *v1alpha1.S3Source) { s.Region = "us|id" }),
		"another namespace's keys":  s3(func(s *v1alpha1.S3Source) { s.SecretRef.Name = "kube-system/keys" }),
		"keys up there":             s3(func(s *v1alpha1.S3Source) { s.SecretRef.Name = "../kube-system/secrets/keys" }),
		"shell in the URL":          web("https://a/$(id)"),
		"a file as URL":             web("file:///etc/passwd"),
		"a query in the URL":        web("https://a/b?c=d&e"),
		"shell in the revision":     func(d *v1alpha1.Dataset) { d.Spec.Revision = "Latest;id" },
		"up in the revision":        func(d *v1alpha1.Dataset) { d.Spec.Revision = "../../../../../../../etc/passwd" },
		"huge replicas":             replicas(2_000_000_000),
		"negative replicas":         replicas(-1),
		"a huge interval":           every(1_000_000 * time.Hour),
		"a negative interval":       every(-time.Hour),
		"an unknown mode":           func(d *v1alpha1.Dataset) { d.Spec.Placement.Mode = "Everything" },
		"an unknown start":          func(d *v1alpha1.Dataset) { d.Spec.Start = "Never" },
		"no source":                 func(d *v1alpha1.Dataset) { d.Spec.Source = v1alpha1.Source{} },
		"two sources":               func(d *v1alpha1.Dataset) { d.Spec.Source.HTTP = &plain },
		"a name that is too long":   func(d *v1alpha1.Dataset) { d.Name = strings.Repeat("a", 51) },
		"a name with shell in it":   func(d *v1alpha1.Dataset) { d.Name = "a$(id)" },
		"a name that goes up":       func(d *v1alpha1.Dataset) { d.Name = ".." },
		"labels that are too many":  func(d *v1alpha1.Dataset) { d.Spec.Placement.NodeSelector = many(17) },
		"an interval in millionths": every(time.Microsecond),
	}
	for what, change := range hostile {
		d := tm.dataset("photos", change)
		if err := w.Client.Create(tm.ctx, d, client.DryRunAll); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	tm.must(w.Client.Create(tm.ctx, tm.dataset("photos"), client.DryRunAll)) // it is not that everything is refused
	tm.numbers()
}

func many(count int) map[string]string {
	out := map[string]string{}
	for i := range count {
		out["a"+strings.Repeat("b", i)] = "c"
	}
	return out
}

// numbers that Go's types cannot even hold come as they are.
func (tm *team) numbers() {
	for what, spec := range map[string]map[string]any{
		"replicas beyond 32 bits": {"placement": map[string]any{"replicas": int64(1) << 40}},
		"replicas as a text":      {"placement": map[string]any{"replicas": "1; id"}},
		"a prefix as a list":      {"source": map[string]any{"s3": map[string]any{"bucket": "bucket", "prefix": []any{"a"}}}},
	} {
		if spec["source"] == nil {
			spec["source"] = map[string]any{"s3": map[string]any{"bucket": "bucket"}}
		}
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Dataset"))
		u.SetNamespace(tm.name)
		u.SetName("photos")
		if err := w.Client.Create(tm.ctx, u, client.DryRunAll); !apierrors.IsInvalid(err) {
			tm.t.Errorf("%s: %v", what, err)
		}
	}
	for what, limit := range map[string]string{"nothing": "0", "less than nothing": "-1Gi", "more than there is": "9E"} {
		q := resource.MustParse(limit)
		pool := &v1alpha1.CachePool{Spec: v1alpha1.CachePoolSpec{StorageLimit: &q, HighWatermark: 95, LowWatermark: 85}}
		pool.Name = "hostile"
		if err := w.Client.Create(tm.ctx, pool, client.DryRunAll); !apierrors.IsInvalid(err) {
			tm.t.Errorf("a pool of %s: %v", what, err)
		}
	}
}

func TestASourceCannotBeChanged(t *testing.T) {
	tm := newTeam(t)
	tm.upload(stand.MakeFiles(30, 2, 100))
	tm.create(tm.dataset("photos", replicas(0)))
	tm.eventually("refused", func(ctx context.Context) error {
		d, err := tm.get(ctx, "photos")
		if err != nil {
			return err
		}
		d.Spec.Source.S3.Bucket = "another"
		if err := w.Client.Update(ctx, d); !apierrors.IsInvalid(err) {
			return err
		}
		return nil
	})
}

// A dataset names a secret of its own namespace. One of the same name elsewhere is not read, nor is one that no Role of
// the namespace grants.
func TestASecretOfAnotherNamespaceIsNotRead(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(31, 3, 1000)
	tm.upload(files)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tm.name, Name: secretName}}
	tm.must(w.Client.Delete(tm.ctx, secret))
	tm.must(w.Client.Create(tm.ctx, w.S3.Secret(rig.SystemNamespace, secretName)))
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), w.S3.Secret(rig.SystemNamespace, secretName)) })
	tm.create(tm.dataset("photos"))
	tm.eventually("not found",
		tm.is("photos", v1alpha1.CondResolved, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound))
	ungranted := w.S3.Secret(tm.name, "others-keys")
	tm.create(ungranted)
	tm.create(tm.dataset("thief", s3(func(s *v1alpha1.S3Source) { s.SecretRef.Name = "others-keys" })))
	tm.eventually("forbidden",
		tm.is("thief", v1alpha1.CondResolved, metav1.ConditionFalse, v1alpha1.ReasonSecretForbidden))
}

// An agent that was taken over speaks for its own node alone.
func TestAnAgentWritesItsOwnNodeCacheOnly(t *testing.T) {
	tm := newTeam(t)
	pod, err := w.podOn(tm.ctx, rig.NodeNamespace, "agent", nodeName(0))
	tm.must(err)
	config, err := w.Pod(tm.ctx, rig.NodeNamespace, pod.Name)
	tm.must(err)
	agent, err := rig.NewClient(config)
	tm.must(err)
	var other v1alpha1.NodeCache
	tm.must(agent.Get(tm.ctx, client.ObjectKey{Name: nodeName(1)}, &other))
	before := other.DeepCopy()
	other.Status.FreeBytes++
	err = agent.Status().Patch(tm.ctx, &other, client.MergeFrom(before), client.DryRunAll)
	if !apierrors.IsForbidden(err) {
		t.Errorf("another node's status: %v", err)
	}
	before.Spec.LimitBytes++
	if err := agent.Update(tm.ctx, before, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a spec: %v", err)
	}
	var secrets corev1.SecretList
	if err := agent.List(tm.ctx, &secrets, client.InNamespace(tm.name)); !apierrors.IsForbidden(err) {
		t.Errorf("secrets: %v", err)
	}
}
