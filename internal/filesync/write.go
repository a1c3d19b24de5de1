//go:build unix

package filesync

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// A writer writes files; it keeps the folder of the last one open.
type writer struct {
	*receiver
	path string
	fd   int
	in   bool // path and fd are set
}

// enter opens a folder; it stays open until another is entered.
func (w *writer) enter(path string) (int, error) {
	if w.in && w.path == path {
		return w.fd, nil
	}
	w.leave()
	fd, err := w.dest.folder(path)
	if err != nil {
		return -1, err
	}
	w.path, w.fd, w.in = path, fd, true
	w.journal.note(path)
	return fd, nil
}

func (w *writer) leave() {
	if w.in {
		unix.Close(w.fd)
		w.in = false
	}
}

// tempName is a new name for an unfinished file.
func (w *writer) tempName() string {
	return fmt.Sprintf("%s%016x%016x%s", partPrefix, rand.Uint64(), rand.Uint64(), tempSuffix)
}

// link makes a symlink, or changes its target at once.
func (w *writer) link(path string, it *item) error {
	fd, err := w.enter(path)
	if err != nil {
		return err
	}
	temp := w.tempName()
	if err := unix.Symlinkat(it.target, fd, temp); err != nil {
		return err
	}
	err = unix.UtimesNanoAt(fd, temp, times(it.mtime), unix.AT_SYMLINK_NOFOLLOW)
	if err == nil {
		err = w.publish(fd, temp, path, it)
	}
	if err != nil {
		unix.Unlinkat(fd, temp, 0)
	}
	return err
}

// publish gives a finished file its name.
func (w *writer) publish(fd int, temp, path string, it *item) error {
	err := unix.Renameat(fd, temp, fd, it.name)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		return &ConflictError{Path: w.dest.at(path, it.name), Have: kindFolder.String(), Want: it.kind.String()}
	}
	return err
}

// place writes a small file.
func (w *writer) place(path string, it *item, content []byte) error {
	fd, err := w.enter(path)
	if err != nil {
		return err
	}
	temp := w.tempName()
	file, err := retry(func() (int, error) {
		return unix.Openat(fd, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(it.perm))
	})
	if err != nil {
		return err
	}
	for err == nil && len(content) > 0 {
		var n int
		n, err = retry(func() (int, error) { return unix.Write(file, content) })
		content = content[max(n, 0):]
	}
	if err == nil && it.perm&maskedBits() != 0 {
		err = unix.Fchmod(file, uint32(it.perm))
	}
	if e := unix.Close(file); err == nil {
		err = e
	}
	if err == nil {
		err = unix.UtimesNanoAt(fd, temp, times(it.mtime), unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = w.publish(fd, temp, path, it)
	}
	if err != nil {
		unix.Unlinkat(fd, temp, 0)
	}
	return err
}

// touch gives the present file, whose content is right, its mode and time.
func (w *writer) touch(path string, it *item, seen *item, sum hash) error {
	fd, err := w.enter(path)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, it.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if now := statItem("", &st); now.inode != seen.inode || now.ctime != seen.ctime || !sameFile(&now, seen) {
		return errors.New("the file changed at the destination meanwhile")
	}
	if uint16(st.Mode&0o777) != it.perm {
		if err := chmodAt(fd, it.name, it.perm); err != nil {
			return err
		}
	}
	if err := unix.UtimesNanoAt(fd, it.name, times(it.mtime), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	w.remember(fd, path, it, sum)
	return nil
}

// remember keeps the hash of a file that has just got its time.
func (w *writer) remember(fd int, path string, it *item, sum hash) {
	var st unix.Stat_t
	if unix.Fstatat(fd, it.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		if now := statItem("", &st); sameFile(&now, it) {
			w.hashes.set(join(path, it.name), &now, sum)
		}
	}
}
