//go:build e2e && linux

package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	w := s.user(newWorld(t))
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
