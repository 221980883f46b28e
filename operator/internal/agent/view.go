// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"penstock.dev/operator/internal/engine"
)

// view is what the engine holds at the beginning of a pass.
type view struct {
	depot    engine.Depot
	datasets map[string]*engine.Dataset
}

// look asks for everything in one request, however many datasets there are.
func look(ctx context.Context, from Engine) (*view, error) {
	depot, err := from.Depot(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{depot: depot, datasets: map[string]*engine.Dataset{}}
	for _, r := range depot.Revisions {
		d := v.of(r.Name)
		d.Revisions = append(d.Revisions, r)
	}
	for i := range depot.Pulls {
		v.of(depot.Pulls[i].Name).Pull = &depot.Pulls[i]
	}
	return v, nil
}

func (v *view) of(name string) *engine.Dataset {
	if v.datasets[name] == nil {
		v.datasets[name] = &engine.Dataset{Name: name}
	}
	return v.datasets[name]
}

// inUse tells whether some process has any revision of it open.
func inUse(d *engine.Dataset) bool {
	for i := range d.Revisions {
		if d.Revisions[i].InUse {
			return true
		}
	}
	return false
}

// capacity is what datasets may take, all together.
func (v *view) capacity() int64 {
	if v.depot.CapacityBytes > 0 {
		return v.depot.CapacityBytes
	}
	return v.depot.TakenBytes + v.depot.FreeBytes
}
