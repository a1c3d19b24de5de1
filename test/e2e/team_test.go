//go:build e2e && linux

package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the test's own database

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/porttest"
)

// relay passes TCP connections on to the first of its targets that answers, each
// connection to the next one. It can be cut, which also breaks what goes
// through it: a balancer, and the network between a server and its database.
type relay struct {
	l       net.Listener
	targets []string
	next    atomic.Int64

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newRelay(t testing.TB, targets ...string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{l: l, targets: targets, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { r.pass(c) })
		}
	})
	t.Cleanup(func() { l.Close(); r.set(true); wg.Wait() })
	return r
}

func (r *relay) address() string { return r.l.Addr().String() }

func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) pass(client net.Conn) {
	defer client.Close()
	if !r.keep(client) {
		return
	}
	var server net.Conn
	first := int(r.next.Add(1))
	for i := range r.targets {
		c, err := net.DialTimeout("tcp", r.targets[(first+i)%len(r.targets)], time.Second)
		if err == nil {
			server = c
			break
		}
	}
	if server == nil {
		return
	}
	defer server.Close()
	if !r.keep(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(server, client); server.(*net.TCPConn).CloseWrite() })
	io.Copy(client, server)
	client.Close()
	wg.Wait()
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mu.Unlock()
}

// set cuts the relay, or mends it.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	if cut {
		for c := range r.conns {
			c.Close()
		}
	}
}

// team is several API servers on one PostgreSQL, each with a home folder of its
// own and a cable of its own to the database, behind a balancer; and FluffyCloud,
// whose machines all of them reach.
type team struct {
	t        *testing.T
	dir      string
	admin    *sql.DB
	database string
	cloud    []string // environment that leads to FluffyCloud
	servers  []*teamServer
	balancer *relay
	world    *world // a user elsewhere
}

type teamServer struct {
	home  string
	port  int
	cable *relay
	cmd   *exec.Cmd
	ended chan struct{}
}

func newTeam(t *testing.T, n int) *team {
	t.Helper()
	address := os.Getenv("SKY_TEST_POSTGRES")
	if address == "" {
		t.Skip("SKY_TEST_POSTGRES does not hold the URL of a PostgreSQL database")
	}
	if _, err := exec.LookPath("/usr/sbin/sshd"); err != nil {
		t.Skip("FluffyCloud's machines need OpenSSH's sshd")
	}
	dir, err := os.MkdirTemp("", "sky-team-")
	if err != nil {
		t.Fatal(err)
	}
	tm := &team{t: t, dir: dir, database: fmt.Sprintf("sky_team_%d", os.Getpid())}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if tm.admin, err = sql.Open("pgx", address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tm.admin.Close() })
	tm.sql("DROP DATABASE IF EXISTS " + tm.database)
	tm.sql("CREATE DATABASE " + tm.database)
	t.Cleanup(func() { tm.sql("DROP DATABASE " + tm.database + " WITH (FORCE)") })
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	tm.startCloud()
	var backends []string
	for i := range n {
		s := &teamServer{home: filepath.Join(dir, fmt.Sprint("server", i)), port: porttest.Free(t), cable: newRelay(t, u.Host)}
		own := *u
		own.Host, own.Path = s.cable.address(), "/"+tm.database
		if err := os.MkdirAll(filepath.Join(s.home, ".sky"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.home, ".sky", "config.yaml"), []byte("db: "+strings.Replace(own.String(), "postgres://", "postgresql+psycopg2://", 1)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		tm.servers = append(tm.servers, s)
		backends = append(backends, fmt.Sprint("127.0.0.1:", s.port))
	}
	tm.balancer = newRelay(t, backends...)
	home := filepath.Join(dir, "user")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	tm.world = &world{t: t, home: home, env: []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "USER=tester", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"SKYPILOT_API_SERVER_ENDPOINT=http://" + tm.balancer.address(),
	}}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range tm.servers {
				t.Logf("%s:\n%s", s.home, tailOf(filepath.Join(s.home, "log"), 4000))
			}
		}
		for _, s := range tm.servers {
			tm.kill(s)
		}
	})
	var wg sync.WaitGroup
	for _, s := range tm.servers { // at once: one of them makes the schema
		wg.Go(func() { tm.start(s) })
	}
	wg.Wait()
	return tm
}

func (tm *team) sql(query string) {
	tm.t.Helper()
	if _, err := tm.admin.Exec(query); err != nil {
		tm.t.Errorf("%s: %v", query, err)
	}
}

// startCloud runs FluffyCloud.
func (tm *team) startCloud() {
	bin := filepath.Join(tm.dir, "fluffycloud")
	build := exec.Command("go", "build", "-o", bin, "../../cmd/fluffycloud")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tm.t.Fatalf("building fluffycloud: %v\n%s", err, out)
	}
	creds := filepath.Join(tm.dir, "credentials")
	c := exec.Command(bin, "serve", "--dir", filepath.Join(tm.dir, "cloud"), "--listen", fmt.Sprint("127.0.0.1:", porttest.Free(tm.t)), "--credentials", creds, "--boot", "50ms")
	log, err := os.Create(filepath.Join(tm.dir, "cloud.log"))
	if err != nil {
		tm.t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		tm.t.Fatal(err)
	}
	tm.t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
		log.Close()
		if out, err := exec.Command(bin, "destroy", "--dir", filepath.Join(tm.dir, "cloud")).CombinedOutput(); err != nil {
			tm.t.Errorf("destroying the cloud: %v\n%s", err, out)
		}
	})
	eventually(tm.t, "FluffyCloud answers", time.Minute, func() bool {
		b, err := os.ReadFile(creds)
		if err != nil {
			return false
		}
		tm.cloud = nil
		for line := range strings.Lines(string(b)) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok {
				tm.cloud = append(tm.cloud, "FLUFFYCLOUD_"+strings.ToUpper(strings.TrimSpace(key))+"="+strings.TrimSpace(value))
			}
		}
		return len(tm.cloud) >= 2
	})
}

// start runs a server until it answers.
func (tm *team) start(s *teamServer) {
	log, err := os.OpenFile(filepath.Join(s.home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tm.t.Error(err)
		return
	}
	defer log.Close()
	c := exec.Command(binary, "api", "start", "--foreground")
	c.Env = append([]string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "USER=tester", "SHELL=/bin/bash", "LANG=C.UTF-8", "SKY_API_PORT=" + strconv.Itoa(s.port)}, tm.cloud...)
	c.Dir, c.Stdout, c.Stderr = s.home, log, log
	if err := c.Start(); err != nil {
		tm.t.Error(err)
		return
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	s.cmd, s.ended = c, ended
	deadline := time.Now().Add(2 * time.Minute)
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", s.port), time.Second)
		if err == nil {
			conn.Close()
			if h, err := tm.client(s).Health(context.Background()); err == nil && h != nil {
				return
			}
		}
		select {
		case <-ended:
			tm.t.Errorf("a server did not start:\n%s", tailOf(filepath.Join(s.home, "log"), 3000))
			return
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			tm.t.Error("a server does not answer")
			return
		}
	}
}

// kill ends a server as a power cut would.
func (tm *team) kill(s *teamServer) {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		<-s.ended
	}
}

// client speaks to one server, or with nil to any.
func (tm *team) client(s *teamServer) *sky.Client {
	endpoint := "http://" + tm.balancer.address()
	if s != nil {
		endpoint = fmt.Sprint("http://127.0.0.1:", s.port)
	}
	c, err := sky.New(sky.Options{Endpoint: endpoint, Environ: tm.world.env})
	if err != nil {
		tm.t.Fatal(err)
	}
	return c
}

// restartDatabase ends the database server as a crash would and starts it again,
// if SKY_TEST_POSTGRES_RESTART holds the command for that; else it breaks every
// connection and lets nobody in for a moment.
func (tm *team) restartDatabase(away time.Duration) {
	if command := os.Getenv("SKY_TEST_POSTGRES_RESTART"); command != "" {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			tm.t.Errorf("restarting the database: %v\n%s", err, out)
		}
		return
	}
	for _, s := range tm.servers {
		s.cable.set(true)
	}
	tm.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + tm.database + "'")
	time.Sleep(away)
	for _, s := range tm.servers {
		s.cable.set(false)
	}
}
