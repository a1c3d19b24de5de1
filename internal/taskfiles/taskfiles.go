// Package taskfiles keeps what tasks need of their users' files. A managed job or a
// replica of a service may be launched again long after it was submitted, when the
// user's files are others or gone: so they are copied first, into folders that are
// named for their contents. Servers that share a database keep the folders there as
// well, and any of them may launch.
package taskfiles

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// InUse lists the folders that something under way needs.
type InUse func(context.Context) (map[string]bool, error)

// Files is the copies on one server.
type Files struct {
	dir    string
	shared *logstore.Files // nil: this server is the only one
	inUse  []InUse
	// Whoever needs a folder that a sweep does not know of yet, or makes one, holds
	// this for reading.
	mu       sync.RWMutex
	fetching chan struct{} // has room for one
}

// New returns the copies in dir, and in the database if shared is not nil. What none
// of inUse lists is removed by sweeps.
func New(dir string, shared *logstore.Files, inUse ...InUse) *Files {
	return &Files{dir: dir, shared: shared, inUse: inUse, fetching: make(chan struct{}, 1)}
}

func (f *Files) used(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	for _, list := range f.inUse {
		some, err := list(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, some)
	}
	return all, nil
}

const (
	// taskFile is the name of what is copied below its folder.
	taskFile = "data"
	// anyDir stands for the folder of files in the tasks of jobs that earlier versions
	// stored. Since then a task's mapping says where in the folder its files are.
	anyDir = "/@files-of-managed-jobs@/"
	// sharedFiles begins the names of folders in the database.
	sharedFiles = "job-files/"
	// sharedKept is how long a folder in the database stays that nobody needs: a
	// job that another server is about to store may.
	sharedKept = time.Hour
)

// Take copies the files of a user's tasks, of those that the user has, and notes
// in the tasks where the copies are: what their mappings said before is gone. It
// returns the folders that the job needs; done must be called once the job is
// stored.
func (f *Files) Take(ctx context.Context, user string, have upload.Files, dag *task.Dag) (folders []string, done func(), err error) {
	f.mu.RLock()
	defer func() {
		if err != nil {
			f.mu.RUnlock()
		}
	}()
	seen := map[filesync.Source]string{}
	for _, t := range dag.Tasks {
		mapping := map[string]string{}
		for _, name := range named(t) {
			src, err := have.Source(t, name)
			if err != nil {
				return nil, nil, err
			}
			folder, ok := seen[src]
			if !ok {
				if folder, err = f.copy(ctx, src); err == nil {
					err = f.share(ctx, user, folder)
				}
				if err != nil {
					return nil, nil, err
				}
				seen[src] = folder
				folders = append(folders, folder)
			}
			mapping[name] = path.Join(folder, taskFile)
		}
		t.FileMountsMapping = nil
		if len(mapping) > 0 {
			t.FileMountsMapping = mapping
		}
	}
	return folders, f.mu.RUnlock, nil
}

// named are the files of its author's machine that a task brings to nodes, and those
// uploaded ones that its service needs.
func named(t *task.Task) []string {
	var names []string
	if t.Workdir != "" {
		names = append(names, t.Workdir)
	}
	for _, src := range t.FileMounts {
		if !strings.Contains(src, "://") {
			names = append(names, src)
		}
	}
	for _, m := range t.StorageMounts {
		for _, src := range m.Sources {
			if !strings.Contains(src, "://") {
				names = append(names, src)
			}
		}
	}
	if t.Service != nil {
		for _, name := range []string{t.Service.TLSKeyfile, t.Service.TLSCertfile} {
			if _, uploaded := t.FileMountsMapping[name]; uploaded {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Read is the content of one of the files of a task of which [Files.Take] made copies,
// if it is not longer than most.
func (f *Files) Read(ctx context.Context, t *task.Task, folders []string, name string, most int64) ([]byte, error) {
	have, err := f.Bring(ctx, t, folders)
	if err != nil {
		return nil, err
	}
	src, err := have.Source(t, name)
	if err != nil {
		return nil, err
	}
	r, err := filesync.Open(src, ".")
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it is longer than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return b, nil
}

// share puts a folder into the database, where it may be already.
func (f *Files) share(ctx context.Context, user, name string) error {
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

// Bring makes sure that the copies of the files of a job's task are on this
// server: they are what its launch may bring to nodes. folders are those that the
// job needs.
func (f *Files) Bring(ctx context.Context, t *task.Task, folders []string) (upload.Files, error) {
	for _, name := range named(t) {
		at, ok := t.FileMountsMapping[name]
		if earlier, was := strings.CutPrefix(name, anyDir); was && !ok {
			at = earlier
			if t.FileMountsMapping == nil {
				t.FileMountsMapping = map[string]string{}
			}
			t.FileMountsMapping[name] = at
		}
		folder, _, _ := strings.Cut(at, "/")
		if !slices.Contains(folders, folder) {
			return upload.Files{}, fmt.Errorf("the job has no copy of %s: %w", name, fs.ErrNotExist)
		}
		if f.shared != nil {
			if err := f.fetch(ctx, folder); err != nil {
				return upload.Files{}, fmt.Errorf("getting the job's files from the database: %w", err)
			}
		}
	}
	return upload.In(f.dir), nil
}

// fetch gets a folder that another server put into the database; of those who
// need the same one at once, one does.
func (f *Files) fetch(ctx context.Context, name string) error {
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
	if err := diskspace.Leaves(f.dir, 0); err != nil {
		return err
	}
	return f.shared.FetchFolder(ctx, sharedFiles+name, dir)
}

// copy copies a file or folder, less what its ignore files say, and returns the
// name of the folder it is in.
func (f *Files) copy(ctx context.Context, src filesync.Source) (string, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(f.dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	sum := blake3.New()
	for e, err := range filesync.Walk(src, true, nil) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = put(src, filepath.Join(tmp, taskFile), e, sum)
		}
		if err != nil {
			return "", copyError(src, err)
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
func put(src filesync.Source, dst string, e filesync.Entry, sum io.Writer) error {
	to := filepath.Join(dst, filepath.FromSlash(e.Path))
	fmt.Fprintf(sum, "%q %o %q %d\n", path.Clean(e.Path), e.Mode, e.Target, e.Size)
	switch {
	case e.Mode.IsDir():
		return os.MkdirAll(to, e.Mode.Perm()|0o700)
	case e.Mode&fs.ModeSymlink != 0:
		return os.Symlink(e.Target, to)
	}
	if err := diskspace.Leaves(dst, e.Size); err != nil {
		return err
	}
	in, err := filesync.Open(src, e.Path)
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

func copyError(src filesync.Source, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.As(err, new(*filesync.OutsideError)) {
		return upload.Error(src, err)
	}
	return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Keeping a copy of %s for the job failed: %v", src, err), Err: err}
}

// Sweep removes folders of this server that nothing under way needs.
func (f *Files) Sweep(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || len(entries) == 0 {
		return err
	}
	used, err := f.used(ctx)
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

// SweepShared does the same in the database.
func (f *Files) SweepShared(ctx context.Context) error {
	if f.shared == nil {
		return nil
	}
	used, err := f.used(ctx)
	if err != nil {
		return err
	}
	return f.shared.Sweep(ctx, sharedFiles, sharedKept, func(name string) bool {
		return used[strings.TrimPrefix(name, sharedFiles)]
	})
}
