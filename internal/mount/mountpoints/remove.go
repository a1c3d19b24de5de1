package mountpoints

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll removes a folder even when something in it lacks the permissions that
// removing needs. Buckets that are mounted there are unmounted first: what is in them
// stays.
func RemoveAll(dir string) error {
	if err := DetachBelow(dir); err != nil {
		return err
	}
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
