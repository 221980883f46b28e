// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the resources of penstock.dev: Dataset, what people ask for; NodeCache, what a node is to hold
// and holds; CachePool, which nodes take part and how much of their disks.
// +kubebuilder:object:generate=true
// +groupName=penstock.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var GroupVersion = schema.GroupVersion{Group: "penstock.dev", Version: "v1alpha1"}

var builder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Dataset{}, &DatasetList{}, &NodeCache{}, &NodeCacheList{},
		&CachePool{}, &CachePoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

var AddToScheme = builder.AddToScheme
