//go:build linux

package harness

import (
	"context"
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

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/envelope"
	"github.com/skypilot-go/sky/internal/porttest"
)

// A Team is several API servers on one PostgreSQL, each with a home folder of its
// own and a cable of its own to the database, behind a balancer; and FluffyCloud,
// whose machines all of them reach.
type Team struct {
	T           testing.TB
	Dir         string
	Database    *Database
	Cloud       *Cloud
	Servers     []*Server
	Balancer    *Relay
	Workstation *Workstation // a user elsewhere
}

// A Server is one of a team.
type Server struct {
	Home  string
	Port  int
	Cable *Relay // to the database

	cmd   *exec.Cmd
	ended chan struct{}
}

// NewTeam starts n servers until the test ends. It skips the test without a
// PostgreSQL, which SKY_TEST_POSTGRES names.
func NewTeam(t testing.TB, n int) *Team {
	t.Helper()
	if os.Getenv("SKY_TEST_POSTGRES") == "" {
		t.Skip("SKY_TEST_POSTGRES does not hold the URL of a PostgreSQL database")
	}
	if _, err := exec.LookPath("/usr/sbin/sshd"); err != nil {
		t.Skip("FluffyCloud's machines need OpenSSH's sshd")
	}
	dir, err := os.MkdirTemp("", "sky-team-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	tm := &Team{T: t, Dir: dir, Database: NewDatabase(t)}
	u := tm.Database.URL
	tm.Cloud = NewCloud(t, 50*time.Millisecond)
	var backends []string
	key := envelope.NewKey() // servers of one database share it
	for i := range n {
		s := &Server{Home: filepath.Join(dir, fmt.Sprint("server", i)), Port: porttest.Free(t), Cable: NewRelay(t, u.Host)}
		own := *u
		own.Host = s.Cable.Address()
		if err := os.MkdirAll(filepath.Join(s.Home, ".sky"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Home, ".sky", "config.yaml"), []byte("db: "+strings.Replace(own.String(), "postgres://", "postgresql+psycopg2://", 1)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := envelope.WriteFile(filepath.Join(s.Home, ".sky", "api_server", envelope.FileName), []envelope.Key{key}); err != nil {
			t.Fatal(err)
		}
		tm.Servers = append(tm.Servers, s)
		backends = append(backends, fmt.Sprint("127.0.0.1:", s.Port))
	}
	tm.Balancer = NewRelay(t, backends...)
	home := filepath.Join(dir, "user")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	tm.Workstation = &Workstation{T: t, Home: home, Env: environment(home, "SKYPILOT_API_SERVER_ENDPOINT=http://"+tm.Balancer.Address())}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range tm.Servers {
				t.Logf("%s:\n%s", s.Home, TailOf(filepath.Join(s.Home, "log"), 4000))
			}
		}
		for _, s := range tm.Servers {
			tm.Kill(s)
		}
	})
	var wg sync.WaitGroup
	for _, s := range tm.Servers { // at once: one of them makes the schema
		wg.Go(func() { tm.Start(s) })
	}
	wg.Wait()
	return tm
}

// Start runs a server until it answers.
func (tm *Team) Start(s *Server) {
	log, err := os.OpenFile(filepath.Join(s.Home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tm.T.Error(err)
		return
	}
	defer log.Close()
	c := exec.Command(Sky(), "api", "start", "--foreground")
	c.Env = append(environment(s.Home, "SKY_API_PORT="+strconv.Itoa(s.Port)), tm.Cloud.Environment()...)
	c.Dir, c.Stdout, c.Stderr = s.Home, log, log
	if err := c.Start(); err != nil {
		tm.T.Error(err)
		return
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	s.cmd, s.ended = c, ended
	deadline := time.Now().Add(2 * time.Minute)
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", s.Port), time.Second)
		if err == nil {
			conn.Close()
			if h, err := tm.Client(s).Health(context.Background()); err == nil && h != nil {
				return
			}
		}
		select {
		case <-ended:
			tm.T.Errorf("a server did not start:\n%s", TailOf(filepath.Join(s.Home, "log"), 3000))
			return
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			tm.T.Error("a server does not answer")
			return
		}
	}
}

// Kill ends a server as a power cut would.
func (tm *Team) Kill(s *Server) {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		<-s.ended
	}
}

// Client speaks to one server, or with nil to any.
func (tm *Team) Client(s *Server) *sky.Client {
	endpoint := "http://" + tm.Balancer.Address()
	if s != nil {
		endpoint = fmt.Sprint("http://127.0.0.1:", s.Port)
	}
	c, err := sky.New(sky.Options{Endpoint: endpoint, Environ: tm.Workstation.Env})
	if err != nil {
		tm.T.Fatal(err)
	}
	return c
}

// RestartDatabase ends the database server as a crash would and starts it again,
// if SKY_TEST_POSTGRES_RESTART holds the command for that; else it breaks every
// connection and lets nobody in for a moment.
func (tm *Team) RestartDatabase(away time.Duration) {
	if command := os.Getenv("SKY_TEST_POSTGRES_RESTART"); command != "" {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			tm.T.Errorf("restarting the database: %v\n%s", err, out)
		}
		return
	}
	for _, s := range tm.Servers {
		s.Cable.Cut(true)
	}
	tm.Database.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + tm.Database.Name() + "'")
	time.Sleep(away)
	for _, s := range tm.Servers {
		s.Cable.Cut(false)
	}
}
