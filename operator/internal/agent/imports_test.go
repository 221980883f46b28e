// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The agent is the one part with a folder of the node, so it starts no processes, and opens no files either: a name out
// of a spec goes to the engine, and nowhere else.
func TestTheAgentRunsNothingAndOpensNothing(t *testing.T) {
	folders := map[string][]string{
		".":                        {"os/exec", "syscall", "os", "plugin", "unsafe"},
		"../engine":                {"os/exec", "syscall", "os", "plugin", "unsafe"},
		"../../cmd/penstock-agent": {"os/exec", "plugin", "unsafe"},
	}
	for folder, forbidden := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, imported := range parsed.Imports {
				for _, word := range forbidden {
					if imported.Path.Value == `"`+word+`"` {
						t.Errorf("%s imports %s", file, word)
					}
				}
			}
		}
	}
}
