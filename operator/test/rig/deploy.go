// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"strings"

	apiextv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/test/manifests"
)

// Names in deploy/base.
const (
	SystemNamespace = "penstock-system"
	NodeNamespace   = "penstock-node"
	OperatorAccount = "penstock-operator"
	AgentAccount    = "penstock-agent"
	WebhookName     = "penstock"
	WebhookService  = "penstock-webhook"
	WebhookSecret   = "penstock-webhook-cert"
	cachePath       = "/var/lib/penstock"
)

// Deployment says what differs between deploy/base in a cluster and in the rig, where no pod runs and the operator is a
// process of the test.
type Deployment struct {
	CacheRoot   string // in place of /var/lib/penstock in the policy about volumes: a folder above those of all agents
	WebhookPort int    // of loopback, where the operator serves; 0: no webhook
}

// Deploy applies deploy/base. The operator's and the agents' pods are on the fake nodes afterwards, and Pod gives their
// tokens.
func (r *Rig) Deploy(ctx context.Context, how Deployment) error {
	objects, err := manifests.Kustomize("deploy/base")
	if err != nil {
		return err
	}
	if err := r.InstallCRDs(ctx); err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" ||
			o.GetKind() == "MutatingWebhookConfiguration" && how.WebhookPort == 0 {
			continue
		}
		if err := how.adapt(o); err != nil {
			return err
		}
		if err := r.Apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// adapt points the webhook's service at loopback: a service without pods, whose name resolves there. The API server
// then finds it by its service, with the name in the certificate, as it does in a cluster.
func (how Deployment) adapt(o *manifests.Object) error {
	switch {
	case o.GetKind() == "Service" && o.GetName() == WebhookService:
		o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
	case o.GetKind() == "MutatingWebhookConfiguration":
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			err := unstructured.SetNestedField(hook.(map[string]any), int64(how.WebhookPort), "clientConfig", "service", "port")
			if err != nil {
				return err
			}
		}
		return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
	case o.GetKind() == "ValidatingAdmissionPolicy" && how.CacheRoot != "":
		rules, _, err := unstructured.NestedSlice(o.Object, "spec", "validations")
		if err != nil {
			return err
		}
		for _, rule := range rules {
			text := rule.(map[string]any)["expression"].(string)
			rule.(map[string]any)["expression"] = strings.ReplaceAll(text, "'"+cachePath+"/'", "'"+how.CacheRoot+"/'")
		}
		return unstructured.SetNestedSlice(o.Object, rules, "spec", "validations")
	}
	return nil
}

// Apply makes the object what is given, as its administrator would with kubectl.
func (r *Rig) Apply(ctx context.Context, o *manifests.Object) error {
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o),
		client.FieldOwner("rig"), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("%s: %w", manifests.Key(o), err)
	}
	return nil
}

// InstallCRDs applies the resource definitions of deploy/base and waits until the API server has them.
func (r *Rig) InstallCRDs(ctx context.Context) error {
	objects, err := manifests.Kustomize("deploy/base")
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := r.Apply(ctx, o); err != nil {
			return err
		}
		if err := Eventually(ctx, func(ctx context.Context) error { return r.established(ctx, o.GetName()) }); err != nil {
			return err
		}
	}
	return nil
}

// established is no error when the definition has no problem that the API server knows of and is served.
func (r *Rig) established(ctx context.Context, name string) error {
	var crd apiextv1.CustomResourceDefinition
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
		return err
	}
	served := false
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextv1.NonStructuralSchema && c.Status == apiextv1.ConditionTrue {
			return fmt.Errorf("%s: %s", name, c.Message)
		}
		served = served || c.Type == apiextv1.Established && c.Status == apiextv1.ConditionTrue
	}
	if !served {
		return fmt.Errorf("%s is not established", name)
	}
	return nil
}
