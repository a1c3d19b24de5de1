package sshserve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/remote/sshserve"
)

// node echoes what it is sent, says what it was asked for on stderr, and exits with 7
// when there is no more.
type node struct {
	refuses error
	hangs   bool
	ended   chan struct{} // a shell has
	dial    func() (net.Conn, error)
}

func (n *node) Shell(_ context.Context, q agentapi.ShellQuery) (io.ReadWriteCloser, error) {
	if n.refuses != nil {
		return nil, n.refuses
	}
	near, far := net.Pipe()
	go func() {
		defer close(n.ended)
		defer far.Close()
		said := fmt.Sprintf("%q %t %s %dx%d", q.Command, q.TTY, q.Term, q.Cols, q.Rows)
		if agentapi.WriteFrame(far, agentapi.FrameStderr, []byte(said)) != nil {
			return
		}
		for {
			kind, data, err := agentapi.ReadFrame(far)
			switch {
			case err != nil:
				return
			case kind == agentapi.FrameStdin:
				err = agentapi.WriteFrame(far, agentapi.FrameStdout, data)
			case kind == agentapi.FrameResize:
				err = agentapi.WriteFrame(far, agentapi.FrameStdout, fmt.Appendf(nil, "[%dx%d]", binary.BigEndian.Uint16(data[2:]), binary.BigEndian.Uint16(data)))
			case kind == agentapi.FrameEOF && !n.hangs:
				_ = agentapi.WriteFrame(far, agentapi.FrameExit, []byte{0, 0, 0, 7})
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return near, nil
}

func (n *node) Dial(_ context.Context, address string) (net.Conn, error) {
	if address != "db:5432" {
		return nil, errors.New("nobody listens at " + address)
	}
	return n.dial()
}

// sockets are the two ends of a connection. Both sides of ssh write first, for which a
// pipe has no room.
func sockets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// connect is a client of a node, and what Serve returns.
func connect(t *testing.T, n *node) (*ssh.Client, <-chan error) {
	t.Helper()
	if n.ended == nil {
		n.ended = make(chan struct{})
	}
	near, far := sockets(t)
	served := make(chan error, 1)
	go func() { served <- sshserve.Serve(t.Context(), far, n) }()
	conn, channels, requests, err := ssh.NewClientConn(near, "node", &ssh.ClientConfig{User: "anybody", HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	client := ssh.NewClient(conn, channels, requests)
	t.Cleanup(func() { client.Close() })
	return client, served
}

func newSession(t *testing.T, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCommandsAndShells(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(*ssh.Session) error
		says string
	}{
		{"a command", func(s *ssh.Session) error { return s.Run("ls -l") }, `"ls -l" false  0x0`},
		{"a shell", func(s *ssh.Session) error {
			if err := s.Shell(); err != nil {
				return err
			}
			return s.Wait()
		}, `"" false  0x0`},
		{"a command with a terminal", func(s *ssh.Session) error {
			if err := s.RequestPty("vt100", 40, 132, ssh.TerminalModes{ssh.ECHO: 0}); err != nil {
				return err
			}
			return s.Run("top")
		}, `"top" true vt100 132x40`},
	} {
		client, served := connect(t, &node{})
		s := newSession(t, client)
		var out, said bytes.Buffer
		s.Stdin, s.Stdout, s.Stderr = strings.NewReader("typed"), &out, &said
		err := tt.run(s)
		exit, _ := errors.AsType[*ssh.ExitError](err)
		if exit == nil || exit.ExitStatus() != 7 || out.String() != "typed" || said.String() != tt.says {
			t.Errorf("%s: %v; printed %q, %q", tt.name, err, &out, &said)
		}
		client.Close()
		<-served
	}
}

func TestATerminalIsResized(t *testing.T) {
	client, _ := connect(t, &node{})
	s := newSession(t, client)
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.RequestPty("xterm", 24, 80, nil), s.Shell(), s.WindowChange(50, 200)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("[200x50]"))
	if _, err := io.ReadFull(out, got); err != nil || string(got) != "[200x50]" {
		t.Errorf("%q, %v", got, err)
	}
	in.Close()
	_ = s.Wait()
}

func TestFilesAreServedByTheNodesSFTPServer(t *testing.T) {
	client, _ := connect(t, &node{})
	s := newSession(t, client)
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := s.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.RequestSubsystem("sftp"), in.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(said); err != nil || !strings.Contains(string(got), "sftp-server") {
		t.Errorf("%q, %v", got, err)
	}
	if err := newSession(t, client).RequestSubsystem("netconf"); err == nil {
		t.Error("any subsystem is served")
	}
}

func TestWhatCannotBeRunSaysWhy(t *testing.T) {
	client, _ := connect(t, &node{refuses: errors.New("the agent is away")})
	s := newSession(t, client)
	var said bytes.Buffer
	s.Stderr = &said
	err := s.Run("true")
	if exit, ok := errors.AsType[*ssh.ExitError](err); !ok || exit.ExitStatus() != 255 || said.String() != "sky: the agent is away\r\n" {
		t.Errorf("%v, %q", err, &said)
	}
}

// A client that goes takes along what it ran.
func TestAClientThatGoesEndsItsShells(t *testing.T) {
	n := &node{hangs: true}
	client, served := connect(t, n)
	if err := newSession(t, client).Start("sleep"); err != nil {
		t.Fatal(err)
	}
	client.Close()
	<-n.ended
	<-served
}

func TestPortsAreForwarded(t *testing.T) {
	here, there := net.Pipe()
	client, _ := connect(t, &node{dial: func() (net.Conn, error) { return there, nil }})
	if c, err := client.Dial("tcp", "elsewhere:1"); err == nil || !strings.Contains(err.Error(), "nobody listens at elsewhere:1") {
		t.Errorf("%v, %v", c, err)
	}
	conn, err := client.Dial("tcp", "db:5432")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer here.Close()
		b := make([]byte, 4)
		_, _ = io.ReadFull(here, b)
		_, _ = here.Write(bytes.ToUpper(b))
	}()
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "PING" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// Ports of the client are not opened on the node.
func TestNothingIsForwardedBack(t *testing.T) {
	client, _ := connect(t, &node{})
	if l, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
		t.Error("it listens")
	}
}
