// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"net/http"
)

// Reasons that an engine gives, of refused requests and of failed pulls.
const (
	ReasonNoSpace     = "no_space"
	ReasonCredentials = "credentials"
	ReasonNotFound    = "not_found"
	ReasonUnreachable = "unreachable"
	ReasonChanging    = "changing"
	ReasonGone        = "gone" // the revision is not what the bucket holds
	ReasonEmpty       = "empty"
	ReasonDamaged     = "damaged"
	ReasonIO          = "io"
	ReasonStopped     = "stopped"
	ReasonInUse       = "in_use"
	ReasonOther       = "other"
)

// RefusedError is an answer that is not 2xx: the engine is there and says no.
type RefusedError struct {
	Method, Path string
	Status       int
	Reason       string
	Message      string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("engine: %s %s: %d: %s", e.Method, e.Path, e.Status, e.Message)
}

// AwayError means that nobody answers on the socket, or not in time, or not as an engine does.
type AwayError struct {
	Socket string
	Cause  error
}

func (e *AwayError) Error() string { return fmt.Sprintf("engine: %s: %v", e.Socket, e.Cause) }
func (e *AwayError) Unwrap() error { return e.Cause }

// IsAway tells whether the engine could not be asked at all.
func IsAway(err error) bool {
	var away *AwayError
	return errors.As(err, &away)
}

// IsNotFound tells whether the engine has no such dataset.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict tells whether something else comes first: a pull that runs, or somebody who reads.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

// IsInUse tells whether a process has the dataset open.
func IsInUse(err error) bool { return Reason(err) == ReasonInUse }

// Reason is the engine's word for a refused request or a failed pull; empty for any other error.
func Reason(err error) string {
	var refused *RefusedError
	var pull *PullError
	switch {
	case errors.As(err, &refused):
		return refused.Reason
	case errors.As(err, &pull):
		return pull.Reason
	}
	return ""
}

func hasStatus(err error, status int) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Status == status
}
