// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"penstock.dev/operator/api/v1alpha1"
	"penstock.dev/operator/internal/engine"
)

// words are the engine's reasons as a status has them, and how long it may take until the next try.
var words = map[string]struct {
	reason string
	most   time.Duration
}{
	engine.ReasonNoSpace:     {v1alpha1.ReasonInsufficientSpace, retryLong},
	engine.ReasonCredentials: {v1alpha1.ReasonCredentialsInvalid, retryLong},
	engine.ReasonNotFound:    {v1alpha1.ReasonBucketNotFound, retryMost},
	engine.ReasonUnreachable: {v1alpha1.ReasonBucketUnreachable, retryMost},
	engine.ReasonChanging:    {v1alpha1.ReasonChanging, retryMost},
	engine.ReasonGone:        {v1alpha1.ReasonRevisionGone, retryMost},
	engine.ReasonEmpty:       {v1alpha1.ReasonEmpty, retryLong},
	engine.ReasonStopped:     {v1alpha1.ReasonWaiting, retryFirst},
	engine.ReasonInUse:       {v1alpha1.ReasonInUse, retryMost},
}

func reasonOf(word string) (string, time.Duration) {
	if w, ok := words[word]; ok {
		return w.reason, w.most
	}
	return v1alpha1.ReasonFailed, retryMost
}

// trouble is why something does not work, as a status shows it.
type trouble struct {
	reason       string
	message      string
	needed, free int64
	word         string // the engine's; empty: not from the engine
	most         time.Duration
}

const messageMost = 512

func newTrouble(reason, message string, most time.Duration) *trouble {
	if len(message) > messageMost {
		message = message[:messageMost]
	}
	return &trouble{reason: reason, message: message, most: most}
}

func pullTrouble(e *engine.PullError) *trouble {
	reason, most := reasonOf(e.Reason)
	t := newTrouble(reason, e.Message, most)
	t.word, t.needed, t.free = e.Reason, e.NeededBytes, e.FreeBytes
	return t
}

func refusedTrouble(err error) *trouble {
	word := engine.Reason(err)
	reason, most := reasonOf(word)
	t := newTrouble(reason, err.Error(), most)
	t.word = word
	return t
}
