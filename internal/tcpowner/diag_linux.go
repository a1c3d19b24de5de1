package tcpowner

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The kernel's socket diagnosis, sock_diag(7), looks a socket up by its ends, and lists
// those that listen alone. Reading /proc/net/tcp walks its whole hash table of
// connections, which takes milliseconds also where there are few.

const (
	diagID       = 2 + 2 + 16 + 16 + 4 + 8 // ports, addresses, interface, cookie
	diagRequest  = 8 + diagID
	diagAnswer   = 4 + diagID + 5*4
	diagNoCookie = 0xffffffff
	diagWait     = 1 // seconds; the kernel answers at once
)

var errDiag = errors.New("an answer of sock_diag is not understood")

// errNoSocket is the answer that there is no socket of such ends. One that is bound to an
// interface is not found either.
var errNoSocket error = unix.ENOENT

// diagPeer is the row of the socket whose ends are these.
func diagPeer(local, remote netip.AddrPort) (row, error) {
	rows, err := diag(0, local, remote, 0)
	if err != nil {
		return row{}, err
	}
	if len(rows) != 1 || rows[0].local != local || rows[0].remote != remote {
		return row{}, errNoSocket // what listens there is found in its place
	}
	return rows[0], nil
}

// diagListeners are the sockets of both families that listen at a port.
func diagListeners(port uint16) (rows []row, err error) {
	for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		some, err := diag(unix.NLM_F_DUMP, netip.AddrPortFrom(any, port), netip.AddrPortFrom(any, 0), 1<<listening)
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// diag asks for sockets in some states (0: any), by their ends.
func diag(flags uint16, local, remote netip.AddrPort, states uint32) ([]row, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: diagWait}); err != nil {
		return nil, err
	}
	if err := unix.Sendto(fd, question(flags, local, remote, states), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var rows []row
	for buf := make([]byte, 32<<10); ; {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if s, ok := from.(*unix.SockaddrNetlink); !ok || s.Pid != 0 {
			continue // not of the kernel
		}
		more, err := answers(buf[:n], func(r row) { rows = append(rows, r) })
		if err != nil || !more {
			return rows, err
		}
	}
}

// question is a netlink message with a struct inet_diag_req_v2.
func question(flags uint16, local, remote netip.AddrPort, states uint32) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+diagRequest)
	binary.NativeEndian.PutUint32(b[0:], unix.NLMSG_HDRLEN+diagRequest)
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	family := byte(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	if states == 0 {
		states = ^uint32(0)
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, states)
	b = binary.BigEndian.AppendUint16(b, local.Port())
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		var sixteen [16]byte
		copy(sixteen[:], a.AsSlice())
		b = append(b, sixteen[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0) // any interface
	b = binary.NativeEndian.AppendUint32(b, diagNoCookie)
	return binary.NativeEndian.AppendUint32(b, diagNoCookie)
}

// answers reads netlink messages; more are to come if it says so.
func answers(b []byte, take func(row)) (more bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		if size < unix.NLMSG_HDRLEN || size > len(b) || flags&unix.NLM_F_DUMP_INTR != 0 {
			return false, errDiag
		}
		body := b[unix.NLMSG_HDRLEN:size]
		switch kind {
		case unix.NLMSG_DONE:
			return false, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return false, errDiag
			}
			return false, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case unix.SOCK_DIAG_BY_FAMILY:
			r, err := diagRow(body)
			if err != nil {
				return false, err
			}
			take(r)
			more = flags&unix.NLM_F_MULTI != 0
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return more, nil
}

// diagRow reads a struct inet_diag_msg.
func diagRow(b []byte) (r row, err error) {
	if len(b) < diagAnswer {
		return r, errDiag
	}
	size := 4
	switch b[0] {
	case unix.AF_INET:
	case unix.AF_INET6:
		size = 16
	default:
		return r, errDiag
	}
	end := func(address, port []byte) netip.AddrPort {
		a, _ := netip.AddrFromSlice(address[:size])
		return plain(netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)))
	}
	r.state = b[1]
	r.local, r.remote = end(b[8:], b[4:]), end(b[24:], b[6:])
	tail := b[4+diagID:]
	r.uid, r.inode = binary.NativeEndian.Uint32(tail[12:]), uint64(binary.NativeEndian.Uint32(tail[16:]))
	return r, nil
}
