//go:build unix

package sshpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
	"github.com/skypilot-go/sky/internal/state"
)

// fixture is a pool of machines with real sshds and shells.
type fixture struct {
	t       testing.TB
	hosts   []*sshtest.Server
	home    string
	keyFile string
	key     ssh.PublicKey
	store   Leases
	p       *Provider
}

func setup(t testing.TB, n int) *fixture {
	t.Helper()
	f := &fixture{t: t, home: t.TempDir()}
	file, signer := sshtest.NewKey(t)
	f.keyFile, f.key = file, signer.PublicKey()
	for i := range n {
		f.hosts = append(f.hosts, sshtest.StartOn(t, fmt.Sprintf("127.0.0.%d:0", 1+i), f.key))
	}
	f.writePools("mine", f.hosts)
	f.p = f.provider(t)
	return f
}

func (f *fixture) writePools(name string, hosts []*sshtest.Server) {
	f.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n  user: tester\n  identity_file: %s\n  hosts:\n", name, f.keyFile)
	for i, h := range hosts {
		// Addresses of their own, and one name for each.
		fmt.Fprintf(&b, "  - {ip: 127.0.0.%d, port: %d, internal_ip: 10.0.0.%d}\n", 1+i, h.Port(), 1+i)
	}
	path := filepath.Join(f.home, ".sky", PoolsFile)
	os.MkdirAll(filepath.Dir(path), 0o700)
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) provider(t testing.TB) *Provider {
	pool := sshconn.New(sshconn.Options{Home: f.home, KnownHosts: filepath.Join(f.home, "known_hosts"), Timeout: 10 * time.Second})
	t.Cleanup(pool.Close)
	if f.store == nil {
		f.store = openStore(f.t)
	}
	return New(InSkyDir(f.home, pool, f.store))
}

// openStore opens the database of an installation.
func openStore(t testing.TB) Leases {
	t.Helper()
	s, err := state.Open(context.Background(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Settings()
}

// elsewhere is a provider of another installation.
func (f *fixture) elsewhere(t testing.TB) *Provider {
	p := f.provider(t)
	p.o.Dir, p.o.Leases = t.TempDir(), openStore(t)
	return p
}

func (f *fixture) offer() cloud.Offer {
	f.t.Helper()
	offers, err := f.p.Offers(f.t.Context())
	if err != nil || len(offers) == 0 {
		f.t.Fatalf("%v, %v", offers, err)
	}
	return offers[0]
}

func (f *fixture) spec(name string, n int) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: name, Hash: "h-" + name}, Nodes: n, Offer: f.offer()}
}

func (f *fixture) launch(spec cloud.LaunchSpec) []cloud.Node {
	f.t.Helper()
	nodes, err := f.p.Launch(f.t.Context(), spec)
	if err != nil {
		f.t.Fatal(err)
	}
	return nodes
}

func (f *fixture) set(k func(*sshtest.Knobs)) {
	for _, h := range f.hosts {
		h.Set(k)
		h.Cut()
	}
}

// wholeDir is where earlier versions put the record of a host's only node.
func wholeDir(h *sshtest.Server) string {
	host, _ := exec.Command("uname", "-n").Output()
	return filepath.Join(h.Home, ".sky", "nodes", strings.TrimSpace(string(host)))
}

func (f *fixture) hostOf(n cloud.Node) *sshtest.Server {
	for _, h := range f.hosts {
		if h.Port() == n.Reach.Port {
			return h
		}
	}
	f.t.Fatalf("nobody is %+v", n)
	return nil
}

// records are the records of nodes on a host.
func records(h *sshtest.Server) []string {
	one, _ := filepath.Glob(filepath.Join(wholeDir(h), "node.json"))
	more, _ := filepath.Glob(filepath.Join(wholeDir(h)+".d", "*", "node.json"))
	return append(one, more...)
}

// claim writes another installation's record onto a host.
func claim(t testing.TB, h *sshtest.Server, id cloud.ClusterID) {
	t.Helper()
	dir := filepath.Join(wholeDir(h)+".d", newDir())
	os.MkdirAll(filepath.Join(dir, "home"), 0o700)
	b, _ := json.Marshal(record{Installation: id.Installation, Cluster: id.Name, Hash: id.Hash, Created: time.Now()})
	if err := os.WriteFile(filepath.Join(dir, "node.json"), append(b, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		f := setup(t, 13)
		another := f.provider(t)
		_, otherKey := sshtest.NewKey(t)
		stranger := cloud.ClusterID{Installation: "stranger", Name: "theirs", Hash: "x"}
		free := func() []*sshtest.Server {
			var out []*sshtest.Server
			for _, h := range f.hosts {
				if len(records(h)) == 0 {
					out = append(out, h)
				}
			}
			return out
		}
		restore := func(testing.TB) {
			f.set(func(k *sshtest.Knobs) { k.Allow, k.Frozen, k.Down = []ssh.PublicKey{f.key}, false, false })
			for _, h := range f.hosts {
				for _, file := range records(h) {
					if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), "stranger") {
						os.RemoveAll(filepath.Join(h.Home, ".sky"))
					}
				}
			}
		}
		return cloudtest.Harness{
			Provider: f.p,
			Spec:     cloud.LaunchSpec{Offer: f.offer()},
			Another:  func(t testing.TB) cloud.Provider { return another },
			Many:     10,
			Restore:  restore,
			Fill: func(t testing.TB, _ cloud.Offer, left int) {
				restore(t)
				hosts := free()
				for _, h := range hosts[:len(hosts)-left] {
					claim(t, h, stranger)
				}
			},
			Refuse: func(testing.TB) {
				f.set(func(k *sshtest.Knobs) { k.Allow = []ssh.PublicKey{otherKey.PublicKey()} })
			},
			Cut: func(testing.TB) { f.set(func(k *sshtest.Knobs) { k.Down = true }) },
			Hang: func(testing.TB) {
				f.p.facts.mu.Lock()
				f.p.facts.known = nil
				f.p.facts.mu.Unlock()
				f.set(func(k *sshtest.Knobs) { k.Frozen = true })
			},
			Kill: func(t testing.TB, n cloud.Node) { os.RemoveAll(filepath.Join(f.hostOf(n).Home, ".sky")) },
			Seed: func(t testing.TB, id cloud.ClusterID) { claim(t, free()[0], id) },
			Write: func(t testing.TB, n cloud.Node, name, data string) {
				os.WriteFile(filepath.Join(n.Reach.Home, name), []byte(data), 0o600)
			},
			Read: func(t testing.TB, n cloud.Node, name string) string {
				b, _ := os.ReadFile(filepath.Join(n.Reach.Home, name))
				return string(b)
			},
			Login: func(t testing.TB, n cloud.Node) error {
				target, err := sshconn.FromReach(n.Reach)
				if err != nil {
					return err
				}
				_, err = f.p.o.SSH.Script(t.Context(), target, "cd "+sshconn.Quote(n.Reach.Home)+"\n")
				return err
			},
			Inventory: func(testing.TB) []string {
				var out []string
				for _, h := range f.hosts {
					filepath.WalkDir(h.Home, func(path string, _ os.DirEntry, err error) error {
						if rel, _ := filepath.Rel(h.Home, path); rel != "." {
							out = append(out, fmt.Sprint(h.Port(), " ", rel))
						}
						return err
					})
				}
				left, err := f.store.List(context.Background(), leasePrefix)
				if err != nil {
					t.Error(err)
				}
				return append(out, slices.Sorted(maps.Keys(left))...)
			},
		}
	})
}

func TestNothingElseOnTheMachineIsTouched(t *testing.T) {
	f := setup(t, 1)
	h := f.hosts[0]
	os.MkdirAll(filepath.Join(h.Home, ".sky"), 0o700)
	os.WriteFile(filepath.Join(h.Home, ".sky", "config.yaml"), []byte("mine"), 0o600)
	os.MkdirAll(filepath.Join(h.Home, "sky_workdir"), 0o700)
	os.WriteFile(filepath.Join(h.Home, ".bashrc"), []byte("export A=$HOME/x B=~/y C=$HOMELY\n"), 0o600)
	n := f.launch(f.spec("c", 1))[0]
	rc, err := os.ReadFile(filepath.Join(n.Reach.Home, ".bashrc"))
	if want := fmt.Sprintf("export A=%[1]s/x B=%[1]s/y C=$HOMELY\n", h.Home); err != nil || string(rc) != want {
		t.Errorf(".bashrc is %q, want %q", rc, want)
	}
	// What runs in the node's folder ends, what does not goes on.
	os.MkdirAll(filepath.Join(n.Reach.Home, ".sky"), 0o700)
	ours, theirs := exec.Command("sleep", "600"), exec.Command("sleep", "600")
	ours.Env = append(os.Environ(), "SKY_NODE="+filepath.Dir(n.Reach.Home))
	for _, c := range []*exec.Cmd{ours, theirs} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go c.Wait()
		defer c.Process.Kill()
	}
	if err := f.p.Terminate(t.Context(), f.spec("c", 1).ID); err != nil {
		t.Fatal(err)
	}
	if proc.Alive(ours.Process.Pid, "") || !proc.Alive(theirs.Process.Pid, "") {
		t.Errorf("the node's process lives: %t; another one: %t", proc.Alive(ours.Process.Pid, ""), proc.Alive(theirs.Process.Pid, ""))
	}
	var left []string
	filepath.WalkDir(h.Home, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			left = append(left, strings.TrimPrefix(path, h.Home))
		}
		return err
	})
	if fmt.Sprint(left) != "[/.bashrc /.sky/config.yaml]" {
		t.Errorf("left: %v", left)
	}
}

func TestMachinesThatDoNotAnswerAreLeftOutAndTheOthersOffered(t *testing.T) {
	f := setup(t, 3)
	f.hosts[1].Close()
	if o := f.offer(); o.Region != "ssh-mine" || o.CPUs < 1 || o.MemoryGiB <= 0 || o.HourlyPrice != 0 {
		t.Errorf("%+v", o)
	}
	if _, err := f.p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	allowed := func(pools ...any) func(string) map[string]any {
		return func(string) map[string]any { return map[string]any{"allowed_node_pools": pools} }
	}
	for _, only := range []string{"", "ssh-mine"} {
		if places, err := f.p.CheckPlaces(t.Context(), only, allowed("mine")); err != nil || len(places) != 1 || places[0].Region != "ssh-mine" || places[0].Err != nil {
			t.Errorf("pools: %+v %v", places, err)
		}
	}
	if places, err := f.p.CheckPlaces(t.Context(), "", allowed("other")); err != nil || len(places) != 0 {
		t.Errorf("pools that the settings rule out: %+v %v", places, err)
	}
	if _, err := f.p.CheckPlaces(t.Context(), "ssh-other", allowed("mine")); err == nil || !strings.Contains(err.Error(), "lists no such pool") {
		t.Errorf("a pool that is not listed: %v", err)
	}
	f.launch(f.spec("a", 2))
	_, err := f.p.Launch(t.Context(), f.spec("b", 1))
	var full *cloud.CapacityError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "127.0.0.1 has cluster a") || !strings.Contains(err.Error(), "127.0.0.2 cannot be used") {
		t.Errorf("%v", err)
	}
	// A cluster's own machine that does not answer may be fine.
	f.hosts[0].Close()
	var gone *cloud.UnreachableError
	if _, err := f.p.Nodes(t.Context(), f.spec("a", 2).ID); !errors.As(err, &gone) {
		t.Errorf("%v", err)
	}
	if _, err := f.p.Launch(t.Context(), f.spec("a", 2)); !errors.As(err, &gone) {
		t.Errorf("another machine was taken for it: %v", err)
	}
}

func TestAMachineThatLeftThePoolsFileIsNotForgotten(t *testing.T) {
	f := setup(t, 2)
	spec := f.spec("a", 2)
	f.launch(spec)
	f.writePools("mine", f.hosts[:1])
	nodes, err := f.p.Nodes(t.Context(), spec.ID)
	if err != nil || len(nodes) != 2 {
		t.Errorf("%v, %v", nodes, err)
	}
	os.Remove(f.p.o.File)
	if err := f.p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	for _, h := range f.hosts {
		if _, err := os.Stat(filepath.Join(h.Home, ".sky")); err == nil {
			t.Errorf("something is left in %s", h.Home)
		}
	}
	if nodes, err := f.p.Nodes(t.Context(), spec.ID); err != nil || len(nodes) != 0 {
		t.Errorf("%v, %v", nodes, err)
	}
}

func TestTwoInstallationsNeverShareAMachine(t *testing.T) {
	f := setup(t, 3)
	type result struct {
		nodes []cloud.Node
		err   error
	}
	results := make(chan result, 6)
	for i := range 6 {
		p := f.elsewhere(t)
		spec := f.spec("c", 1)
		spec.ID.Installation = fmt.Sprint("i", i)
		go func() {
			nodes, err := p.Launch(context.Background(), spec)
			results <- result{nodes, err}
		}()
	}
	taken := map[string]bool{}
	for range 6 {
		r := <-results
		var full *cloud.CapacityError
		switch {
		case r.err == nil && !taken[r.nodes[0].ID]:
			taken[r.nodes[0].ID] = true
		case !errors.As(r.err, &full):
			t.Errorf("%v, %v", r.nodes, r.err)
		}
	}
	if len(taken) != 3 {
		t.Errorf("%d of 3 machines were taken", len(taken))
	}
}

func TestPoolsFile(t *testing.T) {
	home := t.TempDir()
	os.MkdirAll(filepath.Join(home, ".ssh"), 0o700)
	os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte("Host gpu\n  HostName 10.1.1.1\n  User conf\n  Port 2200\n  ProxyJump b:1\n"), 0o600)
	for _, tt := range []struct{ name, yaml, want string }{
		{"a list of names", "p: {user: u, hosts: [h1, h2]}", "p-h1=u@h1:22 p-h2=u@h2:22"},
		{"a host's own", "p: {user: u, hosts: [{ip: h1, user: v, port: 23}]}", "p-h1=v@h1:23"},
		{"from ssh_config", "p: {hosts: [gpu]}", "p-gpu=conf@10.1.1.1:2200 via b:1"},
		{"the file wins", "p: {user: u, hosts: [{ip: gpu, use_ssh_config: true, proxy_jump: c}]}", "p-gpu=u@10.1.1.1:2200 via c"},
		{"an ip is not looked up", "p: {user: u, hosts: [{ip: gpu}]}", "p-gpu=u@gpu:22"},
		{"pools by name", "b: {user: u, hosts: [h]}\na: {user: u, hosts: [h]}", "a-h=u@h:22 b-h=u@h:22"},
		{"nothing", "", "error: there are no machines"},
		{"no hosts", "p: {hosts: []}", "error: there are no machines"},
		{"a misspelt field", "p:\n  hosts:\n  - {ip: h, pasword: x}", `error: 3:13: unknown field "pasword" in p.hosts[0]; did you mean "password"?`},
		{"no field at all", "p: {zzzz: 1, hosts: [h]}", `error: 1:5: unknown field "zzzz" in p. Fields of p: accounts, hosts, identity_file, password, port, proxy_command, proxy_jump, run_as, user`},
		{"two mistakes", "p: {user: [a]}\nq: 5", "error: 1:11: p.user should be text, not a list\n" + home + "/pools.yaml:2:4: q should be a map, not the number 5"},
		{"no hosts' list", "p: {hosts: a}", `error: 1:12: p.hosts should be a list, not the text "a"`},
		{"no host", "p: {hosts: [[a]]}", "error: 1:13: p.hosts[0] should be text or a map, not a list"},
		{"a port in words", "p: {hosts: [{ip: h, port: ssh}]}", `error: 1:27: p.hosts[0].port should be a whole number, not the text "ssh"`},
		{"a hidden password", "p: {password: {a: geheim}}", "error: 1:15: p.password should be text, not a map"},
		{"a list of pools", "- p", "error: 1:1: the file of pools should be a map, not a list"},
		{"numbers for texts", "007: {user: 1e3, port: 0x17, hosts: [1.50]}", "007-1.50=1e3@1.50:23"},
		{"empty fields", "p: {user: u, port:, hosts: [{ip: h, user:, use_ssh_config:}]}\nq:", "p-h=u@h:22"},
		{"an empty host", "p: {hosts: [~]}", "error: host 1 of pool p: it has no ip"},
		{"no yaml", "p: [", "error: 1:4: "},
		{"no ip", "p: {hosts: [{user: u}]}", "error: host 1 of pool p: it has no ip"},
		{"twice", "p: {hosts: [h, h]}", "error: pool p has the host h twice"},
		{"a bad port", "p: {hosts: [{ip: h, port: 70000}]}", "error: 1:27: p.hosts[0].port should be from 0 to 65535, not 70000"},
		{"a bad name", "'p/../q': {hosts: [h]}", "error: \"p/../q\""},
		{"a bad address", "p: {hosts: [{ip: h, internal_ip: x}]}", "error: host 1 of pool p: internal_ip"},
	} {
		file := filepath.Join(home, "pools.yaml")
		os.WriteFile(file, []byte(tt.yaml), 0o600)
		pools, err := load(file, home)
		var got []string
		for _, h := range all(pools) {
			s := fmt.Sprintf("%s=%s@%s:%d", h.id(), h.reach.User, h.reach.Host, h.reach.Port)
			if h.reach.ProxyJump != "" {
				s += " via " + h.reach.ProxyJump
			}
			got = append(got, s)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = "error: " + strings.TrimPrefix(strings.TrimPrefix(err.Error(), file+":"), " ")
		}
		if text != tt.want && !(strings.HasPrefix(tt.want, "error: ") && strings.HasPrefix(text, tt.want)) {
			t.Errorf("%s: %s\nwant %s", tt.name, text, tt.want)
		}
	}
	if _, err := load(filepath.Join(home, "absent"), home); !errors.Is(err, errNoPools) {
		t.Error(err)
	}
}

func TestPasswordsStayOutOfSight(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, "pools.yaml")
	os.WriteFile(file, []byte("p: {user: u, password: geheim, hosts: [h1, {ip: h2, password: anders}]}"), 0o600)
	pools, err := load(file, home)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(newIntent(cloud.ClusterID{Name: "c"}, []leased{{host: all(pools)[0]}, {host: all(pools)[1]}}))
	for _, text := range []string{fmt.Sprintf("%+v", *pools[0].hosts[0]), string(b)} {
		if strings.Contains(text, "geheim") {
			t.Errorf("the password shows in %s", text)
		}
	}
	find := Passwords(file, home)
	if got := find(sshconn.Target{Host: "h1", Port: 22, User: "u"}); got != "geheim" {
		t.Errorf("%q", got)
	}
	if got := find(sshconn.Target{Host: "h2", Port: 22, User: "u"}); got != "anders" {
		t.Errorf("%q", got)
	}
	if got := find(sshconn.Target{Host: "h1", Port: 22, User: "other"}); got != "" {
		t.Errorf("%q", got)
	}
}

func TestSizes(t *testing.T) {
	h100 := newSize(8, 32.9*(1<<20), "NVIDIA H100 80GB HBM3, 81559\nNVIDIA H100 80GB HBM3, 81559\n")
	if h100.name() != "8CPU--32GB--H100:2" || newSize(1, 600*1024, "").name() != "1CPU--0.5GB" {
		t.Errorf("%s, %s", h100.name(), newSize(1, 600*1024, "").name())
	}
	for _, tt := range []struct {
		big, small string
		want       bool
	}{
		{"8CPU--32GB", "8CPU--32GB", true},
		{"8CPU--32GB", "9CPU--32GB", false},
		{"8CPU--32GB", "8CPU--33GB", false},
		{"8CPU--32GB--H100:2", "4CPU--16GB", true},
		{"8CPU--32GB--H100:2", "4CPU--16GB--h100:1", true},
		{"8CPU--32GB--H100:2", "4CPU--16GB--H100:4", false},
		{"8CPU--32GB--H100:2", "4CPU--16GB--A100:1", false},
		{"8CPU--32GB", "4CPU--16GB--A100:1", false},
	} {
		big, err1 := parseSize(tt.big)
		small, err2 := parseSize(tt.small)
		if err1 != nil || err2 != nil || big.holds(small) != tt.want || big.name() != tt.big {
			t.Errorf("%s holds %s: %t, %v, %v", tt.big, tt.small, big.holds(small), err1, err2)
		}
	}
	for _, bad := range []string{"", "m5.large", "8CPU", "8CPU--32GB--", "8CPU--32GB--H100"} {
		if s, err := parseSize(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, s)
		}
	}
}
