//go:build unix

package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Calls of a head that gave up on them, or died, may come after those that ended and
// forgot a rank: nothing starts then, and nothing is left.
func TestALateCallDoesNotBringARankBack(t *testing.T) {
	dir := t.TempDir()
	r, err := newRanks(t.Context(), dir, dir, testGrace, slog.New(slog.DiscardHandler), newWatcher(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	spec := &rankSpec{Key: "h-1-run-0", Script: "echo ran >" + filepath.Join(dir, "ran")}
	late := func(when string) {
		t.Helper()
		if err := r.prepare(spec); !errors.Is(err, errRankOver) {
			t.Errorf("%s: prepared: %v", when, err)
		}
		if _, err := r.start(spec); !errors.Is(err, errRankOver) {
			t.Errorf("%s: started: %v", when, err)
		}
	}
	if _, err := r.end(t.Context(), spec.Key, time.Second); err != nil {
		t.Fatal(err)
	}
	late("after the end")
	if err := r.forget(spec.Key); err != nil {
		t.Fatal(err)
	}
	late("after it is forgotten")
	if left, err := os.ReadDir(r.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if temporary(errRankOver) {
		t.Error("a head would try for ever")
	}
}
