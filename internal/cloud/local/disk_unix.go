//go:build unix

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// lockRoot keeps two launches from taking the same address.
func lockRoot(ctx context.Context, root string) (unlock func(), err error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(root, ".lock"))
	if _, err := l.TryLockContext(ctx, 10*time.Millisecond); err != nil {
		l.Close()
		return nil, err
	}
	return func() { l.Close() }, nil
}
