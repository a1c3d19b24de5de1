package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/server/pickle"
)

// recorded is one line of a session between the reference's client and server.
type recorded struct {
	Method   string              `json:"method"`
	URI      string              `json:"uri"`
	Request  string              `json:"req_body"`
	ReqHead  map[string][]string `json:"req_headers"`
	Status   int                 `json:"status"`
	Response string              `json:"resp_body"`
	RespHead map[string][]string `json:"resp_headers"`
}

func (r recorded) header(name string) string {
	for k, v := range r.RespHead {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// record is the request record in the answer, if it is one.
func (r recorded) record() (p api.RequestPayload, ok bool) {
	if !strings.HasPrefix(r.URI, "/api/get") {
		return p, false
	}
	text := []byte(r.Response)
	var wrapped struct{ Detail json.RawMessage }
	if json.Unmarshal(text, &wrapped) == nil && wrapped.Detail != nil {
		text = wrapped.Detail
	}
	return p, json.Unmarshal(text, &p) == nil && p.RequestID != ""
}

// TestReplayRecordedSessions sends what the unmodified client sent and compares
// what it reads of the answers. The verbs answer as the reference's did, so what
// is compared is the wire.
func TestReplayRecordedSessions(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/goldens/http/*.jsonl")
	if len(files) == 0 {
		t.Skip("the recorded sessions of ../shared/goldens/http are not here")
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".jsonl"), func(t *testing.T) { replay(t, readSession(t, f)) })
	}
}

func readSession(t *testing.T, path string) (list []recorded) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 10<<20)
	for lines.Scan() {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

func replay(t *testing.T, session []recorded) {
	env := newTestEnvOf(t, func(env *testEnv) {
		for _, r := range session {
			if p, ok := r.record(); ok {
				answerAsRecorded(env.engine, p)
			}
		}
	})
	ids := map[string]string{} // the reference's to ours
	for _, r := range session {
		uri := r.URI
		for theirs, ours := range ids {
			uri = strings.ReplaceAll(uri, theirs, ours)
		}
		var headers []string
		for k, v := range r.ReqHead {
			if k != "Content-Length" && k != "Connection" && k != "Accept-Encoding" {
				headers = append(headers, k, v[0])
			}
		}
		got := env.call(r.Method, uri, r.Request, headers...)
		at := r.Method + " " + r.URI
		if got.status != r.Status {
			t.Fatalf("%s: %d %s, want %d", at, got.status, got.body, r.Status)
		}
		for _, h := range []string{"Content-Type", "Cache-Control", "X-Accel-Buffering", api.HeaderAPIVersion} {
			if got.header.Get(h) != r.header(h) {
				t.Errorf("%s: header %s is %q, want %q", at, h, got.header.Get(h), r.header(h))
			}
		}
		for _, h := range []string{api.HeaderRequestID, api.HeaderVersion} {
			if got.header.Get(h) == "" {
				t.Errorf("%s: no header %s", at, h)
			}
		}
		if theirs := r.header(api.HeaderStreamRequestID); theirs != "" && got.header.Get(api.HeaderStreamRequestID) != ids[theirs] {
			t.Errorf("%s: stream id %q", at, got.header.Get(api.HeaderStreamRequestID))
		}
		ids[r.header(api.HeaderRequestID)] = got.id()
		compareBodies(t, at, r, got)
	}
}

// answerAsRecorded makes the request's function end as the reference's did.
func answerAsRecorded(e *requests.Engine, p api.RequestPayload) {
	end := func() (any, error) {
		if p.Error == "null" {
			return json.RawMessage(p.ReturnValue), nil
		}
		var rec api.ErrorRecord
		if err := json.Unmarshal([]byte(p.Error), &rec); err != nil {
			return nil, err
		}
		return nil, &api.Error{Type: rec.Type, Message: rec.Message}
	}
	if p.Name == "sky.logs" {
		e.HandleLog(p.Name, func(context.Context, *requests.Call, io.Writer) (any, error) { return end() })
		return
	}
	e.Handle(p.Name, p.ScheduleType, func(context.Context, *requests.Call) (any, error) { return end() })
}

func compareBodies(t *testing.T, at string, r recorded, got reply) {
	switch path, _, _ := strings.Cut(r.URI, "?"); path {
	case "/api/stream", "/logs":
		return // what verbs print is theirs
	case "/api/health":
		var theirs, ours map[string]any
		_ = json.Unmarshal([]byte(r.Response), &theirs)
		_ = json.Unmarshal([]byte(got.body), &ours)
		for k, v := range theirs {
			o, ok := ours[k]
			if k == "version_on_disk" { // clients read a difference as "restart"
				continue
			}
			if !ok || reflect.TypeOf(o) != reflect.TypeOf(v) {
				t.Errorf("%s: %s is %v, want something like %v", at, k, o, v)
			}
		}
	case "/api/get":
		want, _ := r.record()
		have, _ := recorded{URI: r.URI, Response: got.body}.record()
		compareRecords(t, at, have, want)
	case "/api/status":
		var theirs, ours []map[string]any
		_ = json.Unmarshal([]byte(r.Response), &theirs)
		if err := json.Unmarshal([]byte(got.body), &ours); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		for _, o := range ours {
			for k := range theirs[0] {
				if _, ok := o[k]; !ok {
					t.Errorf("%s: a row without %s", at, k)
				}
			}
		}
	case "/users/me/workspace":
		if got.json(t).(map[string]any)["detail"] == nil {
			t.Errorf("%s: %s", at, got.body)
		}
	default:
		if got.body != r.Response {
			t.Errorf("%s: %q, want %q", at, got.body, r.Response)
		}
	}
}

func compareRecords(t *testing.T, at string, got, want api.RequestPayload) {
	t.Helper()
	if got.Name != want.Name || got.Status != want.Status || got.ScheduleType != want.ScheduleType {
		t.Errorf("%s: %s %s %s, want %s %s %s", at, got.Name, got.Status, got.ScheduleType, want.Name, want.Status, want.ScheduleType)
	}
	if body := want.ClusterName; body != nil && !strings.HasPrefix(*body, "sky-jobs-") && !strings.HasPrefix(*body, "sky-serve-") &&
		(got.ClusterName == nil || *got.ClusterName != *body) {
		t.Errorf("%s: cluster %v, want %s", at, got.ClusterName, *body)
	}
	if a, b := decoded(got.ReturnValue), decoded(want.ReturnValue); !reflect.DeepEqual(a, b) {
		t.Errorf("%s: result %s, want %s", at, got.ReturnValue, want.ReturnValue)
	}
	if got.Entrypoint != pickle.None || got.RequestBody != pickle.None {
		t.Errorf("%s: entrypoint or body is no pickle", at)
	}
	if want.Error == "null" {
		if got.Error != "null" {
			t.Errorf("%s: error %s", at, got.Error)
		}
		return
	}
	var a, b api.ErrorRecord
	_ = json.Unmarshal([]byte(got.Error), &a)
	_ = json.Unmarshal([]byte(want.Error), &b)
	if a.Type != b.Type || a.Message != b.Message {
		t.Errorf("%s: %s %q, want %s %q", at, a.Type, a.Message, b.Type, b.Message)
	}
	rebuilt := python(t, map[string]string{"exception": a.Object})[0]
	if rebuilt["class"] != b.Type || rebuilt["text"] != b.Message {
		t.Errorf("%s: a client makes %v of it", at, rebuilt)
	}
}

func decoded(text string) (v any) {
	_ = json.Unmarshal([]byte(text), &v)
	return v
}
