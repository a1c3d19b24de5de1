//go:build linux

// Package harness lets tests run the real binary as users do: in a home folder of
// its own, with a real API server, real agents and real processes, on this
// machine, on FluffyCloud, or as several servers on one PostgreSQL.
//
// The test packages test/e2e, test/attack, test/nodes and test/kubernetes are built on it.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Main builds sky as it is released, with an agent for nodes, runs the tests of
// a package, and exits. SKY_E2E_BINARY names a binary to test in its place.
// A package calls it from its TestMain; before runs when the binary is there.
func Main(m *testing.M, before func()) {
	var err error
	if dir, err = os.MkdirTemp("", "sky-e2e-"); err == nil {
		err = build()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	if before != nil {
		before()
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// dir holds the binaries of this run.
var dir string

// Sky is the binary under test.
func Sky() string { return filepath.Join(dir, "sky") }

func build() error {
	if built := os.Getenv("SKY_E2E_BINARY"); built != "" { // whatever it is called
		return os.Symlink(built, Sky())
	}
	for _, args := range [][]string{
		{"run", "../../internal/remote/agents/pack", runtime.GOOS + "/" + runtime.GOARCH},
		{"build", "-tags", "agents", "-o", Sky(), "../../cmd/sky"},
	} {
		if err := goTool(args...); err != nil {
			return err
		}
	}
	return nil
}

// FluffyCloudBinary is fluffycloud, built once; SKY_E2E_FLUFFYCLOUD names one
// that is built already.
var FluffyCloudBinary = sync.OnceValues(func() (string, error) {
	if b := os.Getenv("SKY_E2E_FLUFFYCLOUD"); b != "" {
		return b, nil
	}
	path := filepath.Join(dir, "fluffycloud")
	return path, goTool("build", "-o", path, "../../cmd/fluffycloud")
})

func goTool(args ...string) error {
	c := exec.Command("go", args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Wants reports each text that is missing in out.
func Wants(t testing.TB, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("%q is missing in:\n%s", text, out)
		}
	}
}

// Eventually waits until f holds, at most limit and at least a minute: a limit is a
// guard against hanging and judges no machine.
func Eventually(t testing.TB, what string, limit time.Duration, f func() bool) {
	t.Helper()
	limit = max(limit, time.Minute)
	if !Within(limit, f) {
		t.Fatalf("%s: not within %v", what, limit)
	}
}

// Within reports whether f holds before limit is over.
func Within(limit time.Duration, f func() bool) bool {
	for deadline := time.Now().Add(limit); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// TailOf is the end of a file, at most n bytes, or why it cannot be read.
func TailOf(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-n):])
}

// Lines counts the lines of a file by their text.
func Lines(path string) map[string]int {
	b, _ := os.ReadFile(path)
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		out[strings.TrimSuffix(line, "\n")]++
	}
	return out
}
