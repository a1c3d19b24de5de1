//go:build unix

package daemon

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
	"github.com/skypilot-go/sky/internal/state"
)

// An ssh of the cluster's owner logs in through the server with the key that
// status tells; nobody else gets the key or as far as the sshd.
func TestSSHThroughTheServer(t *testing.T) {
	w := newTeam(t, teamConfig)
	_, public, err := sshconn.UserKey(w.home+"/.sky", auth.UserID("uma"))
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(public))
	if err != nil {
		t.Fatal(err)
	}
	sshd := sshtest.Start(t, key)
	c := &state.Cluster{Name: "box", Hash: "box-hash", NameOnCloud: "box-1", Status: api.ClusterInit, UserHash: auth.UserID("uma"), UserName: "uma",
		Workspace: "default", Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws"}}, NumNodes: 1, AutostopMinutes: -1, LaunchedAt: time.Now(),
		Nodes: []cloud.Node{{ID: "i-1", InternalIP: "10.0.0.1", Reach: cloud.Reach{Method: "ssh", Host: "127.0.0.1", Port: sshd.Port(), User: "sky"}}}}
	if err := w.d.store.Clusters().Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	credentials := func(who string) *api.Credentials {
		t.Helper()
		records, err := got[[]api.StatusRecord](w)(w.as(who).Status(t.Context(), api.StatusBody{ClusterNames: []string{"box"}}))
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		return records[0].Credentials
	}
	if got := credentials("otto"); got != nil {
		t.Errorf("otto gets uma's key: %v", got)
	}
	cred := credentials("uma")
	if cred == nil {
		t.Fatal("uma gets no key")
	}
	signer, err := ssh.ParsePrivateKey([]byte(cred.KeyContent))
	if err != nil {
		t.Fatalf("uma's credentials %+v: %v", cred, err)
	}
	if _, err := w.as("otto").SSH(t.Context(), "box", 0); err == nil || !strings.Contains(err.Error(), "belongs to uma") {
		t.Errorf("otto connects: %v", err)
	}
	if _, err := w.as("uma").SSH(t.Context(), "box", 1); err == nil || !strings.Contains(err.Error(), "no node 1") {
		t.Errorf("uma connects to a node that is not there: %v", err)
	}
	conn, err := w.as("uma").SSH(t.Context(), "box", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, chans, reqs, err := ssh.NewClientConn(conn, "box:22", &ssh.ClientConfig{
		User: "sky", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: func(string, net.Addr, ssh.PublicKey) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	session, err := ssh.NewClient(client, chans, reqs).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.Output("echo through the server")
	if err != nil || string(out) != "through the server\n" {
		t.Errorf("%q %v", out, err)
	}
}
