package sshconn

import (
	"context"
	"errors"
	"net"
	"os"
	"os/user"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// dial connects and logs in. Each step has the pool's timeout.
func (p *Pool) dial(ctx context.Context, t Target) (*ssh.Client, error) {
	raw, err := p.Reach(ctx, t)
	if err != nil {
		return nil, err
	}
	client, err := p.handshake(ctx, t, raw)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return client, nil
}

// Reach connects to the sshd of t, over its jump hosts or proxy command, and logs
// in nowhere: the bytes are for an ssh that somebody else runs. Failing is an
// [*UnreachableError], or what a host on the way refused with.
func (p *Pool) Reach(ctx context.Context, t Target) (net.Conn, error) {
	raw, err := p.reach(ctx, t)
	if err == nil {
		return raw, nil
	}
	var known *UnreachableError
	var auth *AuthError
	var key *HostKeyError
	if errors.As(err, &known) || errors.As(err, &auth) || errors.As(err, &key) {
		return nil, err // of a host on the way
	}
	return nil, &UnreachableError{t.String(), "connecting", err}
}

// reach opens what carries the connection: TCP, a channel of the last jump
// host, or a command.
func (p *Pool) reach(ctx context.Context, t Target) (net.Conn, error) {
	switch {
	case t.ProxyCommand != "" && !strings.EqualFold(t.ProxyCommand, "none"):
		return proxyCommand(t)
	case len(t.Jump) > 0:
		last := t.Jump[len(t.Jump)-1]
		if len(t.Jump) > 1 {
			last.Jump = t.Jump[:len(t.Jump)-1]
		}
		ctx, cancel := context.WithTimeout(ctx, time.Duration(len(t.Jump)+1)*p.o.Timeout)
		defer cancel()
		return p.Dial(ctx, last, t.Addr())
	}
	d := net.Dialer{Timeout: p.o.Timeout, KeepAlive: 15 * time.Second}
	return d.DialContext(ctx, "tcp", t.Addr())
}

func (p *Pool) handshake(ctx context.Context, t Target, raw net.Conn) (*ssh.Client, error) {
	keys, _, err := p.hosts.accepted(t)
	if err != nil {
		return nil, err
	}
	l := p.login(t)
	defer l.close()
	var bad *HostKeyError
	var shown bool
	cfg := &ssh.ClientConfig{
		User: t.login(), Auth: l.methods, ClientVersion: "SSH-2.0-sky", HostKeyAlgorithms: algorithms(keys),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			shown = true
			err := p.hosts.check(t, key)
			errors.As(err, &bad)
			return err
		},
	}
	// The deadline closes: not every carrier knows deadlines.
	hctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	stop := context.AfterFunc(hctx, func() { raw.Close() })
	c, chans, reqs, err := ssh.NewClientConn(raw, t.Addr(), cfg)
	late := !stop()
	switch {
	case err == nil && !late:
		return ssh.NewClient(c, chans, reqs), nil
	case bad != nil:
		return nil, bad
	case late:
		return nil, &UnreachableError{t.String(), "logging in", noAnswer(p.o.Timeout)}
	}
	var negotiation *ssh.AlgorithmNegotiationError
	if errors.As(err, &negotiation) && len(keys) > 0 && strings.Contains(err.Error(), "host key") {
		return nil, p.hosts.changed(t, keys, t.HostKey != "", "no key of that kind")
	}
	// The library has no type for a refused login.
	if shown && strings.Contains(err.Error(), "unable to authenticate") {
		return nil, &AuthError{User: cfg.User, Host: t.Host, Tried: l.String(), Err: err}
	}
	return nil, &UnreachableError{t.String(), "logging in", err}
}

type noAnswer time.Duration

func (d noAnswer) Error() string { return "no answer within " + time.Duration(d).String() }

// localUser is who logs in when nothing says who.
func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
