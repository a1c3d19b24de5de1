package server

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/requests"
)

// A view is how a caller wants to see a log.
type view struct {
	tail     int // last lines; 0: all
	follow   bool
	plain    bool   // without control lines
	progress bool   // with those for programs
	html     bool   // a page that shows it
	download string // file name to save it under; "": show it
	gzip     bool
}

func parseView(r *http.Request) (view, []problem) {
	q := r.URL.Query()
	var v view
	tail, problems := queryTail(q)
	v.tail = tail
	follow, p := queryBool(q, "follow", true)
	v.follow, problems = follow, append(problems, p...)
	v.progress, p = queryBool(q, "progress", false)
	problems = append(problems, p...)
	switch q.Get("format") {
	case "", "auto":
		v.html = isBrowser(r.UserAgent())
	case "console":
	case "plain":
		v.plain = true
	case "html":
		v.html = true
	default:
		problems = append(problems, queryProblem("format", errors.New("must be auto, console, plain or html")))
	}
	if name := q.Get("download"); name != "" {
		v.download, v.plain, v.html = fileName(name), true, false
	}
	switch q.Get("compress") {
	case "":
	case "gz":
		v.gzip, v.html = true, false
	default:
		problems = append(problems, queryProblem("compress", errors.New("must be gz")))
	}
	return v, problems
}

func isBrowser(agent string) bool {
	agent = strings.ToLower(agent)
	for _, b := range []string{"mozilla", "chrome", "safari", "edge"} {
		if strings.Contains(agent, b) {
			return true
		}
	}
	return false
}

var unsafeInName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// fileName is a caller's text made fit for a Content-Disposition header.
func fileName(s string) string {
	s = unsafeInName.ReplaceAllString(s, "_")
	return s[:min(len(s), 200)]
}

// stream shows the log of a request, or one of the server's own log files.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	v, problems := parseView(r)
	if problems != nil {
		failProblems(w, problems)
		return
	}
	q := r.URL.Query()
	prefix, path := q.Get("request_id"), q.Get("log_path")
	if prefix != "" && path != "" {
		fail(w, http.StatusBadRequest, "Give either request_id or log_path, not both.")
		return
	}
	if path != "" {
		if limited(r) != nil {
			fail(w, http.StatusForbidden, "The server's own log tells of everybody's work: only administrators read it.")
			return
		}
		s.streamFile(w, r, path, v)
		return
	}
	req, err := s.latestOr(r.Context(), s.scope(r), prefix)
	if err != nil {
		s.unresolved(w, r, prefix, err)
		return
	}
	if !s.mayRead(w, r, req) {
		return
	}
	w.Header().Set(api.HeaderStreamRequestID, req.ID)
	if prefix != "" {
		w.Header().Set(api.HeaderStreamRequestID, prefix) // the caller compares
	}
	if v.html {
		logPage(w, "Request "+req.ID, url.Values{"request_id": {req.ID}})
		return
	}
	s.sendLog(w, r, v, func(ctx context.Context, out io.Writer) error {
		return s.Engine.Stream(ctx, req.ID, requests.StreamOptions{Tail: v.tail, Follow: v.follow, Plain: v.plain, Progress: v.progress}, out)
	})
}

// sendLog sends what write writes in the form that the view asks for.
func (s *Server) sendLog(w http.ResponseWriter, r *http.Request, v view, write func(context.Context, io.Writer) error) {
	ctx, cancel := s.running(r)
	defer cancel()
	if v.download != "" {
		w.Header().Set("Content-Disposition", `attachment; filename="`+v.download+`"`)
	}
	out := newStream(w)
	defer out.Close()
	var err error
	if v.gzip {
		out.begin("application/gzip")
		z := &lazyGzip{w: out}
		err = write(ctx, z)
		z.Close()
	} else {
		out.begin(textPlain)
		err = write(ctx, out)
	}
	if err != nil && ctx.Err() == nil && out.err == nil {
		// The status has gone out; cutting the connection tells the client that the
		// log is not complete.
		s.log.ErrorContext(ctx, "log stream failed", "path", r.URL.Path, "error", err)
		out.Close()
		panic(http.ErrAbortHandler)
	}
}

// lazyGzip compresses; nothing in is nothing out.
type lazyGzip struct {
	w io.Writer
	z *gzip.Writer
}

func (g *lazyGzip) Write(p []byte) (int, error) {
	if g.z == nil {
		g.z = gzip.NewWriter(g.w)
	}
	return g.z.Write(p)
}

func (g *lazyGzip) Close() {
	if g.z != nil {
		_ = g.z.Close()
	}
}

// provisionLogs shows how a cluster's machines are started. No request is
// recorded, so it fails at once or not at all.
func (s *Server) provisionLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	tail, problems := queryTail(q)
	follow, p := queryBool(q, "follow", true)
	if problems = append(problems, p...); problems != nil {
		failProblems(w, problems)
		return
	}
	b, _, ok := decode[api.ProvisionLogsBody](s, w, r)
	if !ok {
		return
	}
	if s.ProvisionLogs == nil {
		s.notYet(w, r)
		return
	}
	ctx, cancel := s.running(r)
	defer cancel()
	out := &prompt{stream: newStream(w)}
	err := s.ProvisionLogs(ctx, ProvisionLogs{Cluster: b.ClusterName, Scope: s.scope(r), Worker: b.Worker, Tail: tail, Follow: follow}, out)
	switch {
	case err == nil:
		out.start()
		out.Close()
	case out.began || ctx.Err() != nil:
		out.Close()
		s.log.WarnContext(ctx, "provision log ended early", "cluster", b.ClusterName, "error", err)
	default:
		s.failed(w, r, err)
	}
}

var errOutside = errors.New("outside the folders of logs")

// openLog opens one of the log files that callers may see: the server's own, or
// one below ~/sky_logs. Links do not lead out of there.
func (s *Server) openLog(path string) (*os.File, error) {
	rel, err := s.inHome(path)
	if err != nil {
		return nil, err
	}
	if rel == serverLog {
		return os.OpenInRoot(s.Home, rel)
	}
	below, ok := strings.CutPrefix(rel, "sky_logs/")
	if !ok {
		return nil, errOutside
	}
	return os.OpenInRoot(s.Home+"/sky_logs", below)
}

const serverLog = ".sky/api_server/server.log"
