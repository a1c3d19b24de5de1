//go:build nodes && linux

package nodes

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

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/docker"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// The contract of package cloud, asked of a real engine.
func TestTheContractOnARealEngine(t *testing.T) {
	t.Parallel()
	ask := func(t testing.TB, method, path string) []byte {
		out, err := exec.Command("curl", "-fsg", "-X", method, "--unix-socket", given["SKY_TEST_DOCKER"], "http://d"+path).Output()
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return out
	}
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		engine := docker.NewEngine(given["SKY_TEST_DOCKER"])
		p := docker.New(engine)
		offers, err := p.Offers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in := func(t testing.TB, n cloud.Node, script string) string {
			r, err := engine.Exec(t.Context(), n.Reach.Host, []string{"sh", "-c", script}, nil)
			if err == nil && r.Code != 0 {
				err = errors.New(string(r.Stderr))
			}
			if err != nil {
				t.Error(err)
				return ""
			}
			return string(r.Stdout)
		}
		return cloudtest.Harness{
			Provider: p,
			Spec:     cloud.LaunchSpec{Offer: offers[0], ImageID: "docker:sky-test:1"},
			Another:  func(testing.TB) cloud.Provider { return docker.New(docker.NewEngine(given["SKY_TEST_DOCKER"])) },
			Kill:     func(t testing.TB, n cloud.Node) { ask(t, "DELETE", "/containers/"+n.ID+"?force=1") },
			Halt:     func(t testing.TB, n cloud.Node) { ask(t, "POST", "/containers/"+n.ID+"/stop?t=1") },
			Write:    func(t testing.TB, n cloud.Node, name, data string) { in(t, n, "echo '"+data+"' >/root/"+name) },
			Read: func(t testing.TB, n cloud.Node, name string) string {
				return strings.TrimSpace(in(t, n, "cat /root/"+name))
			},
			Login: func(t testing.TB, n cloud.Node) error {
				in(t, n, "true")
				return nil
			},
			Inventory: func(t testing.TB) []string {
				var out []string
				for _, path := range []string{"/containers/json?all=1", "/networks"} {
					var list []struct {
						ID string `json:"Id"`
					}
					if err := json.Unmarshal(ask(t, "GET", path), &list); err != nil {
						t.Error(err)
					}
					for _, x := range list {
						out = append(out, x.ID)
					}
				}
				slices.Sort(out)
				return out
			},
		}
	})
}

// The contract of package cloud, asked of real machines with Debian's sshd.
func TestTheContractOnRealMachines(t *testing.T) {
	t.Parallel()
	pool := []int{1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	record := func(i int) string { return filepath.Join(homeOf(i), ".sky", "nodes", fmt.Sprint("h", i), "node.json") }
	at := func(n cloud.Node, name string) string { // as seen from here
		for _, i := range pool {
			if n.Reach.Host == host(i) {
				return filepath.Join(homeOf(i), strings.TrimPrefix(n.Reach.Home, "/root"), name)
			}
		}
		t.Fatalf("nobody is %+v", n)
		return ""
	}
	claim := func(t testing.TB, i int, id cloud.ClusterID) {
		b, _ := json.Marshal(map[string]any{"installation": id.Installation, "cluster": id.Name, "cluster_hash": id.Hash, "created": time.Now()})
		if err := os.MkdirAll(filepath.Join(filepath.Dir(record(i)), "home"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(record(i), append(b, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := func() (out []int) {
		for _, i := range pool {
			more, _ := filepath.Glob(filepath.Join(homeOf(i), ".sky", "nodes", fmt.Sprintf("h%d.d", i), "*", "node.json"))
			if _, err := os.Stat(record(i)); err != nil && len(more) == 0 {
				out = append(out, i)
			}
		}
		return out
	}
	admit := func(t testing.TB, key string) {
		b, err := os.ReadFile(key)
		for _, i := range pool {
			if err != nil {
				break
			}
			err = os.WriteFile(filepath.Join(homeOf(i), ".ssh", "authorized_keys"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	links := func(t testing.TB, state string) {
		for _, i := range pool {
			if out, err := exec.Command("ip", "link", "set", link(i), state).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		home := t.TempDir()
		db, err := state.Open(t.Context(), filepath.Join(home, "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		leases := db.Settings()
		var conns []*sshconn.Pool
		provider := func(t testing.TB) cloud.Provider {
			conn := sshconn.New(sshconn.Options{Home: home, KnownHosts: filepath.Join(home, "known_hosts"), Timeout: 5 * time.Second, KeepAlive: 2 * time.Second})
			conns = append(conns, conn)
			t.Cleanup(conn.Close)
			return sshpool.New(sshpool.InSkyDir(home, conn, leases))
		}
		var text strings.Builder
		fmt.Fprintf(&text, "lab:\n  user: root\n  identity_file: %s\n  hosts:\n", given["SKY_TEST_KEY"])
		for _, i := range pool {
			fmt.Fprintf(&text, "  - %s\n", host(i))
		}
		o := sshpool.InSkyDir(home, nil, leases)
		if err := os.MkdirAll(filepath.Dir(o.File), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.File, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		forget := func() { // open connections: new ones meet what has changed
			for _, c := range conns {
				for _, i := range pool {
					c.Drop(sshconn.Target{Host: host(i), Port: 22, User: "root", Identities: []string{given["SKY_TEST_KEY"]}, OwnKeys: true, Alias: host(i)})
				}
			}
		}
		t.Cleanup(func() { // each behaviour has a cloud of its own
			for _, i := range pool {
				os.RemoveAll(filepath.Join(homeOf(i), ".sky"))
			}
		})
		p, another := provider(t), provider(t)
		offers, err := p.Offers(t.Context())
		if err != nil || len(offers) == 0 {
			t.Fatalf("%v, %v", offers, err)
		}
		restore := func(t testing.TB) {
			links(t, "up")
			admit(t, given["SKY_TEST_KEY"]+".pub")
			for _, i := range pool {
				if b, err := os.ReadFile(record(i)); err == nil && strings.Contains(string(b), "stranger") {
					os.RemoveAll(filepath.Join(homeOf(i), ".sky"))
				}
			}
		}
		return cloudtest.Harness{
			Provider: p, Another: func(testing.TB) cloud.Provider { return another }, Many: len(pool), Restore: restore,
			Spec: cloud.LaunchSpec{Offer: offers[0]},
			Fill: func(t testing.TB, _ cloud.Offer, left int) {
				restore(t)
				idle := free()
				for _, i := range idle[:len(idle)-left] {
					claim(t, i, cloud.ClusterID{Installation: "stranger", Name: "theirs", Hash: "x"})
				}
			},
			Refuse: func(t testing.TB) {
				other := filepath.Join(t.TempDir(), "other")
				if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				admit(t, other+".pub")
				forget()
			},
			Cut: func(t testing.TB) {
				links(t, "down")
				forget()
			},
			Kill: func(t testing.TB, n cloud.Node) {
				home, _, _ := strings.Cut(at(n, ""), "/.sky/")
				if err := os.RemoveAll(filepath.Join(home, ".sky")); err != nil {
					t.Error(err)
				}
			},
			Seed: func(t testing.TB, id cloud.ClusterID) { claim(t, free()[0], id) },
			Write: func(t testing.TB, n cloud.Node, name, data string) {
				if err := os.WriteFile(at(n, name), []byte(data), 0o600); err != nil {
					t.Error(err)
				}
			},
			Read: func(t testing.TB, n cloud.Node, name string) string {
				b, _ := os.ReadFile(at(n, name))
				return string(b)
			},
			Login: func(t testing.TB, n cloud.Node) error {
				target, err := sshconn.FromReach(n.Reach)
				if err != nil {
					return err
				}
				_, err = conns[0].Script(t.Context(), target, "cd "+sshconn.Quote(n.Reach.Home)+"\n")
				return err
			},
			Inventory: func(t testing.TB) []string {
				var out []string
				for _, i := range pool {
					filepath.WalkDir(filepath.Join(homeOf(i), ".sky"), func(path string, _ os.DirEntry, err error) error {
						if err == nil {
							out = append(out, path)
						}
						return nil
					})
				}
				left, err := leases.List(context.Background(), "ssh-lease/")
				if err != nil {
					t.Error(err)
				}
				return append(out, slices.Sorted(maps.Keys(left))...)
			},
		}
	})
}
