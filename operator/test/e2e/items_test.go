// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// items are the objects of a list.
func items(list client.ObjectList) ([]client.Object, error) {
	found, err := meta.ExtractList(list)
	out := make([]client.Object, 0, len(found))
	for _, o := range found {
		out = append(out, o.(client.Object))
	}
	return out, err
}
