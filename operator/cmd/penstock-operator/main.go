// SPDX-License-Identifier: Apache-2.0

// penstock-operator makes the cluster hold what Datasets ask for: it lists buckets, chooses nodes, tells them, makes
// volumes and claims, and lets pods go that wait for their data. No data passes through it.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/dataset"
	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/internal/entry"
	"penstock.dev/operator/internal/gate"
	ourmetrics "penstock.dev/operator/internal/metrics"
	"penstock.dev/operator/internal/pool"
	"penstock.dev/operator/internal/webhook"
)

const leaseName = "penstock-operator"

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionv1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func main() {
	o := options{}
	o.register(flag.CommandLine)
	flag.Parse()
	if err := o.check(flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "penstock-operator: %v\n", err)
		os.Exit(2)
	}
	ctrl.SetLogger(zap.New(zap.UseDevMode(o.verbose)))
	if err := run(&o); err != nil {
		fmt.Fprintf(os.Stderr, "penstock-operator: %v\n", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	keeper := &webhook.Keeper{Namespace: o.namespace, Secret: o.secret, Config: o.config, Service: o.service}
	m, err := newManager(config, scheme, o, keeper)
	if err != nil {
		return err
	}
	if err := addControllers(m, o); err != nil {
		return err
	}
	if err := addWebhook(m, config, scheme, o, keeper); err != nil {
		return err
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	metrics.Registry.MustRegister(&ourmetrics.Collector{Reader: m.GetClient(), Elected: m.Elected()})
	return m.Start(ctrl.SetupSignalHandler())
}

func newManager(config *rest.Config, scheme *runtime.Scheme, o *options, keeper *webhook.Keeper) (ctrl.Manager, error) {
	lease, renew, retry := 15*time.Second, 10*time.Second, 2*time.Second
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.elect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		Metrics:                       metricsserver.Options{BindAddress: o.metrics},
		HealthProbeBindAddress:        o.health,
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{o.agents: {}}}}},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: o.webhookHost, Port: o.webhookPort,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) {
				c.GetCertificate = keeper.GetCertificate
				c.MinVersion = tls.VersionTLS12
			}}}),
	})
}

func addControllers(m ctrl.Manager, o *options) error {
	entries := &entry.Writer{Client: m.GetClient()}
	datasets := dataset.New(m.GetClient(), m.GetAPIReader(), engine.New(o.engine), entries,
		m.GetEventRecorder("penstock-dataset"))
	if err := datasets.Setup(m); err != nil {
		return err
	}
	gates := &gate.Controller{Client: m.GetClient(), API: m.GetAPIReader(), Entries: entries,
		Events: m.GetEventRecorder("penstock-gate")}
	if err := gates.Setup(context.Background(), m); err != nil {
		return err
	}
	pools := &pool.Controller{Client: m.GetClient(), API: m.GetAPIReader(), Leases: o.agents, Patience: o.patience}
	return pools.Setup(m)
}

// addWebhook has the server started, too: it is made by the first that asks for it.
func addWebhook(m ctrl.Manager, config *rest.Config, scheme *runtime.Scheme, o *options, keeper *webhook.Keeper) error {
	if o.webhookPort == 0 {
		return m.AddReadyzCheck("ping", healthz.Ping)
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	keeper.Client, keeper.Elected = direct, m.Elected()
	if err := m.Add(keeper); err != nil {
		return err
	}
	m.GetWebhookServer().Register(webhook.Path, &admission.Webhook{Handler: &webhook.Handler{Reader: m.GetClient(),
		Decoder: admission.NewDecoder(scheme)}})
	if err := m.AddReadyzCheck("certificate", keeper.Ready); err != nil {
		return err
	}
	return m.AddReadyzCheck("webhook", m.GetWebhookServer().StartedChecker())
}
