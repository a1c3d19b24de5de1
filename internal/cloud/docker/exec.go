package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
)

// outputMost bounds what is kept of a command's output.
const outputMost = 4 << 20

// headMost bounds an answer that a stream follows.
const headMost = 64 << 10

// Result is what a command in a container did.
type Result struct {
	Code           int
	Stdout, Stderr []byte
}

// Exec runs a command in a container, as the container's user.
func (e *Engine) Exec(ctx context.Context, container string, command []string, stdin io.Reader) (*Result, error) {
	id, conn, err := e.attach(ctx, container, command)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() {
		if stdin != nil {
			io.Copy(conn, stdin)
		}
		conn.CloseWrite()
	}()
	r := &Result{}
	out := bounded.Buffer{Most: outputMost, What: "the output of a command"}
	errs := bounded.Buffer{Most: outputMost, What: "the error output of a command"}
	for {
		stream, payload, err := conn.frame()
		if err == io.EOF {
			break
		}
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
		into := &out
		if stream == 2 {
			into = &errs
		}
		if _, err := into.Write(payload); err != nil {
			return nil, err
		}
	}
	var ended struct{ ExitCode *int }
	if err := e.call(ctx, "GET", "/exec/"+id+"/json", nil, nil, &ended); err != nil {
		return nil, err
	}
	if ended.ExitCode == nil {
		return nil, fmt.Errorf("%s in container %.12s did not end properly", command[0], container)
	}
	r.Code = *ended.ExitCode
	r.Stdout, _ = out.Bytes()
	r.Stderr, _ = errs.Bytes()
	return r, nil
}

// Pipe runs a command in a container and returns its input and output as a
// connection.
func (e *Engine) Pipe(ctx context.Context, container string, command []string) (net.Conn, error) {
	_, conn, err := e.attach(ctx, container, command)
	return conn, err
}

// attach starts a command and takes over the HTTP connection.
func (e *Engine) attach(ctx context.Context, container string, command []string) (id string, c *attached, err error) {
	var made struct {
		ID string `json:"Id"`
	}
	err = e.call(ctx, "POST", "/containers/"+container+"/exec", nil, map[string]any{
		"AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Cmd": command,
	}, &made)
	if err != nil {
		return "", nil, err
	}
	conn, err := e.dial(ctx)
	if err != nil {
		return "", nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	body, _ := json.Marshal(map[string]any{"Detach": false, "Tty": false})
	req, err := http.NewRequest("POST", "http://docker/exec/"+made.ID+"/start", bytes.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	br := bufio.NewReader(bounded.Reader(conn, headMost, "the engine's answer"))
	if err = req.Write(conn); err == nil {
		var resp *http.Response
		if resp, err = http.ReadResponse(br, req); err == nil && resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
			err = refusal(resp)
		}
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", nil, err
	}
	early, _ := br.Peek(br.Buffered()) // came together with the answer's head
	return made.ID, &attached{Conn: conn, r: bufio.NewReader(io.MultiReader(bytes.NewReader(early), conn))}, nil
}

// attached is a running command. Its output comes in frames: a byte for the
// stream, three of nothing, four for the length.
type attached struct {
	net.Conn
	r    io.Reader
	rest []byte
}

func (a *attached) frame() (stream byte, payload []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(a.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[4:])
	if n > outputMost {
		return 0, nil, fmt.Errorf("the engine sent a frame of %d bytes", n)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(a.r, payload)
	return head[0], payload, err
}

// Read gives what the command prints to its standard output.
func (a *attached) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		stream, payload, err := a.frame()
		if err != nil {
			return 0, err
		}
		if stream == 1 {
			a.rest = payload
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// SetDeadline can be set for writing alone: a frame that was read half would be
// lost.
func (a *attached) SetDeadline(time.Time) error     { return os.ErrNoDeadline }
func (a *attached) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// CloseWrite ends the command's input.
func (a *attached) CloseWrite() error {
	if c, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
