package mountapi

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// Listener is the process that listens on the socket at a path, whether or not it answers.
func Listener(ctx context.Context, socket string) (pid int, err error) {
	address, done, err := Address(socket)
	if err != nil {
		return 0, err
	}
	defer done()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}
