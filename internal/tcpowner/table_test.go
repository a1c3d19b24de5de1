package tcpowner

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// end is an end of a connection as the kernel prints it.
func end(a netip.AddrPort) string {
	b := a.Addr().AsSlice()
	var text strings.Builder
	for i := 0; i < len(b); i += 4 {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(b[i:]))
	}
	return fmt.Sprintf("%s:%04X", &text, a.Port())
}

// line is a row as the kernel prints it.
func line(local, remote string, state, uid, inode int) string {
	return fmt.Sprintf("%4d: %s %s %02X %08X:%08X %02X:%08X %08X %5d %8d %d %d %016x\n",
		7, end(at(local)), end(at(remote)), state, 0, 0, 0, 0, 0, uid, 0, inode, 1, 0xffff)
}

func tables(texts ...string) (out []io.Reader) {
	for _, t := range texts {
		out = append(out, strings.NewReader(heading+t))
	}
	return out
}

func TestPeer(t *testing.T) {
	const us, them = "127.0.0.1:46580", "127.0.0.1:50000"
	good := line(them, us, established, 1000, 12)
	known := Owner{UID: 1000, Known: true}
	for _, c := range []struct {
		name   string
		tables []io.Reader
		want   Owner
	}{
		{"a connection", tables(line(us, "0.0.0.0:0", listening, 1, 3) + line(us, them, established, 1, 4) + good), known},
		{"half closed by them", tables(line(them, us, finWait2, 1000, 12)), known},
		{"half closed by us", tables(line(them, us, closeWait, 1000, 12)), known},
		{"of a program that speaks IPv6", tables("", line("[::ffff:127.0.0.1]:50000", "[::ffff:127.0.0.1]:46580", established, 1000, 12)), known},
		{"of root", tables(line(them, us, established, 0, 12)), Owner{UID: 0, Known: true}},
		{"closed: the kernel says root", tables(line(them, us, finWait2, 0, 0)), Unknown},
		{"waiting for its end: the kernel says root", tables(line(them, us, 0x06, 0, 0)), Unknown},
		{"not connected yet", tables(line(them, us, 0x02, 1000, 12)), Unknown},
		{"another port of theirs", tables(line("127.0.0.1:50001", us, established, 1000, 12)), Unknown},
		{"another address of theirs", tables(line("127.0.0.2:50000", us, established, 1000, 12)), Unknown},
		{"another port of ours", tables(line(them, "127.0.0.1:46581", established, 1000, 12)), Unknown},
		{"the ends the other way round", tables(line(us, them, established, 1000, 12)), Unknown},
		{"an IPv6 address that ends alike", tables("", line("[::7f00:1]:50000", "[::7f00:1]:46580", established, 1000, 12)), Unknown},
		{"a row that is not understood", tables(strings.Replace(good, " 1000 ", " 10x0 ", 1)), Untold},
		{"no tables", nil, Unknown},
		{"empty tables", tables("", ""), Unknown},
	} {
		if got := peerIn(c.tables, at(us), at(them)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := peerIn(tables("", line("[::1]:5", "[::1]:6", established, 9, 1)), at("[::1]:6"), at("[::1]:5")); got != (Owner{UID: 9, Known: true}) {
		t.Errorf("IPv6: %v", got)
	}
}

func TestListener(t *testing.T) {
	listens := func(where string, uid, inode int) string {
		any := "0.0.0.0:0"
		if strings.HasPrefix(where, "[") {
			any = "[::]:0"
		}
		return line(where, any, listening, uid, inode)
	}
	for _, c := range []struct {
		name     string
		at       string
		tcp, six string
		want     Owner
	}{
		{"at the address", "127.0.0.1:46580", listens("127.0.0.1:46580", 5, 1), "", Owner{UID: 5, Known: true}},
		{"at all addresses", "127.0.0.1:46580", listens("0.0.0.0:46580", 5, 1), "", Owner{UID: 5, Known: true}},
		{"at all addresses of both families", "127.0.0.1:46580", "", listens("[::]:46580", 5, 1), Owner{UID: 5, Known: true}},
		{"IPv4 through IPv6", "127.0.0.1:46580", "", listens("[::ffff:127.0.0.1]:46580", 5, 1), Owner{UID: 5, Known: true}},
		{"the address goes before all addresses", "127.0.0.1:46580", listens("0.0.0.0:46580", 6, 2) + listens("127.0.0.1:46580", 5, 1), listens("[::]:46580", 7, 3), Owner{UID: 5, Known: true}},
		{"the family goes before both", "127.0.0.1:46580", listens("0.0.0.0:46580", 6, 2), listens("[::]:46580", 7, 3), Owner{UID: 6, Known: true}},
		{"one account with several sockets", "127.0.0.1:46580", listens("127.0.0.1:46580", 5, 1) + listens("127.0.0.1:46580", 5, 2), "", Owner{UID: 5, Known: true}},
		{"several accounts", "127.0.0.1:46580", listens("127.0.0.1:46580", 5, 1) + listens("127.0.0.1:46580", 6, 2), "", Unknown},
		{"held by nobody", "127.0.0.1:46580", listens("127.0.0.1:46580", 0, 0), "", Unknown},
		{"another port", "127.0.0.1:46580", listens("127.0.0.1:46581", 5, 1), "", Unknown},
		{"another address", "127.0.0.1:46580", listens("127.0.0.2:46580", 5, 1), listens("[::1]:46580", 6, 1), Unknown},
		{"IPv6", "[::1]:46580", listens("0.0.0.0:46580", 6, 2), listens("[::1]:46580", 5, 1), Owner{UID: 5, Known: true}},
		{"a connection is no listener", "127.0.0.1:46580", line("127.0.0.1:46580", "127.0.0.1:1", established, 5, 1), "", Unknown},
		{"a row that is not understood", "127.0.0.1:46580", "   0: nonsense\n" + listens("127.0.0.1:46580", 5, 1), "", Untold},
	} {
		if got := listenerIn(tables(c.tcp, c.six), at(c.at)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRowsAreReadAsPrinted(t *testing.T) {
	address := rapid.Custom(func(t *rapid.T) netip.AddrPort {
		n := 4
		if rapid.Bool().Draw(t, "IPv6") {
			n = 16
		}
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "address"))
		return netip.AddrPortFrom(a, rapid.Uint16().Draw(t, "port"))
	})
	rapid.Check(t, func(t *rapid.T) {
		local, remote := address.Draw(t, "local"), address.Draw(t, "remote")
		state, uid, inode := rapid.IntRange(1, 12).Draw(t, "state"), rapid.Uint32().Draw(t, "uid"), rapid.IntRange(0, 1<<40).Draw(t, "inode")
		r, err := parseRow([]byte(line(local.String(), remote.String(), state, int(uid), inode)))
		if want := (row{plain(local), plain(remote), uint8(state), uid, uint64(inode)}); err != nil || r != want {
			t.Errorf("%+v, %v; want %+v", r, err, want)
		}
	})
}

func FuzzTables(f *testing.F) {
	f.Add(heading + line("127.0.0.1:50000", "127.0.0.1:46580", established, 1000, 12))
	f.Add(heading + line("[::1]:50000", "[::1]:46580", finWait2, 0, 0) + "   1: x")
	f.Fuzz(func(t *testing.T, text string) {
		us, them := at("127.0.0.1:46580"), at("127.0.0.1:50000")
		if o := peerIn([]io.Reader{strings.NewReader(text)}, us, them); o.Known && !strings.Contains(strings.ToUpper(text), end(them)) && !strings.Contains(strings.ToUpper(text), "FFFF") {
			t.Errorf("an owner of a connection that is not in the table: %v", o)
		}
		listenerIn([]io.Reader{strings.NewReader(text)}, us)
	})
}
