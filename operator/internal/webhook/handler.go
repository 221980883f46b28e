// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/cluster"
)

// Path where the API server asks.
const Path = "/mutate-pod"

// Handler answers for pods.
type Handler struct {
	Reader  client.Reader // the cache
	Decoder admission.Decoder
}

// Handle is admission.Handler's.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	var pod corev1.Pod
	if err := h.Decoder.Decode(req, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	name := pod.Labels[v1alpha1.LabelDataset]
	if name == "" {
		return admission.Allowed("")
	}
	if err := Mutate(&pod, func() map[string]float64 { return h.near(ctx, req.Namespace, name) }); err != nil {
		return admission.Denied(err.Error())
	}
	after, err := json.Marshal(&pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, after)
}

// near is the part of the dataset that each host has. A preference is worth no failure: what cannot be read is not
// near.
func (h *Handler) near(ctx context.Context, namespace, name string) map[string]float64 {
	out := map[string]float64{}
	var caches v1alpha1.NodeCacheList
	if h.Reader.List(ctx, &caches, client.UnsafeDisableDeepCopy) != nil {
		return out
	}
	for i := range caches.Items {
		c := &caches.Items[i]
		e, st := cluster.EntryOf(c, namespace, name), cluster.StatusOf(c, namespace, name)
		if e == nil || st == nil || !cluster.EngineReady(c) || st.Revision != e.Revision {
			continue
		}
		host := c.Name
		var n corev1.Node
		if h.Reader.Get(ctx, client.ObjectKey{Name: c.Name}, &n) == nil && n.Labels[corev1.LabelHostname] != "" {
			host = n.Labels[corev1.LabelHostname]
		}
		out[host] = float64(st.BytesDone) / float64(max(e.Bytes, 1))
	}
	return out
}
