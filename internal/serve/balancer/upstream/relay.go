package upstream

import (
	"io"
	"net"
	"sync"
)

// relayBuffers are taken while there are bytes to move, and not while a connection
// is silent, so that a silent one costs little.
var relayBuffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// Relay moves bytes both ways until both sides have ended or one fails, and closes
// both. It returns how many bytes each has sent.
func Relay(a, b net.Conn) (fromA, fromB int64) {
	defer a.Close()
	defer b.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fromB = oneWay(a, b)
	}()
	fromA = oneWay(b, a)
	<-done
	return fromA, fromB
}

// oneWay moves what src sends until it ends, which dst is told, or until one of
// them fails, which ends both.
func oneWay(dst, src net.Conn) (moved int64) {
	moved, err := drainInto(dst, src)
	if half, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
		half.CloseWrite()
		return moved
	}
	dst.Close()
	src.Close()
	return moved
}

// copySmall is drainInto for connections that have no file descriptor of their
// own, such as those with TLS.
func copySmall(dst io.Writer, src io.Reader) (moved int64, err error) {
	buf := make([]byte, 4<<10)
	for {
		n, err := src.Read(buf)
		moved += int64(n)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return moved, err
			}
		}
		if err == io.EOF {
			return moved, nil
		}
		if err != nil {
			return moved, err
		}
	}
}
