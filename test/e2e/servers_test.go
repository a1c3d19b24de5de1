//go:build e2e && linux

package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
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
	"github.com/skypilot-go/sky/api"
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
		s := &teamServer{home: filepath.Join(dir, fmt.Sprint("server", i)), port: freePort(t), cable: newRelay(t, u.Host)}
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
	c := exec.Command(bin, "serve", "--dir", filepath.Join(tm.dir, "cloud"), "--listen", fmt.Sprint("127.0.0.1:", freePort(tm.t)), "--credentials", creds, "--boot", "50ms")
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

// faultRequests is how many requests the fault test sends; SKY_E2E_FAULTS
// changes it.
func faultRequests(t *testing.T) int {
	if v := os.Getenv("SKY_E2E_FAULTS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 500
}

// TestThreeServersOnOneDatabase sends mixed requests through a balancer while the
// servers are killed in turn, the database goes away, and the cables between are
// cut. Nothing is lost, and no job runs twice.
func TestThreeServersOnOneDatabase(t *testing.T) {
	tm := newTeam(t, 3)
	r := seed(t)
	w := tm.world
	runs := w.write("runs", "")
	w.write("proj/hello", "from the client\n")
	clusters := []string{"c0", "c1"}
	for _, c := range clusters {
		task := w.write(c+".yaml", "workdir: "+filepath.Join(w.home, "proj")+"\nresources: {infra: fluffycloud, cpus: 1+}\nrun: cat hello\n")
		wants(t, w.sky("launch", "-y", "-c", c, task), "from the client")
	}

	total := faultRequests(t)
	sent := make(chan int)
	stop := make(chan struct{})
	var faults, people sync.WaitGroup
	var done atomic.Int64
	faults.Go(func() {
		r := rand.New(rand.NewPCG(r.Uint64(), 1))
		for round := 0; ; round++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(2000+r.IntN(3000)) * time.Millisecond):
			}
			s := tm.servers[round%len(tm.servers)]
			switch round % 6 {
			case 2:
				tm.restartDatabase(time.Duration(r.IntN(2000)) * time.Millisecond)
			case 4:
				s.cable.set(true)
				time.Sleep(time.Duration(r.IntN(9000)) * time.Millisecond)
				s.cable.set(false)
			default:
				tm.kill(s)
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				tm.start(s)
			}
		}
	})
	var mu sync.Mutex
	ended := map[string]int{}
	accepted := map[string]string{} // job's mark by request
	for person := range 6 {
		people.Go(func() {
			client := tm.client(nil)
			for i := range sent {
				mark := fmt.Sprintf("job-%d", i)
				cluster := clusters[i%len(clusters)]
				id, what, err := tm.ask(client, i, cluster, fmt.Sprintf("echo %s >> %s", mark, runs))
				mu.Lock()
				ended[fmt.Sprintf("%s %v", what, err == nil)]++
				if what == "exec" && id != "" {
					accepted[id] = mark
				}
				mu.Unlock()
				if err != nil {
					t.Logf("person %d, %s %d: %v", person, what, i, err)
				}
				done.Add(1)
			}
		})
	}
	for i := range total {
		sent <- i
	}
	close(sent)
	people.Wait()
	close(stop)
	faults.Wait()
	t.Log(ended)
	for _, s := range tm.servers { // whatever was left undone goes on
		s.cable.set(false)
	}
	// Every request that was accepted ends, wherever.
	statuses := map[string]string{}
	eventually(t, "all requests end", 90*time.Second, func() bool {
		statuses = w.requestsOf("sky.exec")
		for id := range accepted {
			if s := statuses[id]; s == "PENDING" || s == "RUNNING" {
				return false
			}
		}
		return true
	})
	eventually(t, "jobs that were submitted run", time.Minute, func() bool {
		seen := lines(t, runs)
		for id, mark := range accepted {
			if statuses[id] == "SUCCEEDED" && seen[mark] == 0 {
				return false
			}
		}
		return true
	})
	seen := lines(t, runs)
	succeeded := 0
	for id, mark := range accepted {
		if statuses[id] == "" {
			t.Errorf("request %s (%s) was accepted and is lost", id, mark)
		}
		if statuses[id] == "SUCCEEDED" {
			succeeded++
		}
	}
	for mark, n := range seen {
		if n > 1 {
			t.Errorf("%s ran %d times", mark, n)
		}
	}
	if succeeded < len(accepted)*9/10 {
		t.Errorf("only %d of %d exec requests succeeded: %v", succeeded, len(accepted), statuses)
	}
	for _, c := range clusters {
		w.sky("down", "-y", c)
	}
}

// ask sends one request of those that people send, waits for it, and tells its
// id.
func (tm *team) ask(c *sky.Client, i int, cluster, run string) (id, what string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	switch i % 5 {
	case 0:
		req, err := c.Exec(ctx, api.ExecBody{Task: "run: " + strconv.Quote(run) + "\n", ClusterName: cluster})
		if err != nil {
			return "", "exec", err
		}
		_, err = req.Wait(ctx, io.Discard, sky.StreamOptions{})
		return req.ID(), "exec", err
	case 1, 2:
		req, err := c.Status(ctx, api.StatusBody{})
		if err != nil {
			return "", "status", err
		}
		records, err := req.Get(ctx)
		if err == nil && len(records) != 2 {
			err = fmt.Errorf("%d clusters", len(records))
		}
		return req.ID(), "status", err
	case 3:
		req, err := c.Queue(ctx, api.QueueBody{ClusterName: cluster})
		if err != nil {
			return "", "queue", err
		}
		_, err = req.Get(ctx)
		return req.ID(), "queue", err
	default:
		req, err := c.CostReport(ctx, api.CostReportBody{})
		if err != nil {
			return "", "cost_report", err
		}
		_, err = req.Get(ctx)
		return req.ID(), "cost_report", err
	}
}

// TestARequestMovesBetweenServers follows, cancels and takes over a request
// through servers that did not accept it.
func TestARequestMovesBetweenServers(t *testing.T) {
	tm := newTeam(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a, b, c := tm.servers[0], tm.servers[1], tm.servers[2]
	w := tm.world
	w.sky("launch", "-y", "-c", "c1", "--infra", "fluffycloud", "--", "true")

	// A cluster lock that somebody holds keeps a launch running.
	launch := func(s *teamServer) *sky.Request[api.LaunchResult] {
		req, err := tm.client(s).Exec(ctx, api.ExecBody{Task: "run: echo once\n", ClusterName: "c1"})
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	req := launch(a)
	if _, err := sky.RequestOf[api.LaunchResult](tm.client(b), req.ID()).Wait(ctx, io.Discard, sky.StreamOptions{}); err != nil {
		t.Errorf("followed through another server: %v", err)
	}
	var log strings.Builder
	if err := tm.client(c).StreamRequest(ctx, req.ID(), &log, sky.StreamOptions{}); err != nil || !strings.Contains(log.String(), "Job submitted") && log.Len() == 0 {
		t.Errorf("the log read through a third server: %q %v", log.String(), err)
	}

	// Taken over: the server dies with a long request under way.
	task := w.write("slow.yaml", "resources: {infra: fluffycloud}\nnum_nodes: 8\nrun: echo done\n")
	text, err := os.ReadFile(task)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := tm.client(a).Launch(ctx, api.LaunchBody{Task: string(text), ClusterName: "c2"})
	if err != nil {
		t.Fatal(err)
	}
	var attempt int
	eventually(t, "the request runs", time.Minute, func() bool {
		return tm.one(&attempt, "SELECT attempt FROM requests WHERE id = '"+slow.ID()+"'") == nil && attempt > 0
	})
	tm.kill(a) // eight machines take much longer
	died := time.Now()
	eventually(t, "another server has the request", time.Minute, func() bool {
		err := tm.one(&attempt, "SELECT attempt FROM requests WHERE id = '"+slow.ID()+"'")
		return err == nil && attempt > 1
	})
	t.Logf("taken over after %v", time.Since(died).Round(100*time.Millisecond))
	if _, err := sky.RequestOf[api.LaunchResult](tm.client(b), slow.ID()).Get(ctx); err != nil {
		t.Errorf("the request that was taken over: %v", err)
	}

	// Nodes on a server's own machine are out of the others' reach.
	if out, code := w.with("SKYPILOT_API_SERVER_ENDPOINT="+fmt.Sprint("http://127.0.0.1:", b.port)).run("launch", "-y", "-c", "mine", "--infra", "local", "--", "echo hi"); code != 0 {
		t.Errorf("a local cluster: %s", out)
	}
	other := w.with("SKYPILOT_API_SERVER_ENDPOINT=" + fmt.Sprint("http://127.0.0.1:", c.port))
	out, code := other.run("exec", "mine", "--", "true")
	if code == 0 {
		t.Errorf("another server's local cluster: %s", out)
	}
	wants(t, out, "on the machine of another API server")
	if out, code = other.run("status", "-r"); !strings.Contains(out, "mine") {
		t.Errorf("exit %d: a refresh through another server forgot the local cluster:\n%s", code, out)
	}
	w.with("SKYPILOT_API_SERVER_ENDPOINT="+fmt.Sprint("http://127.0.0.1:", b.port)).sky("down", "-y", "mine")
	w.sky("down", "-y", "c1", "c2")
}

// one reads one value from the team's database.
func (tm *team) one(v any, query string) error {
	u, err := url.Parse(os.Getenv("SKY_TEST_POSTGRES"))
	if err != nil {
		return err
	}
	u.Path = "/" + tm.database
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		return err
	}
	defer db.Close()
	return db.QueryRow(query).Scan(v)
}

// with is the same user with another environment.
func (w *world) with(env ...string) *world {
	other := *w
	other.env = append(append([]string(nil), w.env...), env...)
	return &other
}
