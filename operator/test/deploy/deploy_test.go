// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what is in deploy/, without a cluster.
package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"penstock.dev/operator/test/manifests"
	"penstock.dev/operator/test/rig"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func base(t *testing.T) []*manifests.Object {
	return must[[]*manifests.Object](t)(manifests.Kustomize("deploy/base"))
}

func quickstart(t *testing.T) []*manifests.Object {
	text := must[[]byte](t)(os.ReadFile(filepath.Join(manifests.Root(), "deploy", "quickstart.yaml")))
	return must[[]*manifests.Object](t)(manifests.Parse(text))
}

// everything is each manifest that a user may apply, by where it comes from.
func everything(t *testing.T) map[string][]*manifests.Object {
	return map[string][]*manifests.Object{
		"base":              base(t),
		"dataset-namespace": must[[]*manifests.Object](t)(manifests.Kustomize("deploy/dataset-namespace")),
		"quickstart":        quickstart(t),
		"chart": must[[]*manifests.Object](t)(manifests.Helm("--set", "datasets[0].namespace=train",
			"--set", "datasets[0].secrets={bucket-keys,more-keys}", "--set", "image.pullSecrets={pull}",
			"--set", "webhook.excludedNamespaces={other}")),
	}
}

func TestChartAndBaseAgree(t *testing.T) {
	chart := must[[]*manifests.Object](t)(manifests.Helm())
	byKey := map[string]*manifests.Object{}
	for _, o := range chart {
		if byKey[manifests.Key(o)] != nil {
			t.Errorf("the chart has %s twice", manifests.Key(o))
		}
		byKey[manifests.Key(o)] = o
	}
	// Helm makes the namespace that a chart is installed into.
	const own = "v1/Namespace//penstock-system"
	for _, o := range base(t) {
		key := manifests.Key(o)
		other := byKey[key]
		delete(byKey, key)
		switch {
		case key == own:
		case other == nil:
			t.Errorf("the chart has no %s", key)
		case !equality.Semantic.DeepEqual(o.Object, other.Object):
			ours, _ := yaml.Marshal(o.Object)
			theirs, _ := yaml.Marshal(other.Object)
			t.Errorf("%s differs.\nbase:\n%s\nchart:\n%s", key, ours, theirs)
		}
	}
	for key := range byKey {
		t.Errorf("the base has no %s", key)
	}
}

func TestManifestsAreOfTheirTypes(t *testing.T) {
	strict := serializer.NewCodecFactory(rig.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for where, objects := range everything(t) {
		for _, o := range objects {
			text := must[[]byte](t)(o.MarshalJSON())
			if _, _, err := strict.Decode(text, nil, nil); err != nil && !runtime.IsMissingVersion(err) {
				t.Errorf("%s: %s: %v", where, manifests.Key(o), err)
			}
		}
	}
}

// Names that one object has for another in the same set, spelled out in two places.
func TestChartSettingsReachTheManifests(t *testing.T) {
	chart := must[[]*manifests.Object](t)(manifests.Helm("--set", "agent.path=/mnt/fast", "--set", "agent.namespace=nodes",
		"--set", "image.prefix=registry.example.com/team/", "--set", "image.tag=9", "--set", "operator.extraArgs={--x=1}",
		"--set", "agent.extraArgs={--y=2}", "--set", "networkPolicy.egressPorts={444}"))
	for _, o := range chart {
		text := string(must[[]byte](t)(yaml.Marshal(o.Object)))
		for _, old := range []string{"/var/lib/penstock/run", "penstock-node", "image: penstock", ":0.1.0", "port: 6443"} {
			if strings.Contains(text, old) {
				t.Errorf("%s still says %s", manifests.Key(o), old)
			}
		}
		want := map[string][]string{
			"DaemonSet": {"path: /mnt/fast\n", "- /mnt/fast/run", "namespace: nodes",
				"registry.example.com/team/penstock-agent:9", "--y=2"},
			"Deployment": {"registry.example.com/team/penstock-operator:9", "--x=1"},
		}[o.GetKind()]
		if o.GetName() == "penstock-operator-volumes" && o.GetKind() == "ValidatingAdmissionPolicy" {
			want = append(want, "'/mnt/fast/'")
		}
		for _, text1 := range want {
			if !strings.Contains(text, text1) {
				t.Errorf("%s does not say %s", manifests.Key(o), text1)
			}
		}
	}
}

func TestChartRefusesAWildGrant(t *testing.T) {
	if _, err := manifests.Helm("--set", "datasets[0].namespace=train"); err == nil {
		t.Error("a namespace without named secrets was rendered")
	}
}

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	dir := t.TempDir()
	must[[]byte](t)(manifests.Script("tools/operator_generate.sh", dir))
	for _, folder := range []string{"deploy/base/crds", "deploy/chart/crds", "operator/api/v1alpha1"} {
		made := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, folder)))
		if len(made) == 0 {
			t.Errorf("nothing was made in %s", folder)
		}
		names := sets.New[string]()
		for _, entry := range made {
			names.Insert(entry.Name())
			want := must[[]byte](t)(os.ReadFile(filepath.Join(dir, folder, entry.Name())))
			have, err := os.ReadFile(filepath.Join(manifests.Root(), folder, entry.Name()))
			if err != nil || string(want) != string(have) {
				t.Errorf("%s/%s is out of date: tools/operator_generate.sh makes it", folder, entry.Name())
			}
		}
		for _, entry := range must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(manifests.Root(), folder))) {
			if strings.HasPrefix(entry.Name(), "penstock.dev_") && !names.Has(entry.Name()) {
				t.Errorf("%s/%s is of no type any more", folder, entry.Name())
			}
		}
	}
}
