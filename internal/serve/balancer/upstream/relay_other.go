//go:build !unix

package upstream

import (
	"io"
	"net"
)

// drainInto moves what src sends until it ends (nil) or fails.
func drainInto(dst io.Writer, src net.Conn) (moved int64, err error) {
	return copySmall(dst, src)
}
