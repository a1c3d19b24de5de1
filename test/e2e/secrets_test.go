//go:build e2e && linux

package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plantedSecret begins every secret of the scenario.
const plantedSecret = "hunter2planted"

// TestPlantedSecretsAreNowhereInClear runs tasks with secrets to every kind of end
// and looks for the secrets in each file of the server and its nodes, and in the
// arguments and the environment of each process but the jobs' own.
func TestPlantedSecretsAreNowhereInClear(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	own := t.TempDir() // the user's own files hold the user's secrets
	n := 0
	file := func(text string) string {
		n++
		path := filepath.Join(own, fmt.Sprintf("task%d.yaml", n))
		text += fmt.Sprintf("\nenvs:\n  SKYPILOT_DOCKER_USERNAME: u\n  SKYPILOT_DOCKER_SERVER: r.example\n  SKYPILOT_DOCKER_PASSWORD: %sdocker%d\nsecrets:\n  TOKEN: %stoken%d\n", plantedSecret, n, plantedSecret, n)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const has = `case $TOKEN in hunter2p*) echo has it;; esac` // less than the whole word, which no file may hold

	wants(t, w.sky("launch", "-y", "-c", "c1", file("run: "+fmt.Sprintf("%q", has))), "has it")
	w.clear("after a launch")
	w.sky("exec", "-d", "c1", file("run: sleep 1000"))
	w.clear("while a job runs")
	wants(t, w.sky("exec", "c1", file("run: "+fmt.Sprintf("%q", has))), "has it")
	w.run("launch", "-y", "-c", "c2", file("setup: exit 7\nrun: echo never"))
	w.run("launch", "-y", "-c", "c3", file("resources: {cpus: 100000}\nrun: echo never"))
	w.clear("after launches that failed")
	w.sky("cancel", "-y", "c1", "-a")

	w.sky("jobs", "launch", "-y", "-d", "-n", "train", file("name: train\nrun: sleep 1000"))
	w.reaches("1.0", "RUNNING")
	w.clear("while a managed job runs")
	w.preempt("train-1")
	eventually(t, "the job recovers", time.Minute, func() bool { j := w.managed()["1.0"]; return j.Recoveries > 0 && j.Status == "RUNNING" })
	w.killServer()
	w.clear("when the server was killed")
	w.sky("api", "start")
	w.sky("jobs", "launch", "-y", "-d", file("name: later\nschedule: {cron: '0 0 1 1 *'}\nrun: echo later"))
	w.clear("after a schedule")
	w.sky("jobs", "cancel", "-y", "1")
	w.reaches("1.0", "CANCELLED")
	w.done1("1.0")
	w.sky("api", "rotate-key")
	w.sky("api", "dump", filepath.Join(w.home, "dump.tar.gz"))
	w.sky("status")
	w.sky("api", "status", "-a")
	w.clear("at the end")
}

// clear looks for planted secrets everywhere.
func (w *workstation) clear(when string) {
	w.t.Helper()
	err := filepath.WalkDir(w.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // it went meanwhile
		}
		if strings.Contains(path, "/runtime/") { // the program
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(plantedSecret)) {
			i := bytes.Index(b, []byte(plantedSecret))
			w.t.Errorf("%s: %s holds a secret: %q", when, path, b[max(0, i-60):min(len(b), i+40)])
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
	for pid, cmd := range w.processes() {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(environ, []byte("SKY_RANK=")) { // a job's own
			environ = nil
		}
		if strings.Contains(cmd, plantedSecret) || bytes.Contains(environ, []byte(plantedSecret)) {
			w.t.Errorf("%s: process %d shows a secret: %s", when, pid, cmd)
		}
	}
}
