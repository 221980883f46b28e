// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	BucketName   = "photos"
	BucketRegion = "us-east-1"
)

// S3 is a real S3 server over a folder. Its keys are made up for each run.
type S3 struct {
	Endpoint  string
	AccessKey string
	SecretKey string
	Process   *Process

	root string
}

func findVersitygw() (string, error) {
	home, _ := os.UserHomeDir()
	onPath, _ := exec.LookPath("versitygw")
	for _, place := range []string{os.Getenv("VERSITYGW"), onPath, "/usr/local/bin/versitygw",
		filepath.Join(home, ".local/bin/versitygw"), filepath.Join(home, "go/bin/versitygw")} {
		if place == "" {
			continue
		}
		if info, err := os.Stat(place); err == nil && info.Mode()&0o111 != 0 {
			return place, nil
		}
	}
	return "", errors.New("no versitygw: tools/setup.sh servers installs it")
}

func (r *Rig) startBucket(ctx context.Context) error {
	program, err := findVersitygw()
	if err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	s := &S3{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", port), AccessKey: rand.Text(), SecretKey: rand.Text(),
		root: r.file("buckets")}
	const probe = "probe" // so that the tests' own bucket is empty
	for _, name := range []string{BucketName, probe} {
		if err := s.Make(name); err != nil {
			return err
		}
	}
	keys := []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey}
	s.Process, err = r.Run("versitygw", keys, program,
		"--port", fmt.Sprintf("127.0.0.1:%d", port), "--region", BucketRegion, "--quiet", "--keep-alive", "posix", s.root)
	if err != nil {
		return err
	}
	r.S3 = s
	return s.Process.until("answering", Patience, func() error { return s.Put(ctx, probe, "up", nil) })
}

// Make makes a bucket.
func (s *S3) Make(bucket string) error { return os.MkdirAll(filepath.Join(s.root, bucket), 0o755) }

// Put writes an object, with the ETag that a file which is only copied into the folder would not have.
func (s *S3) Put(ctx context.Context, bucket, key string, content []byte) error {
	return s.ask(ctx, http.MethodPut, bucket, key, content)
}

func (s *S3) Delete(ctx context.Context, bucket, key string) error {
	return s.ask(ctx, http.MethodDelete, bucket, key, nil)
}

// Secret has the keys as a Dataset's secretRef wants them.
func (s *S3) Secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		StringData: map[string]string{"AWS_ACCESS_KEY_ID": s.AccessKey, "AWS_SECRET_ACCESS_KEY": s.SecretKey},
	}
}

func (s *S3) ask(ctx context.Context, method, bucket, key string, content []byte) error {
	path := (&url.URL{Path: "/" + bucket + "/" + key}).EscapedPath()
	request, err := http.NewRequestWithContext(ctx, method, s.Endpoint+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	s.sign(request, path, content)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// sign is Signature Version 4 for requests without a query.
func (s *S3) sign(request *http.Request, path string, content []byte) {
	now := time.Now().UTC().Format("20060102T150405Z")
	day, body := now[:8], hexSum(content)
	const names = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{request.Method, path, "", "host:" + request.URL.Host,
		"x-amz-content-sha256:" + body, "x-amz-date:" + now, "", names, body}, "\n")
	scope := day + "/" + BucketRegion + "/s3/aws4_request"
	text := strings.Join([]string{"AWS4-HMAC-SHA256", now, scope, hexSum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + s.SecretKey)
	for _, part := range []string{day, BucketRegion, "s3", "aws4_request"} {
		key = mac(key, part)
	}
	request.Header.Set("X-Amz-Date", now)
	request.Header.Set("X-Amz-Content-Sha256", body)
	request.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		s.AccessKey, scope, names, hex.EncodeToString(mac(key, text))))
}
