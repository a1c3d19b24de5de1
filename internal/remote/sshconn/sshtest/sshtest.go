//go:build unix

// Package sshtest is an sshd inside a test: real handshakes, real shells in a
// home folder of its own, and ways to make it misbehave.
package sshtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/proc"
)

// Server is one sshd. Its fields may be changed while it runs, through Set.
type Server struct {
	Addr string // host:port
	Home string // HOME of its shells

	t     testing.TB
	mu    sync.Mutex
	knobs Knobs
	l     net.Listener
	conns map[net.Conn]bool
	wg    sync.WaitGroup

	closed chan struct{}
	close  sync.Once

	Logins   atomic.Int64 // handshakes that succeeded
	Sessions atomic.Int64
}

// Knobs say how the server behaves.
type Knobs struct {
	HostKey      ssh.Signer
	Allow        []ssh.PublicKey // nobody else
	Password     string
	Delay        time.Duration // before each handshake
	NoForwarding bool
	OnlyClient   string            // nobody else logs in, by the version that a client tells; "" is anybody
	Shell        string            // what runs commands; "" is /bin/sh
	Env          map[string]string // of its shells
	Down         bool              // hangs up at once
	Frozen       bool              // connections stay open and nothing happens any more
}

// Start starts a server on a free loopback port that admits the keys.
func Start(t testing.TB, allow ...ssh.PublicKey) *Server {
	return StartOn(t, "127.0.0.1:0", allow...)
}

// StartOn is Start on an address.
func StartOn(t testing.TB, addr string, allow ...ssh.PublicKey) *Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_, host := NewKey(t)
	s := &Server{Addr: l.Addr().String(), Home: t.TempDir(), t: t, l: l, conns: map[net.Conn]bool{}, closed: make(chan struct{}), knobs: Knobs{HostKey: host, Allow: allow}}
	s.wg.Go(s.accept)
	t.Cleanup(func() {
		s.Close()
		// What commands left behind would write to the home folder while it is removed.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := proc.End(ctx, func() []int { return proc.Marked("HOME", s.Home) }, 0); err != nil {
			t.Errorf("processes of %s: %v", s.Home, err)
		}
	})
	return s
}

// NewKey makes a key: its file and how to sign with it.
func NewKey(t testing.TB) (file string, signer ssh.Signer) {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err = ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return file, signer
}

// Set changes the server's ways for what happens from now on.
func (s *Server) Set(f func(*Knobs)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.knobs)
}

func (s *Server) get() Knobs {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knobs
}

// Port is the port of Addr.
func (s *Server) Port() int { return s.l.Addr().(*net.TCPAddr).Port }

// Cut breaks all connections.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// Close ends the server.
func (s *Server) Close() {
	s.close.Do(func() { close(s.closed) })
	s.l.Close()
	s.Cut()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(&freezer{Conn: c, s: s})
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// freezer holds back what the server sends while it is frozen.
type freezer struct {
	net.Conn
	s *Server
}

func (f *freezer) Write(b []byte) (int, error) {
	if f.s.get().Frozen {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

func (s *Server) serve(c net.Conn) {
	k := s.get()
	select {
	case <-time.After(k.Delay):
	case <-s.closed:
		return
	}
	if k.Down {
		return
	}
	cfg := &ssh.ServerConfig{
		PublicKeyCallback: func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if only := s.get().OnlyClient; only != "" && string(m.ClientVersion()) != only {
				return nil, fmt.Errorf("%s may not log in", m.ClientVersion())
			}
			for _, a := range k.Allow {
				if string(a.Marshal()) == string(key.Marshal()) {
					return nil, nil
				}
			}
			return nil, fmt.Errorf("unknown key")
		},
	}
	if k.Password != "" {
		cfg.PasswordCallback = func(_ ssh.ConnMetadata, pw []byte) (*ssh.Permissions, error) {
			if string(pw) != k.Password {
				return nil, fmt.Errorf("wrong password")
			}
			return nil, nil
		}
	}
	cfg.AddHostKey(k.HostKey)
	conn, chans, reqs, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		return
	}
	s.Logins.Add(1)
	defer conn.Close()
	go func() {
		for r := range reqs {
			if r.WantReply {
				r.Reply(false, nil)
			}
		}
	}()
	var wg sync.WaitGroup
	for ch := range chans {
		switch {
		case ch.ChannelType() == "session":
			s.Sessions.Add(1)
			wg.Go(func() { s.session(ch, c.LocalAddr()) })
		case ch.ChannelType() == "direct-tcpip" && !s.get().NoForwarding:
			wg.Go(func() { forward(ch) })
		default:
			ch.Reject(ssh.Prohibited, "administratively prohibited")
		}
	}
	wg.Wait()
}

func (s *Server) session(nc ssh.NewChannel, local net.Addr) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	for r := range reqs {
		if r.Type != "exec" {
			r.Reply(r.Type == "env", nil)
			continue
		}
		var msg struct{ Command string }
		ssh.Unmarshal(r.Payload, &msg)
		r.Reply(true, nil)
		code := s.exec(ch, reqs, msg.Command, local)
		ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
		return
	}
}

func (s *Server) exec(ch ssh.Channel, reqs <-chan *ssh.Request, command string, local net.Addr) int {
	k := s.get()
	shell := k.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the channel
		for r := range reqs {
			if r.WantReply {
				r.Reply(false, nil)
			}
		}
		cancel()
	}()
	cmd := exec.CommandContext(ctx, shell, "-c", command)
	cmd.Dir = s.Home
	host, port, _ := net.SplitHostPort(local.String())
	cmd.Env = []string{"HOME=" + s.Home, "PATH=" + os.Getenv("PATH"), "USER=tester", "SHELL=/bin/sh", "SSH_CONNECTION=127.0.0.1 1 " + host + " " + port}
	for key, v := range k.Env {
		cmd.Env = append(cmd.Env, key+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// What the command leaves behind may hold its output open: it is copied until
	// its end, or the channel's.
	out, copyOut, err := outputTo(ch)
	if err != nil {
		return 255
	}
	errOut, copyErr, err := outputTo(ch.Stderr())
	if err != nil {
		return 255
	}
	cmd.Stdout, cmd.Stderr = out, errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		return 255
	}
	err = cmd.Start()
	out.Close()
	errOut.Close()
	var copies sync.WaitGroup
	copies.Go(func() { copyOut(ctx) })
	copies.Go(func() { copyErr(ctx) })
	if err != nil {
		copies.Wait()
		fmt.Fprintln(ch.Stderr(), err)
		return 255
	}
	go func() {
		io.Copy(in, ch)
		in.Close()
	}()
	err = cmd.Wait()
	copies.Wait()
	if err != nil {
		if code := cmd.ProcessState.ExitCode(); code >= 0 {
			return code
		}
		return 255
	}
	return 0
}

// outputTo is a file for a process to write to, and what copies it to w until all
// who have the file have closed it, or the context ends.
func outputTo(w io.Writer) (*os.File, func(context.Context), error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return to, func(ctx context.Context) {
		defer from.Close()
		stop := context.AfterFunc(ctx, func() { from.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		io.Copy(w, from)
	}, nil
}

func forward(nc ssh.NewChannel) {
	var msg struct {
		Host  string
		Port  uint32
		From  string
		FPort uint32
	}
	ssh.Unmarshal(nc.ExtraData(), &msg)
	out, err := net.Dial("tcp", net.JoinHostPort(strings.Trim(msg.Host, "[]"), fmt.Sprint(msg.Port)))
	if err != nil {
		nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer out.Close()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(reqs)
	go func() {
		io.Copy(out, ch)
		out.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(ch, out)
}
