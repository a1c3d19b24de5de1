//go:build !linux

package mountapi

import (
	"context"
	"errors"
)

// Listener is the process that listens on the socket at a path. Nothing is mounted on this
// system.
func Listener(context.Context, string) (int, error) { return 0, errors.ErrUnsupported }
