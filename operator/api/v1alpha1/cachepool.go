// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CachePool says which nodes hold datasets, and how much of their disks. A node that several pools choose belongs to
// the one whose name comes first.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cpool,categories=penstock
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyNodes`
// +kubebuilder:printcolumn:name="Limit",type=string,JSONPath=`.spec.storageLimit`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CachePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CachePoolSpec   `json:"spec,omitempty"`
	Status CachePoolStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true
type CachePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CachePool `json:"items"`
}

// +kubebuilder:validation:XValidation:rule="self.lowWatermark < self.highWatermark",message="lowWatermark is below highWatermark"
type CachePoolSpec struct {
	// Nodes with all of these labels; empty: every node that runs the agent.
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Bytes that datasets may take on a node; empty: what the file system has.
	// +kubebuilder:validation:XValidation:rule="quantity(self).isGreaterThan(quantity('1Mi')) && quantity(self).isLessThan(quantity('1Ei'))",message="storageLimit is between 1Mi and 1Ei"
	StorageLimit *resource.Quantity `json:"storageLimit,omitempty"`

	// Percent of the limit above which a pull evicts others, and down to which.
	// +kubebuilder:default=95
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=100
	HighWatermark int32 `json:"highWatermark,omitempty"`
	// +kubebuilder:default=85
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	LowWatermark int32 `json:"lowWatermark,omitempty"`
}

type CachePoolStatus struct {
	Nodes      int32 `json:"nodes,omitempty"`
	ReadyNodes int32 `json:"readyNodes,omitempty"`
}
