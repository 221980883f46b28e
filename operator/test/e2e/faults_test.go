// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/rig"
	"penstock.dev/operator/test/stand"
)

// Faults, one by one. Each ends with everything as it should be, nothing left over, and a second reconcile that writes
// nothing (calm, and what leave does at the end of each test).

const kills = 50

func TestTheOperatorIsKilledInReconcile(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(10, 10, 5_000)
	tm.upload(files)
	drawn := rand.New(rand.NewPCG(10, 1))
	for i := range kills {
		switch i % 5 { // something to do for each
		case 0:
			tm.create(tm.dataset("photos", replicas(1+int32(i/5%3))))
		case 1, 2:
			tm.edit("photos", func(d *v1alpha1.Dataset) { replicas(1 + int32(i%3))(d) })
		case 3:
			tm.create(tm.dataset(fmt.Sprintf("more-%d", i), replicas(1)))
		case 4:
			tm.must(w.Client.Delete(tm.ctx, tm.dataset("photos")))
			tm.must(w.Client.Delete(tm.ctx, tm.dataset(fmt.Sprintf("more-%d", i-1))))
		}
		tm.must(w.startOperator(tm.ctx))
		last := w.operators[len(w.operators)-1]
		tm.eventually("it begins", func(context.Context) error {
			if last.reconciled("dataset") == 0 {
				return errors.New("nothing yet")
			}
			return nil
		})
		time.Sleep(time.Duration(drawn.IntN(300)) * time.Millisecond)
		w.killOperators()
		if i%5 == 4 { // it must be gone before it can be made again
			tm.must(w.startOperator(tm.ctx))
			tm.eventually("it is gone", func(ctx context.Context) error { return tm.noDatasets(ctx) })
			w.killOperators()
		}
	}
	tm.create(tm.dataset("photos"))
	tm.must(w.startOperator(tm.ctx))
	tm.converge("ready after so many deaths", tm.held("photos", files, 2))
	tm.must(tm.ready("photos")(tm.ctx))
	tm.calm()
}

func (tm *team) noDatasets(ctx context.Context) error {
	var all v1alpha1.DatasetList
	if err := w.Client.List(ctx, &all, client.InNamespace(tm.name)); err != nil {
		return err
	}
	if len(all.Items) > 0 {
		return fmt.Errorf("%d datasets are there: %+v", len(all.Items), all.Items[0].Status)
	}
	return nil
}

// pulling waits until some node has a part of the dataset, and returns it.
func (tm *team) pulling(name string) *stand.Node {
	tm.t.Helper()
	var found *stand.Node
	tm.eventually("a pull is under way", func(ctx context.Context) error {
		for _, n := range w.nodes {
			var nc v1alpha1.NodeCache
			if err := w.Client.Get(ctx, client.ObjectKey{Name: n.Name}, &nc); err != nil {
				return err
			}
			for _, e := range nc.Status.Entries {
				if e.Namespace == tm.name && e.Name == name && e.Phase == v1alpha1.PhasePulling && e.BytesDone > e.BytesTotal/5 {
					found = n
					return nil
				}
			}
		}
		return errors.New("not yet")
	})
	return found
}

func TestAnAgentIsKilledInMidDownload(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(11, 30, 100_000)
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 10)))
	tm.create(tm.dataset("photos", from, replicas(1)))
	n := tm.pulling("photos")
	d, err := tm.get(tm.ctx, "photos")
	tm.must(err)
	there, err := files.Found(n.Coming(v1alpha1.DepotName(tm.name, "photos"), d.Status.Revision))
	tm.must(err)
	if len(there) == 0 || len(there) == len(files) {
		t.Fatalf("%d files were there", len(there))
	}
	n.Agent.Kill()
	n.Daemon.Kill() // they are containers of one pod
	tm.must(w.faultd.Rules())
	tm.must(w.faultd.Reset())
	tm.must(n.StartDaemon(tm.ctx))
	tm.must(w.startAgent(tm.ctx, n))
	tm.converge("ready again", tm.held("photos", files, 1))
	asked, err := w.faultd.Asked(tm.name)
	tm.must(err)
	for _, key := range there {
		if asked[key] {
			t.Errorf("%s was there, and was fetched again", key)
		}
	}
	tm.calm()
}

func TestTheBucketAnswersWith503(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(12, 60, 100_000) // more than two nodes ask for at a time: some are still to come
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 30)))
	tm.create(tm.dataset("photos", from))
	tm.pulling("photos")
	tm.must(w.faultd.Rules(stand.Refuse(503)))
	tm.must(tm.is("photos", v1alpha1.CondReady, metav1.ConditionFalse, "")(tm.ctx))
	tm.eventually("requests are refused", func(context.Context) error {
		stats, err := w.faultd.Stats()
		if err == nil && stats.Statuses["503"] < 5 {
			err = fmt.Errorf("answers so far: %v", stats.Statuses)
		}
		return err
	})
	tm.must(w.faultd.Rules())
	tm.converge("ready after an outage", tm.held("photos", files, 2))
	tm.calm()
}

func TestAnObjectChangesInMidPull(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(13, 20, 20_000)
	from := tm.fromFaultd(files)
	const last = "class02/00017.bin"
	tm.must(w.faultd.Rules(stand.ReplaceAtFirstGet(tm.name, last)))
	tm.create(tm.dataset("photos", from))
	content := files[last]
	for i := range content {
		content[i] ^= 0xff
	}
	tm.converge("the new revision is ready", tm.held("photos", files, 2))
	tm.converge("and said to be", tm.ready("photos"))
	tm.calm()
}

// limit sets what the nodes' disks may hold, and puts it back at the end.
func (tm *team) limit(bytes int64) {
	tm.t.Helper()
	set := func(ctx context.Context, q resource.Quantity) error {
		var pool v1alpha1.CachePool
		if err := w.Client.Get(ctx, client.ObjectKey{Name: poolName}, &pool); err != nil {
			return err
		}
		pool.Spec.StorageLimit = &q
		if err := w.Client.Update(ctx, &pool); err != nil {
			return err
		}
		return nil
	}
	said := func(want int64) func(context.Context) error {
		return func(ctx context.Context) error {
			var all v1alpha1.NodeCacheList
			if err := w.Client.List(ctx, &all); err != nil {
				return err
			}
			for _, nc := range all.Items {
				if nc.Status.CapacityBytes != want {
					return fmt.Errorf("%s has %d bytes", nc.Name, nc.Status.CapacityBytes)
				}
			}
			return nil
		}
	}
	tm.must(set(tm.ctx, *resource.NewQuantity(bytes, resource.BinarySI)))
	tm.eventually("the limit is known", said(bytes))
	tm.t.Cleanup(func() {
		if err := set(context.Background(), resource.MustParse(poolLimit)); err != nil {
			tm.t.Error(err)
		}
		if err := rig.Eventually(context.Background(), said(64<<20)); err != nil {
			tm.t.Error(err)
		}
	})
}

func TestADiskIsTooSmall(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(14, 30, 100_000)
	tm.upload(files)
	tm.limit(2 << 20)
	tm.create(tm.dataset("photos"))
	tm.converge("the condition says so",
		tm.is("photos", v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonInsufficientSpace))
	d, err := tm.get(tm.ctx, "photos")
	tm.must(err)
	t.Logf("it says: %s", condition(d.Status.Conditions, v1alpha1.CondReady).Message)
	for _, word := range []string{"2.9 MiB needed", "1.9 MiB free"} { // up to the high watermark
		tm.says(d, v1alpha1.CondReady, word)
	}
	tm.calm()
	tm.edit("photos", partial)
	tm.converge("a part runs", tm.ready("photos"))
	tm.partly("photos", files)
	tm.calm()
}

func TestADatasetIsThreeTimesEveryDisk(t *testing.T) {
	tm := newTeam(t)
	files := pictures(stand.MakeFiles(15, 60, 100_000))
	tm.upload(files)
	tm.limit(2 << 20)
	tm.create(tm.dataset("photos", partial, replicas(3)))
	tm.converge("as much as fits is there", tm.ready("photos"))
	tm.partly("photos", files)
	pod := tm.pod("train", "photos")
	tm.create(pod)
	tm.converge("a pod runs with a part", tm.lifted("train"))
	tm.must(w.Client.Get(tm.ctx, client.ObjectKeyFromObject(pod), pod))
	on := w.nodes[slices.IndexFunc(w.nodes, func(n *stand.Node) bool { return n.Name == pod.Spec.NodeName })]
	// It gets all of it, exactly, the rest from the bucket.
	job, ledger := tm.feedAsPod("partial", on, "photos")
	if got, want := tm.delivered(job, ledger), tm.expected(files); len(want) != 60 || !slices.Equal(got, want) {
		t.Errorf("%d samples of %d, or others: %s", len(got), len(want), job.Tail())
	}
	tm.unused("photos")
	tm.must(w.Client.Delete(tm.ctx, pod))
	tm.calm()
}

// partly asks that nodes hold some of it, and no more than they may.
func (tm *team) partly(name string, files stand.Files) {
	tm.t.Helper()
	on, err := tm.holders(tm.ctx, name, v1alpha1.PhasePartial)
	tm.must(err)
	if len(on) == 0 {
		tm.t.Error("nobody holds a part")
	}
	for _, n := range on {
		var nc v1alpha1.NodeCache
		tm.must(w.Client.Get(tm.ctx, client.ObjectKey{Name: n.Name}, &nc))
		for _, e := range nc.Status.Entries {
			most := nc.Status.CapacityBytes
			if e.Name == name && (e.BytesDone < most/2 || e.BytesDone > most || e.BytesTotal != files.Bytes()) {
				tm.t.Errorf("%s holds %d of %d bytes, and may %d", n.Name, e.BytesDone, e.BytesTotal, most)
			}
		}
	}
}

func TestANodeGoesAndComesBack(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(16, 10, 20_000)
	tm.upload(files)
	tm.create(tm.dataset("photos"))
	tm.converge("ready", tm.held("photos", files, 2))
	on, err := tm.holders(tm.ctx, "photos", v1alpha1.PhaseReady)
	tm.must(err)
	lost := on[0]
	tm.must(w.RemoveNode(tm.ctx, lost.Name))
	lost.Agent.Kill() // its pod goes with the node
	tm.converge("on two others", func(ctx context.Context) error {
		var nc v1alpha1.NodeCache
		if err := w.Client.Get(ctx, client.ObjectKey{Name: lost.Name}, &nc); err == nil {
			return errors.New("its NodeCache is there")
		}
		return tm.held("photos", files, 2)(ctx)
	})
	tm.must(w.AddNode(tm.ctx, rig.Node{Name: lost.Name, GPUs: 8}))
	tm.must(w.startAgent(tm.ctx, lost))
	tm.converge("the node takes part again", w.nodesReady)
	tm.converge("what nobody wants there goes", func(ctx context.Context) error {
		on, err := tm.holders(ctx, "photos", v1alpha1.PhaseReady)
		if err != nil {
			return err
		}
		for _, n := range on {
			if n == lost {
				return nil // it was chosen again
			}
		}
		return lost.Holds(v1alpha1.DepotName(tm.name, "photos"), false)
	})
	tm.calm()
}

func TestTheAPIServerIsStartedAnew(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(17, 20, 100_000)
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 10)))
	tm.create(tm.dataset("photos", from))
	tm.pulling("photos")
	tm.must(w.RestartAPIServer(tm.ctx))
	tm.must(w.faultd.Rules())
	tm.converge("ready", tm.held("photos", files, 2))
	tm.converge("and said to be", tm.ready("photos"))
	tm.calm()
}

func TestASecretIsRotated(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(18, 20, 100_000)
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Keys("old", "hush"))
	t.Cleanup(func() { _ = w.faultd.NoKeys() })
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: tm.name, Name: secretName}
	keys := func(access string) {
		tm.must(w.Client.Get(tm.ctx, key, secret))
		secret.Data = map[string][]byte{"AWS_ACCESS_KEY_ID": []byte(access), "AWS_SECRET_ACCESS_KEY": []byte("hush")}
		tm.must(w.Client.Update(tm.ctx, secret))
	}
	keys("old")
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 10)))
	tm.create(tm.dataset("photos", from,
		s3(func(s *v1alpha1.S3Source) { s.SecretRef = &v1alpha1.SecretRef{Name: secretName} })))
	tm.pulling("photos")
	tm.must(w.faultd.Keys("new", "hush"))
	keys("new")
	tm.must(w.faultd.Rules())
	tm.converge("ready with the new keys", tm.held("photos", files, 2))
	tm.converge("and said to be", tm.ready("photos"))
	tm.calm()
}
