package sshconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/bounded"
)

// outputMost bounds what is kept of a command's output.
const outputMost = 4 << 20

// Run runs a command line on the target, in the user's login shell, or with
// [Target.RunAs] in a plain sh of that account, and returns what it printed. An exit code other than 0 is an [*ExitError]. Cancelling the
// context ends the session; the command itself may go on.
func (p *Pool) Run(ctx context.Context, t Target, command string, stdin io.Reader) ([]byte, error) {
	s, c, err := p.session(ctx, t)
	if err != nil {
		return nil, err
	}
	defer c.release()
	defer func() { <-c.sessions }()
	defer s.Close()
	// The session would wait for a reader when there is more.
	out := bounded.Buffer{Most: outputMost, What: "the output of a command", Over: func() { s.Close() }}
	var said lastWords
	s.Stdin, s.Stdout, s.Stderr = stdin, &out, &said
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	err = s.Run(t.command(command))
	var exit *ssh.ExitError
	printed, full := out.Bytes()
	switch {
	case full != nil:
		return nil, fmt.Errorf("%s: %w", t, full)
	case err == nil:
		return printed, nil
	case ctx.Err() != nil:
		return nil, &UnreachableError{t.String(), "running a command", context.Cause(ctx)}
	case !errors.As(err, &exit):
		return nil, &UnreachableError{t.String(), "running a command", err}
	case noSpace(said.String()):
		return nil, &NoSpaceError{t.Host, said.String()}
	}
	code := exit.ExitStatus()
	if exit.Signal() != "" {
		code = -1
	}
	return printed, &ExitError{Code: code, Stderr: said.String()}
}

// session opens a session; the caller takes it off c.sessions and releases c.
func (p *Pool) session(ctx context.Context, t Target) (*ssh.Session, *conn, error) {
	s, c, err := open(ctx, p, t, "opening a session", true,
		func(c *conn) (*ssh.Session, error) { return c.client.NewSession() })
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		return nil, nil, &NoShellError{t.Host, refused.Message}
	}
	return s, c, err
}

// noSpace recognizes a full disk in what a shell says.
func noSpace(said string) bool {
	return strings.Contains(said, "No space left on device") || strings.Contains(said, "Disk quota exceeded")
}

// begins separates a script's output from what login scripts print.
const begins = "--sky-output--"

// Script runs a script in a plain sh on the target, whatever the user's login
// shell is, and returns what it printed. Nothing of it appears in the target's
// list of processes.
func (p *Pool) Script(ctx context.Context, t Target, script string) ([]byte, error) {
	out, err := p.Run(ctx, t, "sh", strings.NewReader("LC_ALL=C; export LC_ALL; echo "+begins+"\n"+script))
	_, rest, ok := bytes.Cut(out, []byte(begins+"\n"))
	if ok {
		return rest, err
	}
	var exit *ExitError
	if err == nil || errors.As(err, &exit) {
		said := strings.TrimSpace(string(out))
		if exit != nil && said == "" {
			said = exit.Stderr
		}
		if t.RunAs != "" && exit != nil {
			return nil, &RunAsError{Host: t.Host, Login: t.login(), Account: t.RunAs, Said: said}
		}
		return nil, &NoShellError{t.Host, said}
	}
	return nil, err
}

// Quote makes a word for sh.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Pipe runs a command line on the target and returns its input and output as a
// connection.
func (p *Pool) Pipe(ctx context.Context, t Target, command string) (net.Conn, error) {
	s, c, err := p.session(ctx, t)
	if err != nil {
		return nil, err
	}
	release := func() { <-c.sessions; c.release() }
	in, ierr := s.StdinPipe()
	out, oerr := s.StdoutPipe()
	if err := errors.Join(ierr, oerr, s.Start(t.command(command))); err != nil {
		s.Close()
		release()
		return nil, &UnreachableError{t.String(), "running a command", err}
	}
	return newStream(&pipe{s, in, out}, release), nil
}

// pipe is a session as a connection; stream adds the deadlines.
type pipe struct {
	s *ssh.Session
	io.WriteCloser
	io.Reader
}

func (p *pipe) CloseWrite() error                { return p.WriteCloser.Close() }
func (p *pipe) Close() error                     { return p.s.Close() }
func (p *pipe) LocalAddr() net.Addr              { return commandAddr{} }
func (p *pipe) RemoteAddr() net.Addr             { return commandAddr{} }
func (p *pipe) SetDeadline(time.Time) error      { return errNoDeadlines }
func (p *pipe) SetReadDeadline(time.Time) error  { return errNoDeadlines }
func (p *pipe) SetWriteDeadline(time.Time) error { return errNoDeadlines }
