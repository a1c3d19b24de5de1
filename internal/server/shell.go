package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/api/agentapi"
)

const (
	// shellMessage bounds one websocket message in either direction.
	shellMessage = 1 << 20
	shellPing    = 30 * time.Second
	shellPong    = 30 * time.Second
	maxTerminal  = 1<<16 - 1
)

func shellQuery(r *http.Request) (cluster string, q agentapi.ShellQuery, problems []problem) {
	v := r.URL.Query()
	if cluster = v.Get("cluster_name"); cluster == "" {
		problems = append(problems, problem{Type: "missing", Loc: []any{"query", "cluster_name"}, Message: "cluster_name is required"})
	}
	q.Command, q.Term = v.Get("command"), v.Get("term")
	var p []problem
	q.TTY, p = queryBool(v, "tty", false)
	problems = append(problems, p...)
	for name, into := range map[string]*int{"node": &q.Node, "rows": &q.Rows, "cols": &q.Cols} {
		n, _, p := queryInt(v, name)
		problems = append(problems, p...)
		if n > maxTerminal {
			problems = append(problems, queryProblem(name, errors.New("must be at most "+strconv.Itoa(maxTerminal))))
		}
		*into = n
	}
	return cluster, q, problems
}

// shell carries the frames of an agent's shell over a websocket: each binary
// message is a piece of the stream, cut anywhere.
func (s *Server) shell(w http.ResponseWriter, r *http.Request) {
	cluster, q, problems := shellQuery(r)
	s.tunnel(w, r, tunnel{
		problems: problems, lacking: s.Shell == nil,
		open: func(ctx context.Context) (io.ReadWriteCloser, error) { return s.Shell(ctx, cluster, q) },
		out:  toSocket, in: fromSocket, ping: pinging,
	})
}

// needsSocket tells callers that are no websocket what they need. It reports
// whether the call ends there.
func needsSocket(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Upgrade") != "" {
		return false
	}
	w.Header().Set("Upgrade", "websocket")
	w.Header().Set("Connection", "Upgrade")
	fail(w, http.StatusUpgradeRequired, "This route needs a websocket.")
	return true
}

// tunnel is where the websocket of a route leads.
type tunnel struct {
	problems []problem // of the query
	lacking  bool      // this server cannot open such a thing
	open     func(context.Context) (io.ReadWriteCloser, error)
	refused  int // the status if it cannot be opened; 0: that of the error

	out  func(context.Context, *websocket.Conn, io.Reader) error // carries what the other side says
	in   func(context.Context, *websocket.Conn, io.Writer) error // carries what the client says
	ping func(context.Context, *websocket.Conn) error            // sees to it that silence does not last
}

// tunnel opens what is at the other side, accepts the websocket and carries bytes both
// ways until either side ends; then it closes both.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request, to tunnel) {
	if len(to.problems) > 0 {
		failProblems(w, to.problems)
		return
	}
	if to.lacking {
		s.notYet(w, r)
		return
	}
	if needsSocket(w, r) {
		return
	}
	ctx, cancel := s.running(r)
	defer cancel()
	remote, err := to.open(ctx)
	if err != nil {
		if to.refused != 0 {
			fail(w, to.refused, err.Error())
		} else {
			s.failed(w, r, err)
		}
		return
	}
	defer remote.Close()
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	defer c.CloseNow()
	c.SetReadLimit(shellMessage)
	ended := make(chan error, 3)
	go func() { ended <- to.out(ctx, c, remote) }()
	go func() { ended <- to.in(ctx, c, remote) }()
	go func() { ended <- to.ping(ctx, c) }()
	if first := <-ended; errors.Is(first, io.EOF) {
		_ = c.Close(websocket.StatusNormalClosure, "")
	}
	cancel()
	remote.Close()
	c.CloseNow()
	<-ended
	<-ended
}

// toSocket sends the agent's frames until there are no more.
func toSocket(ctx context.Context, c *websocket.Conn, remote io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := remote.Read(buf)
		if n > 0 {
			if err := c.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// fromSocket passes the client's frames on until it hangs up.
func fromSocket(ctx context.Context, c *websocket.Conn, remote io.Writer) error {
	for {
		_, r, err := c.Reader(ctx)
		if err != nil {
			return err
		}
		if _, err := io.Copy(remote, r); err != nil {
			return err
		}
	}
}

// pinging finds out when nobody is at the other end any more.
func pinging(ctx context.Context, c *websocket.Conn) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(shellPing):
		}
		answered, cancel := context.WithTimeout(ctx, shellPong)
		err := c.Ping(answered)
		cancel()
		if err != nil {
			return err
		}
	}
}

// keepOpen sends pings, for proxies that close silent connections. Whether the other end
// is there TCP finds out: a client that does not read for long holds up its answers to
// pings, too.
func keepOpen(ctx context.Context, c *websocket.Conn) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(shellPing):
		}
		answered, cancel := context.WithTimeout(ctx, shellPong)
		_ = c.Ping(answered)
		cancel()
	}
}
