// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"penstock.dev/operator/test/manifests"
)

// stage is a stage of a Containerfile.
type stage struct {
	from, name string
	lines      []string
}

func (s stage) last(word string) string {
	for i := len(s.lines) - 1; i >= 0; i-- {
		if rest, ok := strings.CutPrefix(s.lines[i], word+" "); ok {
			return rest
		}
	}
	return ""
}

func stages(text string) []stage {
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var all []stage
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "FROM "); ok {
			words := strings.Fields(rest)
			one := stage{from: words[0]}
			if len(words) == 3 {
				one.name = words[2]
			}
			all = append(all, one)
		} else if line != "" && len(all) > 0 {
			all[len(all)-1].lines = append(all[len(all)-1].lines, line)
		}
	}
	return all
}

func TestContainerfiles(t *testing.T) {
	files := must[[]string](t)(filepath.Glob(filepath.Join(manifests.Root(), "deploy", "Containerfile.*")))
	if len(files) != 2 {
		t.Fatalf("%d Containerfiles", len(files))
	}
	user, list := regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`), regexp.MustCompile(`^\["/[^"]+"\]$`)
	for _, path := range files {
		file := filepath.Base(path)
		all := stages(string(must[[]byte](t)(os.ReadFile(path))))
		if len(all) < 2 {
			t.Errorf("%s: one stage only", file)
		}
		for i, s := range all {
			if s.from != "scratch" && (!strings.Contains(s.from, ":") || strings.HasSuffix(s.from, ":latest")) {
				t.Errorf("%s: %s is not pinned", file, s.from)
			}
			for _, line := range s.lines {
				if strings.HasPrefix(line, "ADD ") || strings.Contains(line, "curl ") || strings.Contains(line, "sudo ") {
					t.Errorf("%s: %s", file, line)
				}
				if strings.Contains(line, "apt-get install") && (!strings.Contains(line, "--no-install-recommends") ||
					!strings.Contains(line, "rm -rf /var/lib/apt/lists")) {
					t.Errorf("%s: %s", file, line)
				}
				for _, from := range regexp.MustCompile(`COPY ([^-]\S*)(?: \S+)* \S+$`).FindAllStringSubmatch(line, -1) {
					_, err := os.Stat(filepath.Join(manifests.Root(), from[1]))
					if err != nil && !strings.HasPrefix(from[1], "operator/") {
						t.Errorf("%s: %s is not there", file, from[1])
					}
				}
			}
			if i == 0 {
				continue
			}
			if got := s.last("USER"); !user.MatchString(got) {
				t.Errorf("%s: stage %d runs as %q", file, i, got)
			}
			if got := s.last("ENTRYPOINT"); !list.MatchString(got) {
				t.Errorf("%s: stage %d starts %q", file, i, got)
			}
		}
	}
}
