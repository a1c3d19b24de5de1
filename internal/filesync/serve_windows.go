package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Serve is Receiver.Serve for a home folder.
func Serve(ctx context.Context, conn io.ReadWriter, home string) error {
	return Receiver{Home: home}.Serve(ctx, conn)
}

// Serve is the receiving end. It needs a Unix system.
func (Receiver) Serve(context.Context, io.ReadWriter) error {
	return fmt.Errorf("receiving files on Windows: %w", errors.ErrUnsupported)
}
