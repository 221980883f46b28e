// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// serve answers on a unix socket as the function says, and returns a client of it.
func serve(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: answer}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return New(socket)
}

func TestRequestsAreAsTheControlSocketWantsThem(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.EscapedPath(), body)))
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{}`)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	ctx := context.Background()
	_, e1 := c.Info(ctx)
	_, e2 := c.Depot(ctx)
	_, e3 := c.Dataset(ctx, "photos-01234567")
	err := errors.Join(e1, e2, e3,
		c.SetLimits(ctx, Limits{LimitBytes: 10, High: 95, Low: 85}),
		c.SetSource(ctx, "photos", Source{URL: "s3://b/p", Region: "us-east-1", AccessKey: "a", SecretKey: "s"}),
		c.DropSource(ctx, "photos"),
		c.Pull(ctx, "photos", PullRequest{Dry: true}),
		c.Pull(ctx, "photos", PullRequest{Revision: "0123", Pin: true, Partial: true}),
		c.Evict(ctx, "photos", ""),
		c.Evict(ctx, "photos", "0123"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`GET /v1/engine`,
		`GET /v1/datasets/`,
		`GET /v1/datasets/photos-01234567`,
		`PUT /v1/datasets/ {"limit_bytes":10,"high":95,"low":85}`,
		`PUT /v1/datasets/photos/source {"url":"s3://b/p","region":"us-east-1","access_key":"a","secret_key":"s"}`,
		`DELETE /v1/datasets/photos/source`,
		`POST /v1/datasets/photos {"revision":"latest","pin":false,"dry":true}`,
		`POST /v1/datasets/photos {"revision":"0123","pin":true,"partial":true}`,
		`DELETE /v1/datasets/photos`,
		`DELETE /v1/datasets/photos@0123`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestANameNeverLeavesItsPlaceInTheURL(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath() })
	_ = c.Pull(context.Background(), "../engine?x=1", PullRequest{})
	if want := "/v1/datasets/..%2Fengine%3Fx=1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnswersAreRead(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"name":"photos","source":true,"revisions":[{"revision":"aa","state":"partial","objects":3,
			"bytes":100,"bytes_here":60,"in_use":true,"pinned":false,"latest":true}],
			"pull":{"running":false,"dry":false,"revision":"aa","objects":3,"objects_done":1,"bytes":100,"bytes_done":60,
			"seconds":1.5,"error":{"reason":"no_space","message":"too small","needed_bytes":40,"free_bytes":7}}}`)
	})
	d, err := c.Dataset(context.Background(), "photos")
	if err != nil {
		t.Fatal(err)
	}
	r := d.Find("aa")
	if r == nil || r.State != StatePartial || r.BytesHere != 60 || !r.InUse || !r.Latest || !d.Source {
		t.Errorf("revision: %+v", r)
	}
	if d.Find("bb") != nil {
		t.Error("a revision that is not there was found")
	}
	if e := d.Pull.Error; Reason(e) != ReasonNoSpace || e.NeededBytes != 40 || e.FreeBytes != 7 {
		t.Errorf("error: %+v", e)
	}
}

func TestRefusalsKeepReasonAndStatus(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/datasets/used":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"error":"a process has it open","reason":"in_use"}`)
		case "/v1/datasets/running":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"error":"a pull of it runs"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `not JSON`)
		}
	})
	ctx := context.Background()
	if err := c.Evict(ctx, "used", ""); !IsInUse(err) || !IsConflict(err) || IsAway(err) {
		t.Errorf("in use: %v", err)
	}
	err := c.Pull(ctx, "running", PullRequest{})
	if IsInUse(err) || !IsConflict(err) || Reason(err) != ReasonOther || !strings.Contains(err.Error(),
		"a pull of it runs") {
		t.Errorf("running: %v", err)
	}
	if _, err := c.Dataset(ctx, "none"); !IsNotFound(err) {
		t.Errorf("none: %v", err)
	}
	if err := c.Evict(ctx, "none", ""); err != nil {
		t.Errorf("evicting what is not there: %v", err)
	}
	if err := c.DropSource(ctx, "none"); err != nil {
		t.Errorf("dropping what is not there: %v", err)
	}
}

func TestAnEngineThatIsAwayIsToldFromOneThatRefuses(t *testing.T) {
	ctx := context.Background()
	if _, err := New(filepath.Join(t.TempDir(), "none.sock")).Info(ctx); !IsAway(err) {
		t.Errorf("no socket: %v", err)
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `<html>`) })
	if _, err := c.Info(ctx); !IsAway(err) {
		t.Errorf("not an engine: %v", err)
	}
	cut := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		_ = conn.Close()
	})
	if err := cut.Pull(ctx, "x", PullRequest{}); !IsAway(err) {
		t.Errorf("cut off: %v", err)
	}
	if IsAway(nil) || IsAway(errors.New("x")) || Reason(errors.New("x")) != "" {
		t.Error("other errors are none of the engine's")
	}
}

func TestARequestEndsWithItsContext(t *testing.T) {
	begun := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := c.Info(ctx); !errors.Is(err, context.Canceled) || !IsAway(err) {
		t.Errorf("got %v", err)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	s := Source{URL: "s3://b/p", AccessKey: "AKIA", SecretKey: "hush", SessionToken: "token"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, s); text != "s3://b/p" {
			t.Errorf("%s: %s", format, text)
		}
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	if err := c.SetSource(context.Background(), "x", s); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
}
