package server

import (
	"context"
	"io"
	"net/http"
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
	s.tunnel(w, r, tunnel{
		problems: problems, lacking: s.Replica == nil,
		open:    func(ctx context.Context) (io.ReadWriteCloser, error) { return s.Replica(ctx, service, replica) },
		refused: http.StatusBadGateway,
		out:     toSocket, in: fromSocket, ping: keepOpen,
	})
}
