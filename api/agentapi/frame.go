package agentapi

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A shell stream carries frames both ways: one type byte, a big-endian uint32
// length, then the payload.
const (
	FrameStdin  byte = 0 // to the agent
	FrameResize byte = 1 // to the agent: two big-endian uint16, rows and columns
	FrameEOF    byte = 2 // to the agent: no more stdin
	FrameStdout byte = 3 // from the agent
	FrameStderr byte = 4 // from the agent, never with TTY
	FrameExit   byte = 5 // from the agent, last: one big-endian int32
)

// maxFrame bounds what one frame may make its reader allocate.
const maxFrame = 1 << 20

// WriteFrame writes one frame in one write.
func WriteFrame(w io.Writer, kind byte, payload []byte) error {
	b := make([]byte, 0, 5+len(payload))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	_, err := w.Write(append(b, payload...))
	return err
}

// ReadFrame reads one frame.
func ReadFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes is too long", n)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return head[0], payload, nil
}
