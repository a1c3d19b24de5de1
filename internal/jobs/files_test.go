package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silentFiles is a database that does not say which files jobs need until then.
type silentFiles struct {
	*memory
	until time.Time
	asked *atomic.Int64
}

func (s silentFiles) ManagedJobs() managedJobs { return s }

func (s silentFiles) FilesInUse(context.Context) (map[string]bool, error) {
	s.asked.Add(1)
	if time.Now().Before(s.until) {
		return nil, errors.New("the database is away")
	}
	return map[string]bool{"needed": true}, nil
}

// Files that could not be removed are tried again, ever more seldom, until that
// works: no other job need end for it.
func TestFilesOfEndedJobsAreRemovedAfterTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, asked := newMemory(), new(atomic.Int64)
		m := newManager(silentFiles{db, time.Now().Add(time.Hour), asked}, nil, slog.New(slog.DiscardHandler), "s", t.TempDir(), 1)
		for _, name := range []string{"needed", "old"} {
			must(t, os.MkdirAll(filepath.Join(filepath.Join(m.dir, "files"), name), 0o700))
		}
		left := func() string { entries, _ := os.ReadDir(filepath.Join(m.dir, "files")); return fmt.Sprint(entries) }
		both := left()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		time.Sleep(59 * time.Minute)
		if n := asked.Load(); left() != both || n < 5 || n > 20 {
			t.Errorf("after %d tries: %s", n, left())
		}
		time.Sleep(tidyPauseMost + 2*time.Minute)
		n := asked.Load()
		if _, err := os.Stat(filepath.Join(filepath.Join(m.dir, "files"), "old")); !errors.Is(err, fs.ErrNotExist) || left() == "[]" {
			t.Errorf("after %d tries: %s", n, left())
		}
		time.Sleep(time.Hour)
		if asked.Load() != n {
			t.Error("it looks again although nothing ended")
		}
		stop()
		<-done
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
