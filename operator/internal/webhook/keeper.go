// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	lookEvery = 15 * time.Second
	lookSoon  = time.Second // until there is a certificate
)

// Keeper keeps the webhook's certificate in a secret. Every replica reads it and serves with it; the leader alone
// writes it, and tells the API server whom to trust.
type Keeper struct {
	Client                    client.Client // without a cache: nobody may list secrets
	Namespace, Secret, Config string
	Service                   string
	Elected                   <-chan struct{}
	current                   atomic.Pointer[tls.Certificate]
	currentText               []byte // what current was made of; only Start's goroutine touches it
}

// Names that the certificate is for.
func (k *Keeper) Names() []string {
	full := k.Service + "." + k.Namespace + ".svc"
	return []string{full, full + ".cluster.local", k.Service + "." + k.Namespace, k.Service}
}

// NeedLeaderElection is manager.LeaderElectionRunnable's: every replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start looks after the certificate until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		if err := k.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("the webhook's certificate", "problem", err.Error())
		}
		wait := lookEvery
		if k.current.Load() == nil {
			wait = lookSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (k *Keeper) look(ctx context.Context, now time.Time) error {
	var secret corev1.Secret
	if err := k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Secret}, &secret); err != nil {
		return err
	}
	var wrong error
	if k.leads() {
		wrong = k.write(ctx, &secret, now)
	}
	return errors.Join(wrong, k.load(&secret))
}

func (k *Keeper) leads() bool {
	select {
	case <-k.Elected:
		return true
	default:
		return false
	}
}

// write renews the secret if it is time, and the configuration if it does not trust what the secret says.
func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, now time.Time) error {
	data, changed, err := renew(secret.Data, k.Names(), now)
	if err != nil {
		return err
	}
	if changed {
		before := secret.DeepCopy()
		secret.Data = data
		if err := k.Client.Patch(ctx, secret, client.MergeFromWithOptions(before,
			client.MergeFromWithOptimisticLock{})); err != nil {
			*secret = *before // another leader was faster: what it wrote is read next time
			return err
		}
	}
	var config admissionv1.MutatingWebhookConfiguration
	if err := k.Client.Get(ctx, client.ObjectKey{Name: k.Config}, &config); err != nil {
		return err
	}
	before, differs := config.DeepCopy(), false
	for i := range config.Webhooks {
		trusts := &config.Webhooks[i].ClientConfig.CABundle
		differs = differs || !bytes.Equal(*trusts, data[keyAuthority])
		*trusts = data[keyAuthority]
	}
	if !differs {
		return nil
	}
	return k.Client.Patch(ctx, &config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (k *Keeper) load(secret *corev1.Secret) error {
	text := append(bytes.Clone(secret.Data[keyServing]), secret.Data[keyServingKey]...)
	if len(text) == 0 || bytes.Equal(text, k.currentText) {
		return nil
	}
	pair, err := tls.X509KeyPair(secret.Data[keyServing], secret.Data[keyServingKey])
	if err != nil {
		return err
	}
	k.current.Store(&pair)
	k.currentText = text
	return nil
}

// GetCertificate is tls.Config's.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Ready is a check of readiness: without a certificate nobody can ask.
func (k *Keeper) Ready(*http.Request) error {
	_, err := k.GetCertificate(nil)
	return err
}
