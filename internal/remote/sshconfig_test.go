//go:build linux

package remote

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

// entry is the text for the user's ssh that a connector writes for the cluster, and
// lines what it says about one host.
func (m *machines) entry(r *Connector) string {
	m.t.Helper()
	if err := r.WriteSSHConfig(m.c); err != nil {
		m.t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(m.home, ".sky/generated/ssh", m.c.Name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func hostIn(text, name string) string {
	_, after, _ := strings.Cut(text, "\nHost "+name+"\n")
	block, _, _ := strings.Cut(after, "\nHost ")
	return block
}

func TestTheUsersSSHGoesThroughTheJumpHosts(t *testing.T) {
	m := newMachines(t, 1)
	m.c.Nodes[0].Reach = cloud.Reach{Method: "ssh", Host: "10.0.0.1", User: "u", ProxyJump: "gate@bastion:2222,inner"}
	text := m.entry(m.connector())
	for host, want := range map[string][]string{
		"c":       {"  HostName 10.0.0.1\n", "  User u\n", "  ProxyJump c-jump1,c-jump2\n", "  HostKeyAlias hash.n0\n"},
		"c-jump1": {"  HostName bastion\n", "  Port 2222\n", "  User gate\n", "  HostKeyAlias [bastion]:2222\n", "  StrictHostKeyChecking yes\n"},
		"c-jump2": {"  HostName inner\n", "  User u\n", "  HostKeyAlias inner\n"},
	} {
		for _, line := range want {
			if !strings.Contains(hostIn(text, host), line) {
				t.Errorf("%s: %q is missing in:\n%s", host, line, text)
			}
		}
	}
	if strings.Contains(hostIn(text, "c-jump1"), "ProxyJump") {
		t.Errorf("the way to the first host leads through itself:\n%s", text)
	}
}

func TestTheUsersSSHRunsTheProxyCommandOfEachNode(t *testing.T) {
	m := newMachines(t, 2)
	for i := range m.c.Nodes {
		m.c.Nodes[i].Reach = cloud.Reach{Method: "ssh", Host: "10.0.0.1", User: "u", ProxyCommand: "tunnel --worker %w %h %p"}
	}
	text := m.entry(m.connector())
	for host, want := range map[string]string{
		"c": "  ProxyCommand tunnel --worker 0 %h %p\n", "c-worker1": "  ProxyCommand tunnel --worker 1 %h %p\n",
	} {
		if !strings.Contains(hostIn(text, host), want) {
			t.Errorf("%s: %q is missing in:\n%s", host, want, text)
		}
	}
}

// Keys that the user keeps are named, not copied, and the user's own ways stay.
func TestTheUsersSSHLogsInWithTheUsersKey(t *testing.T) {
	m := newMachines(t, 2)
	m.c.Nodes[0].Reach.IdentityFile = "/keys/mine"
	m.c.Nodes[1].Reach.OwnKeys = true
	text := m.entry(m.connector())
	if b := hostIn(text, "c"); !strings.Contains(b, "  IdentityFile \"/keys/mine\"\n  IdentitiesOnly yes\n") {
		t.Errorf("%s", text)
	}
	if b := hostIn(text, "c-worker1"); b == "" || strings.Contains(b, "Identit") {
		t.Errorf("%s", text)
	}
}

func TestAClusterIsUsableWhereTheUsersSSHCannotBeConfigured(t *testing.T) {
	m := newMachines(t, 1)
	if err := os.MkdirAll(filepath.Join(m.home, ".ssh", "config"), 0o700); err != nil { // no file
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := m.connector()
	r.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if err := m.ensure(r); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "no entry in the user's ssh configuration") {
		t.Errorf("nothing is said about it:\n%s", log.String())
	}
	if err := r.WriteSSHConfig(m.c); err == nil {
		t.Error("it is said to be written")
	}
}

// Also where upper and lower case are one, and what an earlier version wrote goes.
func TestClustersWhoseNamesDifferInCaseHaveEntriesOfTheirOwn(t *testing.T) {
	m := newMachines(t, 1)
	m.c.Nodes[0].Reach = cloud.Reach{Method: "ssh", Host: "10.0.0.1", User: "u"}
	r := m.connector()
	dir := filepath.Join(m.home, ".sky/generated/ssh")
	for _, name := range []string{"my-cluster", "My-Cluster"} {
		m.c.Name, m.c.Hash = name, "h-"+name
		if err := r.WriteSSHConfig(m.c); err != nil {
			t.Fatal(err)
		}
	}
	stale := filepath.Join(dir, "My-Cluster")
	if err := os.WriteFile(stale, []byte(hashLine+"My-Cluster (h-My-Cluster). It is removed with the cluster.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteSSHConfig(m.c); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		seen[strings.ToLower(f.Name())] = true
	}
	if err != nil || len(files) != 2 || len(seen) != 2 {
		t.Errorf("entries: %v, %v", files, err)
	}
	r.withdrawSSH("h-My-Cluster", "")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || files[0].Name() != "my-cluster" {
		t.Errorf("left are %v, %v", files, err)
	}
}

// Nodes without an sshd are reached through this server, if there is a command for that.
func TestTheUsersSSHReachesNodesThatTheServerServes(t *testing.T) {
	m := newMachines(t, 2)
	for i := range m.c.Nodes {
		m.c.Nodes[i].Reach = cloud.Reach{Method: "local", Agent: "127.0.0.1:1"}
	}
	r := m.connector()
	r.o.SSHConfig = m.home
	r.offerSSH(t.Context(), m.c)
	if _, err := os.Stat(filepath.Join(m.home, ".sky/generated/ssh", m.c.Name)); err == nil {
		t.Error("there is an entry, and no way")
	}
	r.o.SSHProxy = "sky ssh --stdio"
	r.offerSSH(t.Context(), m.c)
	text := m.entry(r)
	for host, want := range map[string]string{
		"c": "  ProxyCommand sky ssh --stdio --node 0 c\n", "c-worker1": "  ProxyCommand sky ssh --stdio --node 1 c\n",
	} {
		if !strings.Contains(hostIn(text, host), want) {
			t.Errorf("%s: %q is missing in:\n%s", host, want, text)
		}
	}
	r.withdrawSSH(m.c.Hash, "")
	if _, err := os.Stat(filepath.Join(m.home, ".sky/generated/ssh", m.c.Name)); err == nil {
		t.Error("the entry stays without its cluster")
	}
}
