//go:build !linux

package transfer

import "os"

// allocate gives a new file its size.
func allocate(f *os.File, size int64) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	return f.Truncate(size)
}
