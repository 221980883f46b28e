// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/test/rig"
)

// stub stands where the operator would serve its webhook. It marks the pods that it is shown.
type stub struct {
	server *httptest.Server
	down   atomic.Bool
}

var hook stub

func (s *stub) start() int {
	s.server = httptest.NewUnstartedServer(s)
	own, key, err := cert.GenerateSelfSignedCertKey(rig.WebhookService+"."+rig.SystemNamespace+".svc", nil, nil)
	if err != nil {
		panic(err)
	}
	pair, err := tls.X509KeyPair(own, key)
	if err != nil {
		panic(err)
	}
	s.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.server.StartTLS()
	return s.server.Listener.Addr().(*net.TCPAddr).Port
}

// authority is all that its certificate's file holds.
func (s *stub) authority() []byte {
	var all bytes.Buffer
	for _, der := range s.server.TLS.Certificates[0].Certificate {
		_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return all.Bytes()
}

func (s *stub) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var review admissionv1.AdmissionReview
	if err != nil || json.Unmarshal(body, &review) != nil || s.down.Load() || request.URL.Path != "/mutate-pod" {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	kind := admissionv1.PatchTypeJSONPatch
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: &kind,
		Patch: []byte(`[{"op":"add","path":"/metadata/labels/seen","value":"yes"}]`)}
	_ = json.NewEncoder(w).Encode(review)
}

func labelled(name, mode string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: name,
			Labels: map[string]string{"penstock.dev/dataset": "photos"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
	}
	if mode != "" {
		p.Annotations = map[string]string{"penstock.dev/mode": mode}
	}
	return p
}

// The operator may write the authority into its own configuration, and into no other.
func trustStub(t *testing.T) {
	ctx, c := t.Context(), operator(t)
	text := `[`
	for i := range 2 {
		text += fmt.Sprintf(`{"op":"add","path":"/webhooks/%d/clientConfig/caBundle","value":%q},`, i,
			base64.StdEncoding.EncodeToString(hook.authority()))
	}
	config := &admissionregv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: rig.WebhookName}}
	text = strings.TrimSuffix(text, ",") + `]`
	must(t, c.Patch(ctx, config, client.RawPatch("application/json-patch+json", []byte(text))))
	must(t, rig.Eventually(ctx, func(ctx context.Context) error {
		for _, mode := range []string{"", "preferred"} {
			p := labelled("probe-", mode)
			if err := admin.Create(ctx, p); err != nil {
				return err
			}
			if p.Labels["seen"] != "yes" {
				return fmt.Errorf("mode %q: the webhook was not asked", mode)
			}
		}
		return nil
	}))
}

func TestWebhookFailsByMode(t *testing.T) {
	ctx := t.Context()
	trustStub(t)
	other := &admissionregv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	refused(t, "cannot patch", func(ctx context.Context) error { return operator(t).Patch(ctx, other, patch(`{}`)) })

	plain := labelled("plain-", "")
	plain.Labels = nil
	must(t, admin.Create(ctx, plain))
	if plain.Labels["seen"] != "" {
		t.Error("a pod without the label was shown to the webhook")
	}

	hook.down.Store(true)
	defer hook.down.Store(false)
	for _, mode := range []string{"", "required", "nonsense"} {
		err := admin.Create(ctx, labelled("down-", mode))
		if err == nil || !strings.Contains(err.Error(), "required.pods.penstock.dev") {
			t.Errorf("mode %q without an operator: %v", mode, err)
		}
	}
	preferred := labelled("down-", "preferred")
	must(t, admin.Create(ctx, preferred))
	if preferred.Labels["seen"] != "" {
		t.Error("the webhook answered")
	}
	plain = labelled("plain-", "")
	plain.Labels = nil
	must(t, admin.Create(ctx, plain))
}
