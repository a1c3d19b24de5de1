//go:build unix

package upstream

import (
	"io"
	"net"
	"syscall"
)

// drainInto moves what src sends until it ends (nil) or fails.
func drainInto(dst io.Writer, src net.Conn) (moved int64, err error) {
	tcp, ok := src.(*net.TCPConn)
	if !ok {
		return copySmall(dst, src)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	var p *[]byte
	var n int
	var rerr error
	read := func(fd uintptr) bool {
		p = relayBuffers.Get().(*[]byte)
		for {
			n, rerr = syscall.Read(int(fd), *p)
			if rerr != syscall.EINTR {
				break
			}
		}
		if rerr == syscall.EAGAIN {
			relayBuffers.Put(p)
			p = nil
			return false // called again once there is something
		}
		return true
	}
	for {
		if err := raw.Read(read); err != nil {
			return moved, err
		}
		if rerr == nil && n > 0 {
			moved += int64(n)
			_, err = dst.Write((*p)[:n])
		}
		relayBuffers.Put(p)
		switch {
		case rerr != nil:
			return moved, rerr
		case n == 0:
			return moved, nil
		case err != nil:
			return moved, err
		}
	}
}
