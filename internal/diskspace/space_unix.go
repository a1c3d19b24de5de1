//go:build unix

package diskspace

import (
	"errors"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// Free is how many bytes the user may still write to the disk that path, or its
// folder, is on.
func Free(path string) (int64, error) {
	left, _, err := free(path)
	return left, err
}

// free is [Free], with the size of the disk.
func free(path string) (left, size int64, err error) {
	var s unix.Statfs_t
	err = unix.Statfs(path, &s)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Statfs(filepath.Dir(path), &s)
	}
	if err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
