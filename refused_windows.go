package sky

import (
	"errors"

	"golang.org/x/sys/windows"
)

// refused reports whether nobody listens, so that asking again is pointless.
func refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
