package agent

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
)

// A bucket that is gone neither keeps the others from being mounted, nor a cluster from
// ending when nothing is left to upload.
func TestABucketThatIsGoneHoldsNothingUp(t *testing.T) {
	b := newMountBed(t)
	other := b.store.Bucket("a-other")
	if err := other.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	gone := b.request().Mounts[0]
	gone.Spec.Path, gone.Spec.URL, gone.Spec.Mode = "~/gone", "s3://a-other", agentapi.MountDirect
	r := b.request()
	r.Mounts[0].Spec.Config.WriteBack = time.Hour // nothing is uploaded without a reason
	r.Mounts = append([]agentapi.NodeMount{gone}, r.Mounts...)
	if _, err := b.head.Mounts(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.home(), "m", "x"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The machine starts again, and meanwhile somebody deletes a bucket.
	b.restart(func() {
		b.killHelper()
		if err := other.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := b.head.Mounts(t.Context(), r); err == nil {
		t.Error("a bucket that is gone is mounted")
	}
	if text, err := os.ReadFile(filepath.Join(b.home(), "m", "x")); err != nil || string(text) != "text" {
		t.Errorf("the other bucket is not mounted: %q, %v", text, err)
	}
	if _, err := b.client.Flush(t.Context(), mountapi.FlushRequest{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hanging) // a guard: agents wait for ten
	defer cancel()
	if _, err := b.head.Shutdown(ctx, agentapi.ShutdownRequest{}); err != nil {
		t.Error("the end: ", err)
	}
	if _, err := b.store.Bucket("bucket").Stat(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

// A job whose files cannot be stored, as the process that held the mounts died and the bucket
// is gone, fails and names them; the cluster ends.
func TestAJobFailsWhoseBucketIsGoneWithItsProcess(t *testing.T) {
	b := newMountBed(t)
	b.mount()
	b.refuse.Store(http.StatusServiceUnavailable)
	id := b.submit(agentapi.JobSpec{Run: "echo text > ~/m/x"})
	b.until("the barrier", func() bool { return strings.Contains(b.logNow(id), "still uploading") })
	if err := b.store.Bucket("bucket").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.killHelper()
	job := b.awaitEnd(id)
	if job.Status != api.JobFailed || !strings.Contains(job.Reason, "m/x: s3://bucket is not mounted at ") || !strings.Contains(job.Reason, "does not exist") {
		t.Errorf("%+v", job)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hanging) // a guard: agents wait for ten
	defer cancel()
	info, err := b.head.Shutdown(ctx, agentapi.ShutdownRequest{})
	if err != nil {
		t.Fatal("the end: ", err)
	}
	if files, _ := info.Mounts.Dirty(); files != 1 {
		t.Errorf("%+v", info.Mounts)
	}
}

// While a job waits for what cannot be stored, it can be cancelled.
func TestAJobThatWaitsForItsBucketIsCancelled(t *testing.T) {
	b := newMountBed(t)
	b.mount()
	b.refuse.Store(http.StatusServiceUnavailable)
	id := b.submit(agentapi.JobSpec{Run: "echo text > ~/m/x; echo over"})
	b.until("the barrier", func() bool { return strings.Contains(b.logNow(id), "still uploading") })
	b.killHelper()
	if _, err := b.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id}}); err != nil {
		t.Fatal(err)
	}
	if job := b.awaitEnd(id); job.Status != api.JobCancelled {
		t.Errorf("%+v", job)
	}
}

// A job does not begin before what it mounts is there, and its log says what it waits for.
func TestAJobWaitsForItsMount(t *testing.T) {
	b := newMountBed(t)
	b.mount()
	b.away.Store(true)
	b.killHelper()
	id := b.submit(agentapi.JobSpec{Run: "echo text > ~/m/x", Mounts: []string{"~/m"}})
	b.until("a reason", func() bool {
		return strings.Contains(b.logNow(id), "skypilot: head waits: a bucket is not mounted: s3://bucket is not mounted at ")
	})
	b.away.Store(false)
	if job := b.awaitEnd(id); job.Status != api.JobSucceeded || b.content("x") != "text\n" {
		t.Errorf("%+v, the bucket has %q", job, b.content("x"))
	}
}

// A mount that cannot come back fails the jobs that use it, after a while; their logs say why.
// The others run, and theirs say that it is not there.
func TestOnlyJobsThatUseAMountNeedIt(t *testing.T) {
	b := newMountBed(t)
	other := b.store.Bucket("a-other")
	if err := other.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r := b.request()
	gone := b.request().Mounts[0]
	gone.Spec.Path, gone.Spec.URL = "~/gone", "s3://a-other"
	r.Mounts = append([]agentapi.NodeMount{gone}, r.Mounts...)
	if _, err := b.head.Mounts(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := other.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.killHelper()
	for _, c := range []struct {
		name   string
		spec   agentapi.JobSpec
		status api.JobStatus
		says   string
	}{
		{"its task mounts it", agentapi.JobSpec{Run: "true", Mounts: []string{"~/gone"}}, api.JobFailed, "a mounted bucket: s3://a-other is not mounted at "},
		{"its commands name it", agentapi.JobSpec{Run: "ls ~/gone"}, api.JobFailed, "does not exist"},
		{"its setup names it", agentapi.JobSpec{Setup: "ls $HOME/gone", Run: "true"}, api.JobFailedSetup, "does not exist"},
		{"another", agentapi.JobSpec{Run: "echo text > ~/m/x", Mounts: []string{"~/m"}}, api.JobSucceeded, "/gone: mounting s3://a-other"},
	} {
		id := b.submit(c.spec)
		job := b.awaitEnd(id)
		if job.Status != c.status || (job.Status != api.JobSucceeded) != strings.Contains(job.Reason, "cannot run without a mounted bucket") {
			t.Errorf("%s: %+v", c.name, job)
		}
		if text := b.follow(id); !strings.Contains(text, c.says) {
			t.Errorf("%s: the log does not say %q: %s", c.name, c.says, text)
		}
	}
	if got := b.content("x"); got != "text\n" {
		t.Errorf("the other bucket has %q", got)
	}
}
