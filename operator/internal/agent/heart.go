// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"penstock.dev/operator/api/v1alpha1"
)

const (
	beatEvery = v1alpha1.HeartbeatSeconds * time.Second
	beatMost  = 5 * time.Second // that a pass waits for it
)

// heart knows when the agent last said that it lives, and whether it was heard.
type heart struct {
	at      time.Time
	refused bool
}

// beat renews the lease when it is time: at the beginning of passes, so that an agent whose passes do not end is no
// longer counted on.
func (a *Agent) beat(ctx context.Context, nc *v1alpha1.NodeCache) {
	now := a.now()
	if !a.heart.refused && now.Sub(a.heart.at) < beatEvery {
		return
	}
	soon, done := context.WithTimeout(ctx, beatMost)
	defer done()
	err := a.Cluster.Renew(soon, nc, now)
	if err != nil && !a.heart.refused {
		a.Log.Info("the lease could not be renewed", "why", err.Error())
	}
	a.heart = heart{at: now, refused: err != nil}
}
