package sky

import (
	"net/http"
	"time"
)

// traced reports each call of a transport.
type traced struct {
	next  http.RoundTripper
	trace func(method, path string, status int, took time.Duration)
}

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.next.RoundTrip(r)
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	t.trace(r.Method, r.URL.Path, status, time.Since(began))
	return resp, err
}
