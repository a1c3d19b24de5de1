package sky

import (
	"errors"

	"golang.org/x/sys/windows"
)

// refused reports whether nobody listens at the endpoint.
func refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// reset reports whether the other side broke the connection.
func reset(err error) bool { return errors.Is(err, windows.WSAECONNRESET) }
