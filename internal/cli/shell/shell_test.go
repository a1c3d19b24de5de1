package shell

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api/agentapi"
)

// far plays the node: it says what it gets and answers with frames.
func far(t *testing.T, script func(conn net.Conn)) net.Conn {
	t.Helper()
	near, node := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer node.Close()
		script(node)
	}()
	t.Cleanup(func() { near.Close(); <-done })
	return near
}

func exit(code int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(code)) }

func TestSession(t *testing.T) {
	var stdout, stderr bytes.Buffer
	s := Session{Stdin: strings.NewReader("typed"), Stdout: &stdout, Stderr: &stderr}
	s.Conn = far(t, func(conn net.Conn) {
		kind, in, err := agentapi.ReadFrame(conn)
		if err != nil || kind != agentapi.FrameStdin {
			t.Errorf("first frame %d, %v", kind, err)
		}
		if kind, _, _ := agentapi.ReadFrame(conn); kind != agentapi.FrameEOF {
			t.Errorf("second frame %d", kind)
		}
		_ = agentapi.WriteFrame(conn, agentapi.FrameStdout, append([]byte("got "), in...))
		_ = agentapi.WriteFrame(conn, agentapi.FrameStderr, []byte("oops"))
		_ = agentapi.WriteFrame(conn, agentapi.FrameExit, exit(-1))
	})
	code, err := s.Run(t.Context())
	if code != -1 || err != nil || stdout.String() != "got typed" || stderr.String() != "oops" {
		t.Errorf("code %d, %v, %q, %q", code, err, &stdout, &stderr)
	}
}

func TestResize(t *testing.T) {
	resized := make(chan struct{}, 1)
	resized <- struct{}{}
	in, _ := io.Pipe()
	s := Session{Stdin: in, Stdout: io.Discard, Stderr: io.Discard, Resized: resized, Size: func() (int, int) { return 120, 40 }}
	s.Conn = far(t, func(conn net.Conn) {
		kind, b, _ := agentapi.ReadFrame(conn)
		if kind != agentapi.FrameResize || !bytes.Equal(b, []byte{0, 40, 0, 120}) {
			t.Errorf("frame %d %v", kind, b)
		}
		_ = agentapi.WriteFrame(conn, agentapi.FrameExit, exit(0))
	})
	if _, err := s.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestABrokenConnectionIsAnError(t *testing.T) {
	in, _ := io.Pipe()
	s := Session{Stdin: in, Stdout: io.Discard, Stderr: io.Discard, Conn: far(t, func(net.Conn) {})}
	if _, err := s.Run(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestSessionEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, _ := io.Pipe()
	s := Session{Stdin: in, Stdout: io.Discard, Stderr: io.Discard, Conn: far(t, func(conn net.Conn) { cancel(); _, _ = io.Copy(io.Discard, conn) })}
	if _, err := s.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
