//go:build unix

package sky

import (
	"errors"
	"syscall"
)

// refused reports whether nobody listens at the endpoint.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// reset reports whether the other side broke the connection.
func reset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
