package sshconn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// plain are names of hosts and users that mean nothing to a shell.
func plain(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:@+[]", r))
	})
}

// proxyCommand starts the command that carries the connection. The command is the
// administrator's; names that are put into it may be a user's, and must not be
// more than names to the shell that runs it.
func proxyCommand(t Target) (net.Conn, error) {
	for _, put := range []struct{ mark, what, name string }{{"%h", "host", t.Host}, {"%r", "user", t.User}} {
		if strings.Contains(t.ProxyCommand, put.mark) && !plain(put.name) {
			return nil, fmt.Errorf("ProxyCommand %q: the %s %q cannot be put into a command: use letters, digits and . _ - : @ +", t.ProxyCommand, put.what, put.name)
		}
	}
	line := strings.NewReplacer("%%", "%", "%h", t.Host, "%p", strconv.Itoa(t.port()), "%r", t.User, "%w", strconv.Itoa(t.Node)).Replace(t.ProxyCommand)
	cmd := exec.Command("/bin/sh", "-c", "exec "+line)
	if runtime.GOOS == "windows" {
		cmd = exec.Command("cmd", "/C", line)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &commandConn{cmd: cmd, in: in, out: out}
	cmd.Stderr = &c.said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("ProxyCommand %q: %w", line, err)
	}
	return c, nil
}

// commandConn is a command's input and output as a connection.
type commandConn struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	said lastWords
	once sync.Once

	closed atomic.Bool
}

func (c *commandConn) Read(b []byte) (int, error) {
	n, err := c.out.Read(b)
	if err == io.EOF && n == 0 {
		err = c.explain(err)
	}
	return n, err
}

func (c *commandConn) Write(b []byte) (int, error) {
	n, err := c.in.Write(b)
	if err != nil {
		err = c.explain(err)
	}
	return n, err
}

// explain puts what the command said in the place of the bare end of it.
func (c *commandConn) explain(err error) error {
	if said := c.lastSaid(); said != "" {
		return fmt.Errorf("the ProxyCommand ended and said: %s", said)
	}
	return err
}

// lastSaid is what the command wrote to its error output; that arrives a moment
// after the end of its output.
func (c *commandConn) lastSaid() string {
	for range 50 {
		if said := c.said.String(); said != "" || c.closed.Load() {
			return said
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ""
}

func (c *commandConn) Close() error {
	c.closed.Store(true)
	c.once.Do(func() {
		c.in.Close()
		c.cmd.Process.Kill()
		go c.cmd.Wait()
	})
	return nil
}

func (c *commandConn) LocalAddr() net.Addr  { return commandAddr{} }
func (c *commandConn) RemoteAddr() net.Addr { return commandAddr{} }

var errNoDeadlines = errors.New("a command has no deadlines")

func (c *commandConn) SetDeadline(time.Time) error      { return errNoDeadlines }
func (c *commandConn) SetReadDeadline(time.Time) error  { return errNoDeadlines }
func (c *commandConn) SetWriteDeadline(time.Time) error { return errNoDeadlines }

type commandAddr struct{}

func (commandAddr) Network() string { return "command" }
func (commandAddr) String() string  { return "ProxyCommand" }

// lastWords keeps the end of what is written to it.
type lastWords struct {
	mu  sync.Mutex
	buf []byte
}

const lastWordsMost = 4 << 10

func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, b...)
	if over := len(w.buf) - lastWordsMost; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	return len(b), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.buf))
}
