package rest

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/storage"
)

// endless is a store whose answers have no end; read counts what is read of them.
type endless struct{ read int64 }

func (e *endless) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(e), Request: r}, nil
}

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	if e.read > 2*MaxAnswer {
		return 0, errors.New("it is read without a bound")
	}
	clear(p)
	return len(p), nil
}

func TestAnAnswerWithoutEndIsRefused(t *testing.T) {
	store := new(endless)
	c := &Client{At: storage.Location{Store: "s3", Bucket: "b"}, Endpoint: "https://store.example", Transport: store}
	err := c.Read(t.Context(), Call{Method: http.MethodGet, Path: "/"}, nil)
	if _, ok := errors.AsType[*bounded.TooMuchError](err); !ok {
		t.Errorf("%v", err)
	}
}
