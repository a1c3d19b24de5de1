package jobs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/shelf"
	"github.com/skypilot-go/sky/task"
)

// files keeps what jobs need of their users' files. A job may be launched again
// long after it was submitted, when the user's files are others or gone: so
// they are copied first, into folders that are named for their contents. Servers
// that share a database keep the folders there as well, and a job may be
// launched by any of them.
type files struct {
	dir    string
	shared *shelf.Files // nil: this server is the only one
	// Whoever needs a folder that a sweep does not know of yet, or makes one, holds
	// this for reading.
	mu       sync.RWMutex
	fetching chan struct{} // has room for one
}

const (
	// taskFile is the name of what is copied below its folder.
	taskFile = "data"
	// anyDir stands in the tasks of jobs for the folder of files of whichever server
	// launches them.
	anyDir = "/@files-of-managed-jobs@/"
	// sharedFiles begins the names of folders in the database.
	sharedFiles = "job-files/"
	// sharedKept is how long a folder in the database stays that nobody needs: a
	// job that another server is about to store may.
	sharedKept = time.Hour
)

// take copies the local files of a user's tasks and makes the tasks name the
// copies. It returns the folders that the job needs; done must be called once
// the job is stored.
func (f *files) take(ctx context.Context, user string, dag *task.Dag) (folders []string, done func(), err error) {
	f.mu.RLock()
	seen := map[string]string{}
	copied := func(src string, ignored bool) (string, error) {
		key := fmt.Sprint(ignored, src)
		if _, ok := seen[key]; !ok {
			name, err := f.copy(ctx, src, ignored)
			if err == nil {
				err = f.share(ctx, user, name)
			}
			if err != nil {
				return "", err
			}
			seen[key] = name
			folders = append(folders, name)
		}
		return anyDir + path.Join(seen[key], taskFile), nil
	}
	for _, t := range dag.Tasks {
		if t.Workdir != "" {
			if t.Workdir, err = copied(t.Workdir, true); err != nil {
				f.mu.RUnlock()
				return nil, nil, err
			}
		}
		for dst, src := range t.FileMounts {
			if strings.Contains(src, "://") {
				continue
			}
			if t.FileMounts[dst], err = copied(src, true); err != nil {
				f.mu.RUnlock()
				return nil, nil, err
			}
		}
	}
	return folders, f.mu.RUnlock, nil
}

// share puts a folder into the database, where it may be already.
func (f *files) share(ctx context.Context, user, name string) error {
	if f.shared == nil {
		return nil
	}
	has, err := f.shared.Has(ctx, sharedFiles+name)
	if err == nil && !has {
		err = f.shared.PutFolder(ctx, sharedFiles+name, user, filepath.Join(f.dir, name))
	}
	if err != nil {
		return fmt.Errorf("keeping the job's files in the database: %w", err)
	}
	return nil
}

// bring makes the task of a job under way name the copies of its files on this
// server, where they are from then on.
func (f *files) bring(ctx context.Context, t *task.Task) (err error) {
	t.Workdir, err = f.here(ctx, t.Workdir)
	for dst, src := range t.FileMounts {
		if err == nil {
			t.FileMounts[dst], err = f.here(ctx, src)
		}
	}
	return err
}

// here is the path on this server of a copy. Any other path stays as it is.
func (f *files) here(ctx context.Context, src string) (string, error) {
	rest, ok := strings.CutPrefix(src, anyDir)
	if !ok {
		return src, nil
	}
	name, _, _ := strings.Cut(rest, "/")
	if f.shared != nil {
		if err := f.fetch(ctx, name); err != nil {
			return "", fmt.Errorf("getting the job's files from the database: %w", err)
		}
	}
	return filepath.Join(f.dir, filepath.FromSlash(rest)), nil
}

// fetch gets a folder that another server put into the database; of those who
// need the same one at once, one does.
func (f *files) fetch(ctx context.Context, name string) error {
	select {
	case f.fetching <- struct{}{}:
		defer func() { <-f.fetching }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	dir := filepath.Join(f.dir, name)
	if isDir(dir) {
		return nil
	}
	return f.shared.FetchFolder(ctx, sharedFiles+name, dir)
}

// copy copies a file or folder, less what its ignore files say, and returns the
// name of the folder it is in.
func (f *files) copy(ctx context.Context, src string, ignored bool) (string, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(f.dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	sum := blake3.New()
	info, err := os.Stat(src)
	if err != nil {
		return "", fileError(src, err)
	}
	for e, err := range filesync.Walk(src, ignored && info.IsDir()) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = put(src, filepath.Join(tmp, taskFile), e, sum)
		}
		if err != nil {
			return "", fileError(src, err)
		}
	}
	name := hex.EncodeToString(sum.Sum(nil)[:16])
	switch err := os.Rename(tmp, filepath.Join(f.dir, name)); {
	case err == nil, errors.Is(err, fs.ErrExist), isDir(filepath.Join(f.dir, name)):
		return name, nil
	default:
		return "", err
	}
}

// put copies one entry and adds it to the sum.
func put(src, dst string, e filesync.Entry, sum io.Writer) error {
	from, to := src, dst
	if e.Path != "." {
		from, to = filepath.Join(src, filepath.FromSlash(e.Path)), filepath.Join(dst, filepath.FromSlash(e.Path))
	}
	fmt.Fprintf(sum, "%q %o %q %d\n", path.Clean(e.Path), e.Mode, e.Target, e.Size)
	switch {
	case e.Mode.IsDir():
		return os.MkdirAll(to, e.Mode.Perm()|0o700)
	case e.Mode&fs.ModeSymlink != 0:
		return os.Symlink(e.Target, to)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, e.Mode.Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Chtimes(to, e.ModTime, e.ModTime)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func fileError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &api.Error{Type: api.ErrFileNotFound, Message: fmt.Sprintf("%s does not exist.", path), Err: err}
	}
	return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Keeping a copy of %s for the job failed: %v", path, err), Err: err}
}

// sweep removes folders of this server that no job under way needs.
func (f *files) sweep(ctx context.Context, store database) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || len(entries) == 0 {
		return err
	}
	used, err := store.ManagedJobs().FilesInUse(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !used[e.Name()] {
			errs = append(errs, os.RemoveAll(filepath.Join(f.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// sweepShared does the same in the database.
func (f *files) sweepShared(ctx context.Context, store database) error {
	if f.shared == nil {
		return nil
	}
	used, err := store.ManagedJobs().FilesInUse(ctx)
	if err != nil {
		return err
	}
	return f.shared.Sweep(ctx, sharedFiles, sharedKept, func(name string) bool {
		return used[strings.TrimPrefix(name, sharedFiles)]
	})
}
