//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/test/harness"
)

// TestAServerIsLostWithItsDisk: the server that took a managed job dies for good.
// The job is finished by others with the files that came through it, and what it
// wrote down, request logs and logs of jobs and controllers, is read through
// every other server, as are logs that a third one gathered for download.
func TestAServerIsLostWithItsDisk(t *testing.T) {
	tm := harness.NewTeam(t, 3)
	w, first := of(tm.Workstation), tm.Servers[0]
	through := func(s *harness.Server) *workstation {
		return w.with("SKYPILOT_API_SERVER_ENDPOINT=" + fmt.Sprint("http://127.0.0.1:", s.Port))
	}
	gate, begun := filepath.Join(tm.Dir, "gate"), filepath.Join(tm.Dir, "begun")
	w.write("proj/hello", "from the workdir\n")
	w.write("conf", "from a mount\n")
	task := w.write("job.yaml", "name: two\n---\nname: early\nresources: {infra: fluffycloud, cpus: 1+}\n"+
		"run: |\n  echo first line\n  touch "+begun+"\n  until [ -e "+gate+" ]; do sleep 0.1; done\n  echo last line\n"+
		"---\nname: late\nresources: {infra: fluffycloud, cpus: 1+}\nworkdir: "+filepath.Join(w.home, "proj")+
		"\nfile_mounts: {/tmp/conf-of-two: "+filepath.Join(w.home, "conf")+"}\nrun: cat hello /tmp/conf-of-two\n")
	through(first).sky("jobs", "launch", "-y", "-d", task)
	eventually(t, "the first task runs", 2*time.Minute, func() bool { _, err := os.Stat(begun); return err == nil })
	// What it printed is on record before the server goes, whichever works on the job.
	eventually(t, "its log is kept", time.Minute, func() bool {
		out, _ := through(first).run("jobs", "logs", "--no-follow", "1")
		return strings.Contains(out, "first line")
	})
	var request string
	if err := tm.Database.One(&request, "SELECT id FROM requests WHERE name = 'sky.jobs.launch'"); err != nil {
		t.Fatal(err)
	}
	tm.Kill(first)
	for _, dir := range []string{first.Home, filepath.Join(w.home, "proj"), filepath.Join(w.home, "conf")} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	wants(t, through(tm.Servers[1]).sky("jobs", "logs", "1"), "first line", "last line", "from the workdir", "from a mount", "SUCCEEDED")
	eventually(t, "its clusters are gone", time.Minute, func() bool { return !strings.Contains(w.sky("status"), "two") })
	logs := map[string]string{}
	for _, s := range tm.Servers[1:] {
		logs["job"] += through(s).sky("jobs", "logs", "--no-follow", "1") + "\x00"
		logs["controller"] += through(s).sky("jobs", "logs", "--controller", "1") + "\x00"
		logs["request"] += through(s).sky("api", "logs", request) + "\x00"
	}
	for of, says := range map[string][]string{
		"job":        {"first line", "last line", "from the workdir", "from a mount"},
		"controller": {"Launching cluster", "SUCCEEDED"},
		"request":    {"Managed job submitted"},
	} {
		one, other, _ := strings.Cut(logs[of], "\x00")
		wants(t, one, says...)
		if strings.TrimSuffix(other, "\x00") != one {
			t.Errorf("the log of the %s differs from server to server:\n%s", of, logs[of])
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	id := 1
	gathered, err := tm.Client(tm.Servers[1]).DownloadJobLogs(ctx, api.JobsDownloadLogsBody{JobID: &id})
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := gathered.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	copies, err := tm.Client(tm.Servers[2]).Download(ctx, []string{dirs["1"]}, w.home)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(copies[dirs["1"]], "task-1-attempt-1.log"))
	if err != nil || !strings.Contains(string(text), "from a mount") {
		t.Errorf("downloaded through another server: %q %v", text, err)
	}
}
