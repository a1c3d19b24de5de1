package server

import "net/http"

// balancers answers load balancers of services that run beside the server.
func (s *Server) balancers(w http.ResponseWriter, r *http.Request) {
	if s.Balancers == nil {
		s.notYet(w, r)
		return
	}
	s.Balancers.ServeHTTP(w, r)
}
