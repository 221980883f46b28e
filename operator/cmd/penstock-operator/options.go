// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"penstock.dev/operator/api/v1alpha1"
)

type options struct {
	engine      string
	namespace   string
	agents      string
	patience    time.Duration
	elect       bool
	metrics     string
	health      string
	webhookHost string
	webhookPort int
	secret      string
	config      string
	service     string
	verbose     bool
}

const about = `penstock-operator places datasets on the nodes of a Kubernetes cluster.

It watches Datasets, CachePools, NodeCaches, nodes and pods. Buckets are listed by an engine beside it (penstock serve),
over that engine's control socket. Run two replicas with --leader-elect: one works, both answer for the webhook.

usage: penstock-operator [flags]

`

// register adds the flags. (-kubeconfig is the library's: the cluster, where the program does not run in one.)
func (o *options) register(f *flag.FlagSet) {
	f.StringVar(&o.engine, "engine", "/run/penstock/engine/control.sock",
		"control `socket` of the engine that lists buckets")
	f.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "penstock-system"),
		"`namespace` of the lease, the webhook's service and its secret; POD_NAMESPACE says it, too")
	f.StringVar(&o.agents, "agent-namespace", "penstock-node", "`namespace` of the agents' leases")
	f.DurationVar(&o.patience, "agent-patience", v1alpha1.LeaseSeconds*time.Second,
		"`time` after which an agent that does not renew its lease is taken for gone")
	f.BoolVar(&o.elect, "leader-elect", false,
		"work only while holding the lease penstock-operator; needed with several replicas")
	f.StringVar(&o.metrics, "metrics-address", ":8080", "`address` of Prometheus metrics, at /metrics; 0: none")
	f.StringVar(&o.health, "health-address", ":8081", "`address` of /healthz and /readyz; 0: none")
	f.StringVar(&o.webhookHost, "webhook-host", "", "`address` where the webhook listens; empty: all")
	f.IntVar(&o.webhookPort, "webhook-port", 9443, "`port` of the webhook; 0: no webhook")
	f.StringVar(&o.secret, "webhook-secret", "penstock-webhook-cert",
		"`secret` that keeps the webhook's certificate; it has to exist, and may be empty")
	f.StringVar(&o.config, "webhook-config", "penstock",
		"`name` of the MutatingWebhookConfiguration that is told whom to trust")
	f.StringVar(&o.service, "webhook-service", "penstock-webhook", "`service` that the certificate is for")
	f.BoolVar(&o.verbose, "verbose", false, "say more, in lines for people")
	f.Usage = func() {
		fmt.Fprint(f.Output(), about)
		f.PrintDefaults()
	}
}

func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is no flag; see --help", rest[0])
	case o.engine == "":
		return errors.New("--engine is needed")
	case o.patience < v1alpha1.LeaseSeconds*time.Second/2:
		return fmt.Errorf("--agent-patience %s is less than two heartbeats", o.patience)
	case o.webhookPort < 0 || o.webhookPort > 65535:
		return fmt.Errorf("--webhook-port %d is no port", o.webhookPort)
	}
	return nil
}
