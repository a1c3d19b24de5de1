//go:build unix

package machine

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// dialTimeout bounds the connection that a channel is forwarded to.
const dialTimeout = 10 * time.Second

// forward connects a channel to a port or a socket that the machine can reach.
func (s *sshd) forward(ctx context.Context, ch ssh.NewChannel) {
	network, address, err := s.target(ch)
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	c, requests, err := ch.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	go ssh.DiscardRequests(requests)
	var wg sync.WaitGroup
	wg.Go(func() { relay(conn, c) })
	relay(c, conn)
	wg.Wait()
}

func (s *sshd) target(ch ssh.NewChannel) (network, address string, err error) {
	if ch.ChannelType() == "direct-tcpip" {
		var to struct {
			Host       string
			Port       uint32
			OriginHost string
			OriginPort uint32
		}
		if err := ssh.Unmarshal(ch.ExtraData(), &to); err != nil || to.Port > 65535 {
			return "", "", fmt.Errorf("no such port")
		}
		return "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))), nil
	}
	var to struct {
		Path     string
		Reserved string
		Unused   uint32
	}
	if err := ssh.Unmarshal(ch.ExtraData(), &to); err != nil {
		return "", "", fmt.Errorf("no such socket")
	}
	if !filepath.IsAbs(to.Path) {
		to.Path = filepath.Join(s.dir, "home", to.Path)
	}
	return "unix", to.Path, nil
}

// relay copies one direction and says when it ends.
func relay(to io.Writer, from io.Reader) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if err != nil { // the other direction is of no use either
		if c, ok := to.(io.Closer); ok {
			c.Close()
		}
		if c, ok := from.(io.Closer); ok {
			c.Close()
		}
	}
}
