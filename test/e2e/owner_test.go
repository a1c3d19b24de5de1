//go:build e2e && linux

package e2e

import (
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/porttest"
)

// stranger is an account of this machine that is not the server's.
const stranger = 65534

// asStranger makes a command one of the other account.
func asStranger(t *testing.T, c *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("another account of this machine can be used by root only")
	}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	c.Dir = "/"
	return c
}

// curl is the status and the body of a call that an account makes.
func curl(t *testing.T, other bool, url string, headers ...string) (status, body string) {
	t.Helper()
	args := []string{"-s", "-S", "-m", "60", "-w", "\n%{http_code}", url}
	for _, h := range headers {
		args = append(args, "-H", h)
	}
	c := exec.Command("curl", args...)
	if other {
		asStranger(t, c)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("curl %s: %v\n%s", url, err, out)
	}
	at := strings.LastIndexByte(string(out), '\n')
	return string(out[at+1:]), string(out[:at])
}

func (w *workstation) url(path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", w.port, path)
}

func (w *workstation) ownerToken() string {
	w.t.Helper()
	file := filepath.Join(w.home, ".sky/api_server/owner.token")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		w.t.Fatalf("%v, %v", info, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// withLogins is a workstation where ada logs in.
func withLogins(t *testing.T, env ...string) *workstation {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkstation(t)
	w.env = append(append(w.env, "ENABLE_BASIC_AUTH=true", "SKYPILOT_INITIAL_BASIC_AUTH=ada:"+string(hash)), env...)
	return w
}

const asAda = "Authorization: Basic YWRhOnNlY3JldA=="

func says(t *testing.T, what, want, status, body string, texts ...string) {
	t.Helper()
	if status != want {
		t.Errorf("%s: %s %s, want %s", what, status, body, want)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("%s: %q does not say %q", what, body, text)
		}
	}
}

// Without logins a server is its account's alone: another account is refused, told
// little by its health, and its commands leave the server alone.
func TestAnotherAccountIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("api", "start")
	pid := w.serverPID()
	status, body := curl(t, true, w.url("/users"))
	says(t, "another account", "403", status, body, "belongs to another account", "SKY_API_PORT")
	status, body = curl(t, false, w.url("/users"))
	says(t, "the owner", "200", status, body)
	status, body = curl(t, true, w.url("/users"), "Authorization: Bearer "+w.ownerToken())
	says(t, "the token", "200", status, body)
	status, body = curl(t, true, w.url("/users"), "Authorization: Bearer "+api.OwnerPrefix+"GUESSED")
	says(t, "another token", "403", status, body)
	status, body = curl(t, true, w.url("/api/health"))
	says(t, "health", "200", status, body, "healthy")
	for _, kept := range []string{"instance_id", "server_pid", "started_at", "build_id"} {
		if strings.Contains(body, kept) {
			t.Errorf("health tells another account %s: %s", kept, body)
		}
	}

	home, err := os.MkdirTemp("", "sky-other-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	program := filepath.Join(home, "sky") // where the account may run it
	if out, err := exec.Command("cp", binary, program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range []string{home, program} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(p, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"status"}, {"api", "start"}, {"api", "stop"}, {"launch", "-y", "--", "true"}} {
		c := asStranger(t, exec.Command(program, args...))
		c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), fmt.Sprint("SKY_API_PORT=", w.port), "USER=other"}
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "uid 0") || !strings.Contains(string(out), "SKY_API_PORT") {
			t.Errorf("sky %v of another account: %v\n%s", args, err, out)
		}
	}
	if w.serverPID() != pid {
		t.Error("the server is another one")
	}
}

// A trap is what another account listens with; it keeps what it is sent.
type trap struct {
	mu   sync.Mutex
	sent []string
}

func newTrap(t *testing.T, port int) *trap {
	t.Helper()
	type listening struct {
		net.Listener
		error
	}
	out := make(chan listening)
	go func() {
		runtime.LockOSThread() // the thread changes its account, and ends with this goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, stranger, stranger, stranger); e != 0 {
			out <- listening{nil, e}
			return
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		out <- listening{l, err}
	}()
	l := <-out
	if l.error != nil {
		t.Fatal(l.error)
	}
	tr := &trap{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		tr.mu.Lock()
		tr.sent = append(tr.sent, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header, " ", string(body)))
		tr.mu.Unlock()
		w.Header().Set(api.HeaderAPIVersion, "53")
		io.WriteString(w, `{"status":"healthy","api_version":"53","version":"1.0.0-dev0","commit":"x","server_pid":1}`)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return tr
}

func (tr *trap) took() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	out := strings.Join(tr.sent, "\n")
	tr.sent = nil
	return out
}

// What another account listens with on the port is not taken for the server: it is
// shown nothing, neither used nor stopped.
func TestAnotherAccountsListenerIsShownNothing(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("api", "start")
	token := w.ownerToken()
	port := porttest.Free(t)
	tr := newTrap(t, port)
	there := w.with(fmt.Sprint("SKY_API_PORT=", port))
	for _, args := range [][]string{{"status"}, {"launch", "-y", "--secret", "S=planted", "--", "true"}, {"api", "start"}} {
		out, code := there.run(args...)
		if code == 0 || !strings.Contains(out, "uid 65534") || !strings.Contains(out, "SKY_API_PORT") {
			t.Errorf("sky %v: exit %d\n%s", args, code, out)
		}
	}
	if got := tr.took(); got != "" {
		t.Errorf("it was sent:\n%s", got)
	}
	// A client with a chosen endpoint calls that, and still shows no credential of the own server.
	chosen := w.with(fmt.Sprint("SKY_API_PORT=", port), fmt.Sprint("SKYPILOT_API_SERVER_ENDPOINT=http://127.0.0.1:", port))
	chosen.run("api", "info")
	got := tr.took()
	if got == "" || strings.Contains(got, token) || strings.Contains(got, http.CanonicalHeaderKey(api.HeaderOwner)) {
		t.Errorf("it was sent:\n%s", got)
	}
	// The file of the own server says where that one is: it is not this one.
	if err := os.Remove(filepath.Join(w.home, ".sky/api_server/instance.json")); err != nil {
		t.Fatal(err)
	}
	out, code := there.run("api", "stop")
	if code == 0 || !strings.Contains(out, "uid 65534") {
		t.Errorf("api stop: exit %d\n%s", code, out)
	}
	w.sky("api", "stop") // the own one proves itself without the file
	if status, _ := curl(t, false, fmt.Sprintf("http://127.0.0.1:%d/api/health", port)); status != "200" {
		t.Error("the other listener has ended")
	}
}

// Where people log in, so does this machine. The administrator's way in is the token
// that the account of the server reads.
func TestWhereLoginsAreOnTheTokenIsTheAdministrators(t *testing.T) {
	t.Parallel()
	w := withLogins(t)
	w.sky("api", "start")
	token := "Authorization: Bearer " + w.ownerToken()
	for _, path := range []string{"/users", "/metrics", "/audit"} {
		for _, other := range []bool{false, true} {
			status, body := curl(t, other, w.url(path))
			says(t, path, "401", status, body)
			status, body = curl(t, other, w.url(path), asAda)
			says(t, path+" as ada", "200", status, body)
			status, body = curl(t, other, w.url(path), token)
			says(t, path+" with the token", "200", status, body)
			status, body = curl(t, other, w.url(path), token, "X-Forwarded-For: 10.0.0.1")
			says(t, path+" with the token, through a proxy", "401", status, body)
		}
	}
	_, body := curl(t, false, w.url("/api/health"), "X-SkyPilot-API-Version: 53")
	if !strings.Contains(body, "needs_auth") || strings.Contains(body, "instance_id") || strings.Contains(body, "server_pid") {
		t.Errorf("health: %s", body)
	}
	w.write("wd/hello", "from the workdir")
	task := w.write("task.yaml", "workdir: "+filepath.Join(w.home, "wd")+"\nresources: {infra: local}\nrun: cat hello\n")
	wants(t, w.sky("launch", "-y", "-c", "mine", task), "from the workdir")
	w.sky("status")
	w.sky("api", "stop")
	w.sky("api", "start")
	status, body := curl(t, true, w.url("/users"), token)
	says(t, "the token of before", "403", status, body, "owner.token")
	w.sky("down", "-y", "mine")
}

// nginx runs the real one as another account: one port passes calls on with the usual
// headers, one without, one names a user.
func nginx(t *testing.T, to int) (plain, forwarding, naming string) {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatal("nginx is not installed: apt-get install nginx-light")
	}
	dir, err := os.MkdirTemp("", "sky-nginx-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	var config strings.Builder
	fmt.Fprintf(&config, "daemon off; pid %[1]s/pid; error_log %[1]s/log; worker_processes 1;\nevents {}\nhttp {\naccess_log off;\n", dir)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&config, "%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	for _, c := range []struct {
		url     *string
		headers string
	}{
		{&plain, ""},
		{&forwarding, "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header Host $host;"},
		{&naming, "proxy_set_header X-Auth-Request-Email ada@example.com; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"},
	} {
		port := porttest.Free(t)
		*c.url = fmt.Sprintf("http://127.0.0.1:%d", port)
		fmt.Fprintf(&config, "server { listen 127.0.0.1:%d; location / { %s proxy_pass http://127.0.0.1:%d; } }\n", port, c.headers, to)
	}
	config.WriteString("}\n")
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	c := asStranger(t, exec.Command(program, "-c", file, "-e", filepath.Join(dir, "log")))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
	})
	eventually(t, "nginx listens", time.Minute, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(naming, "http://"))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return plain, forwarding, naming
}

func TestBehindNginx(t *testing.T) {
	t.Parallel()
	const told = "X-Auth-Request-Email: ada@example.com"
	t.Run("without logins it is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorkstation(t)
		w.sky("api", "start")
		plain, forwarding, naming := nginx(t, w.port)
		for _, through := range []string{plain, forwarding, naming} {
			status, body := curl(t, false, through+"/users")
			says(t, through, "403", status, body)
			status, body = curl(t, false, through+"/users", told)
			says(t, through+" with a name", "403", status, body)
		}
		status, body := curl(t, false, forwarding+"/users", "Authorization: Bearer "+w.ownerToken())
		says(t, "the token, passed on", "403", status, body)
	})
	t.Run("with logins it is no login", func(t *testing.T) {
		t.Parallel()
		w := withLogins(t)
		w.sky("api", "start")
		plain, forwarding, naming := nginx(t, w.port)
		for _, through := range []string{plain, forwarding, naming} {
			status, body := curl(t, false, through+"/users")
			says(t, through, "401", status, body)
			status, body = curl(t, false, through+"/users", told)
			says(t, through+" with a name", "401", status, body)
			status, body = curl(t, false, through+"/users", asAda)
			says(t, through+" as ada", "200", status, body)
		}
	})
	t.Run("its account must be trusted to name users", func(t *testing.T) {
		t.Parallel()
		for _, trusted := range []bool{false, true} {
			w := newWorkstation(t)
			w.write(".sky/.server.yaml", "auth: {external_proxy: {enabled: true}}\n")
			if trusted {
				w = w.with(fmt.Sprint("SKY_TRUSTED_PROXY_USERS=", stranger))
			}
			w.sky("api", "start")
			_, forwarding, naming := nginx(t, w.port)
			status, body := curl(t, false, naming+"/users/role")
			if trusted {
				says(t, "named by a trusted account", "200", status, body, "ada@example.com")
			} else {
				says(t, "named by another account", "401", status, body)
			}
			status, body = curl(t, false, forwarding+"/users/role")
			says(t, "not named", "401", status, body)
		}
	})
}

// Files below ~/.sky are for the account of the server alone.
func TestFilesAreReadableForTheirAccountOnly(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "c", "--infra", "local", "--", "echo hi")
	w.sky("status")
	n := 0
	err := filepath.WalkDir(filepath.Join(w.home, ".sky"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // it has gone meanwhile
			}
			return err
		}
		info, err := d.Info()
		if err != nil || d.Type()&(fs.ModeSymlink|fs.ModeSocket) != 0 {
			return nil
		}
		n++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if ok, _ := filepath.Match(filepath.Join(w.home, ".sky/local/*/node-*/home"), path); ok {
			return filepath.SkipDir // what programs of users make there is theirs
		}
		return nil
	})
	if err != nil || n < 10 {
		t.Errorf("%d files, %v", n, err)
	}
}
