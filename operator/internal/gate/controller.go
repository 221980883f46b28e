// SPDX-License-Identifier: Apache-2.0

// Package gate lets pods go that wait for their dataset: it chooses nodes for them, has the dataset brought there, and
// lifts the gate when a node can serve. All gated pods are decided about together, so there is one request for
// everything.
package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
	"penstock.dev/operator/internal/dataset"
	"penstock.dev/operator/internal/entry"
	"penstock.dev/operator/internal/metrics"
	"penstock.dev/operator/internal/place"
)

// IndexGated is the field by which gated pods are found; its one value is "true".
const IndexGated = "penstock.gated"

const lookAgain = 15 * time.Second // while pods wait: room may come from what is not watched

// Controller of gated pods.
type Controller struct {
	Client  client.Client
	API     client.Reader // without a cache
	Entries *entry.Writer
	Events  events.EventRecorder

	said map[types.UID]string // the last event of each gated pod; only the one worker touches it
}

// Setup registers the controller and the index of gated pods.
func (r *Controller) Setup(ctx context.Context, m ctrl.Manager) error {
	err := m.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, IndexGated, func(o client.Object) []string {
		if cluster.IsGated(o.(*corev1.Pod)) {
			return []string{"true"}
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "gated"}}}
	})
	return ctrl.NewControllerManagedBy(m).
		Named("gate").
		Watches(&corev1.Pod{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: podMatters})).
		Watches(&v1alpha1.NodeCache{}, all).
		Watches(&v1alpha1.Dataset{}, all).
		Watches(&corev1.Node{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeMatters})).
		Complete(r)
}

// podMatters: it is gated, or takes room, or gives it back.
func podMatters(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return cluster.IsGated(now) || before.Spec.NodeName != now.Spec.NodeName ||
		cluster.HasEnded(before) != cluster.HasEnded(now)
}

func nodeMatters(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.Generation != now.Generation || cluster.NodeReady(before) != cluster.NodeReady(now) ||
		fmt.Sprint(before.Labels, before.Spec, before.Status.Allocatable) != fmt.Sprint(now.Labels, now.Spec,
			now.Status.Allocatable)
}

// Reconcile all gated pods.
func (r *Controller) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var gated corev1.PodList
	if err := r.Client.List(ctx, &gated, client.MatchingFields{IndexGated: "true"}); err != nil {
		return ctrl.Result{}, err
	}
	metrics.GatedPods.Set(float64(len(gated.Items)))
	r.forget(gated.Items)
	s, err := cluster.Take(ctx, r.Client, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	wrong := r.follow(ctx, s)
	if len(gated.Items) == 0 {
		return ctrl.Result{}, wrong
	}
	pods, decisions := decide(s)
	if slices.ContainsFunc(decisions, promises) {
		var err error
		if pods, decisions, err = r.promise(ctx); err != nil {
			return ctrl.Result{}, errors.Join(wrong, err)
		}
	}
	for i := range pods {
		wrong = errors.Join(wrong, r.act(ctx, s, pods[i], &decisions[i]))
	}
	return ctrl.Result{RequeueAfter: lookAgain}, wrong
}

// decide about all gated pods whose dataset is there and known; the others have an empty decision.
func decide(s *cluster.Snapshot) ([]*corev1.Pod, []place.Decision) {
	datasets := map[string]*place.Dataset{}
	for key, d := range s.Datasets {
		if d.DeletionTimestamp.IsZero() && d.Status.Revision != "" {
			datasets[key] = s.Dataset(d)
		}
	}
	var pods []*corev1.Pod
	var ask []place.Pod
	var loose []place.Loose
	for i := range s.Pods {
		pod := &s.Pods[i]
		switch {
		case !pod.DeletionTimestamp.IsZero():
		case cluster.IsGated(pod):
			pods = append(pods, pod)
			ask = append(ask, s.Pod(pod))
		case pod.Spec.NodeName == "" && s.Where(pod) != nil:
			loose = append(loose, place.Loose{Start: s.Where(pod), Ask: cluster.Ask(pod)})
		}
	}
	return pods, place.Plan(s.Place(), datasets, loose, ask)
}

func promises(d place.Decision) bool { return d.Wait != nil && d.Wait.New }

// promise decides again by what the API server has now, and tells the chosen nodes.
func (r *Controller) promise(ctx context.Context) ([]*corev1.Pod, []place.Decision, error) {
	r.Entries.Choosing.Lock()
	defer r.Entries.Choosing.Unlock()
	s, err := cluster.Take(ctx, r.Client, r.API)
	if err != nil {
		return nil, nil, err
	}
	pods, decisions := decide(s)
	var wrong error
	for i := range decisions {
		if !promises(decisions[i]) {
			continue
		}
		d := s.Datasets[cluster.PodKey(pods[i])]
		ok, err := dataset.Exists(ctx, r.API, d)
		if err == nil && ok {
			err = dataset.Promise(ctx, r.Entries, s, d, decisions[i].Wait)
			log.FromContext(ctx).Info("a pod's dataset is brought to a node", "pod", client.ObjectKeyFromObject(pods[i]),
				"dataset", cluster.Key(d), "node", decisions[i].Wait.Node, "bytes", decisions[i].Wait.Pull)
		}
		wrong = errors.Join(wrong, err)
	}
	return pods, decisions, wrong
}

// follow has datasets where pods that use them are: those that only prefer their dataset were put where there was room.
func (r *Controller) follow(ctx context.Context, s *cluster.Snapshot) error {
	var wrong error
	for i := range s.Pods {
		pod := &s.Pods[i]
		d := s.Datasets[cluster.PodKey(pod)]
		if d == nil || pod.Spec.NodeName == "" || !d.DeletionTimestamp.IsZero() || d.Status.Revision == "" {
			continue
		}
		at := slices.IndexFunc(s.Caches, func(c v1alpha1.NodeCache) bool { return c.Name == pod.Spec.NodeName })
		if at < 0 || cluster.EntryOf(&s.Caches[at], d.Namespace, d.Name) != nil ||
			s.Dataset(d).Allowed(pod.Spec.NodeName) != "" {
			continue
		}
		ok, err := dataset.Exists(ctx, r.API, d)
		if err == nil && ok {
			err = dataset.Put(ctx, r.Entries, &s.Caches[at], d)
		}
		wrong = errors.Join(wrong, err)
	}
	return wrong
}

// act lets a pod go, or says why it waits.
func (r *Controller) act(ctx context.Context, s *cluster.Snapshot, pod *corev1.Pod, decision *place.Decision) error {
	key := cluster.PodKey(pod)
	d := s.Datasets[key]
	switch {
	case key == "" || d == nil:
		r.say(pod, corev1.EventTypeWarning, "DatasetNotFound", fmt.Sprintf("there is no dataset %s", key))
	case !d.DeletionTimestamp.IsZero():
		r.say(pod, corev1.EventTypeWarning, "DatasetNotFound", fmt.Sprintf("dataset %s is being deleted", key))
	case d.Status.Revision == "":
		r.say(pod, corev1.EventTypeNormal, "WaitingForBucket",
			fmt.Sprintf("the bucket of dataset %s has not been listed yet", key))
	case decision.Start != nil:
		return r.lift(ctx, s, pod, d, decision.Start)
	case decision.Wait != nil:
		r.say(pod, corev1.EventTypeNormal, "WaitingForDataset", fmt.Sprintf("dataset %s comes to node %s", key,
			decision.Wait.Node))
	case decision.Why != nil && decision.Why.Never():
		r.say(pod, corev1.EventTypeWarning, "CannotBePlaced", decision.Why.String())
	case decision.Why != nil:
		r.say(pod, corev1.EventTypeNormal, "WaitingForRoom", decision.Why.String())
	}
	return nil
}

// lift removes the gate and says where the pod may run, in one patch.
func (r *Controller) lift(ctx context.Context, s *cluster.Snapshot, pod *corev1.Pod, d *v1alpha1.Dataset,
	nodes []string) error {
	after := pod.DeepCopy()
	Lift(after, s.Hosts(nodes), d.Status.Revision)
	err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // its next event brings it back
	}
	if err != nil {
		r.say(pod, corev1.EventTypeWarning, "GateNotLifted", err.Error())
		return err
	}
	metrics.GateWait.Observe(time.Since(pod.CreationTimestamp.Time).Seconds())
	r.say(pod, corev1.EventTypeNormal, "DatasetReady", fmt.Sprintf("dataset %s is on %d nodes, %s first", cluster.Key(d),
		len(nodes), nodes[0]))
	return nil
}

// say an event, once. The API server joins events of one reason about one object and keeps the first text, so what
// differs has a reason of its own.
func (r *Controller) say(pod *corev1.Pod, kind, reason, text string) {
	if r.said == nil {
		r.said = map[types.UID]string{}
	}
	if r.said[pod.UID] == reason+text {
		return
	}
	r.said[pod.UID] = reason + text
	r.Events.Eventf(pod, nil, kind, reason, "Place", "%s", text)
}

func (r *Controller) forget(gated []corev1.Pod) {
	still := map[types.UID]bool{}
	for i := range gated {
		still[gated[i].UID] = true
	}
	for uid := range r.said {
		if !still[uid] {
			delete(r.said, uid)
		}
	}
}
