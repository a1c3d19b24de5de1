// Package shell connects standard streams with a process on a node. What
// travels are the frames of package agentapi: a type byte, a length, a payload.
package shell

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/skypilot-go/sky/api/agentapi"
)

// Session is one shell.
type Session struct {
	Conn           io.ReadWriteCloser
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resized hears when the terminal's size changes; nil without a terminal.
	Resized <-chan struct{}
	Size    func() (cols, rows int)

	mu sync.Mutex // of writes
}

// Run copies until the process has ended and returns its exit code. A read of
// Stdin may outlive it: a terminal's read cannot be stopped.
func (s *Session) Run(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.sendInput()
	if s.Resized != nil {
		go s.sendSizes(ctx)
	}
	stop := context.AfterFunc(ctx, func() { s.Conn.Close() })
	defer stop()
	for {
		kind, payload, err := agentapi.ReadFrame(s.Conn)
		if err != nil {
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			if errors.Is(err, io.EOF) {
				err = errors.New("it ended before the process did")
			}
			return 0, err
		}
		switch kind {
		case agentapi.FrameStdout:
			_, err = s.Stdout.Write(payload)
		case agentapi.FrameStderr:
			_, err = s.Stderr.Write(payload)
		case agentapi.FrameExit:
			if len(payload) != 4 {
				return 0, fmt.Errorf("an exit frame has %d bytes", len(payload))
			}
			return int(int32(binary.BigEndian.Uint32(payload))), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

func (s *Session) sendInput() {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Stdin.Read(buf)
		if n > 0 {
			if s.send(agentapi.FrameStdin, buf[:n]) != nil {
				return
			}
		}
		if err != nil {
			_ = s.send(agentapi.FrameEOF, nil)
			return
		}
	}
}

func (s *Session) sendSizes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Resized:
			cols, rows := s.Size()
			payload := binary.BigEndian.AppendUint16(nil, uint16(rows))
			payload = binary.BigEndian.AppendUint16(payload, uint16(cols))
			if s.send(agentapi.FrameResize, payload) != nil {
				return
			}
		}
	}
}

func (s *Session) send(kind byte, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return agentapi.WriteFrame(s.Conn, kind, payload)
}
