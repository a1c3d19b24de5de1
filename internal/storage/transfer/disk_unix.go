//go:build unix

package transfer

import (
	"errors"
	"syscall"
)

// noSpace reports whether other files will not fit, either.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}
