//go:build linux

package cached

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/vfs"
)

// When close or fsync has returned, the disk has the content, then its name, and then the
// record of the journal that names it: in this order, so that a machine that loses its power
// in between has the old file or the new one.
func TestWhatIsClosedOrSyncedIsOnTheDisk(t *testing.T) {
	text := string(make([]byte, 300<<10))
	open := func(ctx context.Context, v *Volume, path string, o vfs.OpenOptions) (vfs.Handle, error) {
		o.Read, o.Write = true, true
		h, err := v.Open(ctx, path, o)
		if err == nil {
			_, err = h.WriteAt(ctx, []byte(text), 0)
		}
		return h, err
	}
	for name, c := range map[string]struct {
		path   string
		before string // written before, here
		o      vfs.OpenOptions
		want   []string
		fsync  bool
	}{
		"a new file":                      {path: "new", o: vfs.OpenOptions{Create: true}, want: []string{"sync", "sync folder", "journal"}},
		"a new file, synced":              {path: "new", o: vfs.OpenOptions{Create: true}, want: []string{"sync", "sync folder", "journal"}, fsync: true},
		"an object of the bucket":         {path: "theirs", want: []string{"sync", "sync folder", "journal"}},
		"an object, written anew":         {path: "theirs", o: vfs.OpenOptions{Trunc: true}, want: []string{"sync", "sync folder", "journal"}},
		"what is not uploaded":            {path: "mine", before: "before", want: []string{"sync", "journal"}},
		"what is not uploaded, truncated": {path: "mine", before: "before", o: vfs.OpenOptions{Trunc: true}, want: []string{"sync", "sync folder", "journal"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := bucket(t), t.TempDir()
			put(t, b, "theirs", "their content")
			var steps []string
			v := opened(t, b, Options{Dir: dir, Config: mountapi.Config{WriteBack: time.Hour}, Step: func(name string, f func() error) error {
				err := f()
				steps = append(steps, name)
				if name == "sync" || name == "journal" {
					wantOnDisk(t, dir, name)
				}
				return err
			}})
			if c.before != "" {
				write(t, v, c.path, c.before)
			}
			h, err := open(t.Context(), v, c.path, c.o)
			if err != nil {
				t.Fatal(err)
			}
			steps = nil
			if c.fsync {
				err = h.Sync(t.Context())
			} else {
				err = h.Flush(t.Context())
			}
			if err != nil || !slices.Equal(steps, c.want) {
				t.Errorf("it did %q, %v, want %q", steps, err, c.want)
			}
			h.Release()
			if !slices.Equal(steps, c.want) {
				t.Errorf("the release did more: %q", steps)
			}
		})
	}
}

// fsync of a descriptor that was opened to read, as by the command sync, is for the file.
func TestSyncIsOfTheFileNotOfTheHandle(t *testing.T) {
	b, dir := bucket(t), t.TempDir()
	var steps []string
	v := opened(t, b, Options{Dir: dir, Config: mountapi.Config{WriteBack: time.Hour}, Step: func(name string, f func() error) error {
		steps = append(steps, name)
		return f()
	}})
	w, err := v.Open(t.Context(), "f", vfs.OpenOptions{Create: true, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	if _, err := w.WriteAt(t.Context(), []byte("text"), 0); err != nil {
		t.Fatal(err)
	}
	r, err := v.Open(t.Context(), "f", vfs.OpenOptions{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	steps = nil
	if err := r.Sync(t.Context()); err != nil || !slices.Equal(steps, []string{"sync", "sync folder", "journal"}) {
		t.Errorf("it did %q, %v", steps, err)
	}
	if err := r.Sync(t.Context()); err != nil || len(steps) != 3 {
		t.Errorf("with nothing written, it did %q, %v", steps[3:], err)
	}
}

// wantOnDisk wants that the system holds nothing of what a step writes back to the disk that
// it has not written there.
func wantOnDisk(t *testing.T, dir, step string) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		return // nothing of it is ever written
	}
	files := []string{filepath.Join(dir, "journal")}
	if step == "sync" {
		files, _ = filepath.Glob(filepath.Join(dir, "data", "*"))
	}
	if len(files) == 0 {
		t.Errorf("after %s there are no files", step)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Error(err)
			continue
		}
		var s unix.Cachestat_t
		err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &s, 0)
		f.Close()
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
			return // the system does not say
		}
		if err != nil || s.Dirty+s.Writeback > 0 {
			t.Errorf("after %s, %d pages of %s are not on the disk (%v)", step, s.Dirty+s.Writeback, filepath.Base(name), err)
		}
	}
}
