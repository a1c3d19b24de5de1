package filesync

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noOpenat2 is set when the kernel, or a filter before it, lacks the call.
var noOpenat2 atomic.Bool

// openBeneath opens a folder or a file, as flags say, below the folder open as
// fd; no element of the path may be a symlink.
func openBeneath(fd int, path string, flags int) (int, error) {
	if noOpenat2.Load() {
		return openStepwise(fd, path, flags)
	}
	how := unix.OpenHow{
		Flags:   uint64(flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range 100 {
		got, err := unix.Openat2(fd, path, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.E2BIG):
			noOpenat2.Store(true)
			return openStepwise(fd, path, flags)
		}
		return got, err
	}
	return openStepwise(fd, path, flags)
}

// times are for setting the time of the last change only.
func times(mtime int64) []unix.Timespec {
	return []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
}

// maskedBits are the mode bits that a new file may not get.
var maskedBits = sync.OnceValue(func() uint16 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0o777
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "Umask:"); ok {
			if mask, err := strconv.ParseUint(strings.TrimSpace(text), 8, 16); err == nil {
				return uint16(mask)
			}
		}
	}
	return 0o777
})
