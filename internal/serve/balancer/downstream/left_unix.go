//go:build unix

package downstream

import (
	"net"
	"syscall"
)

// supported reports whether connections can be watched here.
const supported = true

// left waits until the client has left (true), or has sent something or the read
// deadline has come (false).
func left(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		switch {
		case err == syscall.EAGAIN, err == syscall.EINTR:
			return false
		case err != nil || n == 0:
			gone = true
		}
		return true
	})
	return gone
}
