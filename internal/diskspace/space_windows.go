package diskspace

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/windows"
)

func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

// Free is how many bytes the user may still write to the disk that path, or its
// folder, is on.
func Free(path string) (int64, error) {
	left, _, err := free(path)
	return left, err
}

// free is [Free], with the size of the disk.
func free(path string) (left, size int64, err error) {
	var avail, total uint64
	p, err := windows.UTF16PtrFromString(filepath.Dir(path))
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(p, &avail, &total, nil)
	}
	return int64(avail), int64(total), err
}
