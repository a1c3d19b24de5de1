//go:build unix

package filesync

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// prepare makes folders and links and sets modes: everything that needs no
// content. It runs after all comparing.
func (r *receiver) prepare(ctx context.Context) error {
	if r.dest.fd < 0 {
		if err := r.makeTop(); err != nil {
			return err
		}
	}
	if err := r.removeGone(); err != nil {
		return err
	}
	paths := make([]string, 0, len(r.plan.folders))
	for path := range r.plan.folders {
		paths = append(paths, path)
	}
	slices.Sort(paths) // a folder comes before what is in it
	for _, path := range paths {
		if err := r.prepareFolder(path, r.plan.folders[path]); err != nil {
			return r.describe(err, path, "")
		}
		if err := r.step(ctx); err != nil {
			return err
		}
	}
	w := &writer{receiver: r}
	defer w.leave()
	for i := range r.plan.links {
		l := &r.plan.links[i]
		if err := w.link(l.path, &l.item); err != nil {
			return r.describe(err, l.path, l.item.name)
		}
		if err := r.step(ctx); err != nil {
			return err
		}
	}
	for i := range r.plan.modes {
		m := &r.plan.modes[i]
		fd, err := w.enter(m.path)
		if err == nil {
			err = chmodAt(fd, m.item.name, m.item.perm)
		}
		if err != nil {
			return r.describe(err, m.path, m.item.name)
		}
		if err := r.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step counts a piece of work, and reports whether to go on.
func (r *receiver) step(ctx context.Context) error {
	r.work.Add(1)
	return context.Cause(ctx)
}

// makeTop makes the destination itself.
func (r *receiver) makeTop() error {
	perm := os.FileMode(0o755)
	if f := r.plan.folders[""]; f != nil && !r.hello.file {
		perm = os.FileMode(f.perm) | 0o700
	}
	if err := os.MkdirAll(filepath.Dir(r.dest.path), 0o755); err != nil {
		return r.describe(err, "..", "")
	}
	if err := os.Mkdir(r.dest.path, perm); err != nil && !errors.Is(err, os.ErrExist) {
		return r.describe(err, "", "")
	}
	if err := r.dest.open(); err != nil {
		return r.describe(err, "", "")
	}
	return nil
}

func (r *receiver) prepareFolder(path string, f *folderPlan) error {
	if path != "" && f.missing {
		dir, name := parent(path)
		fd, err := r.dest.folder(dir)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := r.unlock(fd, dir); err != nil {
			return err
		}
		if f.link {
			if err := removeLink(fd, name); err != nil {
				return err
			}
		}
		if err := unix.Mkdirat(fd, name, uint32(f.perm)|0o700); !errors.Is(err, unix.EEXIST) {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if kind := statItem("", &st).kind; kind != kindFolder {
			return &ConflictError{Path: r.dest.at(path, ""), Have: kind.String(), Want: kindFolder.String()}
		}
		return nil
	}
	if !f.write {
		return nil
	}
	fd, err := r.dest.folder(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return r.unlock(fd, path)
}

// unlock makes a folder writable for its owner until finish.
func (r *receiver) unlock(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o300 == 0o300 || r.keepTop(path) {
		return err
	}
	if r.plan.folders[path] == nil {
		now := statItem("", &st)
		r.plan.folders[path] = &folderPlan{perm: now.perm, mtime: now.mtime}
	}
	return unix.Fchmod(fd, uint32(st.Mode&0o7777|0o700))
}

// keepTop reports that path is the destination and has a mode and a time of its
// own.
func (r *receiver) keepTop(path string) bool {
	return path == "" && (r.hello.file || r.hello.contents && r.dest.exists)
}

// removeLink removes a symlink, nothing else.
func removeLink(fd int, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || err == nil && statItem("", &st).kind != kindLink {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Unlinkat(fd, name, 0)
}

// finish gives the folders their modes and times, deepest first.
func (r *receiver) finish(ctx context.Context) error {
	paths := make([]string, 0, len(r.plan.folders))
	for path := range r.plan.folders {
		if r.keepTop(path) {
			continue
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range slices.Backward(paths) {
		if err := r.finishFolder(path, r.plan.folders[path]); err != nil {
			return r.describe(err, path, "")
		}
		if err := r.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *receiver) finishFolder(path string, f *folderPlan) error {
	fd, err := r.dest.folder(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uint16(st.Mode&0o777) != f.perm {
		// Bits such as setgid are this machine's and stay.
		if err := unix.Fchmod(fd, uint32(st.Mode&0o7000)|uint32(f.perm)); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(fd, ".", times(f.mtime), 0)
}

// chmodAt sets the mode of a file, but not through a symlink.
func chmodAt(fd int, name string, perm uint16) error {
	err := unix.Fchmodat(fd, name, uint32(perm), unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	file, err := retry(func() (int, error) {
		return unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	defer unix.Close(file)
	return unix.Fchmod(file, uint32(perm))
}
