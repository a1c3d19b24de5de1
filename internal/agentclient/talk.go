package agentclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
)

const (
	maxLine   = 1 << 20  // of a program that is talked to
	maxErrors = 64 << 10 // of what it writes to standard error
)

// Talk runs q's command without a terminal: in is its standard input, and line gets each
// line of its standard output, in order. It returns what the command wrote to standard
// error and its exit code. An error means that it is not known whether the command ran to
// its end. The caller closes in when Talk has returned: it may still be read then.
func (c *Client) Talk(ctx context.Context, q agentapi.ShellQuery, in io.Reader, line func([]byte) error) (said []byte, code int, err error) {
	shell, err := c.Shell(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	defer shell.Close()
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := in.Read(buf)
			if n > 0 && agentapi.WriteFrame(shell, agentapi.FrameStdin, buf[:n]) != nil {
				return
			}
			if err != nil {
				_ = agentapi.WriteFrame(shell, agentapi.FrameEOF, nil) // a broken connection is seen by the reader
				return
			}
		}
	}()
	errors := bounded.Buffer{Most: maxErrors, What: "the errors of a command"}
	var part []byte
	for {
		kind, b, err := agentapi.ReadFrame(shell)
		switch {
		case err != nil:
		case kind == agentapi.FrameStderr:
			_, _ = errors.Write(b) // what is too much is left out
		case kind == agentapi.FrameStdout:
			part = append(part, b...)
			for {
				n := bytes.IndexByte(part, '\n')
				if n < 0 {
					break
				}
				if err := line(part[:n]); err != nil {
					return nil, 0, err
				}
				part = part[n+1:]
			}
			if len(part) > maxLine {
				err = &bounded.TooMuchError{What: "a line of a command", Most: maxLine}
			}
		case kind == agentapi.FrameExit:
			if len(b) == 4 {
				code = int(int32(binary.BigEndian.Uint32(b)))
			}
			said, _ = errors.Bytes()
			return said, code, nil
		}
		if err != nil {
			said, _ = errors.Bytes()
			return said, 0, c.lost(ctx, err)
		}
	}
}
