// SPDX-License-Identifier: Apache-2.0

// Package stand has what tests put between the parts under test: nodes with a real engine and a real agent, each with a
// folder of its own, buckets of files, and one that fails as it is told.
package stand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"penstock.dev/operator/internal/engine"
	"penstock.dev/operator/test/manifests"
	"penstock.dev/operator/test/rig"
)

// Node is a machine as far as the cache is concerned: a folder, an engine and an agent.
type Node struct {
	Name  string
	Cache string // as the agent's --cache
	rig   *rig.Rig

	Daemon *rig.Process
	Agent  *rig.Process
}

// Penstock is the command that was built from this checkout; PENSTOCK_BIN names another one.
func Penstock() (string, error) {
	path := os.Getenv("PENSTOCK_BIN")
	if path == "" {
		path = filepath.Join(manifests.Root(), "build", "penstock")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: ninja -C build penstock builds it", err)
	}
	return path, nil
}

// NewNode makes its folder below the rig's, whose path has to be short: sockets lie in it.
func NewNode(r *rig.Rig, name string) (*Node, error) {
	n := &Node{Name: name, Cache: filepath.Join(r.Dir, name), rig: r}
	if len(n.Control()) > 100 {
		return nil, errors.New("the path is too long for a socket: " + n.Control())
	}
	for _, folder := range []string{"run", "datasets"} {
		if err := os.MkdirAll(filepath.Join(n.Cache, folder), 0o755); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Control is the engine's control socket, and Engine a client of it.
func (n *Node) Control() string        { return filepath.Join(n.Cache, "control", "control.sock") }
func (n *Node) Engine() *engine.Client { return engine.New(n.Control()) }

// StartDaemon starts the engine and waits until it answers.
func (n *Node) StartDaemon(ctx context.Context) error {
	program, err := Penstock()
	if err != nil {
		return err
	}
	environ := []string{"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null"}
	n.Daemon, err = n.rig.Run("daemon-"+n.Name, environ, program, "serve",
		"--dir", filepath.Join(n.Cache, "run"), "--control", filepath.Join(n.Cache, "control"),
		"--datasets", filepath.Join(n.Cache, "datasets"),
		"--allow-uid", "any", "--workers", "1", "--memory", "64MiB", "--cache", "0")
	if err != nil {
		return err
	}
	return rig.Eventually(ctx, func(ctx context.Context) error {
		select {
		case <-n.Daemon.Done():
			return fmt.Errorf("the daemon ended: %s", n.Daemon.Tail())
		default:
		}
		_, err := n.Engine().Info(ctx)
		return err
	})
}

// StartAgent starts the program with that identity.
func (n *Node) StartAgent(program, kubeconfig string, more ...string) error {
	var err error
	n.Agent, err = n.rig.Run("agent-"+n.Name, nil, program, append([]string{"--node-name", n.Name, "--cache", n.Cache,
		"--kubeconfig", kubeconfig, "--health-address", ""}, more...)...)
	return err
}

// Folder of a dataset's revision.
func (n *Node) Folder(depot, revision string) string {
	return filepath.Join(n.Cache, "datasets", depot, revision, "data")
}

// Coming is the folder of a revision that is being pulled.
func (n *Node) Coming(depot, revision string) string {
	return filepath.Join(n.Cache, "datasets", depot, "."+revision, "data")
}

// Resolve lists a bucket with this node's engine, as the operator does with its own, and tells the revision.
func (n *Node) Resolve(ctx context.Context, name string, source engine.Source) (engine.Pull, error) {
	e := n.Engine()
	if err := e.SetSource(ctx, name, source); err != nil {
		return engine.Pull{}, err
	}
	if err := e.Pull(ctx, name, engine.PullRequest{Dry: true}); err != nil {
		return engine.Pull{}, err
	}
	for {
		d, err := e.Dataset(ctx, name)
		if err != nil {
			return engine.Pull{}, err
		}
		if d.Pull != nil && !d.Pull.Running {
			if d.Pull.Error != nil {
				return *d.Pull, d.Pull.Error
			}
			return *d.Pull, nil
		}
		select {
		case <-ctx.Done():
			return engine.Pull{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
