//go:build unix && !linux

package filesync

import (
	"time"

	"golang.org/x/sys/unix"
)

// openBeneath opens a folder or a file, as flags say, below the folder open as
// fd; no element of the path may be a symlink.
func openBeneath(fd int, path string, flags int) (int, error) { return openStepwise(fd, path, flags) }

// times are for setting the time of the last change; the time of the last
// access becomes now.
func times(mtime int64) []unix.Timespec {
	return []unix.Timespec{unix.NsecToTimespec(time.Now().UnixNano()), unix.NsecToTimespec(mtime)}
}

// maskedBits are the mode bits that a new file may not get.
func maskedBits() uint16 { return 0o777 }
