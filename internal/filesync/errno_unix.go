//go:build unix

package filesync

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// isNotFolder reports that a file stands where a path wants a folder.
func isNotFolder(err error) bool { return errors.Is(err, unix.ENOTDIR) }

// isLoop reports that a symlink stands where there must be none.
func isLoop(err error) bool { return errors.Is(err, unix.ELOOP) }

// inodeOf is the inode of a file that was described, 0 if that is unknown.
func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}

func isNoSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
