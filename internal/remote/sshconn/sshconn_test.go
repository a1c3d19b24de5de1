//go:build unix

package sshconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a server, a key it admits, and a pool.
type fixture struct {
	*sshtest.Server
	pool   *Pool
	target Target
	key    ssh.PublicKey
}

func setup(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	file, signer := sshtest.NewKey(t)
	s := sshtest.Start(t, signer.PublicKey())
	o := Options{Home: t.TempDir(), KnownHosts: filepath.Join(t.TempDir(), "known_hosts"), Timeout: time.Minute}
	if change != nil {
		change(&o)
	}
	p := New(o)
	t.Cleanup(p.Close)
	return &fixture{s, p, Target{Host: "127.0.0.1", Port: s.Port(), User: "u", Identities: []string{file}}, signer.PublicKey()}
}

func (f *fixture) run(t *testing.T, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := f.pool.Run(ctx, f.target, command, nil)
	return string(out), err
}

func TestManyCommandsShareOneConnection(t *testing.T) {
	f := setup(t, nil)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if out, err := f.run(t, fmt.Sprintf("echo %d", i)); err != nil || out != fmt.Sprintf("%d\n", i) {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	wg.Wait()
	if n := f.Logins.Load(); n != 1 {
		t.Errorf("%d logins", n)
	}
}

func TestExitCodesAndOutput(t *testing.T) {
	f := setup(t, nil)
	_, err := f.run(t, "echo out; echo oops >&2; exit 3")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || exit.Stderr != "oops" {
		t.Errorf("%v", err)
	}
	_, err = f.run(t, "echo 'cat: write error: No space left on device' >&2; exit 1")
	var full *NoSpaceError
	if !errors.As(err, &full) {
		t.Errorf("%v", err)
	}
}

// A hostile machine prints for ever.
func TestACommandThatPrintsTooMuchIsEnded(t *testing.T) {
	f := setup(t, nil)
	for _, command := range []string{"head -c 5000000 /dev/zero", "head -c 5000000 /dev/zero; exec sleep 600"} {
		if out, err := f.run(t, command); err == nil || !strings.Contains(err.Error(), "longer than 4 MiB") {
			t.Errorf("%s: %d bytes, %v", command, len(out), err)
		}
	}
	if out, err := f.run(t, "head -c 4000000 /dev/zero"); err != nil || len(out) != 4000000 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestScriptsRunInAPlainShellWhateverLoginPrints(t *testing.T) {
	f := setup(t, nil)
	shell := filepath.Join(t.TempDir(), "chatty")
	os.WriteFile(shell, []byte("#!/bin/sh\necho Welcome!\nexec /bin/sh \"$@\"\n"), 0o755)
	f.Set(func(k *sshtest.Knobs) { k.Shell = shell })
	out, err := f.pool.Script(t.Context(), f.target, "x='a b'\necho \"$x\"\n")
	if err != nil || string(out) != "a b\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAnAccountWithoutShell(t *testing.T) {
	f := setup(t, nil)
	shell := filepath.Join(t.TempDir(), "nologin")
	os.WriteFile(shell, []byte("#!/bin/sh\necho This account is currently not available.\nexit 1\n"), 0o755)
	f.Set(func(k *sshtest.Knobs) { k.Shell = shell })
	_, err := f.pool.Script(t.Context(), f.target, "echo hi\n")
	var none *NoShellError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "not available") {
		t.Errorf("%v", err)
	}
}

func TestARefusedKeySaysWhatWasTried(t *testing.T) {
	f := setup(t, nil)
	f.Set(func(k *sshtest.Knobs) { k.Allow = nil })
	_, err := f.run(t, "true")
	var auth *AuthError
	if !errors.As(err, &auth) {
		t.Fatalf("%T: %v", err, err)
	}
	for _, want := range []string{"127.0.0.1", "as u", f.target.Identities[0], "authorized_keys"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestPasswords(t *testing.T) {
	f := setup(t, func(o *Options) { o.Password = func(Target) string { return "geheim" } })
	f.Set(func(k *sshtest.Knobs) { k.Allow, k.Password = nil, "geheim" })
	if _, err := f.run(t, "true"); err == nil {
		t.Error("the password was used although the target does not say so")
	}
	f.target.OwnKeys = true
	if _, err := f.run(t, "true"); err != nil {
		t.Error(err)
	}
	f.Set(func(k *sshtest.Knobs) { k.Password = "other" })
	f.Cut()
	_, err := f.run(t, "true")
	var auth *AuthError
	if !errors.As(err, &auth) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
}

func TestKeysOfAnAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent")
	f := setup(t, func(o *Options) { o.AgentSocket = socket })
	b, err := os.ReadFile(f.target.Identities[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParseRawPrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	ring.Add(agent.AddedKey{PrivateKey: key})
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { agent.ServeAgent(ring, c); c.Close() }()
		}
	}()
	f.target.Identities, f.target.OwnKeys = nil, true
	if _, err := f.run(t, "true"); err != nil {
		t.Error(err)
	}
}

func TestHostKeysAreRememberedAndAChangedOneIsRefused(t *testing.T) {
	f := setup(t, nil)
	if _, err := f.run(t, "true"); err != nil {
		t.Fatal(err)
	}
	if !f.pool.Remembers(f.target) {
		t.Error("nothing was recorded")
	}
	_, other := sshtest.NewKey(t)
	f.Set(func(k *sshtest.Knobs) { k.HostKey = other })
	f.Cut()
	_, err := f.run(t, "true")
	var changed *HostKeyError
	if !errors.As(err, &changed) {
		t.Fatalf("%T: %v", err, err)
	}
	for _, want := range []string{ssh.FingerprintSHA256(other.PublicKey()), f.pool.KnownHosts(), "line 1", "remove that line"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if err := f.pool.ForgetHosts(f.pool.Alias(f.target) + " "); err != nil {
		t.Fatal(err)
	}
	if _, err := f.run(t, "true"); err != nil {
		t.Errorf("after it was forgotten: %v", err)
	}
}

func TestAPinnedHostKeyIsTheOnlyOne(t *testing.T) {
	f := setup(t, nil)
	_, other := sshtest.NewKey(t)
	f.target.HostKey = string(ssh.MarshalAuthorizedKey(other.PublicKey()))
	_, err := f.run(t, "true")
	var changed *HostKeyError
	if !errors.As(err, &changed) || f.Logins.Load() != 0 {
		t.Errorf("%v", err)
	}
	f.Set(func(k *sshtest.Knobs) { k.HostKey = other })
	if _, err := f.run(t, "true"); err != nil {
		t.Error(err)
	}
}

func TestACutConnectionIsMadeAnew(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for i := range 5 {
		if _, err := f.run(t, "true"); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		f.Cut()
	}
	running := filepath.Join(t.TempDir(), "running")
	go func() {
		for {
			if _, err := os.Stat(running); err == nil || t.Context().Err() != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		f.Cut()
	}()
	_, err := f.run(t, "touch "+running+"; sleep 600")
	var gone *UnreachableError
	if !errors.As(err, &gone) {
		t.Errorf("cut in the middle of a command: %v", err)
	}
}

func TestAHostThatStopsAnsweringIsGivenUp(t *testing.T) {
	t.Parallel()
	f := setup(t, func(o *Options) { o.Timeout, o.KeepAlive = 15*time.Second, 500*time.Millisecond })
	if _, err := f.run(t, "true"); err != nil {
		t.Fatal(err)
	}
	f.Set(func(k *sshtest.Knobs) { k.Frozen = true })
	_, err := f.run(t, "sleep 600")
	var gone *UnreachableError
	if !errors.As(err, &gone) {
		t.Errorf("got %v", err)
	}
	f.Set(func(k *sshtest.Knobs) { k.Frozen = false })
	if _, err := f.run(t, "true"); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

func TestSlowAndSilentHosts(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.Set(func(k *sshtest.Knobs) { k.Delay = 200 * time.Millisecond })
	if _, err := f.run(t, "true"); err != nil {
		t.Errorf("slow: %v", err)
	}
	f = setup(t, func(o *Options) { o.Timeout = 3 * time.Second })
	f.Set(func(k *sshtest.Knobs) { k.Delay = time.Minute })
	_, err := f.run(t, "true")
	var gone *UnreachableError
	if !errors.As(err, &gone) || gone.Step != "logging in" {
		t.Errorf("silent: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.pool.Run(ctx, f.target, "true", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's deadline: %v", err)
	}
}

func TestNobodyThere(t *testing.T) {
	f := setup(t, nil)
	f.Close()
	var wg sync.WaitGroup
	for range 20 { // one try serves them all
		wg.Go(func() {
			_, err := f.run(t, "true")
			var gone *UnreachableError
			if !errors.As(err, &gone) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
}

func TestDialThrough(t *testing.T) {
	f := setup(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	c, err := f.pool.Dial(t.Context(), f.target, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		c.Write(text)
		c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	f.Set(func(k *sshtest.Knobs) { k.NoForwarding = true })
	if _, err := f.pool.Dial(t.Context(), f.target, l.Addr().String()); !errors.Is(err, ErrNoForwarding) {
		t.Errorf("%v", err)
	}
}

func TestStreamsHaveDeadlines(t *testing.T) {
	f := setup(t, nil)
	c, err := f.pool.Pipe(t.Context(), f.target, "cat")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	b := make([]byte, 10)
	if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	c.SetDeadline(time.Time{})
	io.WriteString(c, "hello")
	if _, err := io.ReadFull(c, b[:5]); err != nil || string(b[:5]) != "hello" {
		t.Errorf("after the deadline was lifted: %q, %v", b[:5], err)
	}
	go func() { time.Sleep(30 * time.Millisecond); c.SetDeadline(time.Unix(1, 0)) }()
	if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline set while it reads: %v", err)
	}
}

func TestJumpsAndCommands(t *testing.T) {
	f := setup(t, nil)
	bastion := sshtest.Start(t, f.key)
	f.target.Jump = []Target{{Host: "127.0.0.1", Port: bastion.Port(), User: "j", Identities: f.target.Identities}}
	if _, err := f.run(t, "true"); err != nil || bastion.Logins.Load() != 1 {
		t.Errorf("%v; %d logins at the jump host", err, bastion.Logins.Load())
	}
	f.target.Jump = nil
	if _, err := exec.LookPath("python3"); err == nil {
		relay := filepath.Join(t.TempDir(), "relay.py")
		os.WriteFile(relay, []byte(`import os,socket,sys,threading
s=socket.create_connection((sys.argv[1],int(sys.argv[2])))
def up():
  while True:
    b=os.read(0,65536)
    if not b: break
    s.sendall(b)
threading.Thread(target=up,daemon=True).start()
while True:
  b=s.recv(65536)
  if not b: break
  os.write(1,b)
`), 0o600)
		f.target.ProxyCommand = "python3 " + relay + " %h %p"
		if _, err := f.run(t, "true"); err != nil {
			t.Errorf("through a command: %v", err)
		}
	}
	f.target.ProxyCommand = "echo no way >&2; false"
	if _, err := f.run(t, "true"); err == nil || !strings.Contains(err.Error(), "no way") {
		t.Errorf("a command that fails: %v", err)
	}
}

func TestUserKeyIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	keys := make([]string, 8)
	for i := range keys {
		wg.Go(func() {
			path, public, err := UserKey(dir, "abcd1234")
			if err != nil || path != filepath.Join(dir, "clients/abcd1234/ssh/sky-key") {
				t.Errorf("%s, %v", path, err)
			}
			keys[i] = public
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] || !strings.HasPrefix(k, "ssh-ed25519 ") {
			t.Errorf("keys differ: %q and %q", k, keys[0])
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "clients/abcd1234/ssh/sky-key")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	for _, bad := range []string{"", "..", "a/b", ".x"} {
		if _, _, err := UserKey(dir, bad); err == nil {
			t.Errorf("%q was taken for a user", bad)
		}
	}
}

func TestParseJump(t *testing.T) {
	like := Target{User: "u", Identities: []string{"k"}}
	for _, tt := range []struct{ text, want string }{
		{"", "[]"}, {"none", "[]"},
		{"b", "[u@b]"}, {"x@b:2222", "[x@b:2222]"}, {"a,y@b", "[u@a y@b]"},
		{"[::1]:23", "[u@::1:23]"}, {"ssh://z@h", "[z@h]"},
	} {
		got, err := ParseJump(tt.text, like)
		if err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%q: %v, %v", tt.text, got, err)
		}
	}
	for _, bad := range []string{",", "h:0", "h:x", "u@"} {
		if got, err := ParseJump(bad, like); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestConfigured(t *testing.T) {
	home := t.TempDir()
	os.MkdirAll(filepath.Join(home, ".ssh/more"), 0o700)
	os.WriteFile(filepath.Join(home, ".ssh/config"), []byte(`
# comment
Include more/*
Host gpu*  !gpu9
  HostName=%h.example
  User alice
  Port 2222
  IdentityFile ~/k1
Host gpu1
  User bob
  IdentityFile "~/k2"
  ProxyJump bastion
Match host gpu1
  User mallory
Host *
  User everyone
`), 0o600)
	os.WriteFile(filepath.Join(home, ".ssh/more/a"), []byte("Host bastion\n  HostName 10.0.0.1\n  User jump\n"), 0o600)
	for _, tt := range []struct {
		in   Target
		want string
		keys int
		jump string
	}{
		{Target{Host: "gpu1"}, "alice@gpu1.example:2222", 2, "[jump@10.0.0.1]"},
		{Target{Host: "gpu1", User: "me", Port: 23, Identities: []string{"x"}}, "me@gpu1.example:23", 1, "[jump@10.0.0.1]"},
		{Target{Host: "gpu9"}, "everyone@gpu9", 0, "[]"},
		{Target{Host: "other"}, "everyone@other", 0, "[]"},
	} {
		got, err := Configured(tt.in, home)
		if err != nil || got.String() != tt.want || len(got.Identities) != tt.keys || fmt.Sprint(got.Jump) != tt.jump {
			t.Errorf("%v: %v, keys %v, through %v, %v", tt.in, got, got.Identities, got.Jump, err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	file, signer := sshtest.NewKey(b)
	s := sshtest.Start(b, signer.PublicKey())
	p := New(Options{Home: b.TempDir()})
	defer p.Close()
	t := Target{Host: "127.0.0.1", Port: s.Port(), User: "u", Identities: []string{file}}
	for b.Loop() {
		if _, err := p.Run(b.Context(), t, "true", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// A user may choose whom machines log in as; where an administrator's command
// takes that in, it stays a name.
func TestNamesInAProxyCommandAreNoCommands(t *testing.T) {
	made := filepath.Join(t.TempDir(), "made")
	for _, target := range []Target{
		{Host: "h", User: "x; touch " + made, ProxyCommand: "true %r %h"},
		{Host: "$(touch " + made + ")", User: "x", ProxyCommand: "true %h"},
		{Host: "-oProxyCommand=touch", User: "x", ProxyCommand: "true %h"},
	} {
		c, err := proxyCommand(target)
		if err == nil {
			io.ReadAll(c)
			c.Close()
			t.Errorf("%+v was started", target)
		}
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("a name was executed")
	}
}
