package remote

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// A node that runs as another account than its sshd's login is reached as that account
// only, by people too.
func TestWhoReachesANodeOfAnAccount(t *testing.T) {
	pool := sshconn.New(sshconn.Options{Home: t.TempDir()})
	t.Cleanup(pool.Close)
	r := New(Options{SSH: pool, SkyDir: t.TempDir(), SSHConfig: t.TempDir(), SSHProxy: "sky ssh --stdio"})
	n := cloud.Node{ID: "n", Reach: cloud.Reach{Method: "ssh", Host: "127.0.0.1", Port: 22, User: "pool", OwnKeys: true}}
	c := &state.Cluster{Name: "c", Hash: "h", UserHash: "u", Nodes: []cloud.Node{n}}
	if !r.HasSSHD(n) {
		t.Error("a node of the login has no sshd")
	}
	n.Reach.RunAs = "ada"
	c.Nodes[0] = n
	if r.HasSSHD(n) {
		t.Error("people would log in as pool")
	}
	if secret, user, err := r.Credentials(c); secret != nil || user == "pool" || err != nil {
		t.Errorf("clients are given %v for %s, %v", secret, user, err)
	}
	if target, err := r.target(c, n); err != nil || target.RunAs != "ada" || target.User != "pool" {
		t.Errorf("%+v, %v", target, err)
	}
	n.Reach.RunAs = "root"
	if _, err := r.target(c, n); err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("root: %v", err)
	}
}
