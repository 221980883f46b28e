// SPDX-License-Identifier: Apache-2.0

// penstock-agent makes a node's engine hold what the node's NodeCache says.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"penstock.dev/operator/internal/agent"
	"penstock.dev/operator/internal/engine"
)

const usage = `penstock-agent makes a node's engine (penstock serve) hold the datasets that the node's NodeCache names,
and writes into its status what is there. It runs beside the engine, as the same user.

usage: penstock-agent --node-name NODE [--cache DIR] [--control SOCKET] [--kubeconfig FILE] ...

`

type options struct {
	node, namespace, cache, control, kubeconfig, health string
	check                                               time.Duration
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("penstock-agent", flag.ContinueOnError)
	f.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "the node, and its NodeCache (default: $NODE_NAME)")
	f.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "penstock-node"),
		"the namespace of the agents and their leases (default: $POD_NAMESPACE)")
	f.StringVar(&o.cache, "cache", "/var/lib/penstock", "the cache's folder on the node, as pods' volumes name it")
	f.StringVar(&o.control, "control", "", "the engine's control socket (default: CACHE/control/control.sock)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server (default: as a pod does)")
	f.StringVar(&o.health, "health-address", ":8081", "where /healthz and /readyz are answered; empty: nowhere")
	f.DurationVar(&o.check, "check-every", 24*time.Hour, "how often all that is there is read again; 0: never")
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%s: what is that?", f.Arg(0))
	case o.node == "":
		return o, errors.New("--node-name or $NODE_NAME is needed")
	case !filepath.IsAbs(o.cache):
		return o, errors.New("--cache is a path that begins with a slash")
	case o.check < 0 || o.check > 0 && o.check < time.Minute:
		return o, errors.New("--check-every is 0 or at least 1m")
	}
	if o.control == "" {
		o.control = filepath.Join(o.cache, "control", "control.sock")
	}
	return o, nil
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "penstock-agent:", err)
		os.Exit(2)
	}
	ctrl.SetLogger(zap.New())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "penstock-agent:", err)
		os.Exit(1)
	}
}

func config(path string) (*rest.Config, error) {
	if path == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", path)
}

// hasten lets a connection that fell silent be noticed before the lease is over: by itself the library takes longer.
func hasten() {
	for name, seconds := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5",
	} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds)
		}
	}
}

func run(ctx context.Context, o options) error {
	hasten()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := config(o.kubeconfig)
	if err != nil {
		return err
	}
	c.UserAgent = "penstock-agent"
	cluster, err := agent.Connect(c, o.node, o.namespace)
	if err != nil {
		return err
	}
	a := &agent.Agent{
		Engine: engine.New(o.control), Cluster: cluster, Path: o.cache, CheckEvery: o.check, Log: ctrl.Log.WithName("agent"),
	}
	ended := make(chan error, 3)
	go func() { ended <- cluster.Run(ctx) }()
	go func() {
		if cluster.Synced(ctx) {
			ended <- a.Start(ctx)
		}
	}()
	if o.health != "" {
		server := &http.Server{Addr: o.health, Handler: health(a), ReadHeaderTimeout: 5 * time.Second}
		go func() { ended <- server.ListenAndServe() }()
		defer server.Close()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// health answers probes. A node whose engine is away is alive: its agent waits for the engine.
func health(a *agent.Agent) http.Handler {
	mux := http.NewServeMux()
	answer := func(is func() bool, not string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !is() {
				http.Error(w, not, http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("GET /healthz", answer(a.Alive, "passes do not end"))
	mux.HandleFunc("GET /readyz", answer(a.Ready, "the engine does not answer"))
	return mux
}
