// SPDX-License-Identifier: Apache-2.0

package stand

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"penstock.dev/operator/test/manifests"
	"penstock.dev/operator/test/rig"
)

// Faultd is a bucket that fails as it is told: tests/faultd.
type Faultd struct {
	URL     string
	Process *rig.Process
}

// Rule as faultd's README.md has it.
type Rule struct {
	Name  string         `json:"name,omitempty"`
	Match map[string]any `json:"match"`
	Do    map[string]any `json:"do"`
}

// StartFaultd starts one; name is for its log.
func StartFaultd(ctx context.Context, r *rig.Rig, name string) (*Faultd, error) {
	program := filepath.Join(manifests.Root(), "tests", "faultd", "faultd.py")
	p, err := r.Run(name, nil, "/usr/bin/python3", program)
	if err != nil {
		return nil, err
	}
	f := &Faultd{Process: p}
	return f, rig.Eventually(ctx, func(context.Context) error {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(text), "\n") {
			var said struct{ HTTP int }
			if json.Unmarshal([]byte(line), &said) == nil && said.HTTP > 0 {
				f.URL = fmt.Sprintf("http://127.0.0.1:%d", said.HTTP)
				return nil
			}
		}
		return fmt.Errorf("faultd has not said its port: %s", text)
	})
}

// control posts a word; see faultd's README.md.
func (f *Faultd) control(word string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := http.Post(f.URL+"/__faultd/"+word, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("faultd: %s: %s", word, said)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(said, out)
}

// Folder makes a bucket of a folder.
func (f *Faultd) Folder(bucket, folder string) error {
	return f.control("bucket/"+bucket, map[string]any{"folder": folder}, nil)
}

// Rules replaces all rules.
func (f *Faultd) Rules(rules ...Rule) error {
	if rules == nil {
		rules = []Rule{}
	}
	return f.control("rules", rules, nil)
}

// Hold lets a bucket's first gets pass and the rest come so slowly that no pull ends before other rules are set; what
// is on its way then comes at once. However slow the machine is, a test is in time to do something in the middle.
// Objects have to be of 100 KB or so: below 1 KB a second the engine would give such a transfer up.
func Hold(bucket string, first int) Rule {
	rest := make([]int, 5000)
	for i := range rest {
		rest[i] = first + 1 + i
	}
	return Rule{Match: map[string]any{"bucket": bucket, "op": "get", "nth": rest},
		Do: map[string]any{"bandwidth": 1500, "until_rules": true}}
}

// Refuse has every request answered with that status.
func Refuse(status int) Rule {
	return Rule{Match: map[string]any{}, Do: map[string]any{"status": status}}
}

// ReplaceAtFirstGet gives that object another content as soon as any of the bucket was asked for.
func ReplaceAtFirstGet(bucket, key string) Rule {
	return Rule{Match: map[string]any{"bucket": bucket, "op": "get", "nth": 1},
		Do: map[string]any{"replace": map[string]any{"key": key}}}
}

// NoKeys lets everybody in.
func (f *Faultd) NoKeys() error { return f.control("keys", map[string]any{}, nil) }

// Keys says whose signatures are good.
func (f *Faultd) Keys(access, secret string) error {
	return f.control("keys", map[string]any{access: map[string]any{"secret": secret}}, nil)
}

// Replace gives an object another content, and so another ETag.
func (f *Faultd) Replace(bucket, key string) error {
	return f.control("replace", map[string]any{"bucket": bucket, "key": key}, nil)
}

// Stats of requests since Reset.
type Stats struct {
	Requests map[string]int64 `json:"requests"`
	Statuses map[string]int64 `json:"statuses"`
	Bytes    int64            `json:"bytes"`
}

func (f *Faultd) Stats() (Stats, error) {
	var s Stats
	err := f.control("stats", nil, &s)
	return s, err
}

// Asked are the keys of a bucket that were asked for since Reset.
func (f *Faultd) Asked(bucket string) (map[string]bool, error) {
	var log []struct{ Op, Bucket, Key string }
	err := f.control("log", nil, &log)
	out := map[string]bool{}
	for _, one := range log {
		if one.Op == "get" && one.Bucket == bucket {
			out[one.Key] = true
		}
	}
	return out, err
}

func (f *Faultd) Reset() error { return f.control("reset", nil, nil) }
