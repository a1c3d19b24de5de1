package agentclient

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
)

// flood answers with the beginning of something and then with more than anybody
// may send, or until the reader is gone.
func flood(begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		more := []byte(strings.Repeat("a", 1<<20))
		_, err := w.Write([]byte(begin))
		for n := 0; err == nil && n < 2*maxAnswer; n += len(more) {
			_, err = w.Write(more)
		}
		panic(http.ErrAbortHandler)
	}
}

// An agent that sends without end is one that cannot be reached, and the reason is
// said.
func TestAnAgentThatSendsWithoutEndIsUnreachable(t *testing.T) {
	for _, test := range []struct {
		name, route string
		answer      http.HandlerFunc
		call        func(c *Client) error
	}{
		{"a call", agentapi.PathInfo, flood(`{"version":"`), func(c *Client) error { _, err := c.Info(t.Context()); return err }},
		{"an answer that nobody reads", agentapi.PathReported, flood(``), func(c *Client) error { return c.Reported(t.Context(), nil) }},
		{"a call with a query", agentapi.PathJob, flood(`{"name":"`), func(c *Client) error { return c.Get(t.Context(), agentapi.PathJob, nil, new(agentapi.Job), "7") }},
		{"an event", agentapi.PathEvents, flood(`{"kind":"`), func(c *Client) error {
			return c.Events(t.Context(), func(agentapi.Event) error { return nil })
		}},
		{"objects", agentapi.PathJobs, func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("[" + strings.Repeat("{},", 1<<20) + "{}]"))
		}, func(c *Client) error { _, err := c.Jobs(t.Context()); return err }},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.call(serve(t, test.route, test.answer))
			_, unreachable := errors.AsType[*UnreachableError](err)
			_, reason := errors.AsType[*bounded.TooMuchError](err)
			if !unreachable || !reason {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What ends in the server's database is bounded for each record.
func TestALongRecordIsUnreachable(t *testing.T) {
	long := strings.Repeat("a", recordMost)
	for _, test := range []struct {
		name, route, answer string
		call                func(c *Client) error
	}{
		{"a job", agentapi.PathJob, `{"reason":"` + long + `","name":"n"}`, func(c *Client) error { _, err := c.Job(t.Context(), 1); return err }},
		{"exit codes", agentapi.PathJobs, `[{},{"exit_codes":[1` + strings.Repeat(",1", recordMost/8) + `]}]`, func(c *Client) error { _, err := c.Jobs(t.Context()); return err }},
		{"itself", agentapi.PathInfo, `{"stuck":"` + long + `","version":"v"}`, func(c *Client) error { _, err := c.Info(t.Context()); return err }},
		{"a script", agentapi.PathCallback, `{"output":"` + long + `a"}`, func(c *Client) error {
			_, err := c.Callback(t.Context(), "k", agentapi.CallbackRequest{})
			return err
		}},
		{"an event", agentapi.PathEvents, `{"job":{"metadata":{"` + long + `":"x"}}}` + "\n", func(c *Client) error {
			return c.Events(t.Context(), func(agentapi.Event) error { return nil })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.call(serve(t, test.route, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(test.answer)) }))
			_, unreachable := errors.AsType[*UnreachableError](err)
			_, reason := errors.AsType[*bounded.TooMuchError](err)
			if !unreachable || !reason {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestARefusalWithoutEndIsARefusal(t *testing.T) {
	c := serve(t, agentapi.PathInfo, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusConflict)
		flood(`{"code":"`)(w, r)
	})
	_, err := c.Info(t.Context())
	if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeInternal {
		t.Errorf("got %v", err)
	}
}

// speaks is an agent that answers the first request of every connection in its own
// way.
func speaks(t *testing.T, say func(net.Conn)) *Client {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS() // for its certificate
	certificate, roots := srv.TLS.Certificates[0], srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	srv.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					say(conn)
				}
			}()
		}
	}()
	return New(l.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com"}, nil)
}

func TestAHeadWithoutEndIsUnreachable(t *testing.T) {
	c := speaks(t, func(conn net.Conn) {
		more := []byte(strings.Repeat("a", 1<<20))
		_, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nX-Much: "))
		for n := 0; err == nil && n < 2*maxAnswer; n += len(more) {
			_, err = conn.Write(more)
		}
	})
	_, err := c.Shell(t.Context(), agentapi.ShellQuery{})
	if _, ok := errors.AsType[*bounded.TooMuchError](err); !ok {
		t.Errorf("a shell: %v", err)
	}
	_, err = c.Info(t.Context())
	if _, ok := errors.AsType[*UnreachableError](err); !ok || !strings.Contains(err.Error(), "header") {
		t.Errorf("a call: %v", err)
	}
}

func TestTheOutputOfACommandIsBounded(t *testing.T) {
	c := speaks(t, func(conn net.Conn) {
		_, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
		for n := 0; err == nil && n < 4*maxOutput; n += 1 << 20 {
			err = agentapi.WriteFrame(conn, agentapi.FrameStdout, make([]byte, 1<<20))
		}
		if err == nil {
			agentapi.WriteFrame(conn, agentapi.FrameExit, []byte{0, 0, 0, 0})
		}
	})
	_, _, err := c.Run(t.Context(), agentapi.ShellQuery{Command: "yes"})
	if _, ok := errors.AsType[*bounded.TooMuchError](err); !ok {
		t.Errorf("got %v", err)
	}
}
