package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/diskspace/disktest"
)

// smallDisk mounts a file system of a few MiB on a node's home.
func smallDisk(t *testing.T, n *testNode) {
	t.Helper()
	keep := t.TempDir()
	dir := filepath.Join(n.home, ".sky", "agent")
	if err := os.CopyFS(keep, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", n.home, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(n.home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(keep)); err != nil {
		t.Fatal(err)
	}
}

// With a full disk nothing new is accepted, what runs goes on, and nothing that
// was accepted or printed is lost.
func TestFullDisk(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	n := c.nodes[0]
	n.stop()
	smallDisk(t, n)
	t.Cleanup(func() { n.stop() }) // before the disk goes
	n.runHere()
	c.configure()

	gate := filepath.Join(t.TempDir(), "gate")
	runs := c.submit(agentapi.JobSpec{Run: fmt.Sprintf("seq 1 1000; while [ ! -e %s ]; do sleep 0.05; done; exit 5", gate)})
	c.await(runs, "printing", func(*agentapi.Job) bool { return strings.Contains(c.logNow(runs), ") 1000\n") })
	full := filepath.Join(n.home, "full")
	disktest.Fill(t, full)

	refused := 0
	for i := range 5 { // the queue's file may have some room of its own
		_, err := c.head.Submit(t.Context(), agentapi.SubmitRequest{Key: fmt.Sprintf("full-%d", i), Epoch: 1, Spec: agentapi.JobSpec{Run: "true # " + strings.Repeat("x", 50_000)}})
		if isCode(err, agentapi.CodeNoSpace) {
			refused++
		} else if err != nil {
			t.Errorf("submit on a full disk: %v", err)
		}
	}
	if refused == 0 {
		t.Error("no submit was refused")
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	log := c.follow(runs)
	if job := c.job(runs); job.Status != api.JobFailed || job.ExitCodes[0] != 5 {
		t.Errorf("job: %s", mustJSON(job))
	}
	if got := output(log); len(got) != 1000 || !strings.Contains(log, "Return codes by rank: [5]") {
		t.Errorf("%d lines:\n%.300s", len(got), log)
	}
	if next := c.submit(agentapi.JobSpec{Run: "true"}); c.awaitEnd(next).Status != api.JobSucceeded {
		t.Error("the queue does not work after all")
	}
}
