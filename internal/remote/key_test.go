//go:build linux

package remote

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

// sharedKeys is where servers that share a database keep users' keys.
type sharedKeys struct {
	mu   sync.Mutex
	keys map[string][]byte
	down error
}

func (s *sharedKeys) share(user string, private []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	if s.keys[user] == nil {
		s.keys[user] = private
	}
	return s.keys[user], nil
}

func TestServersThatShareADatabaseLogInWithTheSameKey(t *testing.T) {
	s := &sharedKeys{keys: map[string][]byte{}}
	server := func() *Connector {
		return connectorOf(t, func(o *Options) {
			o.SSH, o.SkyDir, o.ShareKey = sshconn.New(sshconn.Options{}), t.TempDir(), s.share
			t.Cleanup(o.SSH.Close)
		})
	}
	one, other := server(), server()
	key, err := one.PublicKey(user)
	if err != nil || !strings.HasPrefix(key, "ssh-ed25519 ") {
		t.Fatalf("%q, %v", key, err)
	}
	if got, err := other.PublicKey(user); err != nil || got != key {
		t.Errorf("%q, %v; the first server has %q", got, err, key)
	}
	if got, err := one.PublicKey("another"); err != nil || got == key {
		t.Errorf("two users have %q, %v", got, err)
	}
	c := newCluster(t, "ssh", 1)
	target, err := other.target(c, c.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	private, err := os.ReadFile(target.Identities[0])
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil || !strings.HasPrefix(key, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))) {
		t.Errorf("it logs in with another key: %v", err)
	}

	// What they agreed on is known without the database.
	s.mu.Lock()
	s.down = errors.New("the database is away")
	s.mu.Unlock()
	if got, err := other.PublicKey(user); err != nil || got != key {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := server().PublicKey(user); !errors.Is(err, s.down) {
		t.Errorf("a server that never asked has a key: %v", err)
	}
}

func TestAServerWithoutSSHHasNoKeys(t *testing.T) {
	r := connectorOf(t, nil)
	if key, err := r.PublicKey(user); key != "" || err != nil {
		t.Errorf("%q, %v", key, err)
	}
	if said, _, err := r.Credentials(newCluster(t, "ssh", 1)); said != nil || err != nil {
		t.Errorf("%v, %v", said, err)
	}
}

func TestTheOwnersSSHIsToldHowToLogIn(t *testing.T) {
	m := newMachines(t, 1)
	r := m.connector()
	said, account, err := r.Credentials(m.c)
	if err != nil {
		t.Fatal(err)
	}
	if account != "u" || said.User != "u" || said.ControlName != "c-1" {
		t.Errorf("%v", said)
	}
	key, err := os.ReadFile(said.PrivateKey)
	if err != nil || said.KeyContent != string(key) {
		t.Errorf("%v", err)
	}
	if _, err := ssh.ParsePrivateKey(key); err != nil {
		t.Error(err)
	}

	// Keys of the machines' owner are not sent.
	for name, reach := range map[string]cloud.Reach{
		"own keys": {Method: "ssh", User: "u", OwnKeys: true}, "a file": {Method: "ssh", User: "u", IdentityFile: filepath.Join(m.home, "key")},
	} {
		m.c.Nodes[0].Reach = reach
		// Clients take credentials without a key for an error.
		if said, account, err := r.Credentials(m.c); err != nil || said != nil || account != "u" {
			t.Errorf("%s: %v, %s, %v", name, said, account, err)
		}
	}
}

func TestTheUsersSSHReachesTheSSHDOfANodeThatHasOne(t *testing.T) {
	m := newMachines(t, 1)
	r := m.connector()
	conn, err := r.SSHD(t.Context(), m.c, m.c.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if hello, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(hello, "SSH-2.0-") || strings.HasPrefix(hello, "SSH-2.0-sky") {
		t.Errorf("%q, %v", hello, err)
	}
}

// For nodes without an sshd the server speaks ssh; no key is needed there, and none sent.
func TestNodesWithoutAnSSHDAreServed(t *testing.T) {
	for _, method := range []string{"local", "docker", "kubernetes"} {
		m := newMachines(t, 1)
		r := m.connector()
		m.c.Nodes[0].Reach = cloud.Reach{Method: method, Agent: "127.0.0.1:1"}
		conn, err := r.SSHD(t.Context(), m.c, m.c.Nodes[0])
		if err != nil {
			t.Fatal(err)
		}
		if hello, err := bufio.NewReader(conn).ReadString('\n'); err != nil || hello != "SSH-2.0-sky\r\n" {
			t.Errorf("%s: %q, %v", method, hello, err)
		}
		conn.Close()
		if credentials, user, err := r.Credentials(m.c); credentials != nil || user != anyUser || err != nil {
			t.Errorf("%s: %v, %q, %v", method, credentials, user, err)
		}
		m.c.Nodes[0].Reach.Agent = ""
		if conn, err := r.SSHD(t.Context(), m.c, m.c.Nodes[0]); err == nil {
			conn.Close()
			t.Errorf("%s: a node without an agent is served", method)
		}
	}
}

// Machines that come later may have the addresses of those that are gone.
func TestHostKeysOfMachinesThatAreGoneAreForgotten(t *testing.T) {
	m := newMachines(t, 1)
	r := m.connector()
	target, err := r.target(m.c, m.c.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.o.SSH.Run(t.Context(), target, "true", nil); err != nil {
		t.Fatal(err)
	}
	r.Forget(m.c.Hash)
	if !r.o.SSH.Remembers(target) {
		t.Error("they are forgotten although the machines are only switched off")
	}
	r.Gone(m.c.Hash)
	if r.o.SSH.Remembers(target) {
		t.Error("they are on record")
	}
}
