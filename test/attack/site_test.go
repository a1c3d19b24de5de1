//go:build attack && linux

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/skypilot-go/sky/test/harness"
)

// A site is a server that people log in to: ada is administrator, uma, otto and wes
// are users, vic is a viewer. All but wes may use the workspace lab.
type site struct {
	t         *testing.T
	w         *harness.Workstation
	cloud     *harness.Cloud // nil: without
	address   string
	passwords map[string]string
	ids       map[string]string
}

const siteConfig = `
rbac: {default_role: user}
workspaces:
  default: {}
  lab: {private: true, allowed_users: [uma, otto, vic]}
`

// newSite starts one. With a cloud, users run things there; else on this machine,
// which the configuration then allows.
func newSite(t *testing.T, withCloud bool, env ...string) *site {
	t.Helper()
	s := &site{t: t, passwords: map[string]string{"ada": "the administrator's own"}, ids: map[string]string{}}
	config := siteConfig
	if withCloud {
		s.w, s.cloud = harness.NewFluffy(t, 50*time.Millisecond)
	} else {
		s.w = harness.New(t)
		config += "allowed_clouds: [local]\n"
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(s.passwords["ada"]), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	s.w.Env = append(s.w.Env, "ENABLE_BASIC_AUTH=true", "ENABLE_SERVICE_ACCOUNTS=true", "SKYPILOT_INITIAL_BASIC_AUTH=ada:"+string(hash))
	s.w.Env = append(s.w.Env, env...)
	s.w.Write(".sky/config.yaml", config)
	s.w.Sky("api", "start")
	s.address = fmt.Sprint("127.0.0.1:", s.w.Port)
	for name, role := range map[string]string{"uma": "user", "otto": "user", "wes": "user", "vic": "viewer"} {
		s.passwords[name] = "password of " + name
		if a := s.as("ada").post("/users/create", map[string]any{"username": name, "password": s.passwords[name], "role": role}); a.status != 200 {
			t.Fatalf("creating %s: %s", name, a)
		}
	}
	var users []struct{ ID, Name string }
	a := s.as("ada").get("/users")
	if err := json.Unmarshal(a.body, &users); err != nil {
		t.Fatalf("%v: %s", err, a)
	}
	for _, u := range users {
		s.ids[u.Name] = u.ID
	}
	return s
}

// A caller sends calls to a site in somebody's name and from somewhere.
type caller struct {
	s        *site
	name     string // "": without a login
	password string
	address  string // of the server or what is in front of it
	from     string // own loopback address; "": any
	uid      int    // of the process that connects
	header   http.Header
	client   *http.Client
	streams  time.Duration // how long an answer is read that streams; 0: as long as the call may take
}

// as is somebody who logs in with the right password; "" does not.
func (s *site) as(name string) *caller {
	return &caller{s: s, name: name, password: s.passwords[name], address: s.address}
}

// An answer is what came back.
type answer struct {
	status int
	body   []byte
	header http.Header
	err    error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %.300s", a.status, a.body)
}

// refused reports whether a caller was not let in.
func (a answer) refused() bool {
	return a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
}

func (c *caller) get(path string) answer { return c.call("GET", path, nil, "") }

func (c *caller) post(path string, body any) answer {
	b, err := json.Marshal(body)
	if err != nil {
		return answer{err: err}
	}
	return c.call("POST", path, bytes.NewReader(b), "application/json")
}

// callLimit bounds a call; what streams is cut then.
const callLimit = time.Minute

func (c *caller) call(method, path string, body io.Reader, kind string) answer {
	return c.within(callLimit, method, path, body, kind)
}

func (c *caller) within(limit time.Duration, method, path string, body io.Reader, kind string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if c.streams > 0 {
		limit = c.streams
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, body)
	if err != nil {
		return answer{err: err}
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if c.name != "" {
		r.SetBasicAuth(c.name, c.password)
	}
	for k, v := range c.header {
		r.Header[k] = v
	}
	if c.client == nil {
		c.client = &http.Client{
			Transport:     &http.Transport{DialContext: c.dial, DisableKeepAlives: c.uid != 0, MaxIdleConnsPerHost: 8},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	defer time.AfterFunc(limit, cancel).Stop()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if ctx.Err() != nil {
		err = nil // it streams
	}
	return answer{resp.StatusCode, b, resp.Header, err}
}

// dial connects as another user of this machine or from another address of its.
func (c *caller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{}
	if c.from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.from)}
	}
	if c.uid == 0 {
		return d.DialContext(ctx, network, address)
	}
	type dialed struct {
		conn net.Conn
		err  error
	}
	out := make(chan dialed, 1)
	go func() {
		// The thread changes its user and ends with this goroutine, which never
		// unlocks it. Sockets belong to the user of the thread that makes them.
		runtime.LockOSThread()
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(c.uid), uintptr(c.uid), uintptr(c.uid)); e != 0 {
			out <- dialed{nil, e}
			return
		}
		conn, err := d.DialContext(ctx, network, address)
		out <- dialed{conn, err}
	}()
	o := <-out
	return o.conn, o.err
}

// result waits for a request that was accepted.
func (c *caller) result(a answer) answer {
	id := a.header.Get("X-Skypilot-Request-Id")
	if a.status != 200 || id == "" {
		return a
	}
	return c.within(2*time.Minute, "GET", "/api/get?request_id="+id, nil, "")
}

// done sends a call that must be accepted and succeed, and returns its request's
// id.
func (c *caller) done(path string, body map[string]any) string {
	c.s.t.Helper()
	a := c.post(path, body)
	if r := c.result(a); r.status != 200 {
		c.s.t.Fatalf("%s as %s: %s", path, c.name, r)
	}
	return a.header.Get("X-Skypilot-Request-Id")
}

// cancelAll cancels what anybody has asked for and waits until none of it is under
// way.
func (s *site) cancelAll() {
	s.t.Helper()
	if out, code := s.w.Run("api", "cancel", "--all-users", "-y"); code != 0 {
		s.t.Errorf("sky api cancel: exit %d\n%s", code, out)
	}
	var open []map[string]any
	if !harness.Within(time.Minute, func() bool {
		return s.w.JSON(&open, "api", "status", "-l", "all", "-o", "json") == nil && len(open) == 0
	}) {
		s.t.Errorf("requests that were cancelled go on: %v", open)
	}
}

// resident is the most memory that the server has had, in MiB.
func (s *site) resident(field string) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.w.ServerPID()))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib >> 10
		}
	}
	return 0
}

// noFaults reports answers 5xx and panics of the server's log, and reports how many
// there are. A 503 while it goes down is none.
func (s *site) noFaults(c *counts) {
	s.t.Helper()
	for _, line := range faults(filepath.Join(s.w.Home, ".sky/api_server/server.log")) {
		if strings.Contains(line, "status=501") || strings.Contains(line, "status=503") || strings.Contains(line, "status=507") {
			c.add("501, 503 and 507", 1)
			continue
		}
		c.add("5xx and panics", 1)
		s.t.Errorf("server log: %s", line)
	}
}
