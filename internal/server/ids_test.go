package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
)

// An id that another call has is a 409 on every route that records one, and no
// route answers a call that is repeated with a failure of its own.
func TestIDsThatAreTaken(t *testing.T) {
	env := newTestEnvOf(t, func(*testEnv) {}, people(t, map[string]string{"uma": "admin"}))
	env.ownCluster("umas", "uma")
	env.as = "uma"
	// One that is a request, and one that is only in the audit log.
	asked, direct := uuid.NewString(), uuid.NewString()
	if r := env.call(post, "/recipes/pin", `{"recipe_name":"taken","pinned":true}`, api.HeaderRequestID, asked); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	env.payload(asked)
	if r := env.call(post, "/users/create", `{"username":"x","password":"y"}`, api.HeaderRequestID, direct); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	for _, rt := range Routes() {
		path := strings.NewReplacer("{pool}", "p", "{name}", "n", "{path...}", "", "{$}", "").Replace(rt.Path)
		if rt.Kind == Socket {
			path += "?cluster_name=umas"
		}
		for _, id := range []string{asked, direct} {
			if rt.Path == "/recipes/pin" && id == asked {
				continue // the call itself
			}
			records := rt.Changes() || rt.Kind == Async || rt.Kind == Log
			if !rt.Changes() && id == direct {
				continue // reads leave no trail: the id is free for them
			}
			got := env.call(rt.Method, path, env.sample(rt), api.HeaderRequestID, id)
			if records != (got.status == 409) {
				t.Errorf("%s %s: %d %s", rt.Method, rt.Path, got.status, got.body)
			}
			// Repeated under its own id.
			own := uuid.NewString()
			for range 2 {
				if got := env.call(rt.Method, path, env.sample(rt), api.HeaderRequestID, own); got.status >= 500 && got.status != 501 {
					t.Errorf("%s %s, repeated: %d %s", rt.Method, rt.Path, got.status, got.body)
				}
			}
		}
	}
}

// The same read twice at once is one request, also before it is recorded.
func TestAReadThatIsRepeatedAtOnce(t *testing.T) {
	begun, block := make(chan struct{}), make(chan struct{})
	env := newTestEnvOf(t, func(env *testEnv) {
		env.engine.HandleRead("sky.status", func(context.Context, *requests.Call) (any, error) {
			close(begun)
			<-block
			return []any{}, nil
		})
	})
	id := uuid.NewString()
	replies := make(chan reply, 2)
	ask := func() { replies <- env.call(post, "/status", `{}`, api.HeaderRequestID, id) }
	go ask()
	<-begun
	go ask()
	for range 2 { // both are answered when the first is recorded as running
		if r := <-replies; r.status != 200 || r.id() != id {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if r := env.call(post, "/queue", `{"cluster_name":"c"}`, api.HeaderRequestID, id); r.status != 409 {
		t.Errorf("another call under that id: %d %s", r.status, r.body)
	}
	close(block)
	env.payload(id)
}

// A caller who has gone away is no failure of the server's.
func TestACallerWhoWentAway(t *testing.T) {
	env := newTestEnv(t)
	for _, rt := range Routes() {
		if rt.Kind == Socket {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var body io.Reader
		if text := env.sample(rt); text != "" {
			body = strings.NewReader(text)
		}
		path := strings.NewReplacer("{pool}", "p", "{name}", "n", "{path...}", "", "{$}", "").Replace(rt.Path)
		r := httptest.NewRequestWithContext(ctx, rt.Method, "http://localhost"+path, body)
		r.RemoteAddr = "127.0.0.1:1"
		a := httptest.NewRecorder()
		serveUncut(env.server, a, r)
		if a.Code >= 500 && a.Code != 501 {
			t.Errorf("%s %s: %d %s", rt.Method, rt.Path, a.Code, a.Body)
		}
	}
	var gone int
	list, err := env.store.Audit().List(t.Context(), state.AuditFilter{Since: time.Now().Add(-time.Hour)})
	for _, e := range list {
		if e.Detail == "The caller went away" {
			gone++
		}
	}
	if err != nil || gone == 0 || slices.ContainsFunc(list, func(e state.AuditEntry) bool { return e.Detail == "Internal Server Error" }) {
		t.Errorf("%d calls were left by their callers, %v: %+v", gone, err, list)
	}
}

func TestACallThatIsBeingRecordedIsToBeRepeated(t *testing.T) {
	if got := statusOf(fmt.Errorf("x: %w", requests.ErrRecording)); got != http.StatusServiceUnavailable {
		t.Errorf("status %d", got)
	}
}

func TestACallThatTheDatabaseDidNotAnswerIsToBeRepeated(t *testing.T) {
	env := newTestEnv(t)
	for want, err := range map[int]error{
		http.StatusServiceUnavailable:  fmt.Errorf("reading roles: %w", context.DeadlineExceeded),
		http.StatusInternalServerError: errors.New("no such column"),
		http.StatusConflict:            state.ErrConflict,
	} {
		a := httptest.NewRecorder()
		env.server.notRecorded(a, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/status", nil), err)
		if a.Code != want {
			t.Errorf("%v: %d %s, want %d", err, a.Code, a.Body, want)
		}
	}
}
