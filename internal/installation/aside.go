package installation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// SetAside moves the files of the database out of the way, into a folder of their
// own beside it, and returns that folder; "": there was none. The main file goes
// last: while it is there, what a crash left half done is done again.
func SetAside(home string, now time.Time) (dir string, err error) {
	db := Database(home)
	for _, file := range []string{db + "-shm", db + "-wal", db} {
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if dir == "" {
			if dir, err = asideFolder(home, now); err != nil {
				return "", err
			}
		}
		if err := os.Rename(file, filepath.Join(dir, filepath.Base(file))); err != nil {
			return dir, fmt.Errorf("moving %s aside: %w", file, err)
		}
	}
	return dir, nil
}

func asideFolder(home string, now time.Time) (string, error) {
	stem := filepath.Join(Dir(home), "aside-"+now.UTC().Format("20060102-150405"))
	for i := 1; ; i++ {
		dir := stem
		if i > 1 {
			dir = fmt.Sprintf("%s-%d", stem, i)
		}
		err := os.Mkdir(dir, 0o700)
		if !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}
