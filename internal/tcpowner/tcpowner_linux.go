package tcpowner

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
)

// tries is how often a connection is looked for in the tables: one that changes while it
// is read may miss a row.
const tries = 3

func peer(local, remote netip.AddrPort) Owner {
	r, err := diagPeer(remote, local)
	left := tries
	switch {
	case err == nil && r.held():
		return mapped(Owner{UID: int(r.uid), Known: true})
	case err == nil:
		return Unknown
	case err == errNoSocket:
		left = 1
	}
	for range left {
		if o := inTables(func(t []io.Reader) Owner { return peerIn(t, local, remote) }); o != Unknown {
			return o
		}
	}
	return Unknown
}

func listener(at netip.AddrPort) Owner {
	if rows, err := diagListeners(at.Port()); err == nil {
		f := fitting{at: at}
		for _, r := range rows {
			if r.state != listening {
				return Untold
			}
			f.add(r)
		}
		return mapped(f.owner())
	}
	return inTables(func(t []io.Reader) Owner { return listenerIn(t, at) })
}

// inTables looks into the kernel's tables. Without IPv6 there is one.
func inTables(look func([]io.Reader) Owner) Owner {
	var tables []io.Reader
	for _, name := range [...]string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return Untold
		}
		defer f.Close()
		tables = append(tables, f)
	}
	if len(tables) == 0 {
		return Untold
	}
	return mapped(look(tables))
}

// mapped is an owner, unless its number stands for several accounts.
func mapped(o Owner) Owner {
	if o.Known && o.UID == unmapped() {
		return Untold
	}
	return o
}

// unmapped is the number that stands for all accounts that this process has no
// number for, as in a user namespace; -1 if there are none.
var unmapped = sync.OnceValue(func() int {
	table, err := os.ReadFile("/proc/self/uid_map")
	if os.IsNotExist(err) || err == nil && mapsAll(table) {
		return -1
	}
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
		return n
	}
	return 65534
})

// mapsAll reports whether a uid_map has a number for each account.
func mapsAll(table []byte) bool {
	f := bytes.Fields(table)
	return len(f) == 3 && string(f[0]) == "0" && string(f[1]) == "0" && string(f[2]) == "4294967295"
}
