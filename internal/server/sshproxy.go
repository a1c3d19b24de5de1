package server

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/coder/websocket"
)

// Clients from API version framedSSH on put a byte before each message that says
// what it is.
const (
	framedSSH  = 21
	sshData    = 0
	sshPing    = 1 // and an id, which comes back
	sshLatency = 2 // what the client measured; nobody asked
)

// sshProxy carries the bytes between a client's ssh and the sshd of a node, which
// only this server may be able to reach. What they say is between those two.
func (s *Server) sshProxy(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	cluster := v.Get("cluster_name")
	var problems []problem
	if cluster == "" {
		problems = append(problems, problem{Type: "missing", Loc: []any{"query", "cluster_name"}, Message: "cluster_name is required"})
	}
	node, _, p := queryInt(v, "worker")
	version, _, q := queryInt(v, "client_version")
	to := tunnel{
		problems: slices.Concat(problems, p, q), lacking: s.SSHD == nil,
		open: func(ctx context.Context) (io.ReadWriteCloser, error) { return s.SSHD(ctx, cluster, node) },
		out:  toFrames, in: fromFrames, ping: pinging,
	}
	if version <= framedSSH {
		to.out, to.in = toSocket, fromSocket
	}
	s.tunnel(w, r, to)
}

// toFrames sends what the sshd says.
func toFrames(ctx context.Context, c *websocket.Conn, sshd io.Reader) error {
	buf := make([]byte, 32<<10)
	buf[0] = sshData
	for {
		n, err := sshd.Read(buf[1:])
		if n > 0 {
			if err := c.Write(ctx, websocket.MessageBinary, buf[:n+1]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// fromFrames passes on what the client's ssh says, and answers pings. A client
// may say that it frames and then not do so: ssh begins with its version, and no
// frame does.
func fromFrames(ctx context.Context, c *websocket.Conn, sshd io.Writer) error {
	for first := true; ; first = false {
		_, m, err := c.Read(ctx)
		switch {
		case err != nil:
			return err
		case first && len(m) >= 4 && string(m[:4]) == "SSH-":
			if _, err := sshd.Write(m); err != nil {
				return err
			}
			return fromSocket(ctx, c, sshd)
		case len(m) == 0:
			continue
		}
		switch m[0] {
		case sshData:
			_, err = sshd.Write(m[1:])
		case sshPing:
			err = c.Write(ctx, websocket.MessageBinary, m)
		case sshLatency:
		}
		if err != nil {
			return err
		}
	}
}
