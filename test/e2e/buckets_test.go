//go:build e2e && linux

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// An s3 is an object store that outlives servers, and does something at one of the
// requests to it.
type s3 struct {
	*memory.Store
	t   testing.TB
	url string

	refuse atomic.Int64 // the status that writes are answered with; 0: they are done

	mu    sync.Mutex
	count int            // requests so far
	at    map[int]func() // what is done at which request, before it is answered
}

func newS3(t testing.TB) *s3 {
	s := &s3{Store: &memory.Store{}, t: t, at: map[int]func(){}}
	answer := s.ServeS3("ID")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.count++
		do := s.at[s.count]
		s.mu.Unlock()
		if do != nil {
			do()
		}
		if status := s.refuse.Load(); status != 0 && r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.WriteHeader(int(status))
			return
		}
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// next does something at the n-th request from now on.
func (s *s3) next(n int, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = map[int]func(){s.count + n: do}
}

func (s *s3) exists(bucket string) bool {
	_, err := s.Bucket(bucket).Head(s.t.Context())
	_, missing := errors.AsType[*storage.NotFoundError](err)
	if err != nil && !missing {
		s.t.Fatal(err)
	}
	return err == nil
}

func (s *s3) put(bucket, key, text string) {
	s.t.Helper()
	b := s.Bucket(bucket)
	if err := b.Create(s.t.Context(), nil); err != nil {
		s.t.Fatal(err)
	}
	if _, err := b.Put(s.t.Context(), key, strings.NewReader(text), storage.PutOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// keys are those of a bucket, in order.
func (s *s3) keys(bucket string) (out []string) {
	s.t.Helper()
	page, err := s.Bucket(bucket).List(s.t.Context(), storage.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range page.Objects {
		out = append(out, o.Key)
	}
	return out
}

// user is a workstation whose user has credentials for the store.
func (s *s3) user(w *workstation) *workstation {
	return w.with("AWS_ACCESS_KEY_ID=ID", "AWS_SECRET_ACCESS_KEY=the-secret-key", "AWS_ENDPOINT_URL_S3="+s.url, "AWS_EC2_METADATA_DISABLED=true")
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	w := s.user(newWorkstation(t))
	s.put("theirs", "set/a.txt", "A")
	s.put("theirs", "set/deep/b.txt", "B")
	s.put("names", "both", "an object")
	s.put("names", "both/inside", "in a folder")
	src := filepath.Dir(w.write("src/one.txt", "1"))
	w.write("src/sub/two.txt", "2")
	w.write("src/.skyignore", "*.tmp\n")
	w.write("src/left.tmp", "x")
	w.write("src/copy/.sky/api_server/sky.db", "secrets")
	task := w.write("task.yaml", fmt.Sprintf(`
resources: {infra: local}
num_nodes: 2
file_mounts:
  ~/set: s3://theirs/set
  ~/a.txt: s3://theirs/set/a.txt
  ~/both: s3://names/both
  ~/again: {source: s3://theirs, mode: COPY}
  ~/mine: {name: mine-1, source: %[1]s, store: s3, mode: COPY}
  ~/list: {name: mine-2, source: [%[1]s/sub, %[1]s/one.txt], mode: COPY}
  ~/gone: {name: mine-3, source: %[1]s, mode: COPY, persistent: false}
run: cat ~/set/deep/b.txt ~/mine/sub/two.txt
`, src))
	out := w.sky("launch", "-y", "-c", "c", task)
	wants(t, out, "nodes get the server's own credentials for it (access key ID), in memory only", "✓ Made bucket s3://mine-1 in us-east-1",
		"✓ Copied s3://mine-1 -> ~/mine on 2 nodes", "s3://names/both is a folder and an object at the same time", "SUCCEEDED")
	for rank := range 2 {
		home := w.node("c", rank)
		for path, want := range map[string]string{"set/a.txt": "A", "set/deep/b.txt": "B", "a.txt": "A", "both/inside": "in a folder",
			"again/set/a.txt": "A", "mine/one.txt": "1", "mine/sub/two.txt": "2", "list/sub/two.txt": "2", "list/one.txt": "1", "gone/one.txt": "1"} {
			if got := read(t, filepath.Join(home, path)); got != want {
				t.Errorf("node %d, %s: %q", rank, path, got)
			}
		}
		if _, err := os.Stat(filepath.Join(home, "mine/left.tmp")); err == nil {
			t.Error("what .skyignore leaves out was uploaded")
		}
		if _, err := os.Stat(filepath.Join(home, "mine/copy")); err == nil {
			t.Error("the state of an installation was uploaded")
		}
	}
	if got := strings.Join(s.keys("mine-2"), " "); got != "one.txt sub/two.txt" {
		t.Errorf("keys of a list: %s", got)
	}
	// Nothing on disk has the keys.
	_ = filepath.WalkDir(w.home, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "the-secret-key") {
				t.Errorf("%s holds the secret key", path)
			}
		}
		return nil
	})
	// A second launch brings what is new, and nothing else.
	w.write("src/three.txt", "3")
	wants(t, w.sky("launch", "-y", "-c", "c", task), "2 there already", "SUCCEEDED")
	if got := read(t, filepath.Join(w.node("c", 1), "mine/three.txt")); got != "3" {
		t.Errorf("a new file: %q", got)
	}
	list := w.stdout("storage", "ls", "-o", "json")
	wants(t, list, `"name": "mine-1"`, `"store": [`, `"status": "READY"`)
	if strings.Contains(list, "theirs") {
		t.Errorf("a bucket that was given by its URL is on record: %s", list)
	}
	w.sky("down", "-y", "c")
	eventually(t, "the bucket that was not to outlive its cluster is gone", time.Minute, func() bool { return !s.exists("mine-3") })
	w.sky("storage", "delete", "-y", "mine-1")
	if s.exists("mine-1") || !s.exists("mine-2") || !s.exists("theirs") {
		t.Errorf("after the deletion: mine-1 %v, mine-2 %v, theirs %v", s.exists("mine-1"), s.exists("mine-2"), s.exists("theirs"))
	}
	// Somebody else's bucket of a name that was ours.
	b := s.Bucket("mine-2")
	for _, key := range s.keys("mine-2") {
		if err := b.Remove(t.Context(), []storage.ID{{Key: key}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.put("mine-2", "precious", "theirs")
	w.fails(1, []string{"is not the one that sky made"}, "launch", "-y", "-c", "c", task)
	wants(t, w.sky("storage", "delete", "-y", "-a"), "is left alone")
	if !s.exists("mine-2") || len(s.keys("mine-2")) != 1 {
		t.Error("a bucket of others was deleted")
	}
	wants(t, w.sky("storage", "ls"), "No existing storage")
}

// What is in a bucket of one store goes to a bucket of another one.
func TestABucketIsCopiedToAnotherStore(t *testing.T) {
	t.Parallel()
	s, other := newS3(t), &memory.Store{}
	answer := other.ServeGCS("any")
	google := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer any") // emulators ask for no credentials
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(google.Close)
	w := s.user(newWorkstation(t)).with("STORAGE_EMULATOR_HOST=" + google.URL)
	b := other.Bucket("far")
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"data/a", "data/b/c", "else"} {
		if _, err := b.Put(t.Context(), key, strings.NewReader(key), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	task := w.write("task.yaml", "resources: {infra: local}\nfile_mounts:\n  ~/x: {name: near, store: s3, source: gs://far/data, mode: COPY}\n")
	wants(t, w.sky("launch", "-y", "-c", "c", task), "gs://far/data -> s3://near (2 files")
	if got := strings.Join(s.keys("near"), " "); got != "a b/c" {
		t.Errorf("keys: %s", got)
	}
	if got := read(t, filepath.Join(w.node("c", 0), "x/b/c")); got != "data/b/c" {
		t.Errorf("on the node: %q", got)
	}
}

// What is wrong with buckets in a task is said before anything is made.
func TestBadBuckets(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	w := s.user(newWorkstation(t))
	s.put("theirs", "a", "A")
	src := filepath.Dir(w.write("src/one.txt", "1"))
	for _, c := range []struct{ mount, says string }{
		{"s3://missing", "the bucket s3://missing does not exist"},
		{"s3://theirs/b", "s3://theirs/b does not exist"},
		{"https://example.com/x", "bad.yaml:3:3"},
		{"hf://x", "hf://OWNER/MODEL"},
		{"{source: s3://missing}", "the bucket s3://missing does not exist"},
		{"{source: s3://theirs/a}", "bad.yaml:3:17"},
		{"{source: s3://theirs, type: DATASET_RO}", "bad.yaml:3:30"},
		{"{source: s3://theirs, config: {mount_cached: {transfers: 2}}}", "bad.yaml:3:39"},
		{"{source: s3://theirs, mode: MOUNT_CACHED, config: {mount: {read_only: true}}}", "bad.yaml:3:59"},
		{"{source: s3://theirs, mode: MOUNT_CACHED, config: {mount_cached: {vfs_write_back: soon}}}", "bad.yaml:3:90"},
		{"{name: theirs, store: s3}", "sky did not make it"},
		{"{source: s3://theirs, mode: LINK}", "bad.yaml:3:36"},
		{"{name: Bad_Name, store: s3, source: " + src + ", mode: COPY}", "bad.yaml:3:15"},
		{"{source: " + src + ", mode: COPY}", "bad.yaml:3:17"},
		{"{name: x1x, store: ftp, source: " + src + ", mode: COPY}", "bad.yaml:3:27"},
		{"{name: nowhere, mode: COPY}", "add source"},
		{"{name: theirs, source: /not/there, mode: COPY}", "/not/there"},
		{"{name: with-hf, store: hf, source: " + src + ", mode: COPY}", "sky makes no buckets of HF"},
	} {
		file := w.write("bad.yaml", "resources: {infra: local}\nfile_mounts:\n  ~/x: "+c.mount+"\nrun: ls\n")
		out, code := w.run("launch", "-y", "-c", "bad", file)
		if code == 0 || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit %d, not %q in\n%s", c.mount, code, c.says, out)
		}
	}
	w.fails(1, []string{"H100"}, "launch", "-y", "-c", "bad", "--gpus", "H100", w.write("bad.yaml", "resources: {infra: local}\nfile_mounts:\n  ~/x: {name: too-early, source: "+src+"}\nrun: ls\n"))
	if s.exists("too-early") {
		t.Error("a bucket was made for a task that runs nowhere")
	}
	if len(w.folders()) > 0 {
		t.Errorf("something was launched: %v", w.folders())
	}
}

// A bucket goes where it is wanted, whenever the server dies, and nothing stays when it is
// deleted.
func TestTheServerDiesAtEveryRequestToAStore(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	w := s.user(newWorkstation(t))
	src := filepath.Dir(w.write("src/one.txt", "1"))
	w.write("src/big", strings.Repeat("0123456789abcdef", 2<<20)) // several parts
	w.sky("api", "start")
	for n, over := 1, false; !over; n++ {
		name := fmt.Sprintf("bucket-%d", n)
		task := w.write("task.yaml", fmt.Sprintf("resources: {infra: local}\nfile_mounts:\n  ~/x: {name: %s, source: %s, mode: COPY}\n", name, src))
		died := false
		s.next(n, func() { died = true; w.killServer() })
		out, code := w.run("launch", "-y", "-c", "c", task)
		if code != 0 {
			t.Fatalf("killed at request %d (%v): exit %d\n%s", n, died, code, out)
		}
		over = !died
		home := filepath.Join(w.node("c", 0), "x")
		if read(t, filepath.Join(home, "one.txt")) != "1" || len(read(t, filepath.Join(home, "big"))) != 32<<20 {
			t.Errorf("killed at request %d: the files are not there", n)
		}
		if uploads, err := s.Bucket(name).Uploads(t.Context(), storage.ListOptions{}); err != nil || len(uploads.Uploads) > 0 {
			t.Errorf("killed at request %d: unfinished uploads %v, %v", n, uploads, err)
		}
		died = false
		s.next(n, func() { died = true; w.killServer() })
		if out, code := w.run("storage", "delete", "-y", name); code != 0 {
			t.Errorf("killed at request %d of the deletion: exit %d\n%s", n, code, out)
		}
		over = over && !died
		eventually(t, "the bucket is gone", time.Minute, func() bool { return !s.exists(name) })
		if out := w.sky("storage", "ls"); !strings.Contains(out, "No existing storage") {
			t.Errorf("killed at request %d of the deletion: %s", n, out)
		}
		os.RemoveAll(home)
	}
	if left, _ := os.ReadDir(filepath.Join(w.home, ".sky/api_server/buckets")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Managed jobs have buckets, too, and those that are not to outlive them go with them.
func TestBucketsOfManagedJobs(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	w := s.user(newWorkstation(t))
	s.put("theirs", "a", "A")
	src := filepath.Dir(w.write("src/one.txt", "1"))
	task := w.write("task.yaml", fmt.Sprintf(`
name: j
resources: {infra: local}
file_mounts:
  ~/a: s3://theirs/a
  ~/kept: {name: job-kept, source: %[1]s, mode: COPY}
  ~/gone: {name: job-gone, source: [%[1]s/one.txt], mode: COPY, persistent: false}
run: cat ~/a ~/kept/one.txt ~/gone/one.txt
`, src))
	w.sky("jobs", "launch", "-y", task)
	eventually(t, "the job has ended", 2*time.Minute, func() bool {
		out, _ := w.run("jobs", "queue")
		return strings.Contains(out, "SUCCEEDED")
	})
	eventually(t, "the job's bucket is gone", 2*time.Minute, func() bool { return !s.exists("job-gone") })
	if !s.exists("job-kept") {
		t.Error("a bucket that was to stay is gone")
	}
	w.fails(1, []string{"does not exist"}, "jobs", "launch", "-y", w.write("bad.yaml", "resources: {infra: local}\nfile_mounts: {~/a: 's3://missing'}\nrun: ls\n"))
}

// With jobs.bucket and serve.bucket local files travel through the bucket, each task's below
// a prefix of its own, which goes with the job or service.
func TestFilesTravelThroughBuckets(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	w := s.user(newWorkstation(t))
	s.put("shared", "theirs", "T")
	w.write(".sky/config.yaml", "jobs: {bucket: 's3://shared/of/jobs'}\nserve: {bucket: 's3://shared'}\n")
	wd := filepath.Dir(w.write("wd/run.sh", "echo in $PWD; cat beside ~/data/x ~/file"))
	w.write("wd/beside", "B")
	data := filepath.Dir(w.write("data/x", "X"))
	file := w.write("file.txt", "F")
	const start = "until [ -e %s ]; do sleep 0.1; done; "
	stop := filepath.Join(w.home, "go-on")
	job := w.write("job.yaml", fmt.Sprintf("name: j\nresources: {infra: local}\nworkdir: %s\nfile_mounts: {~/data: %s, ~/file: %s}\nrun: "+start+"sh run.sh\n", wd, data, file, stop))
	wants(t, w.sky("jobs", "launch", "-y", "-d", job), "-> s3://shared/of/jobs/job-", "/workdir (2 files", "/local-file-mounts/0", "/tmp-files/file-0")
	w.reaches("1.0", "RUNNING")
	if got := len(s.keys("shared")); got != 5 {
		t.Errorf("while the job runs: %q", s.keys("shared"))
	}
	if left, _ := os.ReadDir(filepath.Join(w.home, ".sky/api_server/jobs/files")); len(left) > 0 {
		t.Errorf("the server keeps copies, too: %v", left)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.done("1.0")
	wants(t, w.sky("jobs", "logs", "--no-follow", "1"), "sky_workdir", "BXF")
	eventually(t, "the job's prefix is gone", 3*time.Minute, func() bool { return strings.Join(s.keys("shared"), " ") == "theirs" })

	task := servedTask(t, "local", "v1", "replicas: 1") + "workdir: " + wd + "\nsetup: grep B beside\n"
	w.up(task)
	w.serves("one replica", 1, nil)
	keys := s.keys("shared")
	if len(keys) != 3 || !strings.HasPrefix(keys[0], "job-") || !strings.HasSuffix(keys[0], "/workdir/beside") {
		t.Errorf("while the service runs: %q", keys)
	}
	w.sky("serve", "down", "-y", "chat")
	eventually(t, "the service's prefix is gone", 3*time.Minute, func() bool { return strings.Join(s.keys("shared"), " ") == "theirs" })

	w.write(".sky/config.yaml", "jobs: {bucket: 's3://missing'}\n")
	w.fails(1, []string{"jobs.bucket: the bucket s3://missing does not exist", "remove the setting"}, "jobs", "launch", "-y", "-d", job)
}

// Machines get sky-mount over ssh, and copy by themselves.
func TestBucketsOnMachines(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	f := newFluffy(t, 0)
	w := s.user(f.workstation)
	s.put("theirs", "set/a.txt", "A")
	task := w.write("task.yaml", "resources: {infra: fluffycloud, cpus: 1+}\nnum_nodes: 2\nfile_mounts:\n  ~/set: s3://theirs/set\nrun: cat ~/set/a.txt; ls ~/.sky/mount/*/sky-mount\n")
	out := w.sky("launch", "-y", "-c", "c", task)
	wants(t, out, "✓ Copied s3://theirs/set -> ~/set on 2 nodes (1 file, 1 B)", "sky-mount", "SUCCEEDED")
	w.sky("down", "-y", "c")
}
