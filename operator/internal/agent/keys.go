// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

// An agent may get secrets by name but not watch them, so it reads them again now and then.
const keysFor = 10 * time.Second

// keyring keeps what secrets say. Keys are in memory only, and never in a message.
type keyring struct {
	read func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	kept map[string]*keys
}

type keys struct {
	access, secret, token string
	known                 bool     // of a secret that was read once
	trouble               *trouble // the last time
	again                 time.Time
	asked                 time.Time // the last time that it was read
}

// get returns the keys of a secret, at most keysFor old. What was known stays known when the secret cannot be read:
// jobs that run are not to fail because somebody makes it anew.
func (r *keyring) get(ctx context.Context, namespace, name string, now time.Time) *keys {
	at := namespace + "/" + name
	if r.kept == nil {
		r.kept = map[string]*keys{}
	}
	k := r.kept[at]
	if k == nil {
		k = &keys{}
		r.kept[at] = k
	}
	if now.Before(k.again) {
		return k
	}
	k.asked = now
	k.again = now.Add(jitter(keysFor))
	secret, err := r.read(ctx, namespace, name)
	k.trouble = k.take(secret, err, name)
	if k.trouble != nil && !k.known {
		k.again = now.Add(jitter(2 * time.Second))
	}
	return k
}

// distrust has a secret read again at once, but not more than once a second: the bucket refused what it says.
func (r *keyring) distrust(namespace, name string) {
	if k := r.kept[namespace+"/"+name]; k != nil {
		k.again = k.asked.Add(time.Second)
	}
}

// only forgets the keys of secrets that no entry names any more.
func (r *keyring) only(entries []v1alpha1.CacheEntry) {
	named := map[string]bool{}
	for i := range entries {
		if ref := secretOf(&entries[i]); ref != "" {
			named[entries[i].Namespace+"/"+ref] = true
		}
	}
	for at := range r.kept {
		if !named[at] {
			delete(r.kept, at)
		}
	}
}

func (k *keys) take(secret *corev1.Secret, err error, name string) *trouble {
	switch {
	case apierrors.IsNotFound(err):
		return newTrouble(v1alpha1.ReasonSecretNotFound, fmt.Sprintf("there is no secret %s", name), retryMost)
	case apierrors.IsForbidden(err):
		return newTrouble(v1alpha1.ReasonSecretForbidden,
			fmt.Sprintf("the agent may not read secret %s; see the role of its namespace", name), retryMost)
	case err != nil:
		if k.known {
			return nil
		}
		return newTrouble(v1alpha1.ReasonWaiting, fmt.Sprintf("secret %s cannot be read now", name), retryMost)
	}
	access, key := string(secret.Data["AWS_ACCESS_KEY_ID"]), string(secret.Data["AWS_SECRET_ACCESS_KEY"])
	if access == "" || key == "" {
		return newTrouble(v1alpha1.ReasonSecretIncomplete,
			fmt.Sprintf("secret %s needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", name), retryMost)
	}
	k.access, k.secret, k.token, k.known = access, key, string(secret.Data["AWS_SESSION_TOKEN"]), true
	return nil
}

func secretOf(e *v1alpha1.CacheEntry) string {
	if e.Source.S3 != nil && e.Source.S3.SecretRef != nil {
		return e.Source.S3.SecretRef.Name
	}
	return ""
}

// source is an entry's source as the engine is told of it. With nil, the trouble says why there is none.
func (r *keyring) source(ctx context.Context, e *v1alpha1.CacheEntry, now time.Time) (*engine.Source, *trouble) {
	if e.Source.HTTP != nil {
		return &engine.Source{URL: e.Source.HTTP.URL}, nil
	}
	s3 := e.Source.S3
	if s3 == nil {
		return nil, newTrouble(v1alpha1.ReasonFailed, "the entry has no source", retryLong)
	}
	out := &engine.Source{URL: "s3://" + s3.Bucket, Endpoint: s3.Endpoint, Region: s3.Region, PathStyle: s3.PathStyle}
	if s3.Prefix != "" { // the last slash says that it is a folder, and not an object of that name
		out.URL += "/" + s3.Prefix + "/"
	}
	if s3.SecretRef == nil {
		return out, nil
	}
	k := r.get(ctx, e.Namespace, s3.SecretRef.Name, now)
	if !k.known {
		return nil, k.trouble
	}
	out.AccessKey, out.SecretKey, out.SessionToken = k.access, k.secret, k.token
	return out, k.trouble
}
