//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// content is an object's.
func (s *s3) content(bucket, key string) string {
	s.t.Helper()
	r, err := s.Bucket(bucket).Get(s.t.Context(), key, storage.GetOptions{})
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

// mountsBelow are the mounts of sky-mount below a folder.
func mountsBelow(t testing.TB, dir string) (out []string) {
	t.Helper()
	for _, line := range strings.Split(read(t, "/proc/self/mountinfo"), "\n") {
		f := strings.Fields(line)
		if len(f) > 4 && strings.Contains(line, " - fuse.sky ") && strings.HasPrefix(f[4], dir) {
			out = append(out, f[4])
		}
	}
	return out
}

func needFUSE(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	f.Close()
}

// What one job writes to a mounted bucket, the next one reads, on all nodes; what is in the
// bucket stays when the cluster goes.
func TestMountedBuckets(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	s := newS3(t)
	w := s.user(newWorkstation(t))
	s.put("theirs", "set/a.txt", "A")
	src := filepath.Dir(w.write("src/one.txt", "1"))
	task := func(run string) string {
		return w.write("task.yaml", fmt.Sprintf(`
resources: {infra: local}
num_nodes: 2
file_mounts:
  ~/theirs: {source: s3://theirs, config: {mount: {read_only: true}}}
  ~/out: {name: results-1, store: s3}
  ~/in: {name: inputs-1, store: s3, source: %s}
  ~/gone: {name: scratch-1, store: s3, persistent: false, mode: MOUNT_CACHED}
run: |
  set -e
  %s
`, src, strings.ReplaceAll(run, "\n", "\n  ")))
	}
	out := w.sky("launch", "-y", "-c", "c", task(`cat ~/theirs/set/a.txt ~/in/one.txt
if touch ~/theirs/x; then exit 9; fi
echo from $SKYPILOT_NODE_RANK > ~/out/rank-$SKYPILOT_NODE_RANK
echo cached > ~/gone/rank-$SKYPILOT_NODE_RANK`))
	wants(t, out, "Bucket s3://theirs is mounted at ~/theirs; nodes get the server's own credentials", "✓ Mounted s3://results-1 at ~/out on 2 nodes (MOUNT)",
		"✓ Mounted s3://theirs at ~/theirs on 2 nodes (MOUNT, read-only)", "✓ Mounted s3://scratch-1 at ~/gone on 2 nodes (MOUNT_CACHED)", "SUCCEEDED")
	for rank := range 2 {
		if got, want := s.content("results-1", fmt.Sprint("rank-", rank)), fmt.Sprintf("from %d\n", rank); got != want {
			t.Errorf("rank %d: the bucket has %q", rank, got)
		}
		// The barrier of the job: what it wrote into the cache is in the bucket.
		if got := s.content("scratch-1", fmt.Sprint("rank-", rank)); got != "cached\n" {
			t.Errorf("rank %d: the bucket of the cached mount has %q", rank, got)
		}
	}
	// The next job, by another launch and by exec, on what is mounted already.
	wants(t, w.sky("launch", "-y", "-c", "c", task("cat ~/out/rank-0 ~/out/rank-1 > ~/out/both-$SKYPILOT_NODE_RANK")), "SUCCEEDED")
	if got := s.content("results-1", "both-1"); got != "from 0\nfrom 1\n" {
		t.Errorf("the second job read %q", got)
	}
	wants(t, w.sky("exec", "c", "cat ~/out/both-0"), "from 1", "SUCCEEDED")
	if got := mountsBelow(t, w.home); len(got) != 8 {
		t.Errorf("mounted: %v", got)
	}
	// No secret is on the disk.
	_ = filepath.WalkDir(filepath.Join(w.home, ".sky"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "the-secret-key") {
				t.Errorf("%s holds the secret key", path)
			}
		}
		return nil
	})
	// Files of a job that cannot be stored fail it, and are named.
	w.sky("down", "-y", "c")
	if got := mountsBelow(t, w.home); len(got) > 0 {
		t.Errorf("mounted after down: %v", got)
	}
	if got := s.content("results-1", "rank-1"); got != "from 1\n" {
		t.Errorf("after down the bucket has %q", got)
	}
	eventually(t, "the bucket that was not to outlive its cluster is gone", time.Minute, func() bool { return !s.exists("scratch-1") })
	for _, b := range []string{"theirs", "results-1", "inputs-1"} {
		if !s.exists(b) {
			t.Errorf("bucket %s is gone", b)
		}
	}
}

// helpers are the processes that hold the mounts of a workstation's nodes.
func (w *workstation) helpers() (out []int) {
	for pid, dir := range w.processes() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if args := strings.Split(string(line), "\x00"); err == nil && strings.HasPrefix(dir, w.home) && len(args) > 2 && args[len(args)-3] == "mount" {
			out = append(out, pid)
		}
	}
	return out
}

func kill(t testing.TB, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Error("nothing to kill")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone with another one
	}
}

// What a job has closed in a cached mount is in the bucket before the job has succeeded,
// whichever processes die meanwhile.
func TestCachedMountsSurviveKills(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	s := newS3(t)
	w := s.user(newWorkstation(t))
	const mount = "resources: {infra: local}\nfile_mounts:\n  ~/ckpt: {name: ckpts-1, store: s3, mode: MOUNT_CACHED, type: MODEL_CHECKPOINT_RW}\n"
	w.sky("launch", "-y", "-c", "c", w.write("task.yaml", mount+"run: ls ~/ckpt\n"))
	write := "run: |\n  set -e\n  mkdir -p ~/ckpt/$N\n  for i in 1 2 3 4 5; do echo $N-$i > ~/ckpt/$N/$i; done\n  head -c 20000000 /dev/zero | tr '\\0' x > ~/ckpt/$N/big\n  echo written\n"
	status := func(id int) string {
		out := w.stdout("queue", "c", "-o", "json")
		var jobs map[string][]struct {
			ID     int    `json:"job_id"`
			Status string `json:"status"`
		}
		if json.Unmarshal([]byte(out), &jobs) != nil {
			return out
		}
		for _, list := range jobs {
			for _, j := range list {
				if j.ID == id {
					return j.Status
				}
			}
		}
		return out
	}
	for n, deaths := range [][]func(){
		{},
		{func() { kill(t, w.helpers()) }},
		{func() { kill(t, w.agents()) }},
		{w.killServer},
		{func() { kill(t, w.agents()) }, func() { kill(t, w.helpers()) }}, // nobody on the node knows the credentials any more
		{w.killServer, func() { kill(t, w.helpers()) }, func() { kill(t, w.agents()) }},
	} {
		s.refuse.Store(503)
		id := n + 2
		w.sky("exec", "-d", "--env", fmt.Sprint("N=", n), "c", w.write("task.yaml", "envs: {N: null}\n"+mount+write))
		eventually(t, "the job has written", 2*time.Minute, func() bool {
			out, _ := w.run("logs", "c", fmt.Sprint(id), "--no-follow")
			return strings.Contains(out, "written") && strings.Contains(out, "still uploading")
		})
		if got := status(id); got != "RUNNING" {
			t.Errorf("deaths %d: the job is %s although nothing is uploaded", n, got)
		}
		eventually(t, "the status says what is not uploaded", 2*time.Minute, func() bool {
			out, _ := w.run("status")
			return strings.Contains(out, " files are not in the mounted buckets yet (")
		})
		for _, die := range deaths {
			die()
		}
		w.sky("status") // a server that died is started again
		s.refuse.Store(0)
		eventually(t, "the job has succeeded", 4*time.Minute, func() bool { return status(id) == "SUCCEEDED" })
		for i := 1; i <= 5; i++ {
			if got := s.content("ckpts-1", fmt.Sprintf("%d/%d", n, i)); got != fmt.Sprintf("%d-%d\n", n, i) {
				t.Errorf("deaths %d, file %d: the bucket has %q", n, i, got)
			}
		}
		if got := s.content("ckpts-1", fmt.Sprintf("%d/big", n)); got != strings.Repeat("x", 20000000) {
			t.Errorf("deaths %d: the bucket has %d bytes of the big file", n, len(got))
		}
	}
	// What cannot be stored fails the job, and is named.
	s.refuse.Store(403)
	out, code := w.run("exec", "--env", "N=lost", "c", w.write("task.yaml", "envs: {N: null}\n"+mount+write))
	if code == 0 || !strings.Contains(out, "could not be stored") || !strings.Contains(out, "lost/") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	s.refuse.Store(0)
	wants(t, w.sky("down", "-y", "c"), "c")
	if got := s.content("ckpts-1", "lost/5"); got != "lost-5\n" { // the end of the cluster tried it again
		t.Errorf("after down the bucket has %q", got)
	}
}

// A managed job whose machine is taken away goes on from the checkpoint that it wrote to a
// mounted bucket.
func TestAPreemptedJobGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	s := newS3(t)
	f := newFluffy(t, 0)
	w := s.user(f.workstation)
	for _, mode := range []string{"MOUNT", "MOUNT_CACHED"} {
		bucket := "train-" + strings.ToLower(strings.ReplaceAll(mode, "_", "-"))
		task := w.write("train.yaml", fmt.Sprintf(`
name: train
resources: {infra: fluffycloud, cpus: 1, use_spot: true}
file_mounts:
  ~/ckpt: {name: %s, store: s3, mode: %s}
run: |
  step=0
  if [ -s ~/ckpt/step ]; then read -r step < ~/ckpt/step; echo "goes on from $step"; fi
  echo start $step >> ~/ckpt/starts-$step
  while [ $step -lt 10 ]; do
    if [ $step = 5 ] && [ ! -e ~/ckpt/starts-5 ]; then sleep 3600; fi
    step=$((step + 1)); echo $step > ~/ckpt/new; mv ~/ckpt/new ~/ckpt/step
  done
  echo done > ~/ckpt/answer
`, bucket, mode))
		w.sky("jobs", "launch", "-y", "-d", task)
		eventually(t, "the job has come to its checkpoint", 3*time.Minute, func() bool { return s.content(bucket, "step") == "5\n" })
		took := false
		for _, m := range f.machines() {
			if m.State == "running" {
				took = f.try("POST", "instances/"+m.ID+"/preempt", map[string]any{"after": 0}) == nil || took
			}
		}
		if !took {
			t.Fatal("no machine was there to be taken away")
		}
		eventually(t, "the job is done", 4*time.Minute, func() bool {
			for _, j := range f.managed() {
				if j.Status != "SUCCEEDED" {
					return false
				}
			}
			return true
		})
		if got := s.content(bucket, "answer"); got != "done\n" {
			t.Errorf("%s: the answer is %q", mode, got)
		}
		if got := s.content(bucket, "starts-5"); got != "start 5\n" {
			t.Errorf("%s: the second attempt did not begin at the checkpoint: %q; %v", mode, got, s.keys(bucket))
		}
	}
	f.nothingLeft()
	if got := mountsBelow(t, f.home); len(got) > 0 {
		t.Errorf("still mounted: %v", got)
	}
}

// What is not uploaded when a cluster stops is uploaded when it starts again; a cluster that
// goes for good names what is lost.
func TestWhatIsNotUploadedWhenAClusterEnds(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	s := newS3(t)
	w := s.user(newWorkstation(t))
	w.sky("launch", "-y", "-c", "c", w.write("task.yaml", "resources: {infra: local}\nfile_mounts:\n  ~/ckpt: {name: ckpts-2, store: s3, mode: MOUNT_CACHED}\nrun: ls ~/ckpt\n"))
	write := func(name string) {
		s.refuse.Store(503)
		w.sky("exec", "-d", "c", "echo "+name+" > ~/ckpt/"+name)
		eventually(t, "the status says what is not uploaded", 2*time.Minute, func() bool {
			out, _ := w.run("status")
			return strings.Contains(out, "c: 1 file is not in the mounted buckets yet (")
		})
	}
	write("kept")
	wants(t, w.sky("stop", "-y", "--graceful", "--graceful-timeout", "3", "c"), "WARNING: head of cluster c could not upload 1 file (", "stay on its disk", "ckpt/kept")
	if got := mountsBelow(t, w.home); len(got) > 0 {
		t.Errorf("mounted after stop: %v", got)
	}
	s.refuse.Store(0)
	w.sky("start", "-y", "c")
	eventually(t, "what was left is uploaded", 2*time.Minute, func() bool { return s.content("ckpts-2", "kept") == "kept\n" })
	wants(t, w.sky("exec", "c", "cat ~/ckpt/kept"), "SUCCEEDED")
	write("lost")
	out, _ := w.run("down", "c") // nobody answers the question
	wants(t, out, "1 file is not in the mounted buckets yet")
	wants(t, w.sky("down", "-y", "--graceful", "--graceful-timeout", "3", "c"), "are lost with it", "ckpt/lost")
	if got := mountsBelow(t, w.home); len(got) > 0 {
		t.Errorf("mounted after down: %v", got)
	}
}
