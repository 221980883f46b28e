// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeCache has the name of its node. The operator says in spec what the node is to hold; its agent says in status what
// it holds. (When nothing is heard of the agent any more, the operator says so there: condition EngineReady,
// AgentGone.)
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ncache,categories=penstock
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.status.conditions[?(@.type=="EngineReady")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeCache struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeCacheSpec   `json:"spec,omitempty"`
	Status NodeCacheStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true
type NodeCacheList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeCache `json:"items"`
}

type NodeCacheSpec struct {
	// The CachePool that the node is of, and what it says.
	Pool          string `json:"pool,omitempty"`
	LimitBytes    int64  `json:"limitBytes,omitempty"` // 0: what the file system has
	HighWatermark int32  `json:"highWatermark,omitempty"`
	LowWatermark  int32  `json:"lowWatermark,omitempty"`

	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Entries []CacheEntry `json:"entries,omitempty"`
}

// CacheEntry is a dataset that the node is to hold. Each is applied with a field manager of its own, "penstock-ENTRY".
type CacheEntry struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	UID       string        `json:"uid"`   // of the Dataset
	Depot     string        `json:"depot"` // the dataset's name on the node's disk: DepotName(namespace, name)
	Source    Source        `json:"source"`
	Revision  string        `json:"revision"` // 32 digits
	Objects   int64         `json:"objects"`
	Bytes     int64         `json:"bytes"`
	Mode      PlacementMode `json:"mode"`
	Pinned    bool          `json:"pinned,omitempty"`
}

// +kubebuilder:validation:Enum=Pending;Pulling;Ready;Partial;Failed;Removing
type EntryPhase string

const (
	PhasePending  EntryPhase = "Pending"  // not begun, or the engine is away
	PhasePulling  EntryPhase = "Pulling"  // the engine serves it already, the rest from the bucket
	PhaseReady    EntryPhase = "Ready"    // all of it is there and verified
	PhasePartial  EntryPhase = "Partial"  // as much as fits is there, and the engine serves the rest
	PhaseFailed   EntryPhase = "Failed"   // reason and message say why; it is tried again
	PhaseRemoving EntryPhase = "Removing" // no longer wanted, but still in use or being removed
)

type NodeCacheStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	CapacityBytes int64  `json:"capacityBytes,omitempty"` // what datasets may take
	UsedBytes     int64  `json:"usedBytes,omitempty"`     // what they take, reserved bytes of pulls included
	FreeBytes     int64  `json:"freeBytes,omitempty"`     // what another one could have without anything being evicted
	Capacity      string `json:"capacity,omitempty"`      // "500.0 GiB"
	Used          string `json:"used,omitempty"`

	Path            string `json:"path,omitempty"` // the cache's folder on the node
	EngineVersion   string `json:"engineVersion,omitempty"`
	EngineProtocol  int32  `json:"engineProtocol,omitempty"`
	EngineInstance  string `json:"engineInstance,omitempty"` // another one after each start
	EngineDownSince string `json:"engineDownSince,omitempty"`

	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	Entries []EntryStatus `json:"entries,omitempty"`

	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CondEngineReady is the one condition of a NodeCache.
const CondEngineReady = "EngineReady"

// An agent that lives renews a Lease of its node's name, in its own namespace, every HeartbeatSeconds. One that has not
// for LeaseSeconds is taken for gone.
const (
	HeartbeatSeconds = 10
	LeaseSeconds     = 40
)

type EntryStatus struct {
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	Revision    string       `json:"revision,omitempty"` // that phase speaks of
	Phase       EntryPhase   `json:"phase"`
	BytesDone   int64        `json:"bytesDone,omitempty"`
	BytesTotal  int64        `json:"bytesTotal,omitempty"`
	StartedAt   *metav1.Time `json:"startedAt,omitempty"`
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	InUse       bool         `json:"inUse,omitempty"` // some process has it open
	Reason      string       `json:"reason,omitempty"`
	Message     string       `json:"message,omitempty"`
	NeededBytes int64        `json:"neededBytes,omitempty"` // with reason InsufficientSpace
	FreeBytes   int64        `json:"freeBytes,omitempty"`   // with reason InsufficientSpace
}
