package tcpowner

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
)

// A row is one socket of the kernel's table.
type row struct {
	local, remote netip.AddrPort
	state         uint8
	uid           uint32
	inode         uint64 // 0: no process holds it, and then uid says nothing
}

// States of a socket.
const (
	established = 0x01
	finWait1    = 0x04
	finWait2    = 0x05
	closeWait   = 0x08
	listening   = 0x0A
)

// held reports whether a process holds the row's end of a connection. Of a socket
// that its process has closed the kernel keeps the row, with uid 0 whoever it was.
func (r row) held() bool {
	switch r.state {
	case established, finWait1, finWait2, closeWait:
		return r.inode != 0
	}
	return false
}

var errRow = errors.New("not a row of the table of TCP sockets")

// parseRow reads a line of /proc/net/tcp or /proc/net/tcp6.
func parseRow(line []byte) (r row, err error) {
	f := bytes.Fields(line)
	if len(f) < 10 {
		return r, errRow
	}
	if r.local, err = parseEnd(f[1]); err != nil {
		return r, err
	}
	if r.remote, err = parseEnd(f[2]); err != nil {
		return r, err
	}
	state, err := strconv.ParseUint(string(f[3]), 16, 8)
	if err != nil {
		return r, errRow
	}
	uid, err := strconv.ParseUint(string(f[7]), 10, 32)
	if err != nil {
		return r, errRow
	}
	r.state, r.uid = uint8(state), uint32(uid)
	if r.inode, err = strconv.ParseUint(string(f[9]), 10, 64); err != nil {
		return r, errRow
	}
	return r, nil
}

// parseEnd reads ADDRESS:PORT in hexadecimal digits. The kernel prints an address
// as 32-bit words in the byte order of the machine.
func parseEnd(text []byte) (netip.AddrPort, error) {
	address, port, ok := bytes.Cut(text, []byte(":"))
	if !ok || len(address) != 8 && len(address) != 32 || len(port) != 4 {
		return netip.AddrPort{}, errRow
	}
	p, err := strconv.ParseUint(string(port), 16, 16)
	if err != nil {
		return netip.AddrPort{}, errRow
	}
	b := make([]byte, len(address)/2)
	if _, err := hex.Decode(b, address); err != nil {
		return netip.AddrPort{}, errRow
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return plain(netip.AddrPortFrom(a, uint16(p))), nil
}

// scan calls take with each row of a table that names the port, until it returns
// false. Rows that are not understood are an error: they may be the one that counts.
func scan(table io.Reader, port uint16, take func(row) bool) error {
	mark := fmt.Appendf(nil, ":%04X ", port)
	lines := bufio.NewScanner(table)
	for first := true; lines.Scan(); first = false {
		if first || !bytes.Contains(lines.Bytes(), mark) {
			continue // the heading, or about other ports
		}
		r, err := parseRow(lines.Bytes())
		if err != nil {
			return err
		}
		if !take(r) {
			return nil
		}
	}
	return lines.Err()
}

// listeners calls take with the rows of sockets that listen, which come first in a
// table: there may be many thousands of others.
func listeners(table io.Reader, take func(row)) error {
	lines := bufio.NewScanner(table)
	for first := true; lines.Scan(); first = false {
		if first {
			continue
		}
		r, err := parseRow(lines.Bytes())
		if err != nil || r.state != listening {
			return err
		}
		take(r)
	}
	return lines.Err()
}

// peerIn looks for the other end of a connection in tables.
func peerIn(tables []io.Reader, local, remote netip.AddrPort) Owner {
	found := Unknown
	for _, t := range tables {
		err := scan(t, remote.Port(), func(r row) bool {
			if r.local == remote && r.remote == local && r.held() {
				found = Owner{UID: int(r.uid), Known: true} // there is one socket of such ends
			}
			return !found.Known
		})
		if err != nil {
			return Untold
		}
		if found.Known {
			break
		}
	}
	return found
}

// listenerIn looks for who listens at an address in tables.
func listenerIn(tables []io.Reader, at netip.AddrPort) Owner {
	f := fitting{at: at}
	for _, t := range tables {
		if listeners(t, f.add) != nil {
			return Untold
		}
	}
	return f.owner()
}

// fitting are sockets that listen, by how closely they fit an address. The socket of the
// very address is asked first, then that of all addresses of its family, then that of
// all addresses.
type fitting struct {
	at      netip.AddrPort
	found   [3]Owner
	several [3]bool // accounts: which of them answers is not known
}

func (f *fitting) add(r row) {
	if rank := rankOf(r, f.at); rank >= 0 {
		o := Owner{UID: int(r.uid), Known: r.inode != 0}
		f.several[rank] = f.several[rank] || !o.Known || f.found[rank].Known && f.found[rank] != o
		f.found[rank] = o
	}
}

func (f *fitting) owner() Owner {
	for i, o := range f.found { // the closest first
		if f.several[i] {
			return Unknown
		}
		if o.Known {
			return o
		}
	}
	return Unknown
}

// rankOf is how closely a socket that listens fits an address; -1: it does not.
func rankOf(r row, at netip.AddrPort) int {
	switch a := r.local.Addr(); {
	case r.local.Port() != at.Port():
		return -1
	case a == at.Addr():
		return 0
	case a.IsUnspecified() && a.Is4() == at.Addr().Is4():
		return 1
	case a.IsUnspecified() && a.Is6(): // which may take IPv4 too
		return 2
	}
	return -1
}
