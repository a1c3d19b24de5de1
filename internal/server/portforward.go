package server

import (
	"context"
	"io"
	"net"
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
	if problems != nil {
		failProblems(w, problems)
		return
	}
	if host == "" {
		host = "localhost"
	}
	if s.Forward == nil {
		s.notYet(w, r)
		return
	}
	if needsSocket(w, r) {
		return
	}
	ctx, cancel := s.running(r)
	defer cancel()
	far, err := s.Forward(ctx, cluster, node, host, port)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	// A client that does not read for long holds up the answers to pings, too.
	s.tunnel(ctx, cancel, w, r, far, keepOpen, func(c *websocket.Conn) (out, in func() error) {
		return func() error { return toSocket(ctx, c, far) }, func() error { return fromForward(ctx, c, far) }
	})
}

// fromForward is fromSocket for a client that may send an empty message, its last.
func fromForward(ctx context.Context, c *websocket.Conn, far net.Conn) error {
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
