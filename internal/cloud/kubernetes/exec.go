package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/skypilot-go/sky/internal/bounded"
)

// Result is what a command in a pod did.
type Result struct {
	Code           int
	Stdout, Stderr []byte
}

// outputMost bounds what is kept of a command's output.
const outputMost = 4 << 20

// Locate takes a node's Reach.Host apart: a context, which may hold slashes, a
// namespace and a pod.
func Locate(host string) (context, namespace, pod string, err error) {
	i := strings.LastIndexByte(host, '/')
	j := strings.LastIndexByte(host[:max(i, 0)], '/')
	if j <= 0 || i == len(host)-1 {
		return "", "", "", fmt.Errorf("%q is no context/namespace/pod", host)
	}
	return host[:j], host[j+1 : i], host[i+1:], nil
}

// Exec runs a command in the pod at host and waits for its end.
func (c *Contexts) Exec(ctx context.Context, host string, command []string, stdin io.Reader) (*Result, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The library goes on reading what nobody takes.
	kept := func() *bounded.Buffer {
		b := &bounded.Buffer{Most: outputMost, What: "the output of a command"}
		b.Over = func() { end(&bounded.TooMuchError{What: b.What, Most: b.Most}) }
		return b
	}
	out, errs := kept(), kept()
	err := c.stream(ctx, host, command, remotecommand.StreamOptions{Stdin: stdin, Stdout: out, Stderr: errs})
	r := &Result{}
	var exit exec.CodeExitError
	switch {
	case errors.As(err, &exit):
		r.Code = exit.Code
	case err != nil:
		return nil, err
	}
	var outFull, errsFull error
	r.Stdout, outFull = out.Bytes()
	r.Stderr, errsFull = errs.Bytes()
	if err := cmp.Or(outFull, errsFull); err != nil {
		return nil, err
	}
	return r, nil
}

// stream runs a command in the node's container: by WebSocket, or by SPDY where
// that is all the API server or a proxy before it speaks.
func (c *Contexts) stream(ctx context.Context, host string, command []string, o remotecommand.StreamOptions) error {
	name, namespace, pod, err := Locate(host)
	if err != nil {
		return err
	}
	k, err := c.client(name)
	if err != nil {
		return err
	}
	u, err := url.Parse(k.rest.Host + k.rest.APIPath)
	if err != nil || u.Host == "" {
		return fmt.Errorf("context %q: %q is no address of an API server", name, k.rest.Host)
	}
	u = u.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "exec")
	q := url.Values{"container": {mainContainer}, "command": command}
	for flag, on := range map[string]bool{"stdin": o.Stdin != nil, "stdout": o.Stdout != nil, "stderr": o.Stderr != nil} {
		if on {
			q.Set(flag, "true")
		}
	}
	u.RawQuery = q.Encode()
	spdy, err := remotecommand.NewSPDYExecutor(k.rest, http.MethodPost, u)
	if err != nil {
		return err
	}
	ws, err := remotecommand.NewWebSocketExecutor(k.rest, http.MethodGet, u.String())
	if err != nil {
		return err
	}
	both, err := remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) && !PodGone(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	err = both.StreamWithContext(ctx, o)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// PodGone reports whether an error of Exec or Pipe says that there is no such pod.
func PodGone(err error) bool {
	var refused *httpstream.UpgradeFailureError // keeps its cause to itself
	if errors.As(err, &refused) {
		err = refused.Cause
	}
	return apierrors.IsNotFound(err)
}

// Pipe runs a command in the pod at host and returns its input and output as a
// connection, which goes on when ctx ends.
func (c *Contexts) Pipe(ctx context.Context, host string, command []string) (net.Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &pipe{in: inW, out: outR, end: end, name: host}
	errs := bounded.Buffer{Most: outputMost, What: "the error output of a command"}
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		err := c.stream(life, host, command, remotecommand.StreamOptions{Stdin: inR, Stdout: outW, Stderr: &errs})
		b, _ := errs.Bytes()
		if said := strings.TrimSpace(string(b)); said != "" && err != nil {
			err = fmt.Errorf("%w: %s", err, said)
		}
		if err == nil {
			err = io.EOF
		}
		inR.CloseWithError(err)
		outW.CloseWithError(err)
	}()
	return p, nil
}

// pipe is a running command as a connection. The library closes no stream at
// a deadline, so deadlines end the whole connection.
type pipe struct {
	in   *io.PipeWriter
	out  *io.PipeReader
	end  context.CancelCauseFunc
	done chan struct{}
	name string

	mu    sync.Mutex
	timer *time.Timer
}

func (p *pipe) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *pipe) Write(b []byte) (int, error) { return p.in.Write(b) }

// CloseWrite ends the command's input.
func (p *pipe) CloseWrite() error { return p.in.Close() }

func (p *pipe) Close() error {
	p.SetDeadline(time.Time{})
	p.in.CloseWithError(net.ErrClosed)
	p.out.CloseWithError(net.ErrClosed)
	p.end(net.ErrClosed)
	return nil
}

// SetDeadline ends the connection then: what was half written cannot be taken
// back.
func (p *pipe) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if t.IsZero() {
		return nil
	}
	p.timer = time.AfterFunc(time.Until(t), func() {
		p.in.CloseWithError(os.ErrDeadlineExceeded)
		p.out.CloseWithError(os.ErrDeadlineExceeded)
		p.end(os.ErrDeadlineExceeded)
	})
	return nil
}

func (p *pipe) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (p *pipe) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
func (p *pipe) LocalAddr() net.Addr              { return address("sky") }
func (p *pipe) RemoteAddr() net.Addr             { return address(p.name) }

type address string

func (address) Network() string  { return "kubernetes" }
func (a address) String() string { return string(a) }
