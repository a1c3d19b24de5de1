//go:build unix

package sky

import (
	"errors"
	"syscall"
)

// refused reports whether nobody listens, so that asking again is pointless.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
