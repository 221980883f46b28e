// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"

	"penstock.dev/operator/test/manifests"
)

func (r *Rig) file(name string) string { return filepath.Join(r.Dir, name) }

func (r *Rig) runTool(name string, args ...string) (*Process, error) {
	program, err := manifests.Tool(name)
	if err != nil {
		return nil, err
	}
	return r.Run(name, nil, program, args...)
}

func (r *Rig) startEtcd(ctx context.Context) error {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", r.etcdPort), fmt.Sprintf("http://127.0.0.1:%d", r.peerPort)
	p, err := r.runTool("etcd", "--data-dir="+r.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err != nil {
		return err
	}
	return p.until("healthy", Patience, func() error { return answers(ctx, client+"/health") })
}

func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}

// startAPIServer leaves the admission plugins as they are by default, which is as in a real cluster: PodSecurity,
// ServiceAccount and the policies among them.
func (r *Rig) startAPIServer(ctx context.Context) error {
	issuer := fmt.Sprintf("https://127.0.0.1:%d", r.apiPort)
	p, err := r.runTool("kube-apiserver", "--etcd-servers=http://127.0.0.1:"+strconv.Itoa(r.etcdPort),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+strconv.Itoa(r.apiPort),
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
		"--tls-cert-file="+r.file("server.pem"), "--tls-private-key-file="+r.file("server.key"),
		"--client-ca-file="+r.file("ca.pem"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer="+issuer, "--api-audiences="+issuer, "--service-account-key-file="+r.file("tokens.pub"),
		"--service-account-signing-key-file="+r.file("tokens.key"), "--shutdown-delay-duration=0s",
		"--cert-dir="+r.file("certs"))
	if err != nil {
		return err
	}
	r.apiServer = p
	kube, err := kubernetes.NewForConfig(r.admin)
	if err != nil {
		return err
	}
	return p.until("ready", Patience, func() error {
		return kube.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(10 * time.Second).Do(ctx).Error()
	})
}

// StopAPIServer kills the API server; watches break, requests fail.
func (r *Rig) StopAPIServer() { r.apiServer.Kill() }

// StartAPIServer brings it back on the same port, with what etcd has kept.
func (r *Rig) StartAPIServer(ctx context.Context) error { return r.startAPIServer(ctx) }

// RestartAPIServer is both, and returns when it is ready again.
func (r *Rig) RestartAPIServer(ctx context.Context) error {
	r.StopAPIServer()
	return r.StartAPIServer(ctx)
}

// component starts a part of the control plane with the certificate that its bootstrap role is for.
func (r *Rig) component(ctx context.Context, name string, more ...string) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	config, err := r.User("system:"+name, nil)
	if err != nil {
		return err
	}
	path := r.file(name + ".kubeconfig")
	if err := WriteKubeconfig(config, path); err != nil {
		return err
	}
	args := []string{"--kubeconfig=" + path, "--authentication-kubeconfig=" + path, "--authorization-kubeconfig=" + path,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--leader-elect=false",
		"--authentication-skip-lookup=true", "--cert-dir=" + r.file("certs-"+name)}
	p, err := r.runTool(name, append(args, more...)...)
	if err != nil {
		return err
	}
	insecure := insecureClient()
	return p.until("healthy", Patience, func() error {
		answer, err := insecure.Get(fmt.Sprintf("https://127.0.0.1:%d/healthz", port))
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("healthz: %s", answer.Status)
		}
		return nil
	})
}

func (r *Rig) startScheduler(ctx context.Context) error { return r.component(ctx, "kube-scheduler") }

func (r *Rig) startControllers(ctx context.Context) error {
	return r.component(ctx, "kube-controller-manager", "--use-service-account-credentials=true",
		"--service-account-private-key-file="+r.file("tokens.key"), "--root-ca-file="+r.file("ca.pem"),
		"--allocate-node-cidrs=false", "--pvclaimbinder-sync-period=1s")
}
