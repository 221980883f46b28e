// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/rig"
)

// convergeMost is what anything may take to come right. Tests wait for longer and say how long it took, since on a
// machine that does other things as well this measures the machine; PENSTOCK_STRICT_TIMES=1 makes more than this a
// failure.
const convergeMost = 30 * time.Second

var strict = os.Getenv("PENSTOCK_STRICT_TIMES") == "1"

// times is how long everything took to come right, for the table at the end.
var times timetable

type timetable struct {
	lock sync.Mutex
	rows []string
}

func (t *timetable) note(test, what string, took time.Duration) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.rows = append(t.rows, fmt.Sprintf("%-45s %-40s %6.1f s", test, what, took.Seconds()))
}

func (t *timetable) print() {
	fmt.Printf("\nconverged after\n%s\n", strings.Join(t.rows, "\n"))
}

// orphans looks for anything of a namespace that is not in it: volumes, entries of NodeCaches, folders on disks.
func orphans(ctx context.Context, namespace string) error {
	var found []error
	var volumes corev1.PersistentVolumeList
	if err := w.Client.List(ctx, &volumes); err != nil {
		return err
	}
	for _, v := range volumes.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == namespace {
			found = append(found, fmt.Errorf("volume %s", v.Name))
		}
	}
	var caches v1alpha1.NodeCacheList
	if err := w.Client.List(ctx, &caches); err != nil {
		return err
	}
	for _, nc := range caches.Items {
		for _, e := range nc.Spec.Entries {
			if e.Namespace == namespace {
				found = append(found, fmt.Errorf("%s is to hold %s", nc.Name, e.Name))
			}
		}
		for _, e := range nc.Status.Entries {
			if e.Namespace == namespace {
				found = append(found, fmt.Errorf("%s holds %s (%s, %s)", nc.Name, e.Name, e.Phase, e.Message))
			}
		}
	}
	return errors.Join(append(found, strays(ctx))...)
}

// strays looks for folders on nodes' disks that belong to no dataset.
func strays(ctx context.Context) error {
	var datasets v1alpha1.DatasetList
	if err := w.Client.List(ctx, &datasets); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, d := range datasets.Items {
		known[v1alpha1.DepotName(d.Namespace, d.Name)] = true
	}
	for _, n := range w.nodes {
		folders, err := os.ReadDir(filepath.Join(n.Cache, "datasets"))
		if err != nil {
			return err
		}
		for _, f := range folders {
			if f.IsDir() && !known[f.Name()] {
				return fmt.Errorf("%s has %s on its disk", n.Name, f.Name())
			}
		}
	}
	return nil
}

// versions are the resource versions of everything that operator and agents write.
func versions(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1alpha1.DatasetList{}, &v1alpha1.NodeCacheList{}, &v1alpha1.CachePoolList{},
		&corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{},
	} {
		if err := w.Client.List(ctx, list); err != nil {
			return nil, err
		}
		objects, err := items(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			out[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = o.GetResourceVersion()
		}
	}
	return out, nil
}

// difference is what changed between two looks.
func difference(before, after map[string]string) []string {
	var out []string
	for key, version := range after {
		if before[key] != version {
			out = append(out, key)
		}
	}
	for key := range before {
		if _, there := after[key]; !there {
			out = append(out, key+" went")
		}
	}
	return out
}

// calm asks that a second reconcile writes nothing: once everything is still, an operator and agents that know nothing
// look at everything again, and nothing may change.
func (tm *team) calm() {
	tm.t.Helper()
	before := tm.still()
	tm.must(w.restartOperator(tm.ctx))
	for _, n := range w.nodes {
		n.Agent.Kill()
		tm.must(w.startAgent(tm.ctx, n))
	}
	tm.eventually("reconcile again", func(context.Context) error {
		if w.operators[0].reconciled("dataset") == 0 || w.operators[0].reconciled("pool") == 0 {
			return errors.New("the new operator has not looked at anything")
		}
		return nil
	})
	after := tm.still()
	if changed := difference(before, after); len(changed) > 0 {
		tm.t.Errorf("a second reconcile wrote %s", strings.Join(changed, ", "))
	}
}

// still waits until nothing has been written for a few seconds.
func (tm *team) still() map[string]string {
	tm.t.Helper()
	var last map[string]string
	since := time.Now()
	tm.must(rig.Eventually(tm.ctx, func(ctx context.Context) error {
		now, err := versions(ctx)
		if err != nil {
			return err
		}
		if changed := difference(last, now); len(changed) > 0 {
			last, since = now, time.Now()
			return fmt.Errorf("still writing %s", strings.Join(changed, ", "))
		}
		if time.Since(since) < 4*time.Second {
			return errors.New("not still for long")
		}
		return nil
	}))
	return last
}
