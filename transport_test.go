package sky

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// road is the way to a server, in trouble for the first calls.
type road struct {
	trouble []string // "lost": the answer; "closed": nobody listens
	ids     []string // of the calls that were tried
	calls   int
}

func (r *road) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(req.URL.Path, "/stop") {
		return http.DefaultTransport.RoundTrip(req)
	}
	r.ids = append(r.ids, req.Header.Get(api.HeaderRequestID))
	what := ""
	if r.calls < len(r.trouble) {
		what = r.trouble[r.calls]
	}
	r.calls++
	if what == "closed" {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && what == "lost" {
		res.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return res, err
}

func TestACallWhoseAnswerIsLostIsRepeated(t *testing.T) {
	for _, c := range []struct {
		name    string
		trouble []string
		tries   int
		err     string // a part of it; "": none
	}{
		{"nothing wrong", nil, 1, ""},
		{"the answer is lost", []string{"lost"}, 2, ""},
		{"and the server is away for a while", []string{"lost", "closed", "closed"}, 4, ""},
		{"nobody listens at first", []string{"closed"}, 2, ""},
		{"nobody ever listens", slices.Repeat([]string{"closed"}, 1000), 0, "cannot reach the API server"},
		{"it never comes back", append([]string{"lost"}, slices.Repeat([]string{"closed"}, 1000)...), 0, "may have been accepted as request "},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := serve(t, map[string]http.HandlerFunc{"POST /stop": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(api.HeaderRequestID, r.Header.Get(api.HeaderRequestID))
			}})
			r := &road{trouble: c.trouble}
			k.http = &http.Client{Transport: r}
			req, err := k.Stop(t.Context(), api.StopBody{ClusterName: "dev"})
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want one with %q", err, c.err)
			}
			if err != nil && !errors.As(err, new(*ConnectError)) {
				t.Errorf("%T", err)
			}
			if c.tries > 0 && len(r.ids) != c.tries || len(slices.Compact(slices.Clone(r.ids))) != 1 || r.ids[0] == "" {
				t.Errorf("tried as %q, want %d times under one id", r.ids, c.tries)
			}
			if err == nil && req.ID() != r.ids[0] {
				t.Errorf("request %s, sent as %s", req.ID(), r.ids[0])
			}
		})
	}
}
