// SPDX-License-Identifier: Apache-2.0

package engine

// Info is what an engine says about itself.
type Info struct {
	Version  string `json:"version"`
	Protocol int32  `json:"protocol"`
	Instance string `json:"instance"` // another one after each start: sources have to be said again
}

// Limits of the datasets' folder. Percentages are of LimitBytes.
type Limits struct {
	LimitBytes int64 `json:"limit_bytes"` // 0: what the file system has
	High       int32 `json:"high"`
	Low        int32 `json:"low"`
}

// Depot is everything that lies on the engine's disk.
type Depot struct {
	LimitBytes    int64      `json:"limit_bytes"`
	CapacityBytes int64      `json:"capacity_bytes"` // the limit, or what the file system has
	TakenBytes    int64      `json:"taken_bytes"`    // with what running pulls have reserved
	FreeBytes     int64      `json:"free_bytes"`     // what one more could have without anything being evicted
	Revisions     []Revision `json:"revisions"`
	Pulls         []Pull     `json:"pulls"`
}

// complete reckons what an engine of another version does not say.
func (d *Depot) complete(taken, free *int64) {
	d.TakenBytes, d.FreeBytes = 0, 0
	for i := range d.Revisions {
		d.TakenBytes += d.Revisions[i].BytesHere
	}
	if taken != nil {
		d.TakenBytes = *taken
	}
	d.CapacityBytes = max(d.CapacityBytes, d.LimitBytes)
	d.FreeBytes = max(d.CapacityBytes-d.TakenBytes, 0)
	if free != nil {
		d.FreeBytes = *free
	}
}

// Source is a bucket and what opens it. It is never printed: see String.
type Source struct {
	URL          string `json:"url"` // s3://BUCKET/PREFIX or http(s)://...
	Endpoint     string `json:"endpoint,omitempty"`
	Region       string `json:"region,omitempty"`
	PathStyle    bool   `json:"path_style,omitempty"`
	AccessKey    string `json:"access_key,omitempty"`
	SecretKey    string `json:"secret_key,omitempty"`
	SessionToken string `json:"session_token,omitempty"`
}

// String keeps keys out of logs.
func (s Source) String() string { return s.URL }

// GoString keeps keys out of logs, too.
func (s Source) GoString() string { return s.URL }

// PullRequest begins a pull. An empty revision is the latest one.
type PullRequest struct {
	Revision string `json:"revision,omitempty"`
	Pin      bool   `json:"pin"`               // always said: left out, a pin that is there stays
	Dry      bool   `json:"dry,omitempty"`     // lists and hashes, fetches nothing
	Partial  bool   `json:"partial,omitempty"` // as much as fits
	Check    bool   `json:"check,omitempty"`   // what is there is read again
}

// States of a revision.
const (
	StateComplete   = "complete"
	StatePartial    = "partial"
	StatePulling    = "pulling"
	StateIncomplete = "incomplete"
)

// Revision of a dataset on the disk.
type Revision struct {
	Name      string `json:"name,omitempty"` // in a Depot only
	Revision  string `json:"revision"`
	State     string `json:"state"`
	Objects   int64  `json:"objects"`
	Bytes     int64  `json:"bytes"`
	BytesHere int64  `json:"bytes_here"`
	InUse     bool   `json:"in_use"`
	Pinned    bool   `json:"pinned"`
	Latest    bool   `json:"latest"`
}

// Pull that runs, or the last one of a dataset.
type Pull struct {
	Name        string     `json:"name,omitempty"` // in a Depot only
	Running     bool       `json:"running"`
	Dry         bool       `json:"dry"`
	Revision    string     `json:"revision"`
	Objects     int64      `json:"objects"`
	ObjectsDone int64      `json:"objects_done"`
	Bytes       int64      `json:"bytes"`
	BytesDone   int64      `json:"bytes_done"`
	Seconds     float64    `json:"seconds"`
	Error       *PullError `json:"error"`
}

// PullError says why a pull failed.
type PullError struct {
	Reason      string `json:"reason"`
	Message     string `json:"message"`
	NeededBytes int64  `json:"needed_bytes"`
	FreeBytes   int64  `json:"free_bytes"`
}

func (e *PullError) Error() string { return e.Message }

// Dataset on the disk: its revisions and its last pull.
type Dataset struct {
	Name      string     `json:"name"`
	Revisions []Revision `json:"revisions"`
	Pull      *Pull      `json:"pull"`
	Source    bool       `json:"source"` // the engine knows where it comes from
}

// Find returns the revision, or nil.
func (d *Dataset) Find(revision string) *Revision {
	for i := range d.Revisions {
		if d.Revisions[i].Revision == revision {
			return &d.Revisions[i]
		}
	}
	return nil
}
