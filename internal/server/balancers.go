package server

import (
	"net/http"

	"github.com/coder/websocket"
)

// balancers answers load balancers of services that run beside the server.
func (s *Server) balancers(w http.ResponseWriter, r *http.Request) {
	if s.Balancers == nil {
		s.notYet(w, r)
		return
	}
	s.Balancers.ServeHTTP(w, r)
}

// connectReplica carries the bytes between a load balancer and a replica that it does
// not reach itself.
func (s *Server) connectReplica(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	service := v.Get("service")
	replica, given, problems := queryInt(v, "replica")
	if !given && problems == nil {
		problems = append(problems, problem{Type: "missing", Loc: []any{"query", "replica"}, Message: "replica is required"})
	}
	if service == "" {
		problems = append(problems, problem{Type: "missing", Loc: []any{"query", "service"}, Message: "service is required"})
	}
	if problems != nil {
		failProblems(w, problems)
		return
	}
	if s.Replica == nil {
		s.notYet(w, r)
		return
	}
	if needsSocket(w, r) {
		return
	}
	ctx, cancel := s.running(r)
	defer cancel()
	conn, err := s.Replica(ctx, service, replica)
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	// A client that does not read for long holds up the answers to pings, too.
	s.tunnel(ctx, cancel, w, r, conn, keepOpen, func(c *websocket.Conn) (out, in func() error) {
		return func() error { return toSocket(ctx, c, conn) }, func() error { return fromSocket(ctx, c, conn) }
	})
}
