package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/diskspace"
)

// A disk without room for a copy of sky is told before it is filled.
func TestACopyThatDoesNotFitIsNotBegun(t *testing.T) {
	dir := t.TempDir()
	free, err := diskspace.Free(dir)
	if err != nil {
		t.Fatal(err)
	}
	large, err := os.Create(filepath.Join(dir, "sky"))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if err := large.Truncate(free + 64<<30); err != nil { // has no blocks
		t.Skip("this file system has no sparse files of that size: ", err)
	}
	r := New(Options{BuildID: "b", RuntimeDir: filepath.Join(dir, "runtime"), Binary: large.Name()})
	if _, err := r.install(); err == nil || !strings.Contains(err.Error(), "the first launch copies sky to") || !strings.Contains(err.Error(), "free space on it") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "runtime", "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
