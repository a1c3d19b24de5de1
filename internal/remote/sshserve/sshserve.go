// Package sshserve is the server's side of ssh for nodes that have no sshd: shells,
// commands, files and forwarded ports, all of them by the node's agent.
//
// Who may connect is decided before: a connection comes through the API server, which
// knows its caller. So every user name is welcome, and no key is asked for.
package sshserve

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api/agentapi"
)

// A Node runs what is asked for over a connection. Its methods may be called
// concurrently.
type Node interface {
	// Shell runs a command or a login shell; what travels are frames of package agentapi.
	Shell(ctx context.Context, q agentapi.ShellQuery) (io.ReadWriteCloser, error)
	// Dial connects to an address as the node sees it.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// sftpServer runs the program that serves files to sftp and scp, wherever it is.
const sftpServer = `for p in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/lib/misc; do
[ ! -x "$p/sftp-server" ] || exec "$p/sftp-server"
done
command -v sftp-server >/dev/null && exec sftp-server
echo "sky: this node has no sftp-server, which scp and sftp need: install it there (openssh-sftp-server), or use scp -O or rsync" >&2
exit 127`

// Limits of one connection.
const (
	handshakeLimit = time.Minute
	maxChannels    = 100
)

// hostKey is made anew by every process: who connects has the API server's word for
// whom they reach.
var hostKey = sync.OnceValues(func() (ssh.Signer, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(key)
})

// Serve speaks ssh with the client at the other end of conn until it hangs up or ctx
// ends, and closes conn.
func Serve(ctx context.Context, conn net.Conn, node Node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	key, err := hostKey()
	if err != nil {
		return err
	}
	config := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-sky"}
	config.AddHostKey(key)
	slow := time.AfterFunc(handshakeLimit, func() { conn.Close() })
	c, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return err
	}
	if !slow.Stop() {
		return errors.New("ssh: the handshake took too long")
	}
	go ssh.DiscardRequests(requests) // keep-alives want an answer only; ports are not forwarded from the node
	room := make(chan struct{}, maxChannels)
	var running sync.WaitGroup
	for ch := range channels {
		select {
		case room <- struct{}{}:
		default:
			_ = ch.Reject(ssh.ResourceShortage, "too many sessions on one connection")
			continue
		}
		running.Go(func() {
			defer func() { <-room }()
			switch ch.ChannelType() {
			case "session":
				session(ctx, ch, node)
			case "direct-tcpip":
				forward(ctx, ch, node)
			default:
				_ = ch.Reject(ssh.UnknownChannelType, "not served here")
			}
		})
	}
	cancel()
	running.Wait()
	return c.Wait()
}

// forward joins a channel with an address that the node reaches.
func forward(ctx context.Context, ch ssh.NewChannel, node Node) {
	var to struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(ch.ExtraData(), &to); err != nil || to.Port > 1<<16-1 {
		_ = ch.Reject(ssh.ConnectionFailed, "no such address")
		return
	}
	far, err := node.Dial(ctx, net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer far.Close()
	near, requests, err := ch.Accept()
	if err != nil {
		return
	}
	defer near.Close()
	go ssh.DiscardRequests(requests)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(far, near)
		if half, ok := far.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, _ = io.Copy(near, far)
	_ = near.CloseWrite()
	near.Close()
	far.Close()
	<-sent
}

// terminal is what a pty-req says; the modes are left to the node.
type terminal struct {
	Term       string
	Cols, Rows uint32
	W, H       uint32
	Modes      string
}

// session runs the one shell, command or subsystem of a session channel.
func session(ctx context.Context, ch ssh.NewChannel, node Node) {
	channel, requests, err := ch.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var q agentapi.ShellQuery
	var remote io.ReadWriteCloser
	var frames sync.Mutex // of what goes to the node
	over := make(chan struct{})
	send := func(kind byte, data []byte) error {
		frames.Lock()
		defer frames.Unlock()
		return agentapi.WriteFrame(remote, kind, data)
	}
	start := func() {
		var err error
		if remote, err = node.Shell(ctx, q); err != nil {
			_, _ = io.WriteString(channel.Stderr(), "sky: "+err.Error()+"\r\n")
			exit(channel, 255)
			close(over)
			return
		}
		go func() {
			defer close(over)
			defer remote.Close()
			go input(channel, send)
			output(channel, remote)
		}()
	}
	begun := false
	for {
		var r *ssh.Request
		var open bool
		select {
		case r, open = <-requests:
		case <-over:
			return
		}
		if !open { // the client closed the channel
			cancel()
			if begun && remote != nil {
				remote.Close()
				<-over
			}
			return
		}
		ok := false
		switch {
		case r.Type == "pty-req" && !begun:
			var t terminal
			if ok = ssh.Unmarshal(r.Payload, &t) == nil; ok {
				q.TTY, q.Term, q.Cols, q.Rows = true, t.Term, int(min(t.Cols, 1<<16-1)), int(min(t.Rows, 1<<16-1))
			}
		case r.Type == "window-change" && begun && remote != nil && q.TTY:
			var size struct{ Cols, Rows, W, H uint32 }
			if ok = ssh.Unmarshal(r.Payload, &size) == nil; ok {
				b := binary.BigEndian.AppendUint16(nil, uint16(min(size.Rows, 1<<16-1)))
				_ = send(agentapi.FrameResize, binary.BigEndian.AppendUint16(b, uint16(min(size.Cols, 1<<16-1))))
			}
		case r.Type == "shell" && !begun:
			begun, ok = true, true
		case (r.Type == "exec" || r.Type == "subsystem") && !begun:
			var what struct{ Text string }
			ok = ssh.Unmarshal(r.Payload, &what) == nil && what.Text != "" && (r.Type == "exec" || what.Text == "sftp")
			if begun = ok; ok {
				if q.Command = what.Text; r.Type == "subsystem" {
					q.Command, q.TTY = sftpServer, false
				}
			}
		}
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if begun && remote == nil {
			if start(); remote == nil {
				return
			}
		}
	}
}

// input passes on what the client types.
func input(channel io.Reader, send func(byte, []byte) error) {
	buf := make([]byte, 16<<10)
	for {
		n, err := channel.Read(buf)
		if n > 0 && send(agentapi.FrameStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = send(agentapi.FrameEOF, nil)
			return
		}
	}
}

// output passes on what the node prints, and how it ended.
func output(channel ssh.Channel, remote io.Reader) {
	for {
		kind, data, err := agentapi.ReadFrame(remote)
		switch {
		case err != nil:
			_, _ = io.WriteString(channel.Stderr(), "sky: the connection to the node broke\r\n")
			exit(channel, 255)
			return
		case kind == agentapi.FrameStdout:
			_, err = channel.Write(data)
		case kind == agentapi.FrameStderr:
			_, err = channel.Stderr().Write(data)
		case kind == agentapi.FrameExit && len(data) == 4:
			exit(channel, binary.BigEndian.Uint32(data))
			return
		}
		if err != nil {
			return // the client is gone
		}
	}
}

func exit(channel ssh.Channel, code uint32) {
	_ = channel.CloseWrite()
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
}
