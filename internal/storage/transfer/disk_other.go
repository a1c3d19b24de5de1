//go:build !unix

package transfer

import (
	"errors"
	"syscall"
)

// noSpace reports whether other files will not fit, either.
func noSpace(err error) bool {
	const diskFull, handleDiskFull = syscall.Errno(112), syscall.Errno(39)
	return errors.Is(err, diskFull) || errors.Is(err, handleDiskFull)
}
