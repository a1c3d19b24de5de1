package agent

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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
		_ = syscall.Kill(b.helper(), syscall.SIGKILL)
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a guard: agents wait for ten
	defer cancel()
	if _, err := b.head.Shutdown(ctx, agentapi.ShutdownRequest{}); err != nil {
		t.Error("the end: ", err)
	}
	if _, err := b.store.Bucket("bucket").Stat(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}
