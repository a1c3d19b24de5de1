package remote

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/skypilot-go/sky/internal/filesync"
)

// brokenConn marks a connection that could not be made.
type brokenConn struct{ err error }

func (b *brokenConn) Error() string { return b.err.Error() }
func (b *brokenConn) Unwrap() error { return b.err }

// retryable tells a connection that broke, or that was lost without a word, from a
// request that was refused.
func retryable(err error) bool {
	var broken *brokenConn
	var op *net.OpError
	var stalled *filesync.StalledError
	return errors.As(err, &broken) || errors.As(err, &op) || errors.As(err, &stalled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
