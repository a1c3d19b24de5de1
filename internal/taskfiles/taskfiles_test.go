package taskfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// TestAJobsFilesReachEveryServer: what one server copied, another one brings,
// though the first is gone with its disk.
func TestAJobsFilesReachEveryServer(t *testing.T) {
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	must(t, err)
	defer db.Close()
	var used map[string]bool
	server := func() *Files {
		return New(filepath.Join(t.TempDir(), "files"), &logstore.Files{Store: db}, func(context.Context) (map[string]bool, error) { return used, nil },
			func(context.Context) (map[string]bool, error) { return nil, nil })
	}
	user := t.TempDir()
	write := func(name, text string, mode fs.FileMode) {
		path := filepath.Join(user, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), mode))
		must(t, os.Chtimes(path, time.Unix(1e9, 5), time.Unix(1e9, 5)))
	}
	write("proj/run.sh", "echo hi\n", 0o755)
	write("proj/deep/empty", "", 0o600)
	write("proj/.skyignore", "secret\n", 0o644)
	write("proj/secret", "not for machines\n", 0o600)
	must(t, os.Symlink("run.sh", filepath.Join(user, "proj", "link")))
	write("one", "a file\n", 0o644)

	a, b := server(), server()
	dag := &task.Dag{Tasks: []*task.Task{{Workdir: filepath.Join(user, "proj"),
		FileMounts: map[string]string{"/f": filepath.Join(user, "one"), "/b": "s3://bucket/x"}}}}
	folders, done, err := a.Take(t.Context(), "u", upload.OwnMachine(), dag)
	must(t, err)
	done()
	if len(folders) != 2 {
		t.Errorf("folders %q", folders)
	}
	if got := dag.Tasks[0]; len(got.FileMountsMapping) != 2 || strings.Contains(fmt.Sprint(got.FileMountsMapping), a.dir) || got.FileMounts["/b"] != "s3://bucket/x" {
		t.Errorf("the stored task names a server's own folder: %q, %q", got.FileMountsMapping, got.FileMounts)
	}
	must(t, os.RemoveAll(a.dir))
	must(t, os.RemoveAll(user))

	for range 2 { // the second time they are here
		here := dag.Tasks[0]
		have, err := b.Bring(t.Context(), here, folders)
		must(t, err)
		read := func(name, below string) string {
			src, err := have.Source(here, name)
			must(t, err)
			f, err := filesync.Open(src, below)
			must(t, err)
			defer f.Close()
			text, err := io.ReadAll(f)
			must(t, err)
			return string(text)
		}
		if text := read(here.FileMounts["/f"], "."); text != "a file\n" {
			t.Errorf("%q", text)
		}
		if text := read(here.Workdir, "run.sh"); text != "echo hi\n" {
			t.Errorf("%q", text)
		}
		workdir := filepath.Join(b.dir, here.FileMountsMapping[here.Workdir])
		script := filepath.Join(workdir, "run.sh")
		info, err := os.Stat(script)
		must(t, err)
		if info.Mode().Perm() != 0o755 || !info.ModTime().Equal(time.Unix(1e9, 5)) {
			t.Errorf("%v %v", info.Mode(), info.ModTime())
		}
		if to, err := os.Readlink(filepath.Join(workdir, "link")); to != "run.sh" || err != nil {
			t.Errorf("%q %v", to, err)
		}
		if info, err := os.Stat(filepath.Join(workdir, "deep", "empty")); err != nil || info.Size() != 0 {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(workdir, "secret")); err == nil {
			t.Error("an ignored file was kept")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "new-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	// What a job needs stays. In the database also what one may be about to need.
	left := func(needed ...string) (here, there int) {
		used = map[string]bool{}
		for _, name := range needed {
			used[name] = true
		}
		must(t, b.Sweep(t.Context()))
		must(t, b.SweepShared(t.Context()))
		entries, err := os.ReadDir(b.dir)
		must(t, err)
		names, err := b.shared.Names(t.Context(), sharedFiles)
		must(t, err)
		return len(entries), len(names)
	}
	if here, there := left(folders...); here != 2 || there != 2 {
		t.Errorf("%d and %d are left", here, there)
	}
	if here, there := left(folders[0]); here != 1 || there != 2 {
		t.Errorf("%d and %d are left", here, there)
	}
	for _, needs := range [][]string{{"0123"}, nil} {
		gone := &task.Task{Workdir: anyDir + "0123/data"}
		if _, err := b.Bring(t.Context(), gone, needs); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("files that are nowhere: %v", err)
		}
	}
	earlier := &task.Task{Workdir: anyDir + folders[0] + "/data"}
	have, err := b.Bring(t.Context(), earlier, folders)
	must(t, err)
	if src, err := have.Source(earlier, earlier.Workdir); err != nil {
		t.Error("a job of an earlier version: ", err)
	} else if _, err := filesync.Stat(src); err != nil {
		t.Error("a job of an earlier version: ", err)
	}
}

// A job's files are those that its author may bring: what the mapping of a
// stored task says is the server's word, whatever the submitted one said.
func TestAJobCopiesOnlyWhatWasUploaded(t *testing.T) {
	top := t.TempDir()
	up := filepath.Join(top, "upload")
	for path, text := range map[string]string{"secret": "planted", "upload/wd/a": "1", "files/0123/data/x": "planted"} {
		path = filepath.Join(top, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	must(t, os.Symlink("../secret", filepath.Join(up, "out")))
	f := New(filepath.Join(top, "files"), nil)
	for _, c := range []struct {
		name, src string
		mapping   map[string]string
		good      bool
	}{
		{"uploaded", "/home/u/wd", map[string]string{"/home/u/wd": "wd"}, true},
		{"not mapped", filepath.Join(top, "secret"), nil, false},
		{"a link out", "/x", map[string]string{"/x": "out"}, false},
		{"mapped out", "/x", map[string]string{"/x": "../secret"}, false},
		{"another job's files", anyDir + "0123/data", nil, false},
		{"mapped to another job's files", "/x", map[string]string{"/x": "0123/data"}, false},
	} {
		dag := &task.Dag{Tasks: []*task.Task{{FileMounts: map[string]string{"~/s": c.src}, FileMountsMapping: c.mapping}}}
		folders, done, err := f.Take(t.Context(), "u", upload.In(up), dag)
		if good := err == nil; good != c.good {
			t.Errorf("%s: %v %v", c.name, folders, err)
		}
		if err != nil {
			if !f.mu.TryLock() {
				t.Fatal("the lock is still held")
			}
			f.mu.Unlock()
			continue
		}
		done()
		if got := dag.Tasks[0].FileMountsMapping[c.src]; got != folders[0]+"/data" {
			t.Errorf("%s is in %s", c.src, got)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
