// SPDX-License-Identifier: Apache-2.0

package stand

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Files are keys with their contents.
type Files map[string][]byte

// MakeFiles makes up so many, of about that size each; the same ones for the same seed.
func MakeFiles(seed uint64, count, bytes int) Files {
	drawn := rand.New(rand.NewPCG(seed, 1))
	files := Files{}
	for i := range count {
		content := make([]byte, bytes+drawn.IntN(100))
		for k := range content {
			content[k] = byte(drawn.Uint32())
		}
		files[fmt.Sprintf("class%02d/%05d.bin", i%3, i)] = content
	}
	return files
}

// Bytes of all of them.
func (f Files) Bytes() int64 {
	var sum int64
	for _, content := range f {
		sum += int64(len(content))
	}
	return sum
}

// Write puts them into a folder.
func (f Files) Write(folder string) error {
	for key, content := range f {
		path := filepath.Join(folder, key)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Same compares a folder with them, byte by byte: nothing is missing, nothing else is there.
func (f Files) Same(folder string) error {
	found := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		key, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		want, known := f[key]
		if !known {
			return fmt.Errorf("%s is not of the bucket", key)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s is another one than in the bucket", key)
		}
		found++
		return nil
	})
	if err == nil && found != len(f) {
		err = fmt.Errorf("%d files of %d", found, len(f))
	}
	return err
}

// Found are the keys that lie in a folder with their whole content.
func (f Files) Found(folder string) ([]string, error) {
	var out []string
	for key, want := range f {
		got, err := os.ReadFile(filepath.Join(folder, key))
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		if err == nil && bytes.Equal(got, want) {
			out = append(out, key)
		}
	}
	return out, nil
}

// Holds asks whether there is a folder of a dataset, or that there is none.
func (n *Node) Holds(depot string, want bool) error {
	_, err := os.Stat(filepath.Join(n.Cache, "datasets", depot))
	if is := err == nil; is != want {
		return fmt.Errorf("%s on %s: it is there: %v", depot, n.Name, is)
	}
	return nil
}

// Use holds a revision as a process does that reads it. Close lets go.
func (n *Node) Use(depot, revision string) (*os.File, error) {
	lock, err := os.Open(filepath.Join(n.Cache, "datasets", depot, revision, ".lock"))
	if err != nil {
		return nil, err
	}
	shared := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &shared); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}
