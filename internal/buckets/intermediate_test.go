package buckets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/task"
)

// through makes the bed's jobs travel through a bucket.
func (b *bed) through(url string, more map[string]any) {
	jobs := map[string]any{"bucket": url}
	for k, v := range more {
		jobs[k] = v
	}
	b.call.Config = settings(b.t, map[string]any{"jobs": jobs, "storage": map[string]any{"endpoints": map[string]any{"s3": b.Config().Text("storage", "endpoints", "s3")}}})()
}

func (b *bed) keys(bucket string) string {
	b.t.Helper()
	page, err := b.s3.Bucket(bucket).List(b.t.Context(), storage.ListOptions{})
	b.must(err)
	var out []string
	for _, o := range page.Objects {
		out = append(out, o.Key)
	}
	return strings.Join(out, " ")
}

// local is a job with local files of all kinds.
func (b *bed) local() *task.Dag {
	dir := b.t.TempDir()
	for name, text := range map[string]string{"wd/run.sh": "run", "data/deep/x": "X", "one.txt": "1", "two.txt": "2"} {
		path := filepath.Join(dir, name)
		b.must(os.MkdirAll(filepath.Dir(path), 0o700))
		b.must(os.WriteFile(path, []byte(text), 0o700))
	}
	b.must(os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	return &task.Dag{Tasks: []*task.Task{
		{Workdir: filepath.Join(dir, "wd"), FileMounts: map[string]string{
			"/d": filepath.Join(dir, "data"), "/e": filepath.Join(dir, "empty"), "/f": filepath.Join(dir, "one.txt"), "/g": filepath.Join(dir, "two.txt"), "/u": "s3://theirs/x"}},
		{FileMounts: map[string]string{"/u": "s3://theirs/x"}},
	}}
}

func TestFilesOfJobsTravelThroughTheirBucket(t *testing.T) {
	b := newBed(t)
	b.must(b.s3.Bucket("shared").Create(t.Context(), nil))
	for _, key := range []string{"pre/else", "pre/job-", "top"} {
		_, err := b.s3.Bucket("shared").Put(t.Context(), key, strings.NewReader(""), storage.PutOptions{})
		b.must(err)
	}
	before := b.keys("shared")
	b.through("s3://shared/pre/", nil)
	dag := b.local()
	again := *dag.Tasks[0]
	hashes, err := b.Intermediate(t.Context(), b.call, "jobs", dag)
	b.must(err)
	id := intermediateID("r1", 0)
	at := "pre/job-" + id
	want := strings.ReplaceAll("pre/else pre/job- @/local-file-mounts/0/deep/x @/local-file-mounts/1/ @/tmp-files/file-0 @/tmp-files/file-1 @/workdir/run.sh top", "@", at)
	if got := b.keys("shared"); got != want || len(id) != 8 || len(hashes) != 1 {
		t.Fatalf("%s\nin place of\n%s (%q)", got, want, hashes)
	}
	first := dag.Tasks[0]
	wantMounts := map[string]string{"~/sky_workdir": "s3://shared/" + at + "/workdir", "/d": "s3://shared/" + at + "/local-file-mounts/0", "/e": "s3://shared/" + at + "/local-file-mounts/1",
		"/f": "s3://shared/" + at + "/tmp-files/file-0", "/g": "s3://shared/" + at + "/tmp-files/file-1", "/u": "s3://theirs/x"}
	if fmt.Sprint(first.FileMounts) != fmt.Sprint(wantMounts) || first.Workdir != "" || len(dag.Tasks[1].FileMounts) != 1 {
		t.Errorf("%v, workdir %q", first.FileMounts, first.Workdir)
	}
	o, err := b.s3.Bucket("shared").Stat(t.Context(), at+"/workdir/run.sh")
	if b.must(err); storage.AttributesOf(o.Metadata).Mode.Perm() != 0o700 {
		t.Errorf("the mode is lost: %v", o.Metadata)
	}
	// The request is resumed: it is the same prefix.
	repeated, err := b.Intermediate(t.Context(), b.call, "jobs", &task.Dag{Tasks: []*task.Task{&again}})
	if b.must(err); fmt.Sprint(repeated) != fmt.Sprint(hashes) || b.keys("shared") != want {
		t.Errorf("a second time: %q, %s", repeated, b.keys("shared"))
	}
	// It is nobody's storage, and cannot be deleted under the job.
	list, err := b.List(t.Context(), b.call)
	if b.must(err); len(list) > 0 {
		t.Errorf("listed: %v", list)
	}
	if err := b.Delete(t.Context(), b.call, "shared/"+at); kind(err) != api.ErrValue {
		t.Errorf("deleting it: %v", err)
	}
	// They are there as long as somebody needs them.
	b.must(b.HoldIntermediate(t.Context(), hashes, state.JobHolder(1)))
	b.must(b.Store.Requests().Create(t.Context(), &state.Request{ID: "r1", Name: "sky.jobs.launch", Status: api.RequestPending, UserID: "u1", CreatedAt: time.Now()}))
	b.must(b.Settle(t.Context()))
	if b.keys("shared") != want {
		t.Errorf("deleted under the request: %s", b.keys("shared"))
	}
	_, err = b.Store.Requests().Cancel(t.Context(), "r1")
	b.must(err)
	b.must(b.Settle(t.Context()))
	if got := b.keys("shared"); got != before {
		t.Errorf("afterwards: %s\nin place of\n%s", got, before)
	}
	if b.record("shared/"+at) != nil {
		t.Error("the record stays")
	}
}

func TestWithoutItsBucketAJobIsRefused(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		url  string
		more map[string]any
		kind string
		says string
	}{
		{"", nil, "", ""},
		{"s3://missing", map[string]any{"force_disable_cloud_bucket": true}, "", ""},
		{"s3://missing", nil, api.ErrStorageGet, "jobs.bucket: the bucket s3://missing does not exist"},
		{"https://example.com/x", nil, api.ErrStorageSpec, "jobs.bucket: "},
	} {
		b.call.Config = nil
		if c.url != "" {
			b.through(c.url, c.more)
		}
		dag := b.local()
		was := dag.Tasks[0].Workdir
		_, err := b.Intermediate(t.Context(), b.call, "jobs", dag)
		if c.kind == "" && err != nil || c.kind != "" && (kind(err) != c.kind || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.url, err)
		}
		if dag.Tasks[0].Workdir != was {
			t.Errorf("%s: the task was changed", c.url)
		}
	}
	b.through("s3://missing", nil)
	b.call.Scope = &state.Scope{}
	if _, err := b.Intermediate(t.Context(), b.call, "jobs", b.local()); kind(err) != api.ErrPermissionDenied {
		t.Errorf("a user without the right to use buckets: %v", err)
	}
	b.call.Scope = nil
	if _, err := b.Intermediate(t.Context(), b.call, "jobs", &task.Dag{Tasks: []*task.Task{{Run: "ls"}}}); err != nil {
		t.Errorf("a job without files: %v", err)
	}
}
