package agentclient

import (
	"context"
	"encoding/binary"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
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
	out := bounded.Buffer{Most: maxOutput, What: "the output of a command"}
	for {
		kind, b, err := agentapi.ReadFrame(shell)
		switch {
		case err != nil:
		case kind == agentapi.FrameStdout, kind == agentapi.FrameStderr:
			_, err = out.Write(b)
		case kind == agentapi.FrameExit:
			if len(b) == 4 {
				code = int(int32(binary.BigEndian.Uint32(b)))
			}
			said, _ = out.Bytes()
			return said, code, nil
		}
		if err != nil {
			said, _ = out.Bytes()
			return said, 0, c.lost(ctx, err)
		}
	}
}
