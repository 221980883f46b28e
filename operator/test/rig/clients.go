// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
)

// Scheme has the types of Kubernetes, of resource definitions and ours.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

func insecureClient() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
}

func (r *Rig) config() *rest.Config {
	return &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", r.apiPort),
		TLSClientConfig: rest.TLSClientConfig{CAData: r.ca.pem},
		QPS:             -1, // tests wait for the server, not for the client's own brake
	}
}

// User is somebody with a certificate. Without a role of his own he may do nothing.
func (r *Rig) User(name string, groups []string) (*rest.Config, error) {
	config := r.config()
	var err error
	config.CertData, config.KeyData, err = r.ca.issue(name, groups)
	return config, err
}

func (r *Rig) makeAdmin() error {
	admin, err := r.User("admin", []string{"system:masters"})
	if err != nil {
		return err
	}
	r.admin = admin
	if r.Kube, err = kubernetes.NewForConfig(admin); err != nil {
		return err
	}
	r.Client, err = NewClient(admin)
	return err
}

// Admin may do everything.
func (r *Rig) Admin() *rest.Config { return rest.CopyConfig(r.admin) }

// ServiceAccount has a token of the account, as a pod has it that is on no node.
func (r *Rig) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	return r.token(ctx, namespace, name, nil)
}

// Pod has the token that the kubelet would put into the pod: of its account, bound to the pod and to its node.
func (r *Rig) Pod(ctx context.Context, namespace, name string) (*rest.Config, error) {
	pod, err := r.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return r.token(ctx, namespace, pod.Spec.ServiceAccountName, &authv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
}

func (r *Rig) token(
	ctx context.Context, namespace, account string, to *authv1.BoundObjectReference,
) (*rest.Config, error) {
	hour := int64(24 * 3600)
	answer, err := r.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &hour, BoundObjectRef: to}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := r.config()
	config.BearerToken = answer.Status.Token
	return config, nil
}

// WhoAmI is how the API server sees somebody.
func WhoAmI(ctx context.Context, config *rest.Config) (authv1.UserInfo, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return authv1.UserInfo{}, err
	}
	reviews := kube.AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// NewClient reads and writes without a cache.
func NewClient(config *rest.Config) (client.Client, error) {
	return client.New(config, client.Options{Scheme: Scheme})
}

// WriteKubeconfig makes the file that a program is started with to be somebody.
func WriteKubeconfig(config *rest.Config, path string) error {
	file := clientcmdapi.NewConfig()
	file.Clusters["rig"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["rig"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}
	file.Contexts["rig"] = &clientcmdapi.Context{Cluster: "rig", AuthInfo: "rig"}
	file.CurrentContext = "rig"
	return clientcmd.WriteToFile(*file, path)
}

// Namespace makes a namespace with that level of Pod Security ("" for none) and waits until pods can be made in it.
func (r *Rig) Namespace(ctx context.Context, name, level string) error {
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if level != "" {
		want.Labels = map[string]string{"pod-security.kubernetes.io/enforce": level}
	}
	if err := r.Client.Create(ctx, want); err != nil {
		return err
	}
	return Eventually(ctx, func(ctx context.Context) error {
		return r.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}
