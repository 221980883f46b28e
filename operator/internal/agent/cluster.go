// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	coordination "k8s.io/client-go/applyconfigurations/coordination/v1"
	meta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
)

// FieldManager of the status, which has no other writer.
const FieldManager = "penstock-agent"

// Connection is a Cluster that watches one NodeCache and nothing else.
type Connection struct {
	node    string
	leases  string // the namespace of the agents' leases
	direct  client.Client
	cache   cache.Cache
	changed chan struct{}
}

// Connect prepares a connection; Run makes it. The agent's lease is in that namespace.
func Connect(config *rest.Config, node, leases string) (*Connection, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	only := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", node)}
	watched, err := cache.New(config, cache.Options{
		Scheme:   scheme,
		ByObject: map[client.Object]cache.ByObject{&v1alpha1.NodeCache{}: only},
	})
	if err != nil {
		return nil, err
	}
	return &Connection{node: node, leases: leases, direct: direct, cache: watched, changed: make(chan struct{}, 1)}, nil
}

// Run watches until the context ends. It waits for the API server as long as it takes.
func (c *Connection) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- c.cache.Start(ctx) }()
	for {
		informer, err := c.cache.GetInformer(ctx, &v1alpha1.NodeCache{})
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { c.wake() },
				UpdateFunc: c.updated,
				DeleteFunc: func(any) { c.wake() },
			})
			if err != nil {
				return err
			}
			return <-done
		}
		select {
		case err := <-done:
			return err
		case <-time.After(time.Second):
		}
	}
}

// updated leaves out writes of the status: they are this agent's own.
func (c *Connection) updated(old, now any) {
	was, ok := old.(*v1alpha1.NodeCache)
	is, fine := now.(*v1alpha1.NodeCache)
	if !ok || !fine || was.Generation != is.Generation || was.UID != is.UID {
		c.wake()
	}
}

func (c *Connection) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Synced tells whether the NodeCache has been looked for.
func (c *Connection) Synced(ctx context.Context) bool { return c.cache.WaitForCacheSync(ctx) }

func (c *Connection) Changed() <-chan struct{} { return c.changed }

func (c *Connection) NodeCache(ctx context.Context) (*v1alpha1.NodeCache, error) {
	var nc v1alpha1.NodeCache
	err := c.cache.Get(ctx, client.ObjectKey{Name: c.node}, &nc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &nc, err
}

func (c *Connection) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	var s corev1.Secret
	err := c.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
	return &s, err
}

// Renew applies the lease, which makes it where there is none. It belongs to the NodeCache and goes with it.
func (c *Connection) Renew(ctx context.Context, of *v1alpha1.NodeCache, at time.Time) error {
	lease := coordination.Lease(c.node, c.leases).
		WithOwnerReferences(meta.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("NodeCache").
			WithName(of.Name).WithUID(of.UID)).
		WithSpec(coordination.LeaseSpec().WithHolderIdentity(c.node).
			WithLeaseDurationSeconds(v1alpha1.LeaseSeconds).WithRenewTime(metav1.NewMicroTime(at)))
	return c.direct.Apply(ctx, lease, client.FieldOwner(FieldManager), client.ForceOwnership)
}

// Report applies the status, so that nobody's writing of the spec is in the way, and what it no longer says goes.
// With the uid, nothing is said to a NodeCache that was made anew meanwhile.
func (c *Connection) Report(ctx context.Context, of *v1alpha1.NodeCache, status *v1alpha1.NodeCacheStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeCache"))
	u.SetName(of.Name)
	u.SetUID(of.UID)
	return c.direct.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(FieldManager), client.ForceOwnership)
}
