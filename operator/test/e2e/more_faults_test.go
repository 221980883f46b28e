// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/test/stand"
)

// says asks that a condition's message has a word in it.
func (tm *team) says(d *v1alpha1.Dataset, kind, word string) {
	tm.t.Helper()
	if c := condition(d.Status.Conditions, kind); c == nil || !strings.Contains(c.Message, word) {
		tm.t.Errorf("%s does not say %q: %+v", kind, word, c)
	}
}

func TestTwoOperators(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(20, 10, 20_000)
	tm.upload(files)
	w.killOperators()
	tm.must(w.startOperator(tm.ctx, "--leader-elect"))
	tm.must(w.startOperator(tm.ctx, "--leader-elect"))
	tm.create(tm.dataset("photos"))
	tm.converge("ready with two of them", tm.held("photos", files, 2))
	working := 0
	for _, o := range w.operators {
		if o.reconciled("dataset") > 0 {
			working++
		}
	}
	if working != 1 {
		t.Errorf("%d of two operators work", working)
	}
	leader := w.operators[0]
	if w.operators[1].reconciled("dataset") > 0 {
		leader = w.operators[1]
	}
	leader.process.Kill()
	tm.create(tm.dataset("more", replicas(1)))
	tm.converge("the other one takes over", tm.ready("more"))
	tm.must(w.restartOperator(tm.ctx))
	tm.calm()
}

func TestADatasetIsDeletedWhileInUse(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(21, 10, 20_000)
	tm.upload(files)
	tm.create(tm.dataset("photos", replicas(1)))
	tm.converge("ready", tm.held("photos", files, 1))
	d, err := tm.get(tm.ctx, "photos")
	tm.must(err)
	on, err := tm.holders(tm.ctx, "photos", v1alpha1.PhaseReady)
	tm.must(err)
	depot := v1alpha1.DepotName(tm.name, "photos")
	hold, err := on[0].Use(depot, d.Status.Revision)
	tm.must(err)
	tm.eventually("the agent sees it", func(ctx context.Context) error {
		d, err := tm.get(ctx, "photos")
		if err != nil {
			return err
		}
		for _, n := range d.Status.Nodes {
			if n.InUse {
				return nil
			}
		}
		return errors.New("not in use")
	})
	tm.must(w.Client.Delete(tm.ctx, tm.dataset("photos")))
	tm.converge("it says that it is in use",
		tm.is("photos", v1alpha1.CondReady, metav1.ConditionFalse, v1alpha1.ReasonInUse))
	tm.must(files.Same(on[0].Folder(depot, d.Status.Revision)))
	tm.calm()
	tm.must(hold.Close())
	tm.converge("it goes when nobody reads it", tm.noDatasets)
	tm.converge("and leaves nothing", func(ctx context.Context) error { return orphans(ctx, tm.name) })
}

func TestANamespaceIsDeleted(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(22, 20, 100_000)
	tm.upload(files)
	from := tm.fromFaultd(files)
	tm.must(w.faultd.Rules(stand.Hold(tm.name, 10)))
	tm.create(tm.dataset("photos"))
	tm.create(tm.dataset("slow", from))
	tm.converge("ready", tm.held("photos", files, 2))
	pod := tm.pod("train", "photos")
	tm.create(pod)
	tm.converge("a pod runs", tm.lifted("train"))
	tm.pulling("slow")
	tm.must(w.Client.Delete(tm.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tm.name}}))
	tm.converge("nothing is left", tm.gone)
}

func TestADatasetIsMadeAnewUnderItsName(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(23, 10, 20_000)
	tm.upload(files)
	tm.create(tm.dataset("photos"))
	tm.converge("ready", tm.held("photos", files, 2))
	tm.must(w.Client.Delete(tm.ctx, tm.dataset("photos")))
	other := stand.MakeFiles(24, 12, 10_000)
	from := tm.fromFaultd(other)
	tm.eventually("made anew", func(ctx context.Context) error {
		err := w.Client.Create(ctx, tm.dataset("photos", from))
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the old one is there: %w", err)
		}
		return err
	})
	tm.converge("the new one is ready", tm.held("photos", other, 2))
}

func TestTheEngineBesideTheOperatorIsStartedAnew(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(25, 10, 20_000)
	tm.upload(files)
	w.lister.Daemon.Kill()
	tm.create(tm.dataset("photos"))
	tm.eventually("it says so", tm.is("photos", v1alpha1.CondResolved, metav1.ConditionFalse, v1alpha1.ReasonWaiting))
	tm.must(w.lister.StartDaemon(tm.ctx))
	tm.converge("ready", tm.held("photos", files, 2))
}

// An agent that died without a word is missed: nothing new is put on its node, and what is there no longer counts as
// ready, until it is back.
func TestAnAgentIsGone(t *testing.T) {
	tm := newTeam(t)
	files := stand.MakeFiles(26, 10, 20_000)
	tm.upload(files)
	tm.create(tm.dataset("photos", replicas(1)))
	tm.converge("ready", tm.ready("photos"))
	on, err := tm.holders(tm.ctx, "photos", v1alpha1.PhaseReady)
	tm.must(err)
	lost := on[0]
	engine := func(status metav1.ConditionStatus, reason string) func(context.Context) error {
		return func(ctx context.Context) error {
			var nc v1alpha1.NodeCache
			if err := w.Client.Get(ctx, client.ObjectKey{Name: lost.Name}, &nc); err != nil {
				return err
			}
			c := condition(nc.Status.Conditions, v1alpha1.CondEngineReady)
			if c == nil || c.Status != status || c.Reason != reason {
				return fmt.Errorf("the condition is %+v", c)
			}
			return nil
		}
	}
	w.killOperators()
	tm.must(w.startOperator(tm.ctx, "--agent-patience", fmt.Sprintf("%ds", v1alpha1.LeaseSeconds)))
	died := time.Now()
	lost.Agent.Kill()
	tm.eventually("it is missed", engine(metav1.ConditionUnknown, v1alpha1.ReasonAgentGone))
	t.Logf("missed after %.1f s", time.Since(died).Seconds())
	tm.eventually("its copy does not count", tm.is("photos", v1alpha1.CondReady, metav1.ConditionFalse, ""))
	tm.create(tm.pod("train", "photos"))
	tm.converge("a pod runs elsewhere", tm.lifted("train"))
	var pod corev1.Pod
	tm.must(w.Client.Get(tm.ctx, client.ObjectKey{Namespace: tm.name, Name: "train"}, &pod))
	if pod.Spec.NodeName == lost.Name {
		t.Errorf("the pod is on %s, whose agent is gone", lost.Name)
	}
	tm.must(w.startAgent(tm.ctx, lost))
	tm.converge("the node takes part again", engine(metav1.ConditionTrue, "Connected"))
	tm.must(w.Client.Delete(tm.ctx, &pod))
	tm.calm()
}
