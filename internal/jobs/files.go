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

	"github.com/zeebo/blake3"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

// files keeps what jobs need of their users' files. A job may be launched again
// long after it was submitted, when the user's files are others or gone: so
// they are copied first, into folders that are named for their contents.
type files struct {
	dir string
	// Whoever takes a folder for a new job holds it for reading until the job is
	// stored: a sweep would not know of it yet.
	mu sync.RWMutex
}

// taskFile is the name of what is copied below its folder.
const taskFile = "data"

// take copies the local files of tasks and makes the tasks name the copies. It
// returns the folders that the job needs; done must be called once the job is
// stored.
func (f *files) take(ctx context.Context, dag *task.Dag) (folders []string, done func(), err error) {
	f.mu.RLock()
	seen := map[string]string{}
	copied := func(src string, ignored bool) (string, error) {
		key := fmt.Sprint(ignored, src)
		if _, ok := seen[key]; !ok {
			name, err := f.copy(ctx, src, ignored)
			if err != nil {
				return "", err
			}
			seen[key] = name
			folders = append(folders, name)
		}
		return filepath.Join(f.dir, seen[key], taskFile), nil
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

// sweep removes folders that no job under way needs.
func (f *files) sweep(ctx context.Context, store database) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 {
		return nil
	}
	if err != nil {
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
