package pki

import (
	"crypto/tls"
	"net"
	"testing"
)

func TestOnlyTheClustersOwnMayTalk(t *testing.T) {
	bundle := authorityFor(t, "a")
	dir := nodeDir(t, bundle)
	serve, dialNode, err := NodeConfigs(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ClientConfig(bundle)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ClientConfig(authorityFor(t, "b"))
	if err != nil {
		t.Fatal(err)
	}
	_, otherNode, err := NodeConfigs(nodeDir(t, authorityFor(t, "c")))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		dial *tls.Config
		want Role
	}{
		{"the API server", server, RoleServer},
		{"another node", dialNode, RoleNode},
		{"another cluster's server", stranger, RoleNone},
		{"another cluster's node", otherNode, RoleNone},
		{"nobody", &tls.Config{InsecureSkipVerify: true}, RoleNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := handshake(t, serve, tt.dial); got != tt.want {
				t.Errorf("role %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDamagedBundleIsAnError(t *testing.T) {
	bundle := authorityFor(t, "a")
	for _, b := range [][]byte{nil, []byte("x"), bundle[:len(bundle)/2]} {
		if _, err := ClientConfig(b); err == nil {
			t.Errorf("bundle of %d bytes was accepted", len(b))
		}
	}
}

// handshake returns the role the listening side saw, RoleNone if it refused.
func handshake(t *testing.T, serve, dial *tls.Config) Role {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	seen := make(chan Role, 1)
	go func() {
		c := tls.Server(a, serve)
		if err := c.Handshake(); err != nil {
			a.Close()
			seen <- RoleNone
			return
		}
		cs := c.ConnectionState()
		seen <- PeerRole(&cs)
		c.Write([]byte("x"))
	}()
	c := tls.Client(b, dial)
	if err := c.Handshake(); err != nil {
		b.Close()
		<-seen
		return RoleNone
	}
	c.Read(make([]byte, 1)) // TLS 1.3 tells a refusal with the first data
	return <-seen
}

func authorityFor(t *testing.T, name string) []byte {
	t.Helper()
	b, err := NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func nodeDir(t *testing.T, bundle []byte) string {
	t.Helper()
	f, err := IssueNode(bundle, "n0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := f.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
