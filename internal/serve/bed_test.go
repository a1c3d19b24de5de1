//go:build unix

package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/serve"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/taskfiles"
	"github.com/skypilot-go/sky/internal/testbed"
)

// installation is one whose server looks after services: on FluffyCloud's model, with
// agents in memory, a database on disk, and programs that answer probes as it says.
type installation struct {
	*testbed.Bed
	t      *testing.T
	dir    string
	shared bool // its database is one that servers share

	s    *testbed.Server
	m    *serve.Manager
	done chan struct{} // closed when the manager does nothing any more

	mu     sync.Mutex
	closed bool                     // ports of machines, to all but what runs there
	status func(replica string) int // what a replica's program answers; 0: nothing listens
	got    balancerapi.Table        // as balancers got it last
	fewest int                      // ready replicas that tables have had since it was set
}

func install(t *testing.T) *installation {
	i := &installation{Bed: testbed.New(t), t: t, dir: t.TempDir(), status: func(string) int { return 200 }}
	t.Cleanup(i.crash)
	return i
}

// serve starts a server, after the one before has died; it dies after that many half
// steps, see [failpoint.New].
func (i *installation) serve(halfSteps int) *installation {
	i.t.Helper()
	i.crash()
	i.s = i.Boot(halfSteps)
	i.m = i.manager("local")
	i.m.Feed(func(t balancerapi.Table) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.got = t
		if len(t.Services) > 0 {
			i.fewest = min(i.fewest, readyIn(t))
		}
	})
	i.s.Watch()
	done := make(chan struct{})
	i.done = done
	m, ctx := i.m, i.s.Context()
	go func() {
		m.Run(ctx)
		close(done)
	}()
	return i
}

// manager is one that works for a server.
func (i *installation) manager(server string) *serve.Manager {
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("SKYPILOT_DEBUG") != "" {
		log = slog.New(slog.NewTextHandler(i.t.Output(), nil))
	}
	store := i.s.Store
	if i.shared {
		store = store.AsShared()
	}
	return serve.New(serve.Deps{
		Store: store, Executor: i.s.Executor, Clusters: i.s.Clusters, Log: log, ServerID: server,
		Files: taskfiles.New(filepath.Join(i.dir, "files"), nil), Kept: logstore.Folder(i.dir), Host: "127.0.0.1",
		Endpoint: func(port int, _ bool) string { return fmt.Sprint("http://127.0.0.1:", port) }, Dial: i.dial,
	})
}

// table is what balancers have.
func (i *installation) table() balancerapi.Table {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got
}

// countReady begins to count the fewest replicas that are ready in a table, from n.
func (i *installation) countReady(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fewest = n
}

// fewestReady is what countReady has counted.
func (i *installation) fewestReady() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fewest
}

func readyIn(t balancerapi.Table) (n int) {
	for _, s := range t.Services {
		for _, r := range s.Replicas {
			if r.State == balancerapi.Ready {
				n++
			}
		}
	}
	return n
}

// crash kills the server, if one runs.
func (i *installation) crash() {
	if i.s != nil {
		i.s.End()
		<-i.done
		i.s = nil
	}
}

// answer makes the programs of replicas answer so from now on. A replica is named by
// the name of its cluster.
func (i *installation) answer(f func(replica string) int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status = f
}

// shut closes the ports of machines to all but what runs there, agents included.
func (i *installation) shut(closed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = closed
}

// dial connects to the program on a machine from elsewhere.
func (i *installation) dial(ctx context.Context, _, address string) (net.Conn, error) {
	i.mu.Lock()
	closed := i.closed
	i.mu.Unlock()
	if closed {
		return nil, errors.New("connection refused")
	}
	return i.dialInside(ctx, address)
}

// dialInside connects to the program on a machine.
func (i *installation) dialInside(_ context.Context, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	for _, m := range i.Cloud.Machines() {
		if m.PublicIP != host && m.PrivateIP != host || m.State != fluffyapi.Running {
			continue
		}
		name, _, _ := strings.Cut(m.Name, "-"+testbed.Ann.ID)
		i.mu.Lock()
		status := i.status(name)
		i.mu.Unlock()
		if status == 0 {
			break
		}
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			req, err := http.ReadRequest(bufio.NewReader(far))
			if err != nil {
				return
			}
			req.Body.Close()
			fmt.Fprintf(far, "HTTP/1.1 %d x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
		}()
		return near, nil
	}
	return nil, errors.New("connection refused")
}

// agentsDial makes agents connect to what runs on their machines.
func (i *installation) agentsDial() {
	for _, m := range i.Cloud.Machines() {
		if n := i.Node(m.ID); n != nil {
			n.Dials(i.dialInside)
		}
	}
}

const service = `
name: chat
service:
  readiness_probe: {path: /, initial_delay_seconds: 100}
  replicas: 2
  ports: 8080
resources:
  infra: fluffycloud
  cpus: 2
run: |
  sleep 10000h
`

// call is a request of the user's.
func (i *installation) call() cluster.Call { return i.s.Call(testbed.NewRequest()) }

// up starts the service.
func (i *installation) up(text string) {
	i.t.Helper()
	if _, err := i.m.Up(i.s.Context(), i.call(), api.ServeUpBody{Task: sent(i.t, text), ServiceName: "chat"}); err != nil && !i.s.Dead() {
		i.t.Fatal(err)
	}
}

// update gives the service its next version.
func (i *installation) update(text, mode string) {
	i.t.Helper()
	if err := i.m.Update(i.s.Context(), i.call(), api.ServeUpdateBody{Task: sent(i.t, text), ServiceName: "chat", Mode: mode}); err != nil {
		i.t.Fatal(err)
	}
}

// status is the service, or nil if there is none.
func (i *installation) service() *api.Service {
	i.t.Helper()
	list, err := i.m.Status(context.Background(), i.call(), nil)
	if err != nil {
		i.t.Fatal(err)
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// until waits, in virtual time, until the service is as f wants it.
func (i *installation) until(what string, f func(*api.Service) bool) *api.Service {
	i.t.Helper()
	for range 3600 {
		if s := i.service(); f(s) {
			return s
		}
		time.Sleep(time.Second)
	}
	i.t.Fatalf("in an hour it was never %s:\n%s", what, i.log())
	return nil
}

func ready(n int) func(*api.Service) bool {
	return func(s *api.Service) bool {
		if s == nil || len(s.Replicas) != n {
			return false
		}
		return !slices.ContainsFunc(s.Replicas, func(r api.Replica) bool { return r.Status != string(api.ReplicaReady) })
	}
}

func none(s *api.Service) bool { return s == nil }

// log is what the controller has said.
func (i *installation) log() string {
	names, _ := filepath.Glob(filepath.Join(i.dir, "services", "*", "controller.log"))
	var out []byte
	for _, name := range names {
		b, _ := os.ReadFile(name)
		out = append(out, b...)
	}
	return string(out)
}

func (i *installation) down(purge bool) error {
	return i.m.Down(i.s.Context(), i.call(), api.ServeDownBody{ServiceNames: []string{"chat"}, Purge: purge})
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(i *installation)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		f(i.serve(-1))
		i.crash()
	})
}
