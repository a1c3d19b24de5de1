// Package forward makes ports of this machine lead to ports that a node of a cluster
// reaches.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Spec is one forwarded port.
type Spec struct {
	Bind  string // address of this machine; "" is 127.0.0.1
	Local int    // port of this machine; 0 is any free one
	Host  string // as the node knows it; "" is the node itself
	Port  int    // of the host
}

// Parse reads PORT, LOCAL:PORT, LOCAL:HOST:PORT or BIND:LOCAL:HOST:PORT, the last two as
// ssh -L does. PORT alone is the same port on both ends. IPv6 addresses are in brackets.
func Parse(text string) (Spec, error) {
	wrong := func(why string) (Spec, error) {
		return Spec{}, fmt.Errorf("'%s' %s: write PORT, LOCAL:PORT, LOCAL:HOST:PORT or BIND:LOCAL:HOST:PORT", text, why)
	}
	parts, ok := split(text)
	if !ok || len(parts) > 4 {
		return wrong("is no port to forward")
	}
	var s Spec
	last := len(parts) - 1
	port := func(text string, least int) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= least && n < 1<<16
	}
	if s.Port, ok = port(parts[last], 1); !ok {
		return wrong(fmt.Sprintf("does not end with a port from 1 to 65535 (%q)", parts[last]))
	}
	s.Local = s.Port
	if len(parts) == 1 {
		return s, nil
	}
	local := max(0, len(parts)-3)
	if s.Local, ok = port(parts[local], 0); !ok {
		return wrong(fmt.Sprintf("has no port of this machine, from 0 to 65535, in %q", parts[local]))
	}
	if len(parts) > 2 {
		if s.Host = parts[last-1]; s.Host == "" {
			return wrong("names no host")
		}
	}
	if len(parts) == 4 {
		if s.Bind = parts[0]; s.Bind == "" || s.Bind == "*" { // as ssh: every address
			s.Bind = "0.0.0.0"
		}
	}
	return s, nil
}

// split cuts at colons outside of brackets, and takes the brackets away.
func split(text string) (parts []string, ok bool) {
	for rest := text; ; {
		end := 0
		if strings.HasPrefix(rest, "[") {
			if end = strings.IndexByte(rest, ']'); end < 0 || net.ParseIP(rest[1:end]) == nil {
				return nil, false
			}
			parts, rest = append(parts, rest[1:end]), rest[end+1:]
			if rest != "" && rest[0] != ':' {
				return nil, false
			}
		} else {
			if end = strings.IndexByte(rest, ':'); end < 0 {
				end = len(rest)
			}
			parts, rest = append(parts, rest[:end]), rest[end:]
		}
		if rest == "" {
			return parts, true
		}
		rest = rest[1:]
	}
}

// Target is where connections go.
func (s Spec) Target() string {
	if s.Host == "" {
		return "port " + strconv.Itoa(s.Port)
	}
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// Ports listens on this machine. Its connections wait until Serve.
type Ports struct{ all []bound }

type bound struct {
	Spec
	net.Listener
}

// Listen opens all ports or none. The context bounds looking up addresses.
func Listen(ctx context.Context, specs []Spec) (*Ports, error) {
	p := &Ports{}
	for _, s := range specs {
		host := s.Bind
		if host == "" {
			host = "127.0.0.1"
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(s.Local)))
		if err != nil {
			p.Close()
			other := s.Local + 10000
			if other >= 1<<16 {
				other = 0
			}
			target := strconv.Itoa(s.Port)
			if s.Host != "" {
				target = net.JoinHostPort(s.Host, target)
			}
			return nil, fmt.Errorf("port %d of this machine cannot be forwarded: %w. End what uses it, or choose another one, such as %d:%s", s.Local, err, other, target)
		}
		p.all = append(p.all, bound{s, l})
	}
	return p, nil
}

// Close stops listening. It may be called more than once.
func (p *Ports) Close() {
	for _, b := range p.all {
		b.Listener.Close()
	}
}

// Describe has a line for each port.
func (p *Ports) Describe() (lines []string) {
	for _, b := range p.all {
		lines = append(lines, fmt.Sprintf("%v leads to %s", b.Addr(), b.Target()))
	}
	return lines
}

// A Conn is the far end of a connection.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Serve joins each connection with one that dial opens, until ctx ends; then it closes
// all of them and stops listening. What goes wrong with a port is reported once, until
// a connection to it succeeds.
func (p *Ports) Serve(ctx context.Context, dial func(context.Context, Spec) (Conn, error), report func(error)) {
	defer context.AfterFunc(ctx, p.Close)()
	defer p.Close()
	var running sync.WaitGroup
	for _, b := range p.all {
		running.Go(func() { b.serve(ctx, dial, report) })
	}
	running.Wait()
}

// acceptPause is how long a port rests when this machine has no room for a connection.
const acceptPause = time.Second

func (b bound) serve(ctx context.Context, dial func(context.Context, Spec) (Conn, error), report func(error)) {
	var running sync.WaitGroup
	defer running.Wait()
	var mu sync.Mutex
	failing := false
	result := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !failing && ctx.Err() == nil {
			report(fmt.Errorf("%v: %w", b.Addr(), err))
		}
		failing = err != nil
	}
	for {
		near, err := b.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				near.Close()
			}
			return
		case err != nil:
			result(err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		running.Go(func() {
			defer near.Close()
			// A caller that gives up while this dials is noticed when it is joined.
			far, err := dial(ctx, b.Spec)
			result(err)
			if err == nil {
				join(ctx, near, far)
			}
		})
	}
}

// join copies both ways until the far end is done or either breaks, and closes both. A
// near end whose far end broke is reset: it must not take the rest for all.
func join(ctx context.Context, near net.Conn, far Conn) {
	defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.Copy(far, near); err != nil || far.CloseWrite() != nil {
			far.Close()
		}
	}()
	_, err := io.Copy(near, far)
	if tcp, ok := near.(*net.TCPConn); ok && err != nil {
		_ = tcp.SetLinger(0)
	}
	near.Close()
	far.Close()
	<-sent
}
