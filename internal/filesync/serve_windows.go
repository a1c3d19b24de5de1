package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Serve is the receiving end. It needs a Unix system.
func Serve(context.Context, io.ReadWriter, string) error {
	return fmt.Errorf("receiving files on Windows: %w", errors.ErrUnsupported)
}
