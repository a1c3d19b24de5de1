package transfer

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives a new file its size and, where the file system can, its room on the disk:
// a file that does not fit is refused before it is fetched, and pieces that are written in
// any order lie one behind another.
func allocate(f *os.File, size int64) error {
	if err := f.Truncate(0); err != nil || size == 0 {
		return err
	}
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return f.Truncate(size)
	}
	if err != nil { // some of it may be there, which others can use
		err = errors.Join(err, f.Truncate(0))
	}
	return err
}
