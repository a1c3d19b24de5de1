// Package tracetest is a receiver of traces for tests: it keeps the spans that
// are sent to it over OTLP/HTTP.
package tracetest

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is what tests look at.
type Span struct {
	Name              string
	Trace, ID, Parent string // hexadecimal; Parent is "" for none
	Failed            bool
	Attributes        map[string]string // texts only
	Service           string
}

// Receiver takes spans at URL.
type Receiver struct {
	URL string

	t     testing.TB
	mu    sync.Mutex
	spans []Span
	seen  http.Header
	down  int // calls that are still to be refused
}

// New starts a receiver that ends with the test.
func New(t testing.TB) *Receiver {
	r := &Receiver{t: t}
	hs := httptest.NewServer(r)
	t.Cleanup(hs.Close)
	r.URL = hs.URL
	return r
}

// Refuse makes the next n calls fail for now.
func (r *Receiver) Refuse(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = n
}

func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down > 0 {
		r.down--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			r.t.Errorf("spans are not packed as said: %v", err)
			return
		}
		body = z
	}
	raw, _ := io.ReadAll(body)
	var data otlp.TracesData
	if err := proto.Unmarshal(raw, &data); err != nil || q.Method != http.MethodPost || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s %s (%s) is no export of traces: %v", q.Method, q.URL.Path, q.Header.Get("Content-Type"), err)
		return
	}
	r.seen = q.Header
	for _, rs := range data.ResourceSpans {
		service := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				out := Span{Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Failed: s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR, Attributes: map[string]string{}, Service: service}
				for _, a := range s.Attributes {
					out.Attributes[a.Key] = a.Value.GetStringValue()
				}
				r.spans = append(r.spans, out)
			}
		}
	}
}

// Header is that of the last export.
func (r *Receiver) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// Spans is what has arrived.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Await is the first span of that name, with a parent of that id unless it is "".
func (r *Receiver) Await(name, parent string) Span {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		for _, s := range r.Spans() {
			if s.Name == name && (parent == "" || s.Parent == parent) {
				return s
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no span %q below %q among %+v", name, parent, r.Spans())
		}
	}
}
