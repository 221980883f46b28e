// SPDX-License-Identifier: Apache-2.0

// Package manifests renders what is in deploy/ with kustomize and helm, and turns it into objects.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Object is one manifest.
type Object = unstructured.Unstructured

// Root is the repository's folder.
func Root() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..", "..")
}

// Tool is the path of a program that tools/operator_tools.sh has built.
func Tool(name string) (string, error) {
	bin := os.Getenv("PENSTOCK_TOOLS_BIN")
	if bin == "" {
		bin = filepath.Join(Root(), "build-tools", "bin")
	}
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: tools/operator_tools.sh builds it", err)
	}
	return path, nil
}

func render(tool string, args ...string) ([]byte, error) {
	program, err := Tool(tool)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = Root()
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, said.String())
	}
	return out, nil
}

// Script runs a script of the repository.
func Script(path string, args ...string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(Root(), path), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", path, err, out)
	}
	return out, nil
}

// Kustomize renders a folder, named from the repository's root.
func Kustomize(folder string) ([]*Object, error) {
	text, err := render("kustomize", "build", folder)
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// Helm renders the chart as it is installed into penstock-system, its resource definitions included.
func Helm(more ...string) ([]*Object, error) {
	args := []string{"template", "penstock", "deploy/chart", "--namespace", "penstock-system", "--include-crds"}
	text, err := render("helm", append(args, more...)...)
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// Parse splits a stream of manifests; empty ones are dropped.
func Parse(text []byte) ([]*Object, error) {
	var objects []*Object
	stream := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o Object
		err := stream.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, &o)
		}
	}
}

// Key names an object among others.
func Key(o *Object) string {
	return strings.Join([]string{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
}

// Sort puts objects into one order, whoever has rendered them.
func Sort(objects []*Object) {
	slices.SortFunc(objects, func(a, b *Object) int { return strings.Compare(Key(a), Key(b)) })
}
