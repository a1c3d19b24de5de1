package transfer

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// A large file that does not fit the disk is refused before anything of it is fetched, and
// takes no room afterwards.
func TestALargeFileThatDoesNotFitIsNotFetched(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a small disk cannot be made: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	requests := 0
	b := &ranges{Bucket: newBucket(t, &memory.Store{}, "b"), see: func(storage.GetOptions) error { requests++; return nil }}
	put(t, b.Bucket, "large", content(1<<20, 3), nil)
	_, _, err := Download(t.Context(), b, "large", filepath.Join(dir, "large"), Options{})
	if !errors.Is(err, syscall.ENOSPC) || requests > 0 {
		t.Errorf("%v, after %d requests", err, requests)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
