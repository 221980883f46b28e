// SPDX-License-Identifier: Apache-2.0

// Package engine talks to a daemon (penstock serve) over its control socket. The operator asks its own about buckets;
// the agent makes its node's hold what it should. A Client has no state and may be used by several goroutines.
package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// An engine answers from memory, but its disk may be busy and the listing of a large depot takes a while.
	timeoutDefault = 30 * time.Second
	// A depot of a thousand datasets is about a megabyte.
	answerMost = 64 << 20
)

// Client of one engine.
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client of the engine whose control socket is given. Nothing is connected yet.
func New(socket string) *Client {
	dialer := &net.Dialer{Timeout: timeoutDefault}
	return &Client{
		socket: socket,
		http: &http.Client{
			Timeout: timeoutDefault,
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, "unix", socket)
				},
				// The daemon closes idle connections after seconds; a POST that meets this must not be guessed about.
				DisableKeepAlives: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Socket is where the engine is asked.
func (c *Client) Socket() string { return c.socket }

// Info asks the engine who it is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var out Info
	err := c.do(ctx, http.MethodGet, "/v1/engine", nil, &out)
	return out, err
}

// SetLimits says how much of the disk datasets may take.
func (c *Client) SetLimits(ctx context.Context, l Limits) error {
	return c.do(ctx, http.MethodPut, "/v1/datasets/", l, nil)
}

// Depot lists everything on the disk.
func (c *Client) Depot(ctx context.Context) (Depot, error) {
	var out struct {
		Depot
		Taken *int64 `json:"taken_bytes"`
		Free  *int64 `json:"free_bytes"`
	}
	err := c.do(ctx, http.MethodGet, "/v1/datasets/", nil, &out)
	out.complete(out.Taken, out.Free)
	return out.Depot, err
}

// SetSource says where a dataset comes from, with what opens it, and makes its folder.
func (c *Client) SetSource(ctx context.Context, name string, s Source) error {
	return c.do(ctx, http.MethodPut, path(name)+"/source", s, nil)
}

// DropSource makes the engine forget where a dataset comes from. One that it does not know is no error.
func (c *Client) DropSource(ctx context.Context, name string) error {
	return missingIsFine(c.do(ctx, http.MethodDelete, path(name)+"/source", nil, nil))
}

// Pull begins a pull and does not wait for its end. A conflict (IsConflict) means that one runs already.
func (c *Client) Pull(ctx context.Context, name string, r PullRequest) error {
	if r.Revision == "" {
		r.Revision = "latest"
	}
	return c.do(ctx, http.MethodPost, path(name), r, nil)
}

// Dataset shows one dataset. IsNotFound: the engine knows nothing of it.
func (c *Client) Dataset(ctx context.Context, name string) (Dataset, error) {
	var out Dataset
	err := c.do(ctx, http.MethodGet, path(name), nil, &out)
	return out, err
}

// Evict stops a pull that runs, and takes the dataset (or, unless empty, that revision of it) from the disk. One that
// is not there is no error; IsInUse: some process has it open.
func (c *Client) Evict(ctx context.Context, name, revision string) error {
	at := path(name)
	if revision != "" {
		at += "@" + url.PathEscape(revision)
	}
	return missingIsFine(c.do(ctx, http.MethodDelete, at, nil, nil))
}

func path(name string) string { return "/v1/datasets/" + url.PathEscape(name) }

func missingIsFine(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// do sends one request. Bodies may hold keys, so no error contains them.
func (c *Client) do(ctx context.Context, method, at string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("engine: %s %s: %w", method, at, err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://penstock"+at, body)
	if err != nil {
		return fmt.Errorf("engine: %s %s: %w", method, at, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return &AwayError{Socket: c.socket, Cause: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerMost))
	if err != nil {
		return &AwayError{Socket: c.socket, Cause: err}
	}
	if res.StatusCode/100 != 2 {
		return refused(method, at, res.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return &AwayError{Socket: c.socket, Cause: fmt.Errorf("%s %s: no answer of an engine: %w", method, at, err)}
	}
	return nil
}

func refused(method, at string, status int, text []byte) error {
	e := &RefusedError{Method: method, Path: at, Status: status}
	var said struct{ Error, Reason string }
	if json.Unmarshal(text, &said) == nil {
		e.Message, e.Reason = said.Error, said.Reason
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	if e.Reason == "" {
		e.Reason = ReasonOther
	}
	return e
}
