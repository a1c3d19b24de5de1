package server

import (
	"context"
	"io"
	"net/http"

	"github.com/coder/websocket"
)

// forward carries the bytes of one connection between a client and a port that a node
// reaches. An empty message of the client says that it sends nothing more and still
// reads; the node's side ends the websocket.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	cluster, host := v.Get("cluster_name"), v.Get("host")
	var problems []problem
	if cluster == "" {
		problems = append(problems, problem{Type: "missing", Loc: []any{"query", "cluster_name"}, Message: "cluster_name is required"})
	}
	node, _, p := queryInt(v, "node")
	port, given, q := queryInt(v, "port")
	problems = append(append(problems, p...), q...)
	if q == nil && (!given || port < 1 || port > 1<<16-1) {
		problems = append(problems, problem{Type: "value_error", Loc: []any{"query", "port"}, Message: "port must be a number from 1 to 65535"})
	}
	if host == "" {
		host = "localhost"
	}
	s.tunnel(w, r, tunnel{
		problems: problems, lacking: s.Forward == nil,
		open: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return s.Forward(ctx, cluster, node, host, port)
		},
		out: toSocket, in: fromForward, ping: keepOpen,
	})
}

// fromForward is fromSocket for a client that may send an empty message, its last.
func fromForward(ctx context.Context, c *websocket.Conn, far io.Writer) error {
	for {
		_, r, err := c.Reader(ctx)
		if err != nil {
			return err
		}
		n, err := io.Copy(far, r)
		if err != nil {
			return err
		}
		if half, ok := far.(interface{ CloseWrite() error }); ok && n == 0 {
			_ = half.CloseWrite()
		}
	}
}
