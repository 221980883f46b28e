// SPDX-License-Identifier: Apache-2.0

// Package metrics has the operator's figures. What can be read from the cache when somebody asks is not counted: see
// Collector. Series of a dataset or node so end with it.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"penstock.dev/operator/api/v1alpha1"
)

var (
	RevisionChanges = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_revision_changes_total",
		Help: "New revisions that listing a dataset's bucket has found."}, []string{"namespace", "dataset"})
	Evictions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_evictions_total",
		Help: "Copies that were taken off a node for another dataset."}, []string{"reason"})
	GatedPods = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_gated_pods",
		Help: "Pods that wait for their dataset."})
	GateWait = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_gate_wait_seconds",
		Help: "How long pods have waited for their dataset.", Buckets: prometheus.ExponentialBuckets(0.5, 2, 16)})
)

func init() { metrics.Registry.MustRegister(RevisionChanges, Evictions, GatedPods, GateWait) }

var (
	datasetBytes = prometheus.NewDesc("penstock_dataset_bytes", "Bytes of a dataset's revision.", []string{"namespace",
		"dataset"}, nil)
	datasetItems = prometheus.NewDesc("penstock_dataset_objects", "Objects of a dataset's revision.",
		[]string{"namespace", "dataset"}, nil)
	copies = prometheus.NewDesc("penstock_copies", "Copies of a dataset by what they are.", []string{"namespace",
		"dataset", "state"}, nil)
	usedBytes = prometheus.NewDesc("penstock_cache_used_bytes", "Bytes that datasets take on a node.",
		[]string{"node"}, nil)
	capacity = prometheus.NewDesc("penstock_capacity_bytes", "Bytes that datasets may take on a node.",
		[]string{"node"}, nil)
)

// Collector reads datasets and nodes from the cache. Elected is closed when this process leads: two replicas would
// count everything twice.
type Collector struct {
	Reader  client.Reader
	Elected <-chan struct{}
}

// Describe is prometheus.Collector's.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{datasetBytes, datasetItems, copies, usedBytes, capacity} {
		out <- d
	}
}

// Collect is prometheus.Collector's.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var datasets v1alpha1.DatasetList
	var caches v1alpha1.NodeCacheList
	if c.Reader.List(ctx, &datasets) != nil || c.Reader.List(ctx, &caches) != nil {
		return
	}
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	for i := range datasets.Items {
		d := &datasets.Items[i]
		gauge(datasetBytes, d.Status.Bytes, d.Namespace, d.Name)
		gauge(datasetItems, d.Status.Objects, d.Namespace, d.Name)
		states := map[v1alpha1.EntryPhase]int64{}
		for _, n := range d.Status.Nodes {
			states[n.Phase]++
		}
		for state, count := range states {
			gauge(copies, count, d.Namespace, d.Name, string(state))
		}
	}
	for i := range caches.Items {
		gauge(usedBytes, caches.Items[i].Status.UsedBytes, caches.Items[i].Name)
		gauge(capacity, caches.Items[i].Status.CapacityBytes, caches.Items[i].Name)
	}
}
