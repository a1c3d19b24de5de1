//go:build unix

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// handshakeTimeout bounds a login.
const handshakeTimeout = 30 * time.Second

// Run is the machine: it serves ssh until the context ends. It returns nil at
// once if the machine is on already.
func Run(ctx context.Context, dir string, log *slog.Logger) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	syscall.CloseOnExec(int(lock.Fd()))
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil
	}
	spec, err := readSpec(dir)
	if err != nil {
		return err
	}
	key, err := hostKey(dir)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", spec.Listen)
	if err != nil {
		return fmt.Errorf("the machine cannot have its address: %w", err)
	}
	s := &sshd{dir: dir, spec: spec, log: log, conns: map[net.Conn]struct{}{}}
	s.config = &ssh.ServerConfig{PublicKeyCallback: s.mayLogIn, MaxAuthTries: 10, ServerVersion: "SSH-2.0-FluffyCloud"}
	s.config.AddHostKey(key)
	start, err := proc.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	b, err := json.Marshal(server{PID: os.Getpid(), Start: start})
	if err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(dir, "sshd.json"), b, 0o600); err != nil {
		return err
	}
	defer os.Remove(filepath.Join(dir, "sshd.json"))
	stop := context.AfterFunc(ctx, func() {
		l.Close()
		s.hangUp()
	})
	defer stop()
	return s.serve(ctx, l)
}

// sshd is the machine's ssh server.
type sshd struct {
	dir    string
	spec   Spec
	log    *slog.Logger
	config *ssh.ServerConfig

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

func (s *sshd) serve(ctx context.Context, l net.Listener) error {
	defer s.wg.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // out of files, say: others may end
			s.log.Warn("connection not accepted", "err", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			s.handle(ctx, conn)
			conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

func (s *sshd) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// mayLogIn reads the keys anew, so that a machine can get others while it is on.
func (s *sshd) mayLogIn(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	if c.User() != s.spec.User {
		return nil, fmt.Errorf("there is no user %q", c.User())
	}
	rest, err := os.ReadFile(filepath.Join(s.dir, "authorized_keys"))
	if err != nil {
		return nil, err
	}
	own, _ := os.ReadFile(filepath.Join(s.dir, "home", ".ssh", "authorized_keys")) // its user may let others in
	rest = append(append(rest, '\n'), own...)
	for len(rest) > 0 {
		var known ssh.PublicKey
		known, _, _, rest, err = ssh.ParseAuthorizedKey(rest)
		if err != nil {
			break
		}
		if string(known.Marshal()) == string(key.Marshal()) {
			return nil, nil
		}
	}
	return nil, errors.New("the key is not authorized")
}

func (s *sshd) handle(ctx context.Context, conn net.Conn) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return
	}
	c, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		s.log.Info("login failed", "err", err)
		return
	}
	defer c.Close()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return
	}
	go ssh.DiscardRequests(requests) // keepalives want an answer, any will do
	var wg sync.WaitGroup
	defer wg.Wait()
	for ch := range channels {
		switch ch.ChannelType() {
		case "session":
			wg.Go(func() { s.session(ch) })
		case "direct-tcpip", "direct-streamlocal@openssh.com":
			wg.Go(func() { s.forward(ctx, ch) })
		default:
			if err := ch.Reject(ssh.UnknownChannelType, "this server has sessions and direct forwarding"); err != nil {
				return
			}
		}
	}
}
