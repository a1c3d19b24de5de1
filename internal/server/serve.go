package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/auth"
)

const (
	// headerTime bounds how long a client may take to send a request's headers,
	// bodyTime its body, and idleTime how long a connection waits for the next
	// request. There is no limit on whole requests: a log may be followed for days.
	headerTime = 10 * time.Second
	bodyTime   = 60 * time.Second
	idleTime   = 2 * time.Minute
	maxHeaders = 64 << 10
)

// Serve answers on l until ctx ends, and then goes down in an orderly way, for
// at most grace: new work is refused (503, so clients repeat it), the engine
// finishes what is short and leaves what is long to its next start, streams end
// with the line that makes clients ask again, and connections are closed. The
// engine was started by the caller; Serve shuts it down.
func (s *Server) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	hs := s.httpServer()
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	s.Drain()
	err = errors.Join(err, s.Engine.Shutdown(down))
	s.Close()
	if hs.Shutdown(down) != nil {
		_ = hs.Close()
	}
	return err
}

func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler: s, ConnContext: auth.Connected, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaders,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// bodyRead lifts the deadline of a body that was read to its end; it would end a
// long answer. If the rest is still to come the deadline stays: the connection
// waits for it.
func bodyRead(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}
