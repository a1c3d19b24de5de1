package sky

import (
	"net/http"
	"time"

	"github.com/skypilot-go/sky/api"
)

// HTTPCall is a call to the server: until the head of its answer, or its failure.
type HTTPCall struct {
	Method, Path string
	Status       int // 0: it failed
	Began        time.Time
	Took         time.Duration
	RequestID    string // of the request that it made or asked about; "": none
}

// traced reports each call of a transport.
type traced struct {
	next  http.RoundTripper
	trace func(HTTPCall)
}

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	call := HTTPCall{Method: r.Method, Path: r.URL.Path, Began: time.Now()}
	resp, err := t.next.RoundTrip(r)
	call.Took = time.Since(call.Began)
	if resp != nil {
		call.Status, call.RequestID = resp.StatusCode, resp.Header.Get(api.HeaderRequestID)
	}
	t.trace(call)
	return resp, err
}
