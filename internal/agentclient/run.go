package agentclient

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/skypilot-go/sky/api/agentapi"
)

// Run runs q's command without a terminal and returns what it wrote, both
// streams as they came, and its exit code. An error means that it is not known
// whether the command ran.
func (c *Client) Run(ctx context.Context, q agentapi.ShellQuery) (said []byte, code int, err error) {
	shell, err := c.Shell(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	defer shell.Close()
	var out bytes.Buffer
	for {
		kind, b, err := agentapi.ReadFrame(shell)
		if err != nil {
			return out.Bytes(), 0, c.lost(ctx, err)
		}
		switch kind {
		case agentapi.FrameStdout, agentapi.FrameStderr:
			out.Write(b)
		case agentapi.FrameExit:
			if len(b) == 4 {
				code = int(int32(binary.BigEndian.Uint32(b)))
			}
			return out.Bytes(), code, nil
		}
	}
}
