// Package tcpowner reports which account of this machine owns the other end of a TCP
// connection, and which one listens at an address.
//
// On Linux the kernel reports the sockets of this network namespace: by sock_diag(7), or
// by its tables /proc/net/tcp and /proc/net/tcp6 where it lacks that. Other systems, and
// sandboxes with neither, do not report them. The answer is never a guess.
package tcpowner

import "net/netip"

// An Owner is the account that a socket belongs to, if it is known.
type Owner struct {
	UID   int
	Known bool
	// Untold says that it is not known because this system does not tell. Otherwise
	// there is no such socket, no process holds it any more, or it may be one of several.
	Untold bool
}

// Unknown is the owner of a socket that was not found, Untold that of every socket
// where the system does not tell.
var Unknown, Untold = Owner{}, Owner{Untold: true}

// Peer is the owner of the other end of a connection whose ends are local, which is
// ours, and remote. The socket must be held by a process: of one that was closed
// meanwhile the owner is unknown. It does not change while the connection lasts.
func Peer(local, remote netip.AddrPort) Owner { return peer(plain(local), plain(remote)) }

// Listener is the owner of the socket that takes connections to an address.
func Listener(at netip.AddrPort) Owner { return listener(plain(at)) }

// plain is an address as both tables have it: an IPv4 address that is written as an
// IPv6 address is the same, and a zone says nothing about a machine's own sockets.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
