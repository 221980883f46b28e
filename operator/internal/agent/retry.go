// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math/rand/v2"
	"time"
)

const (
	retryFirst = time.Second
	retryMost  = 15 * time.Second // a bucket that answers again is noticed within this
	retryLong  = time.Minute      // where only somebody else can help, and each try lists the bucket
)

// retry says when something is tried again: later each time, and not by all nodes at once.
type retry struct {
	tries int
	next  time.Time
}

// failed counts a failure.
func (r *retry) failed(now time.Time, most time.Duration) {
	wait := retryFirst << min(r.tries, 10)
	r.tries++
	r.next = now.Add(jitter(min(wait, most)))
}

// forgive lets it be tried at once: something changed.
func (r *retry) forgive() { *r = retry{} }

func (r *retry) due(now time.Time) bool { return !now.Before(r.next) }

// jitter is between three quarters of it and all of it.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}
