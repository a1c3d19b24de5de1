//go:build unix

package filesync

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isNotFolder tells that a file stands where a path wants a folder.
func isNotFolder(err error) bool { return errors.Is(err, unix.ENOTDIR) }

// isLoop tells that a symlink stands where there must be none.
func isLoop(err error) bool { return errors.Is(err, unix.ELOOP) }

func isNoSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
