// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"penstock.dev/operator/test/manifests"
)

type template struct {
	meta metav1.ObjectMeta
	spec corev1.PodSpec
}

// pods is each pod that the objects would make, by the key of its maker.
func pods(t *testing.T, objects []*manifests.Object) map[string]template {
	found := map[string]template{}
	for _, o := range objects {
		raw, ok, err := unstructured.NestedMap(o.Object, "spec", "template")
		if err != nil || !ok {
			continue
		}
		var pod corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &pod); err != nil {
			t.Fatal(err)
		}
		found[manifests.Key(o)] = template{pod.ObjectMeta, pod.Spec}
	}
	return found
}

func allowed(t *testing.T, level podsecurity.Level, pod template) []string {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var why []string
	for _, r := range evaluator.EvaluatePod(podsecurity.LevelVersion{Level: level, Version: podsecurity.LatestVersion()},
		&pod.meta, &pod.spec) {
		if !r.Allowed {
			why = append(why, r.ForbiddenReason+": "+r.ForbiddenDetail)
		}
	}
	return why
}

const agentKey = "apps/v1/DaemonSet/penstock-node/penstock-agent"

func TestPodsAreRestricted(t *testing.T) {
	seen := 0
	for where, objects := range everything(t) {
		for key, pod := range pods(t, objects) {
			seen++
			if why := allowed(t, podsecurity.LevelRestricted, pod); key != agentKey && len(why) > 0 {
				t.Errorf("%s: %s: %v", where, key, why)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d pods were found", seen)
	}
}

// The agent's one exception is its folder on the node, and the container that hands it over.
func TestAgentIsRestrictedButForItsFolder(t *testing.T) {
	agent, ok := pods(t, base(t))[agentKey]
	if !ok {
		t.Fatal("no agent")
	}
	var paths []string
	for i, v := range agent.spec.Volumes {
		if v.HostPath != nil {
			paths = append(paths, v.HostPath.Path)
			agent.spec.Volumes[i].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
	}
	if !slices.Equal(paths, []string{"/var/lib/penstock"}) {
		t.Errorf("the agent has the node's %v", paths)
	}
	if n := len(agent.spec.InitContainers); n != 1 || agent.spec.InitContainers[0].Name != "folder" {
		t.Errorf("%d init containers", n)
	}
	caps := agent.spec.InitContainers[0].SecurityContext.Capabilities.Add
	if !slices.Equal(caps, []corev1.Capability{"CHOWN", "FOWNER"}) {
		t.Errorf("the first container has %v", caps)
	}
	agent.spec.InitContainers = nil
	if why := allowed(t, podsecurity.LevelRestricted, agent); len(why) > 0 {
		t.Errorf("beside its folder: %v", why)
	}
}

func TestContainersAreTight(t *testing.T) {
	for _, where := range []string{"base", "chart"} {
		for key, pod := range pods(t, everything(t)[where]) {
			for _, c := range slices.Concat(pod.spec.InitContainers, pod.spec.Containers) {
				sc := c.SecurityContext
				if sc == nil || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem {
					t.Errorf("%s: %s: %s may write to its image", where, key, c.Name)
				}
				if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
					t.Errorf("%s: %s: %s says nothing about memory or cpu", where, key, c.Name)
				}
				if strings.HasSuffix(c.Image, ":latest") || !strings.Contains(c.Image, ":") {
					t.Errorf("%s: %s: image %s is not pinned", where, key, c.Image)
				}
				if len(c.Command) > 0 && strings.HasSuffix(c.Command[0], "sh") {
					t.Errorf("%s: %s: %s runs a shell", where, key, c.Name)
				}
			}
		}
	}
}

type grant struct {
	key  string
	rule rbacv1.PolicyRule
}

func grants(t *testing.T) []grant {
	var all []grant
	for where, objects := range everything(t) {
		for _, o := range objects {
			if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
				continue
			}
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			if role.AggregationRule != nil {
				t.Errorf("%s: %s gathers other roles", where, manifests.Key(o))
			}
			for _, rule := range role.Rules {
				all = append(all, grant{where + ": " + manifests.Key(o), rule})
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d rules were found", len(all))
	}
	return all
}

func TestRolesHaveNoWildcards(t *testing.T) {
	for _, g := range grants(t) {
		for _, word := range slices.Concat(g.rule.APIGroups, g.rule.Resources, g.rule.Verbs, g.rule.NonResourceURLs) {
			if strings.Contains(word, "*") {
				t.Errorf("%s: %v", g.key, g.rule)
			}
		}
		for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
			if slices.Contains(g.rule.Verbs, verb) {
				t.Errorf("%s may %s", g.key, verb)
			}
		}
	}
}

func TestRolesWriteNoNodes(t *testing.T) {
	read := []string{"get", "list", "watch"}
	for _, g := range grants(t) {
		for _, resource := range g.rule.Resources {
			writes := slices.ContainsFunc(g.rule.Verbs, func(v string) bool { return !slices.Contains(read, v) })
			if strings.HasPrefix(resource, "nodes") && writes {
				t.Errorf("%s: %v", g.key, g.rule)
			}
			if strings.HasPrefix(resource, "pods/") || strings.HasPrefix(resource, "serviceaccounts") {
				t.Errorf("%s: %v", g.key, g.rule)
			}
		}
	}
}

func TestRolesNameEverySecret(t *testing.T) {
	for _, g := range grants(t) {
		if !slices.ContainsFunc(g.rule.Resources, func(r string) bool { return strings.HasPrefix(r, "secrets") }) {
			continue
		}
		if len(g.rule.ResourceNames) == 0 {
			t.Errorf("%s: secrets without names: %v", g.key, g.rule)
		}
		if strings.Contains(g.key, "/ClusterRole/") {
			t.Errorf("%s: secrets of every namespace", g.key)
		}
		if slices.Contains(g.rule.Verbs, "create") || slices.Contains(g.rule.Verbs, "delete") {
			t.Errorf("%s: %v", g.key, g.rule.Verbs)
		}
	}
}

func TestBindingsGiveRolesToOurAccountsOnly(t *testing.T) {
	for where, objects := range everything(t) {
		for _, o := range objects {
			if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
				continue
			}
			var binding rbacv1.RoleBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
				t.Fatal(err)
			}
			for _, s := range binding.Subjects {
				who := s.Kind + "/" + s.Namespace + "/" + s.Name
				if who != "ServiceAccount/penstock-system/penstock-operator" &&
					who != "ServiceAccount/penstock-node/penstock-agent" {
					t.Errorf("%s: %s: %s", where, manifests.Key(o), who)
				}
			}
		}
	}
}

// Every namespace of ours denies all traffic first.
func TestTrafficIsDeniedByDefault(t *testing.T) {
	for where, objects := range map[string][]*manifests.Object{"base": base(t), "chart": everything(t)["chart"]} {
		denied := map[string]bool{}
		for _, o := range objects {
			selector, _, _ := unstructured.NestedMap(o.Object, "spec", "podSelector")
			kinds, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "policyTypes")
			_, in, _ := unstructured.NestedSlice(o.Object, "spec", "ingress")
			_, out, _ := unstructured.NestedSlice(o.Object, "spec", "egress")
			if o.GetKind() == "NetworkPolicy" && len(selector) == 0 && len(kinds) == 2 && !in && !out {
				denied[o.GetNamespace()] = true
			}
		}
		for key, pod := range pods(t, objects) {
			namespace := strings.Split(key, "/")[3]
			if !denied[namespace] && pod.meta.Labels["app.kubernetes.io/name"] == "penstock" {
				t.Errorf("%s: nothing denies the traffic of %s", where, key)
			}
		}
		if !denied["penstock-system"] || !denied["penstock-node"] {
			t.Errorf("%s: denied are %v", where, denied)
		}
	}
}
