//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/porttest"
)

// The examples that need no GPU and no network run on this machine: a grid search as an
// array of jobs and with the Go client.
func TestExamplesOnThisMachine(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	example, err := filepath.Abs("../../examples/grid-search.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.sky("jobs", "launch", "-y", "-d", "-n", "grid", "--num-jobs", "6", "--infra", "local", example)
	want := []string{"rate=0.01 batch=16 ", "rate=0.1 batch=16 ", "rate=0.4 batch=16 ", "rate=0.01 batch=64 ", "rate=0.1 batch=64 ", "rate=0.4 batch=64 "}
	for n, want := range want {
		wants(t, w.sky("jobs", "logs", string(rune('1'+n))), want+"loss=")
	}

	// A port that only this user reaches, as of the notebook's: a plain server in its place.
	port := porttest.Free(t)
	w.sky("launch", "-y", "-d", "-c", "notebook", "--infra", "local", "--", fmt.Sprintf("python3 -m http.server --bind 127.0.0.1 %d", port))
	ssh := func() string {
		c := exec.Command("ssh", "-F", filepath.Join(w.home, ".sky/generated/ssh/notebook"), "-W", fmt.Sprintf("127.0.0.1:%d", port), "notebook")
		c.Env, c.Stdin = w.env, strings.NewReader("GET / HTTP/1.0\r\n\r\n")
		out, _ := c.CombinedOutput()
		return string(out)
	}
	_, noSSH := exec.LookPath("ssh")
	if _, err := exec.LookPath("python3"); err == nil && noSSH == nil {
		eventually(t, "the server answers through ssh", time.Minute, func() bool { return strings.Contains(ssh(), "200 OK") })
	}
	w.sky("down", "-y", "notebook")

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
