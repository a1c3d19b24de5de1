//go:build unix

package upstream

import (
	"net"
	"syscall"
)

// alive reports whether an unused connection is still open and silent.
func alive(c net.Conn) bool {
	if knows, ok := c.(interface{ Alive() bool }); ok {
		return knows.Alive()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	if err := raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		open = err == syscall.EAGAIN
		return true
	}); err != nil {
		return false
	}
	return open
}
