// SPDX-License-Identifier: Apache-2.0

// Package source turns a dataset's source and its secret into what an engine is told.
package source

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

// Keys of a secret.
const (
	KeyAccess  = "AWS_ACCESS_KEY_ID"
	KeySecret  = "AWS_SECRET_ACCESS_KEY"
	KeySession = "AWS_SESSION_TOKEN"
)

// SecretError says what is wrong with a secret, with one of the reasons of conditions.
type SecretError struct {
	Reason, Message string
}

func (e *SecretError) Error() string { return e.Message }

// Read gets the secret, if the source names one, from the dataset's own namespace, by its name. The reader must not be
// a cache: nobody may list secrets.
func Read(ctx context.Context, api client.Reader, namespace string, s *v1alpha1.Source) (engine.Source, error) {
	if s.S3 == nil || s.S3.SecretRef == nil {
		return Engine(s, nil)
	}
	var secret corev1.Secret
	name := s.S3.SecretRef.Name
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return engine.Source{}, &SecretError{v1alpha1.ReasonSecretNotFound,
			fmt.Sprintf("there is no secret %s in namespace %s", name, namespace)}
	case apierrors.IsForbidden(err):
		return engine.Source{}, &SecretError{v1alpha1.ReasonSecretForbidden,
			fmt.Sprintf("secret %s may not be read: a Role in namespace %s has to allow it by name", name, namespace)}
	case err != nil:
		return engine.Source{}, err
	}
	return Engine(s, secret.Data)
}

// Engine is what an engine is told about a source.
func Engine(s *v1alpha1.Source, secret map[string][]byte) (engine.Source, error) {
	if s.HTTP != nil {
		return engine.Source{URL: s.HTTP.URL}, nil
	}
	if s.S3 == nil {
		return engine.Source{}, &SecretError{v1alpha1.ReasonFailed, "the dataset has no source"}
	}
	out := engine.Source{URL: s3URL(s.S3), Endpoint: s.S3.Endpoint, Region: s.S3.Region, PathStyle: s.S3.PathStyle}
	if s.S3.SecretRef == nil {
		return out, nil
	}
	out.AccessKey, out.SecretKey = text(secret[KeyAccess]), text(secret[KeySecret])
	out.SessionToken = text(secret[KeySession])
	for key, value := range map[string]string{KeyAccess: out.AccessKey, KeySecret: out.SecretKey} {
		if value == "" {
			return engine.Source{}, &SecretError{v1alpha1.ReasonSecretIncomplete,
				fmt.Sprintf("secret %s has no %s", s.S3.SecretRef.Name, key)}
		}
	}
	return out, nil
}

func s3URL(s *v1alpha1.S3Source) string {
	u := url.URL{Scheme: "s3", Host: s.Bucket}
	if s.Prefix == "" {
		return u.String()
	}
	return u.String() + "/" + s.Prefix
}

// Secrets that were made from files often end with a newline, which no key has.
func text(value []byte) string { return strings.TrimSpace(string(value)) }
