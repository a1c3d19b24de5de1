package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/trace"
)

// An answer is the response on its way out; it remembers what the access log
// tells.
type answer struct {
	http.ResponseWriter
	began  time.Time
	status int
	bytes  int64
	span   trace.Span
	route  string // method and path of the table; "" if none took the request
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 || status == http.StatusSwitchingProtocols {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap lets deadlines, flushing and hijacking reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// accept begins an answer, with an id that a request record's takes the place of.
// A client may choose it, so that it can repeat a call whose answer was lost:
// what was recorded under the id is not recorded again.
func (s *Server) accept(w http.ResponseWriter, r *http.Request) (*answer, *http.Request) {
	id, err := uuid.Parse(r.Header.Get(api.HeaderRequestID))
	if err != nil || id.Version() != 4 {
		id = uuid.New()
	}
	w.Header().Set(api.HeaderRequestID, id.String())
	ctx, span := s.Tracer.Root(trace.WithRequest(r.Context(), id.String()), r.Method, r.Header)
	if parent := trace.Parent(ctx); parent != "" {
		w.Header().Set(headerTrace, parent)
	}
	return &answer{ResponseWriter: w, began: time.Now(), span: span}, r.WithContext(ctx)
}

// headerTrace tells in both directions which trace a call belongs to.
const headerTrace = "Traceparent"

// finish writes the access log and turns a panic into a 500.
func (s *Server) finish(a *answer, r *http.Request) {
	if v := recover(); v != nil {
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			s.access(a, r)
			panic(v) // cuts the connection, as was meant
		}
		s.log.ErrorContext(r.Context(), "handler panicked", "method", r.Method, "path", r.URL.Path,
			"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		if a.status == 0 {
			fail(a, http.StatusInternalServerError, "The server failed on this request. Its log says more.")
		}
	}
	s.access(a, r)
}

// errAnswer is what a span of a call that was answered with a 5xx ends with.
var errAnswer = errors.New("answered with an error")

func (s *Server) access(a *answer, r *http.Request) {
	if a.route != "" {
		s.Metrics.answers.Observe(time.Since(a.began), a.route)
	}
	a.span.Set("http.request.method", r.Method)
	a.span.Set("http.route", a.route)
	a.span.Set("http.response.status_code", a.status)
	a.span.Set("sky.request.id", a.Header().Get(api.HeaderRequestID))
	var failed error
	if a.status >= 500 {
		failed = errAnswer
	}
	a.span.End(failed)
	level := slog.LevelInfo
	if r.URL.Path == "/api/health" && a.status < 400 {
		level = slog.LevelDebug // clients ask before every call
	}
	// The query may carry what a user typed, so only the path is told.
	s.log.LogAttrs(r.Context(), level, "request served", slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", a.status), slog.Int64("bytes", a.bytes), slog.Duration("took", time.Since(a.began)),
		slog.String("client_api", r.Header.Get(api.HeaderAPIVersion)))
}
