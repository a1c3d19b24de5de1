//go:build unix

package fluffycloud_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/serve"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// asCommand makes the test binary the command fluffycloud.
const asCommand = "FLUFFYCLOUD_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(serve.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// realCloud is a server process with its folder.
type realCloud struct {
	dir string
	cmd *exec.Cmd
	key ssh.Signer
}

func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	return c
}

func startCloud(t testing.TB) *realCloud {
	t.Helper()
	// Not TempDir: a machine's path must stay short enough for sockets.
	dir, err := os.MkdirTemp("", "fluffy")
	if err != nil {
		t.Fatal(err)
	}
	r := &realCloud{dir: dir, key: startKey(t)}
	r.serve(t)
	t.Cleanup(func() {
		r.kill()
		if out, err := command(t, "destroy", "--dir", r.dir).CombinedOutput(); err != nil {
			t.Errorf("destroying the cloud: %v: %s", err, out)
		}
	})
	return r
}

func (r *realCloud) serve(t testing.TB) {
	t.Helper()
	r.cmd = command(t, "serve", "--dir", r.dir, "--listen", "127.0.0.1:0", "--page-size", "4", "--boot", "0s")
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd.Stderr = log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the server said %q (%v): %s", line, err, text)
	}
}

func (r *realCloud) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// client has the credentials of one role.
func (r *realCloud) client(t testing.TB, role string) *fluffyapi.Client {
	t.Helper()
	var tokens []struct{ Token, Account, Role string }
	b, err := os.ReadFile(filepath.Join(r.dir, "tokens.json"))
	if err == nil {
		err = json.Unmarshal(b, &tokens)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range tokens {
		if k.Role == role {
			c := fluffyapi.NewClient(new(rest.Clients), r.endpoint(t), k.Token)
			t.Cleanup(c.Close)
			return c
		}
	}
	t.Fatalf("nobody is %s", role)
	return nil
}

func (r *realCloud) endpoint(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, "credentials"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(string(b), "endpoint = "), "\n")
	return endpoint
}

// admin does what an operator does.
func (r *realCloud) admin(t testing.TB, method, path string, body any) []byte {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	out, err := serve.Admin(ctx, r.dir, method, path, strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *realCloud) inventory(t testing.TB) serve.Inventory {
	t.Helper()
	var inv serve.Inventory
	if err := json.Unmarshal(r.admin(t, "GET", "inventory", nil), &inv); err != nil {
		t.Fatal(err)
	}
	return inv
}

func (r *realCloud) authorizedKey() string {
	return string(ssh.MarshalAuthorizedKey(r.key.PublicKey()))
}

// dial logs in, trusting only the host key that the cloud told.
func (r *realCloud) dial(n cloud.Node) (*ssh.Client, error) {
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.Reach.HostKey))
	if err != nil {
		return nil, fmt.Errorf("the host key %q: %w", n.Reach.HostKey, err)
	}
	return ssh.Dial("tcp", net.JoinHostPort(n.Reach.Host, strconv.Itoa(n.Reach.Port)), &ssh.ClientConfig{
		User: n.Reach.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(r.key)},
		HostKeyCallback: ssh.FixedHostKey(host), Timeout: 10 * time.Second,
	})
}

// exec runs a command on a node.
func (r *realCloud) exec(t testing.TB, n cloud.Node, line, stdin string) string {
	t.Helper()
	c, err := r.dial(n)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Stdin = strings.NewReader(stdin)
	out, err := s.CombinedOutput(line)
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

func (r *realCloud) harness(t testing.TB) cloudtest.Harness {
	provider := func(role string) *fluffycloud.Provider {
		return fluffycloud.New(fluffycloud.Options{API: r.client(t, role), Poll: 10 * time.Millisecond})
	}
	inject := func(t testing.TB, f model.Fault) {
		t.Helper()
		r.admin(t, "POST", "faults", f)
	}
	spot, elsewhere := offer("east-a", true), offer("east-b", false)
	return cloudtest.Harness{
		Unasked:  "launches learn of a lack of room by the refusal, as on most large clouds",
		Provider: provider("owner"),
		Another:  func(testing.TB) cloud.Provider { return provider("owner") },
		Spec:     cloud.LaunchSpec{Offer: offer("east-a", false), MachineSpec: cloud.MachineSpec{DiskGB: 10}, AuthorizedKey: r.authorizedKey()},
		Spot:     &spot, Elsewhere: &elsewhere, Beside: &elsewhere,
		Many: 9, // each is a machine; a page holds four
		Restore: func(t testing.TB) {
			r.admin(t, "DELETE", "faults", nil)
			r.admin(t, "POST", "capacity", serve.Capacity{Zone: "east-a", Type: "puff-2", Total: -1})
			r.admin(t, "POST", "quota", serve.Quota{Account: "you", Region: "east", Family: "cpus", Limit: -1})
			r.admin(t, "POST", "clock", serve.Clock{})
		},
		Fill: func(t testing.TB, o cloud.Offer, left int) {
			r.admin(t, "POST", "capacity", serve.Capacity{Zone: o.Zone, Type: o.InstanceType, Left: &left})
		},
		Quota: func(t testing.TB, o cloud.Offer, left int) {
			r.admin(t, "POST", "quota", serve.Quota{Account: "you", Zone: o.Zone, Type: o.InstanceType, Spot: o.Spot, Left: &left})
		},
		Throttle: func(t testing.TB) { inject(t, model.Fault{Kind: model.Throttle}) },
		Refuse:   func(t testing.TB) { inject(t, model.Fault{Kind: model.Fail, Code: fluffyapi.Unauthorized}) },
		Forbid: func(t testing.TB) {
			for _, op := range []string{"instances.create", "firewalls.put", "images.create"} {
				inject(t, model.Fault{Kind: model.Fail, Code: fluffyapi.Forbidden, Op: op})
			}
		},
		Cut:  func(t testing.TB) { inject(t, model.Fault{Kind: model.Cut}) },
		Hang: func(t testing.TB) { inject(t, model.Fault{Kind: model.Hang}) },
		Slow: func(t testing.TB, d time.Duration) { r.admin(t, "POST", "delays", serve.Clock{Boot: d.Seconds()}) },
		LoseAnswers: func(t testing.TB, to cloudtest.Effect, times int) {
			inject(t, model.Fault{Kind: model.Lose, Op: operation[to], Times: times})
		},
		Odd: func(t testing.TB, to cloudtest.Effect) {
			inject(t, model.Fault{Kind: model.Fail, Op: operation[to], Code: cloudtest.OddCode})
		},
		HideNew: func(t testing.TB, lists int) { inject(t, model.Fault{Kind: model.Hide, Times: lists}) },
		Lie: func(t testing.TB, n cloud.Node, state string) {
			inject(t, model.Fault{Kind: model.Lie, Instance: n.ID, State: state})
		},
		Kill: func(t testing.TB, n cloud.Node) { r.admin(t, "POST", "instances/"+n.ID+"/kill", serve.Event{}) },
		Halt: func(t testing.TB, n cloud.Node) { r.exec(t, n, "(sleep 0.1; poweroff) >/dev/null 2>&1 &", "") },
		Preempt: func(t testing.TB, n cloud.Node, in time.Duration) {
			r.admin(t, "POST", "instances/"+n.ID+"/preempt", serve.Event{After: in.Seconds()})
		},
		Skew: func(t testing.TB, by time.Duration) { r.admin(t, "POST", "clock", serve.Clock{Skew: by.Seconds()}) },
		Seed: func(t testing.TB, id cloud.ClusterID) {
			spec := cloud.LaunchSpec{ID: id}
			_, err := r.client(t, "owner").Create(t.Context(), fluffyapi.Create{
				ClientToken: id.Name, Name: id.Name, Zone: "east-a", Type: "puff-2", Tags: spec.NodeTags(0),
			})
			if err != nil {
				t.Fatal(err)
			}
		},
		Write: func(t testing.TB, n cloud.Node, name, data string) { r.exec(t, n, "cat > "+name, data) },
		Read:  func(t testing.TB, n cloud.Node, name string) string { return r.exec(t, n, "cat "+name, "") },
		Login: func(t testing.TB, n cloud.Node) error {
			if out := r.exec(t, n, "echo hello $USER", ""); out != "hello fluffy\n" {
				return fmt.Errorf("it says %q", out)
			}
			return nil
		},
		Billed: func(t testing.TB, n cloud.Node) bool {
			for _, m := range r.inventory(t).Instances {
				if m.ID == n.ID {
					return m.Billed
				}
			}
			return false
		},
		Inventory: func(t testing.TB) []string {
			var things []string
			inv := r.inventory(t)
			for _, m := range inv.Instances {
				if m.State != fluffyapi.Terminated {
					things = append(things, "instance "+m.Name)
				}
			}
			for _, f := range inv.Firewalls {
				things = append(things, "firewall "+f.Name)
			}
			for _, i := range inv.Images {
				things = append(things, "image "+i.Name)
			}
			return things
		},
		OpenPorts: func(t testing.TB, n cloud.Node) []string {
			inv := r.inventory(t)
			for _, m := range inv.Instances {
				for _, f := range inv.Firewalls {
					if m.ID == n.ID && m.Firewall == f.Name {
						return f.Ports
					}
				}
			}
			return nil
		},
	}
}

func TestTheContractHoldsOnRealMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("some hundred processes; the contract in memory is quick")
	}
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness { return startCloud(t).harness(t) })
}

func startKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// lockedBuffer can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
