//go:build unix

package folder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/internal/mount/mountpoints"
	"github.com/skypilot-go/sky/internal/proc"
)

// Stop is not possible: the machine belongs to somebody else.
func (n Node) Stop(context.Context) error {
	return errors.New("a machine of one's own cannot be stopped")
}

// Terminate ends everything that runs in the folder, except this process, and
// removes it. The record goes last: until then nobody else takes the machine,
// and whoever finds it half removed goes on.
func (n Node) Terminate(ctx context.Context) error {
	record, leaving := filepath.Join(n.Dir, Record), filepath.Join(n.Dir, Leaving)
	if err := os.Rename(record, leaving); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Two of us must not work on it: the second one could meet the next owner's
	// files.
	f, err := os.Open(leaving)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(ctx, f); err != nil {
		return err
	}
	if mine, _ := f.Stat(); !sameFile(leaving, mine) {
		return nil
	}
	if n.Clear != nil {
		if err := n.Clear(ctx); err != nil {
			return err
		}
	}
	err = proc.End(ctx, func() []int {
		return slices.DeleteFunc(proc.Marked(n.Mark, n.Dir), func(pid int) bool { return pid == os.Getpid() })
	}, proc.Grace)
	if err != nil {
		return err
	}
	elsewhere, _ := os.Readlink(filepath.Join(n.Dir, Home, ".sky", "runtime"))
	entries, err := os.ReadDir(n.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != Leaving {
			if err := mountpoints.RemoveAll(filepath.Join(n.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if strings.HasPrefix(filepath.Base(elsewhere), RuntimePrefix) {
		if err := os.RemoveAll(elsewhere); err != nil {
			return err
		}
	}
	if err := os.Remove(leaving); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The folders above go too, unless there is something else in them.
	for dir := n.Dir; os.Remove(dir) == nil; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == ".sky" { // what is above is not ours
			break
		}
	}
	return nil
}

// lock waits for the file's lock, which ends with the file.
func lock(ctx context.Context, f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func sameFile(path string, f fs.FileInfo) bool {
	st, err := os.Stat(path)
	return err == nil && f != nil && os.SameFile(st, f)
}
