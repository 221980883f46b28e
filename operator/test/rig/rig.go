// SPDX-License-Identifier: Apache-2.0

// Package rig runs a cluster for tests, on loopback and in a folder that is thrown away: etcd, kube-apiserver with RBAC
// and the admission plugins of a real one, kube-scheduler, kube-controller-manager, kwok for as many nodes as one
// likes, and a bucket (versitygw). No container runs: what a pod would run, a test starts itself, as the identity that
// the pod has.
//
// The programs come from tools/operator_tools.sh; PENSTOCK_TOOLS_BIN says where they are, if not in build-tools/bin.
package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patience is how long the rig waits for anything before it calls it a failure: machines that run tests are slow.
const Patience = 2 * time.Minute

// Options of a rig. The zero value: no nodes and no bucket.
type Options struct {
	Nodes  int    // named node-0, node-1, ...
	Bucket bool   // versitygw, with an empty bucket named as rig.BucketName
	Dir    string // where everything lies; empty: a new folder that Stop removes unless Keep is set
	Keep   bool
}

type Rig struct {
	Dir    string
	Client client.Client        // as the administrator, with our types
	Kube   kubernetes.Interface // the same, for what only the typed client has (tokens, logs)
	S3     *S3                  // nil without Options.Bucket

	options   Options
	ca        *authority
	etcdPort  int
	peerPort  int
	apiPort   int
	apiServer *Process
	admin     *rest.Config
	clock     time.Time

	lock    sync.Mutex // guards running
	running []*Process
}

// Start brings everything up. On failure nothing is left but the folder, if it is to be kept.
func Start(ctx context.Context, options Options) (*Rig, error) {
	r := &Rig{Dir: options.Dir, options: options, clock: time.Now()}
	if err := r.start(ctx); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context) error {
	if r.Dir == "" {
		dir, err := os.MkdirTemp("", "rig-of-penstock-")
		if err != nil {
			return err
		}
		r.Dir = dir
	}
	var err error
	if r.ca, err = newAuthority(); err != nil {
		return err
	}
	if err := r.ca.writeKeys(r.Dir); err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	r.etcdPort, r.peerPort, r.apiPort = ports[0], ports[1], ports[2]
	if err := r.makeAdmin(); err != nil {
		return err
	}
	steps := []func(context.Context) error{
		r.startEtcd, r.startAPIServer, r.startScheduler, r.startControllers, r.startKwok,
	}
	if r.options.Bucket {
		steps = append(steps, r.startBucket)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for i := range r.options.Nodes {
		if err := r.AddNode(ctx, Node{Name: fmt.Sprintf("node-%d", i)}); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills everything that the rig has started, the youngest first, and removes its folder.
func (r *Rig) Stop() {
	r.lock.Lock()
	running := r.running
	r.running = nil
	r.lock.Unlock()
	for i := len(running) - 1; i >= 0; i-- {
		running[i].Kill()
	}
	if r.Dir != "" && r.options.Dir == "" && !r.options.Keep {
		_ = os.RemoveAll(r.Dir)
	}
}

// Below what the kernel gives to those who connect (32768 and up): a server that is away for a moment, as a restarted
// one is, would else find its port taken by one of its own clients.
const firstPort, lastPort = 12000, 32000

// freePorts are ports that nobody has. All are held until the last is known, so that they differ.
func freePorts(count int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < count; tries++ {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			if tries > 1000 {
				return nil, err
			}
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

// FreePort is a port of loopback that nobody has.
func FreePort() (int, error) {
	ports, err := freePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// Eventually asks until there is no error, or Patience is over; then the last error is the answer.
func Eventually(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
