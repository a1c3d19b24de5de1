package tcpowner

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
)

func TestOwnSockets(t *testing.T) {
	me := Owner{UID: os.Getuid(), Known: true}
	for _, way := range []struct{ listen, dial string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"0.0.0.0:0", "127.0.0.1"}, {":0", "127.0.0.1"}, {"127.0.0.1:0", "::ffff:127.0.0.1"}, {"[::1]:0", "::1"},
	} {
		l, err := net.Listen("tcp", way.listen)
		if err != nil && way.dial == "::1" {
			continue // a machine without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).AddrPort().Port()
		to := netip.AddrPortFrom(netip.MustParseAddr(way.dial), port)
		if got := Listener(to); got != me {
			t.Errorf("%v: who listens: %v, want %v", way, got, me)
		}
		theirs, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		ours, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		local, remote := ours.LocalAddr().(*net.TCPAddr).AddrPort(), ours.RemoteAddr().(*net.TCPAddr).AddrPort()
		if got := Peer(local, remote); got != me {
			t.Errorf("%v: who connected: %v, want %v", way, got, me)
		}
		theirs.Close()
		if got := Peer(local, remote); got.Known {
			t.Errorf("%v: who had connected: %v", way, got)
		}
		l.Close()
		if got := Listener(to); got.Known {
			t.Errorf("%v: who listened: %v", way, got)
		}
	}
}

// Both ways to ask the kernel give the same answers, whichever family and state.
func TestSocketDiagnosisAgreesWithTheTables(t *testing.T) {
	if _, err := diagListeners(1); err != nil {
		t.Skip("a kernel without sock_diag:", err)
	}
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", ":0", "[::1]:0"} {
		l, err := net.Listen("tcp", listen)
		if err != nil && listen == "[::1]:0" {
			continue // a machine without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).AddrPort().Port()
		to := "127.0.0.1"
		if listen == "[::1]:0" {
			to = "::1"
		}
		at := netip.AddrPortFrom(netip.MustParseAddr(to), port)
		compare := func(when string, known bool, dialled net.Conn) {
			t.Helper()
			rows, err := diagListeners(port)
			f := fitting{at: at}
			for _, r := range rows {
				f.add(r)
			}
			table := inTables(func(tables []io.Reader) Owner { return listenerIn(tables, at) })
			if got := mapped(f.owner()); err != nil || got != table || !got.Untold && got.Known != known {
				t.Errorf("%s, %s: who listens: %v, %v; by the tables %v", listen, when, got, err, table)
			}
			if dialled == nil {
				return
			}
			theirs, ours := dialled.LocalAddr().(*net.TCPAddr).AddrPort(), dialled.RemoteAddr().(*net.TCPAddr).AddrPort()
			r, err := diagPeer(plain(theirs), plain(ours))
			table = inTables(func(tables []io.Reader) Owner { return peerIn(tables, plain(ours), plain(theirs)) })
			got := Unknown
			if err == nil && r.held() {
				got = mapped(Owner{UID: int(r.uid), Known: true})
			}
			if got != table {
				t.Errorf("%s, %s: who connected: %v, %v; by the tables %v", listen, when, got, err, table)
			}
		}
		compare("listening", true, nil)
		dialled, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		compare("connected", true, dialled)
		dialled.(*net.TCPConn).CloseWrite()
		compare("half closed", true, dialled)
		dialled.Close()
		compare("closed by them", true, dialled)
		accepted.Close()
		compare("closed by both", true, dialled)
		l.Close()
		compare("over", false, dialled)
		absent := netip.AddrPortFrom(at.Addr(), 1)
		if _, err := diagPeer(absent, at); err != errNoSocket {
			t.Errorf("%s: a connection that never was: %v", listen, err)
		}
	}
}

func FuzzSocketDiagnosis(f *testing.F) {
	f.Add(question(0, netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2"), 0))
	f.Add([]byte{20, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := answers(b, func(row) {}); err == nil && len(b) >= 16 && len(b) < int(b[0]) {
			t.Error("half a message is understood")
		}
	})
}

func TestUserNamespaces(t *testing.T) {
	for table, want := range map[string]bool{
		"         0          0 4294967295\n":                  true,
		"         0       1000          1\n":                  false,
		"         0          0          1\n 1 100000 65536\n": false,
		"": false,
		"         0          0 4294967295\n         0          0 1\n x x": false,
	} {
		if mapsAll([]byte(table)) != want {
			t.Errorf("%q: not %v", table, want)
		}
	}
}

func BenchmarkPeer(b *testing.B) {
	for b.Loop() {
		Peer(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2"))
	}
}

func BenchmarkListener(b *testing.B) {
	for b.Loop() {
		Listener(netip.MustParseAddrPort("127.0.0.1:1"))
	}
}
