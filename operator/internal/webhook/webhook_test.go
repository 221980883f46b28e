// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"penstock.dev/operator/api/v1alpha1"
)

func podOf(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelDataset: "photos"},
		Annotations: annotations},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}},
			Containers: []corev1.Container{{Name: "a"}, {Name: "b", Env: []corev1.EnvVar{{Name: v1alpha1.EnvPath,
				Value: "/own"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "own", MountPath: v1alpha1.MountDefault}}}}}}
}

func nobody() map[string]float64 { return nil }

func TestARequiredPodGetsVolumesEnvironmentAndGate(t *testing.T) {
	pod := podOf(nil)
	if err := Mutate(pod, nobody); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.SchedulingGates) != 1 || pod.Spec.SchedulingGates[0].Name != v1alpha1.GatePlacing {
		t.Errorf("gates: %v", pod.Spec.SchedulingGates)
	}
	for i, claim := range []string{"penstock-photos", "penstock-engine"} {
		if v := pod.Spec.Volumes[i].PersistentVolumeClaim; v.ClaimName != claim || !v.ReadOnly {
			t.Errorf("volume %d: %+v", i, v)
		}
	}
	for _, c := range []corev1.Container{pod.Spec.InitContainers[0], pod.Spec.Containers[0]} {
		if got, want := mounts(c), "penstock-data:/penstock/data:true penstock-engine:/run/penstock:true"; got != want {
			t.Errorf("%s: %s", c.Name, got)
		}
		if c.Env[0].Value != "/penstock/data" ||
			c.Env[1].ValueFrom.FieldRef.FieldPath != "metadata.annotations['penstock.dev/revision']" ||
			c.Env[2].Value != "unix:/run/penstock" {
			t.Errorf("%s: %+v", c.Name, c.Env)
		}
	}
	own := pod.Spec.Containers[1]
	if own.Env[0].Value != "/own" || len(own.Env) != 3 ||
		mounts(own) != "own:/penstock/data:false penstock-engine:/run/penstock:true" {
		t.Errorf("what a container says itself: %+v %s", own.Env, mounts(own))
	}
}

func mounts(c corev1.Container) string {
	var out []string
	for _, m := range c.VolumeMounts {
		out = append(out, fmt.Sprintf("%s:%s:%t", m.Name, m.MountPath, m.ReadOnly))
	}
	return strings.Join(out, " ")
}

func TestTwiceIsOnce(t *testing.T) {
	for _, mode := range []string{v1alpha1.ModeRequired, v1alpha1.ModePreferred} {
		pod := podOf(map[string]string{v1alpha1.AnnotationMode: mode})
		near := func() map[string]float64 { return map[string]float64{"a": 1, "b": 0.5} }
		if err := Mutate(pod, near); err != nil {
			t.Fatal(err)
		}
		once, _ := json.Marshal(pod)
		if err := Mutate(pod, near); err != nil {
			t.Fatal(err)
		}
		if twice, _ := json.Marshal(pod); string(once) != string(twice) {
			t.Errorf("%s:\n%s\n%s", mode, once, twice)
		}
	}
}

func TestAPodThatPrefersIsNotGatedButDrawn(t *testing.T) {
	pod := podOf(map[string]string{v1alpha1.AnnotationMode: v1alpha1.ModePreferred, v1alpha1.AnnotationMount: "/data"})
	if err := Mutate(pod, func() map[string]float64 {
		return map[string]float64{"b": 1, "a": 1, "half": 0.5,
			"none": 0}
	}); err != nil {
		t.Fatal(err)
	}
	terms := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(pod.Spec.SchedulingGates) != 0 || len(terms) != 2 || terms[0].Weight != 100 || terms[1].Weight != 50 {
		t.Fatalf("terms: %+v", terms)
	}
	if got := fmt.Sprint(terms[0].Preference.MatchExpressions[0].Values); got != "[a b]" {
		t.Errorf("hosts: %s", got)
	}
	if !strings.Contains(mounts(pod.Spec.Containers[0]), "penstock-data:/data:true") {
		t.Errorf("mounts: %s", mounts(pod.Spec.Containers[0]))
	}
}

func TestAPodThatNamesItsNodeIsNotGated(t *testing.T) {
	pod := podOf(nil)
	pod.Spec.NodeName = "node-1"
	if err := Mutate(pod, nobody); err != nil || len(pod.Spec.SchedulingGates) != 0 {
		t.Errorf("%v %v", err, pod.Spec.SchedulingGates)
	}
}

func TestHostilePodsAreRefused(t *testing.T) {
	for _, mount := range []string{"data", "/", "/data/", "/data/../etc", "/a:b", "/run/penstock", "/run/penstock/x"} {
		if Mutate(podOf(map[string]string{v1alpha1.AnnotationMount: mount}), nobody) == nil {
			t.Errorf("mount path %q", mount)
		}
	}
	if Mutate(podOf(map[string]string{v1alpha1.AnnotationMode: "Required"}), nobody) == nil {
		t.Error("an unknown mode")
	}
	for _, name := range []string{"", "A", "a_b", "../x", strings.Repeat("a", 51)} {
		pod := podOf(nil)
		pod.Labels[v1alpha1.LabelDataset] = name
		if Mutate(pod, nobody) == nil {
			t.Errorf("name %q", name)
		}
	}
}

func verify(t *testing.T, data, trusted map[string][]byte, name string, at time.Time) error {
	t.Helper()
	pair, err := tls.X509KeyPair(data[keyServing], data[keyServingKey])
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted[keyAuthority])
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool, CurrentTime: at})
	return err
}

func TestCertificatesAreMadeKeptAndRenewed(t *testing.T) {
	names := []string{"hook.ns.svc", "hook"}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first, changed, err := renew(nil, names, begin)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	for _, name := range names {
		if err := verify(t, first, first, name, begin); err != nil {
			t.Error(err)
		}
	}
	day := 24 * time.Hour
	if _, changed, _ = renew(first, names, begin.Add(50*day)); changed {
		t.Error("renewed too early")
	}
	second, changed, err := renew(first, names, begin.Add(61*day))
	if err != nil || !changed || string(second[keyAuthority]) != string(first[keyAuthority]) ||
		string(second[keyServing]) == string(first[keyServing]) {
		t.Error("the certificate is to be renewed, its authority not")
	}
	if err := verify(t, second, first, "hook", begin.Add(100*day)); err != nil {
		t.Error(err)
	}
	late := begin.Add(2500 * day)
	third, changed, err := renew(second, names, late)
	if err != nil || !changed || string(third[keyAuthority]) == string(first[keyAuthority]) {
		t.Fatal("the authority is to be renewed")
	}
	if err := verify(t, third, third, "hook", late); err != nil {
		t.Error(err)
	}
	if err := verify(t, second, third, "hook", begin.Add(100*day)); err != nil {
		t.Errorf("the old certificate is not trusted meanwhile: %v", err)
	}
	fourth, changed, err := renew(third, names, late.Add(9*365*day))
	if err != nil || !changed || strings.Count(string(fourth[keyAuthority]), "BEGIN") != 2 {
		t.Errorf("authorities that have ended stay: %d", strings.Count(string(fourth[keyAuthority]), "BEGIN"))
	}
}

func TestBrokenOrForeignCertificatesAreReplaced(t *testing.T) {
	now := time.Now()
	good, _, _ := renew(nil, []string{"hook"}, now)
	other, _, _ := renew(nil, []string{"hook"}, now)
	for what, have := range map[string]map[string][]byte{
		"garbage": {keyAuthority: []byte("x"), keyAuthorityKey: []byte("y"), keyServing: []byte("z")},
		"another's": {keyAuthority: good[keyAuthority], keyAuthorityKey: good[keyAuthorityKey],
			keyServing: other[keyServing], keyServingKey: other[keyServingKey]},
		"key of another": {keyAuthority: good[keyAuthority], keyAuthorityKey: good[keyAuthorityKey],
			keyServing: good[keyServing], keyServingKey: other[keyServingKey]},
		"no authority": {keyServing: good[keyServing], keyServingKey: good[keyServingKey]},
	} {
		got, changed, err := renew(have, []string{"hook"}, now)
		if err != nil || !changed || verify(t, got, got, "hook", now) != nil {
			t.Errorf("%s: %v %v", what, changed, err)
		}
	}
	if _, changed, _ := renew(good, []string{"hook", "another"}, now); !changed {
		t.Error("another name needs another certificate")
	}
}
