// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

const gib = int64(1) << 30

func TestDatasetIsListedPlacedAndReady(t *testing.T) {
	ctx := t.Context()
	namespace(t, "whole")
	d := newDataset("whole", "photos", 10*gib, 2)
	must(t, cl.Client.Create(ctx, d))
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	s := d.Status
	if s.Revision != revision("a") || s.ShortRevision != "aaaaaaaaaaaa" || s.Size != "10.0 GiB" || s.Ready != "2/2" ||
		s.Cached != "100 %" ||
		s.Objects != 3 || len(s.Nodes) != 2 || s.ObservedGeneration != d.Generation {
		t.Errorf("status: %+v", s)
	}
	nodes, err := holders(ctx, "whole", "photos")
	must(t, err)
	if len(nodes) != 2 {
		t.Errorf("on %v", nodes)
	}
	var pvc corev1.PersistentVolumeClaim
	for _, claim := range []string{"penstock-photos", "penstock-engine"} {
		until(t, func(ctx context.Context) error {
			if err := cl.Client.Get(ctx, client.ObjectKey{Namespace: "whole", Name: claim}, &pvc); err != nil {
				return err
			}
			if pvc.Status.Phase != corev1.ClaimBound {
				return fmt.Errorf("%s is %s", claim, pvc.Status.Phase)
			}
			return nil
		})
	}
	var pv corev1.PersistentVolume
	must(t, cl.Client.Get(ctx, client.ObjectKey{Name: "penstock-" + v1alpha1.DepotName("whole", "photos")}, &pv))
	if want := root + "/datasets/" + v1alpha1.DepotName("whole", "photos"); pv.Spec.HostPath.Path != want {
		t.Errorf("path %s, want %s", pv.Spec.HostPath.Path, want)
	}
}

func TestProgressIsVisible(t *testing.T) {
	ctx := t.Context()
	agents.play(t, pulling)
	namespace(t, "progress")
	d := newDataset("progress", "half", 4*gib, 1)
	must(t, cl.Client.Create(ctx, d))
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonPulling)
	until(t, func(ctx context.Context) error {
		if err := cl.Client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.Cached != "50 %" || d.Status.Ready != "0/1" {
			return fmt.Errorf("%s, %s", d.Status.Cached, d.Status.Ready)
		}
		return nil
	})
}

// Each dataset's entries have a field manager of their own, and go with it alone.
func TestTwoDatasetsOnANodeDoNotTouchEachOther(t *testing.T) {
	ctx := t.Context()
	namespace(t, "two")
	a, b := newDataset("two", "first", gib, nodes), newDataset("two", "second", gib, nodes)
	must(t, errors.Join(cl.Client.Create(ctx, a), cl.Client.Create(ctx, b)))
	untilCondition(t, a, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	untilCondition(t, b, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	var c v1alpha1.NodeCache
	must(t, cl.Client.Get(ctx, client.ObjectKey{Name: "node-0"}, &c))
	managers := map[string]bool{}
	for _, f := range c.ManagedFields {
		managers[f.Manager] = true
	}
	if !managers["penstock-"+v1alpha1.DepotName("two", "first")] || !managers["penstock-"+v1alpha1.DepotName("two",
		"second")] {
		t.Errorf("managers: %v", managers)
	}
	must(t, cl.Client.Delete(ctx, a))
	until(t, func(ctx context.Context) error { return isGone(ctx, a) })
	gone, err := holders(ctx, "two", "first")
	must(t, err)
	still, err := holders(ctx, "two", "second")
	must(t, err)
	if len(gone) != 0 || len(still) != nodes {
		t.Errorf("the first on %v, the second on %v", gone, still)
	}
	if err := cl.Client.Get(ctx, client.ObjectKey{Namespace: "two", Name: "penstock-engine"},
		&corev1.PersistentVolumeClaim{}); err != nil {
		t.Errorf("the engine's claim: %v", err)
	}
}

func isGone(ctx context.Context, o client.Object) error {
	err := cl.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(err, fmt.Errorf("%s is still there", o.GetName()))
}

func TestADatasetThatNoNodeHasRoomForSaysHowMuchIsNeeded(t *testing.T) {
	namespace(t, "large")
	d := newDataset("large", "huge", 300*gib, 1)
	must(t, cl.Client.Create(t.Context(), d))
	got := untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonInsufficientSpace)
	if !strings.Contains(got.Message, "300.0 GiB needed") || !strings.Contains(got.Message, "free") {
		t.Errorf("message: %s", got.Message)
	}
}

func TestFailuresOfTheBucketAreConditions(t *testing.T) {
	ctx := t.Context()
	namespace(t, "wrong")
	none := newDataset("wrong", "none", gib, 1)
	listings.set("s3://wrong/none", engine.Pull{Error: &engine.PullError{Reason: engine.ReasonCredentials,
		Message: "403"}})
	must(t, cl.Client.Create(ctx, none))
	untilCondition(t, none, v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonCredentialsInvalid)
	listings.set("s3://wrong/none", engine.Pull{Revision: revision("b"), Objects: 1, Bytes: gib})
	untilCondition(t, none, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)

	secret := newDataset("wrong", "secret", gib, 1)
	secret.Spec.Source.S3.SecretRef = &v1alpha1.SecretRef{Name: "bucket-keys"}
	must(t, cl.Client.Create(ctx, secret))
	untilCondition(t, secret, v1alpha1.CondResolved, metav1.ConditionFalse, v1alpha1.ReasonSecretForbidden)
}

func TestNamespaceIsDeletedWithItsDatasets(t *testing.T) {
	ctx := t.Context()
	namespace(t, "ending")
	a, b := newDataset("ending", "a", gib, 2), newDataset("ending", "b", gib, 2)
	must(t, errors.Join(cl.Client.Create(ctx, a), cl.Client.Create(ctx, b)))
	untilCondition(t, a, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	untilCondition(t, b, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}}
	must(t, cl.Client.Delete(ctx, ns))
	until(t, func(ctx context.Context) error { return isGone(ctx, ns) })
	until(t, func(ctx context.Context) error { return noOrphans(ctx, "ending") })
}

// noOrphans: nothing in the cluster speaks of the namespace's datasets.
func noOrphans(ctx context.Context, ns string) error {
	var pvs corev1.PersistentVolumeList
	var caches v1alpha1.NodeCacheList
	if err := errors.Join(cl.Client.List(ctx, &pvs), cl.Client.List(ctx, &caches)); err != nil {
		return err
	}
	for i := range pvs.Items {
		if ref := pvs.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == ns {
			return fmt.Errorf("volume %s is left", pvs.Items[i].Name)
		}
	}
	for i := range caches.Items {
		for _, e := range caches.Items[i].Spec.Entries {
			if e.Namespace == ns {
				return fmt.Errorf("an entry of %s is left on %s", e.Name, caches.Items[i].Name)
			}
		}
	}
	return nil
}

// A new operator looks at everything once more. What it finds as it should be it must not write.
func TestASecondReconcileWritesNothing(t *testing.T) {
	ctx := t.Context()
	namespace(t, "quiet")
	d := newDataset("quiet", "still", gib, 2)
	must(t, cl.Client.Create(ctx, d))
	untilCondition(t, d, v1alpha1.CondReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	var before map[string]string
	until(t, func(ctx context.Context) error { // binding of claims and the last status settle
		first := versions(t)
		if got := versions(t); fmt.Sprint(got) != fmt.Sprint(before) {
			before = first
			return errors.New("something still changes")
		}
		return nil
	})
	operator.process.Kill()
	must(t, operator.startWith(ctx)) // without the lease, which is written all the time
	t.Cleanup(func() {
		operator.process.Kill()
		must(t, operator.start(context.Background()))
	})
	var all v1alpha1.DatasetList
	must(t, cl.Client.List(ctx, &all))
	var figures string
	until(t, func(ctx context.Context) (err error) {
		figures, err = reconciled(len(all.Items))
		return err
	})
	after := versions(t)
	for key, version := range before {
		if after[key] != version {
			t.Errorf("%s was written", key)
		}
	}
	// Nor was anything sent that changed nothing.
	for _, line := range strings.Split(figures, "\n") {
		if strings.HasPrefix(line, "rest_client_requests_total") && !strings.Contains(line, `method="GET"`) {
			t.Errorf("it wrote: %s", line)
		}
	}
	if metric(figures, "rest_client_requests_total") == 0 {
		t.Error("requests are not counted")
	}
}

// versions of everything that the operator may write.
func versions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for kind, list := range map[string]client.ObjectList{"dataset": &v1alpha1.DatasetList{},
		"nodecache": &v1alpha1.NodeCacheList{},
		"cachepool": &v1alpha1.CachePoolList{}, "volume": &corev1.PersistentVolumeList{},
		"claim":   &corev1.PersistentVolumeClaimList{},
		"webhook": &admissionv1.MutatingWebhookConfigurationList{}, "secret": &corev1.SecretList{}} {
		must(t, cl.Client.List(t.Context(), list))
		must(t, eachItem(list,
			func(o client.Object) { out[kind+" "+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion() }))
	}
	return out
}

// reconciled: each controller has been through all it has to do at least once, without an error.
func reconciled(datasets int) (figures string, err error) {
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", operator.metrics))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	for name, least := range map[string]int{"dataset": datasets, "pool": 1, "gate": 1} {
		if got := metric(string(text), fmt.Sprintf(`controller_runtime_reconcile_total{controller="%s"`,
			name)); got < float64(least) {
			return "", fmt.Errorf("%s: %.0f of %d\n%s", name, got, least, operator.process.Tail())
		}
	}
	return string(text), nil
}

// metric is the sum of the series that begin so.
func metric(text, prefix string) (sum float64) {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, prefix) {
			var value float64
			_, _ = fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value)
			sum += value
		}
	}
	return sum
}
