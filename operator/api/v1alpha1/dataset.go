// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Dataset is a dataset in a bucket that pods of its namespace train on.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dset,categories=penstock
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.shortRevision`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Cached",type=string,JSONPath=`.status.cached`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="a dataset's name has at most 50 characters"
type Dataset struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DatasetSpec   `json:"spec"`
	Status DatasetStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true
type DatasetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Dataset `json:"items"`
}

type DatasetSpec struct {
	// Where the objects are. It cannot be changed: another source is another dataset.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the source of a dataset cannot be changed; make another dataset"
	Source Source `json:"source"`

	// Latest, or the revision (32 hexadecimal digits) to stay with.
	// +kubebuilder:default=Latest
	// +kubebuilder:validation:Pattern=`^(Latest|[0-9a-f]{32})$`
	Revision string `json:"revision,omitempty"`

	// How often the bucket is listed for a new revision; 0s: only when the dataset is made or its spec changes.
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || (duration(self) >= duration('30s') && duration(self) <= duration('8760h'))",message="refreshInterval is 0s or between 30s and 8760h"
	RefreshInterval *metav1.Duration `json:"refreshInterval,omitempty"`

	// +kubebuilder:default={}
	Placement Placement `json:"placement,omitempty"`

	// WhenReady: a pod that requires the dataset starts when a node has all of it. AtOnce: as soon as a node's engine
	// can serve it; what is not there yet comes from the bucket while the pull goes on.
	// +kubebuilder:default=WhenReady
	Start StartPolicy `json:"start,omitempty"`

	// Never evicted to make room for others.
	Pinned bool `json:"pinned,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.http)",message="a source is either s3 or http"
type Source struct {
	S3   *S3Source   `json:"s3,omitempty"`
	HTTP *HTTPSource `json:"http,omitempty"`
}

type S3Source struct {
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`
	Bucket string `json:"bucket"`

	// Folder in the bucket, without a slash at its ends; empty: all of it.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9!_.*'()=+@:,-]+(/[A-Za-z0-9!_.*'()=+@:,-]+)*)?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|/)[.]{1,2}(/|$)')",message="a prefix has no . or .. in it"
	Prefix string `json:"prefix,omitempty"`

	// The server; empty: that of the region.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?$`
	Endpoint string `json:"endpoint,omitempty"`

	// +kubebuilder:default=us-east-1
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	Region string `json:"region,omitempty"`

	// Bucket in the path instead of in the host's name.
	PathStyle bool `json:"pathStyle,omitempty"`

	// Secret of this namespace with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if any, AWS_SESSION_TOKEN; none: the
	// bucket is public.
	SecretRef *SecretRef `json:"secretRef,omitempty"`
}

type SecretRef struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

type HTTPSource struct {
	// One object: a list of files or an archive.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[A-Za-z0-9!_.*'()=+@:,/~%-]*$`
	URL string `json:"url"`
}

// +kubebuilder:validation:Enum=Whole;Partial
type PlacementMode string

const (
	Whole   PlacementMode = "Whole"
	Partial PlacementMode = "Partial"
)

// +kubebuilder:validation:Enum=WhenReady;AtOnce
type StartPolicy string

const (
	WhenReady StartPolicy = "WhenReady"
	AtOnce    StartPolicy = "AtOnce"
)

type Placement struct {
	// Nodes that hold the dataset before any pod asks for it. Pods that require it may bring it to more.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// Only nodes with these labels.
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Whole: a node holds all of the dataset or nothing. Partial: as much as fits; the node's engine gets the rest from
	// the bucket.
	// +kubebuilder:default=Whole
	Mode PlacementMode `json:"mode,omitempty"`
}

// Conditions of a Dataset, and their reasons.
const (
	CondResolved = "Resolved" // the bucket was listed
	CondPlaced   = "Placed"   // nodes were chosen
	CondReady    = "Ready"    // as many nodes have it as placement.replicas asks for
	CondDegraded = "Degraded" // something needs a look although it may work

	ReasonListed             = "Listed"
	ReasonListing            = "Listing"
	ReasonSecretNotFound     = "SecretNotFound"
	ReasonSecretForbidden    = "SecretForbidden"
	ReasonSecretIncomplete   = "SecretIncomplete"
	ReasonCredentialsInvalid = "CredentialsInvalid"
	ReasonBucketNotFound     = "BucketNotFound"
	ReasonBucketUnreachable  = "BucketUnreachable"
	ReasonRevisionGone       = "RevisionGone"
	ReasonChanging           = "Changing"
	ReasonEmpty              = "Empty"
	ReasonNodesChosen        = "NodesChosen"
	ReasonNoNodes            = "NoNodes"
	ReasonInsufficientSpace  = "InsufficientSpace"
	ReasonPulling            = "Pulling"
	ReasonReady              = "Ready"
	ReasonFailed             = "Failed"
	ReasonInUse              = "InUse"
	ReasonWaiting            = "Waiting"
	ReasonAgentGone          = "AgentGone" // of a NodeCache
)

type DatasetStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	Revision      string       `json:"revision,omitempty"`
	ShortRevision string       `json:"shortRevision,omitempty"` // its first 12 digits
	Objects       int64        `json:"objects,omitempty"`
	Bytes         int64        `json:"bytes,omitempty"`
	Size          string       `json:"size,omitempty"`   // "137.1 GiB"
	Ready         string       `json:"ready,omitempty"`  // "2/3"
	Cached        string       `json:"cached,omitempty"` // "87 %": of what the chosen nodes are to hold
	ListedAt      *metav1.Time `json:"listedAt,omitempty"`

	// +listType=map
	// +listMapKey=name
	Nodes []DatasetNode `json:"nodes,omitempty"`

	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type DatasetNode struct {
	Name      string     `json:"name"`
	Phase     EntryPhase `json:"phase"`
	BytesDone int64      `json:"bytesDone,omitempty"`
	InUse     bool       `json:"inUse,omitempty"`
	Message   string     `json:"message,omitempty"`
}
