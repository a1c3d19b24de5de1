//go:build e2e && linux

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestTasksThatDependOnEachOther runs a diamond whose one branch fails: the
// branches run at the same time, what needs both does not run.
func TestTasksThatDependOnEachOther(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	log := w.write("log", "")
	meet := w.home + "/meet"
	if err := os.Mkdir(meet, 0o700); err != nil {
		t.Fatal(err)
	}
	// Each branch waits until both have begun.
	branch := func(name string, code int) string {
		return fmt.Sprintf("name: %s\ndepends_on: [top]\nrun: |\n  touch %s/%[1]s\n  until [ $(ls %[2]s | wc -l) = 2 ]; do sleep 0.05; done\n  echo %[1]s >> %[3]s; exit %d\n", name, meet, log, code)
	}
	good := w.write("good.yaml", "name: good\n---\nname: end\ndepends_on: [left, right]\nrun: echo end >> "+log+"\n---\n"+
		branch("left", 0)+"---\n"+branch("right", 0)+"---\nname: top\ndepends_on: []\nrun: echo top >> "+log+"\n")
	w.sky("jobs", "launch", "-y", "-d", good)
	w.done("1.0")
	all := w.managed()
	for i := range 4 {
		if got := all[fmt.Sprintf("1.%d", i)].Status; got != "SUCCEEDED" {
			t.Errorf("task %d is %s", i, got)
		}
	}
	got, _ := os.ReadFile(log)
	lines := strings.Fields(string(got))
	if len(lines) != 4 || lines[0] != "top" || lines[3] != "end" {
		t.Errorf("ran as %q", lines)
	}

	os.RemoveAll(meet)
	os.Mkdir(meet, 0o700)
	bad := w.write("bad.yaml", "name: bad\n---\nname: end\ndepends_on: [left, right]\nrun: echo end\n---\n"+
		branch("left", 0)+"---\n"+branch("right", 3)+"---\nname: top\ndepends_on: []\nrun: echo top\n")
	w.fails(100, []string{"FAILED"}, "jobs", "launch", "-y", bad)
	w.done("2.0")
	all = w.managed()
	for i, want := range []string{"CANCELLED", "SUCCEEDED", "FAILED", "SUCCEEDED"} {
		if got := all[fmt.Sprintf("2.%d", i)].Status; got != want {
			t.Errorf("task %d is %s, want %s", i, got, want)
		}
	}

	circle := w.write("circle.yaml", "name: c\n---\nname: a\ndepends_on: b\nrun: echo\n---\nname: b\ndepends_on: [a]\nrun: echo\n")
	w.fails(1, []string{"circle.yaml:4:13", "a → b → a"}, "jobs", "launch", "-y", circle)
}

func TestAJobThatTakesTooLongIsEnded(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	task := w.write("task.yaml", "name: slow\nmax_duration: 2s\nrun: echo begun; sleep 1000\n")
	start := time.Now()
	w.fails(100, []string{"begun", "max_duration of 2s is over", "FAILED"}, "jobs", "launch", "-y", task)
	t.Logf("ended after %v", time.Since(start))
	if j := w.done("1.0"); j.Status != "FAILED" || !strings.Contains(j.Failure, "max_duration") {
		t.Errorf("%+v", j)
	}
}
