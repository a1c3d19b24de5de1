package tcpowner

import (
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
