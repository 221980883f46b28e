// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"testing"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

func TestSourcesBecomeWhatAnEngineIsTold(t *testing.T) {
	keys := map[string][]byte{KeyAccess: []byte("a\n"), KeySecret: []byte("s"), KeySession: []byte("t")}
	ref := &v1alpha1.SecretRef{Name: "keys"}
	for _, c := range []struct {
		from v1alpha1.Source
		want engine.Source
	}{
		{v1alpha1.Source{HTTP: &v1alpha1.HTTPSource{URL: "https://h/x.tar"}}, engine.Source{URL: "https://h/x.tar"}},
		{v1alpha1.Source{S3: &v1alpha1.S3Source{Bucket: "b"}}, engine.Source{URL: "s3://b"}},
		{v1alpha1.Source{S3: &v1alpha1.S3Source{Bucket: "b", Prefix: "p/q", Endpoint: "http://e:1", Region: "r",
			PathStyle: true, SecretRef: ref}},
			engine.Source{URL: "s3://b/p/q", Endpoint: "http://e:1", Region: "r", PathStyle: true, AccessKey: "a",
				SecretKey: "s", SessionToken: "t"}},
	} {
		if got, err := Engine(&c.from, keys); err != nil || got != c.want {
			t.Errorf("%+v: %v", c.from, err)
		}
	}
	var wrong *SecretError
	_, err := Engine(&v1alpha1.Source{S3: &v1alpha1.S3Source{Bucket: "b", SecretRef: ref}},
		map[string][]byte{KeyAccess: []byte("a")})
	if !errors.As(err, &wrong) || wrong.Reason != v1alpha1.ReasonSecretIncomplete {
		t.Errorf("got %v", err)
	}
}
