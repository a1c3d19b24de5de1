//go:build e2e && linux

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The examples that need no GPU and no network run on this machine: a grid search as an
// array of jobs and with the Go client.
func TestExamplesOnThisMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	example, err := filepath.Abs("../../examples/grid-search.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.sky("jobs", "launch", "-y", "-d", "-n", "grid", "--num-jobs", "6", "--infra", "local", example)
	want := []string{"rate=0.01 batch=16 ", "rate=0.1 batch=16 ", "rate=0.4 batch=16 ", "rate=0.01 batch=64 ", "rate=0.1 batch=64 ", "rate=0.4 batch=64 "}
	for n, want := range want {
		wants(t, w.sky("jobs", "logs", string(rune('1'+n))), want+"loss=")
	}

	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "gridsearch")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "../../examples/gridsearch").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := exec.CommandContext(ctx, program, "-infra", "local")
	c.Env, c.Dir = w.env, w.home
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "best: rate ") || strings.Count(string(out), ": loss ") != 6 {
		t.Errorf("%v\n%s", err, out)
	}
}
