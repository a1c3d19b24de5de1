//go:build linux || darwin

package localserver

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/internal/proc"
)

// The test binary also plays the server: LOCALSERVER_ROLE says how.
func TestMain(m *testing.M) {
	switch os.Getenv("LOCALSERVER_ROLE") {
	case "":
		os.Exit(m.Run())
	case "dies":
		fmt.Println("first line\nlistening failed: the port is on fire")
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		playServer()
	default:
		playServer()
	}
}

func playServer() {
	home := os.Getenv("HOME")
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("SKY_API_PORT"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	f, _ := os.OpenFile(filepath.Join(home, "starts"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	fmt.Fprintln(f, os.Getpid())
	f.Close()
	start, _ := proc.StartTime(os.Getpid())
	in, _ := json.Marshal(sky.Instance{PID: os.Getpid(), Start: start, InstanceID: "i", Endpoint: "http://127.0.0.1:" + os.Getenv("SKY_API_PORT")})
	if os.Getenv("LOCALSERVER_ROLE") != "forgetful" {
		_ = os.WriteFile(sky.InstanceFile(home), in, 0o600)
	}
	token := api.OwnerPrefix + rand.Text()
	_ = os.WriteFile(sky.OwnerFile(home), []byte(token), 0o600)
	version := "53"
	if os.Getenv("LOCALSERVER_ROLE") == "ancient" {
		version = "10"
	}
	_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderAPIVersion, version)
		if os.Getenv("LOCALSERVER_ROLE") != "speechless" {
			at := netip.MustParseAddrPort(listener.Addr().String())
			w.Header().Set(api.HeaderProof, api.OwnerProof(token, at, r.Header.Get(api.HeaderChallenge), os.Getpid()))
		}
		fmt.Fprintf(w, `{"status":"healthy","api_version":"%s","version":"1.0","commit":"x","server_pid":%d}`, version, os.Getpid())
	}))
}

// local is a local server of its own for a test, on a free port.
func local(t *testing.T, role string) *Local {
	t.Helper()
	port := fmt.Sprint(porttest.Free(t))
	home := t.TempDir()
	l := &Local{
		Home: home, Endpoint: "http://127.0.0.1:" + port,
		Environ: []string{"HOME=" + home, "SKY_API_PORT=" + port, "LOCALSERVER_ROLE=" + role, "USER=me"},
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l.Command = []string{exe}
	l.Client = l.client(t)
	t.Cleanup(func() {
		if pids, err := os.ReadFile(filepath.Join(home, "starts")); err == nil {
			for pid := range strings.FieldsSeq(string(pids)) {
				var n int
				fmt.Sscan(pid, &n)
				if p, err := os.FindProcess(n); err == nil {
					_ = p.Kill()
				}
			}
		}
	})
	return l
}

func (l *Local) client(t *testing.T) *sky.Client {
	t.Helper()
	c, err := sky.New(sky.Options{Endpoint: l.Endpoint, Environ: l.Environ})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func starts(t *testing.T, l *Local) int {
	t.Helper()
	b, _ := os.ReadFile(filepath.Join(l.Home, "starts"))
	return strings.Count(string(b), "\n")
}

func TestEnsureStartsOnce(t *testing.T) {
	l := local(t, "good")
	if h, started, err := l.Ensure(t.Context()); err != nil || !started || h.Status != "healthy" {
		t.Fatal(h, started, err)
	}
	if _, started, err := l.Ensure(t.Context()); err != nil || started {
		t.Errorf("second time: started %v, %v", started, err)
	}
	if stopped, err := l.Stop(t.Context()); err != nil || !stopped {
		t.Errorf("stop: %v, %v", stopped, err)
	}
	if stopped, err := l.Stop(t.Context()); err != nil || stopped {
		t.Errorf("second stop: %v, %v", stopped, err)
	}
	if starts(t, l) != 1 {
		t.Errorf("%d servers were started", starts(t, l))
	}
}

func TestManyAtOnceStartOne(t *testing.T) {
	l := local(t, "good")
	var wg sync.WaitGroup
	for range 10 {
		one := *l
		one.Client = l.client(t)
		wg.Go(func() {
			if _, _, err := one.Ensure(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if starts(t, l) != 1 {
		t.Errorf("%d servers were started", starts(t, l))
	}
}

func TestStopFindsAServerWithoutItsFile(t *testing.T) {
	l := local(t, "forgetful")
	if _, _, err := l.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stopped, err := l.Stop(t.Context()); err != nil || !stopped {
		t.Errorf("stop: %v, %v", stopped, err)
	}
}

func TestStopSaysWhenWhoeverListensDoesNotAnswer(t *testing.T) {
	l := local(t, "good")
	l.prove = 100 * time.Millisecond
	listener, err := net.Listen("tcp", strings.TrimPrefix(l.Endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if stopped, err := l.Stop(t.Context()); stopped || err == nil || !strings.Contains(err.Error(), l.Endpoint) {
		t.Errorf("stop: %v, %v", stopped, err)
	}
}

func TestStopKillsAServerThatDoesNotListen(t *testing.T) {
	l := local(t, "stubborn")
	l.Grace = 200 * time.Millisecond
	if _, _, err := l.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stopped, err := l.Stop(t.Context()); err != nil || !stopped {
		t.Errorf("stop: %v, %v", stopped, err)
	}
}

func TestStopSparesAStranger(t *testing.T) {
	l := local(t, "good")
	if err := os.MkdirAll(Dir(l.Home), 0o700); err != nil {
		t.Fatal(err)
	}
	in, _ := json.Marshal(sky.Instance{PID: os.Getpid(), Start: "another start", Endpoint: l.Endpoint})
	if err := os.WriteFile(sky.InstanceFile(l.Home), in, 0o600); err != nil {
		t.Fatal(err)
	}
	if stopped, err := l.Stop(t.Context()); err != nil || stopped {
		t.Errorf("a process with a recycled pid was ended: %v, %v", stopped, err)
	}
}

func TestEnsureShowsTheLogOfAServerThatDies(t *testing.T) {
	l := local(t, "dies")
	_, _, err := l.Ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the port is on fire") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}

func TestEnsureNamesWhoHoldsThePort(t *testing.T) {
	l := local(t, "good")
	listener, err := net.Listen("tcp", strings.TrimPrefix(l.Endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.NotFoundHandler()}
	go srv.Serve(listener)
	defer srv.Close()
	_, _, err = l.Ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "SKY_API_PORT") || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	if starts(t, l) != 0 {
		t.Error("a server was started all the same")
	}
}

func TestEnsureRefusesAnotherVersion(t *testing.T) {
	l := local(t, "ancient")
	for _, when := range []string{"when it was just started", "when it runs"} {
		_, _, err := l.Ensure(t.Context())
		if err == nil || !strings.Contains(err.Error(), "sky api stop && sky api start") {
			t.Errorf("%s: %v", when, err)
		}
	}
}
