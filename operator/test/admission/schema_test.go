// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"penstock.dev/operator/api/v1alpha1"
)

func parse(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": "penstock.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}}
	if kind == "Dataset" {
		o["metadata"].(map[string]any)["namespace"] = "default"
	}
	var parsed map[string]any
	must(t, yaml.Unmarshal([]byte(spec), &parsed))
	o["spec"] = parsed
	return &unstructured.Unstructured{Object: o}
}

// Spec, and a word of the refusal.
var hostile = []struct{ name, kind, spec, word string }{
	{"shell", "Dataset", "source: {s3: {bucket: '$(reboot)'}}", "spec.source.s3.bucket"},
	{"backtick", "Dataset", "source: {s3: {bucket: good, prefix: 'a/`id`'}}", "spec.source.s3.prefix"},
	{"semicolon", "Dataset", "source: {s3: {bucket: good, prefix: 'a;b'}}", "spec.source.s3.prefix"},
	{"newline", "Dataset", `source: {s3: {bucket: good, region: "us\nx"}}`, "spec.source.s3.region"},
	{"up", "Dataset", "source: {s3: {bucket: good, prefix: ../other}}", "has no . or .."},
	{"up-inside", "Dataset", "source: {s3: {bucket: good, prefix: a/../b}}", "has no . or .."},
	{"slash", "Dataset", "source: {s3: {bucket: good, prefix: /etc}}", "spec.source.s3.prefix"},
	{"file", "Dataset", "source: {http: {url: 'file:///etc/passwd'}}", "spec.source.http.url"},
	{"credentials", "Dataset", "source: {http: {url: 'http://user:pass@host/x'}}", "spec.source.http.url"},
	{"endpoint", "Dataset", "source: {s3: {bucket: good, endpoint: 'http://a/b?c'}}", "spec.source.s3.endpoint"},
	{"other-secret", "Dataset", "source: {s3: {bucket: good, secretRef: {name: ../kube-system/x}}}", "secretRef.name"},
	{"both", "Dataset", "source: {s3: {bucket: good}, http: {url: 'http://h/x'}}", "either s3 or http"},
	{"neither", "Dataset", "source: {}", "either s3 or http"},
	{"revision", "Dataset", "{source: {s3: {bucket: good}}, revision: ../../etc}", "spec.revision"},
	{"often", "Dataset", "{source: {s3: {bucket: good}}, refreshInterval: 1s}", "refreshInterval is 0s or"},
	{"seldom", "Dataset", "{source: {s3: {bucket: good}}, refreshInterval: 99999999h}", "refreshInterval"},
	{"many", "Dataset", "{source: {s3: {bucket: good}}, placement: {replicas: 4000000000}}", "replicas"},
	{"negative", "Dataset", "{source: {s3: {bucket: good}}, placement: {replicas: -1}}", "replicas"},
	{"mode", "Dataset", "{source: {s3: {bucket: good}}, placement: {mode: Sharded}}", "spec.placement.mode"},
	{"start", "Dataset", "{source: {s3: {bucket: good}}, start: Never}", "spec.start"},
	{strings.Repeat("long", 13), "Dataset", "source: {s3: {bucket: good}}", "at most 50 characters"},
	{"marks", "CachePool", "{lowWatermark: 90, highWatermark: 80}", "lowWatermark is below"},
	{"percent", "CachePool", "{highWatermark: 101}", "highWatermark"},
	{"small", "CachePool", "{storageLimit: 1k}", "between 1Mi and 1Ei"},
	{"huge", "CachePool", "{storageLimit: 1e40}", "storageLimit"},
	{"minus", "CachePool", "{storageLimit: '-5Gi'}", "storageLimit"},
}

func TestHostileSpecsAreRefused(t *testing.T) {
	for _, c := range hostile {
		err := admin.Create(t.Context(), parse(t, c.kind, c.name, c.spec))
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

var harmless = []struct{ name, kind, spec string }{
	{"bare", "Dataset", "source: {s3: {bucket: photos}}"},
	{"near", "Dataset", `{source: {s3: {bucket: photos.v1, prefix: a/b.c, endpoint: "http://127.0.0.1:9000"}}}`},
	{"odd", "Dataset", `{source: {s3: {bucket: photos, prefix: "year=2026/a..b/(x)+y,z", pathStyle: true,
		secretRef: {name: keys}}}, revision: 0123456789abcdef0123456789abcdef, refreshInterval: 5m,
		start: AtOnce, pinned: true,
		placement: {replicas: 0, mode: Partial, nodeSelector: {a: b}}}`},
	{"web", "Dataset", `source: {http: {url: "https://example.com:8443/list%20of.txt"}}`},
	{"all", "CachePool", "{}"},
	{"some", "CachePool", "{storageLimit: 500Gi, highWatermark: 90, lowWatermark: 50, nodeSelector: {disk: nvme}}"},
}

func TestHarmlessSpecsAreAccepted(t *testing.T) {
	for _, c := range harmless {
		if err := admin.Create(t.Context(), parse(t, c.kind, c.name, c.spec)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestSourceCannotBeChanged(t *testing.T) {
	d := &v1alpha1.Dataset{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fixed"},
		Spec: v1alpha1.DatasetSpec{Source: v1alpha1.Source{S3: &v1alpha1.S3Source{Bucket: "one"}}}}
	must(t, admin.Create(t.Context(), d))
	must(t, admin.Patch(t.Context(), d, patch(`{"spec":{"pinned":true}}`)))
	err := admin.Patch(t.Context(), d, patch(`{"spec":{"source":{"s3":{"bucket":"two"}}}}`))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "make another dataset") {
		t.Error(err)
	}
	// Nor can the status be slipped in with the object.
	must(t, admin.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	d.Status.Revision = "x"
	must(t, admin.Update(t.Context(), d))
	if d.Status.Revision != "" {
		t.Error("the status was written with the spec")
	}
}
