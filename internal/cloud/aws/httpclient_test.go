package aws

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// answersEarly is a client that reads the body as long as it was said to be and
// answers; only when the caller has closed the body it looks for more, as a
// connection of net/http may.
type answersEarly struct{ rest func() error }

func (c *answersEarly) Do(r *http.Request) (*http.Response, error) {
	if _, err := io.CopyN(io.Discard, r.Body, r.ContentLength); err != nil {
		return nil, err
	}
	c.rest = func() error { _, err := io.Copy(io.Discard, r.Body); return err }
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestABodyThatIsClosedAfterTheAnswerDoesNotBreakTheConnection(t *testing.T) {
	send := func(wrap func(c smithyhttp.ClientDo) smithyhttp.ClientDo) error {
		t.Helper()
		r := smithyhttp.NewStackRequest().(*smithyhttp.Request)
		r.Method, r.ContentLength = http.MethodPost, 4
		r.URL.Scheme, r.URL.Host = "http", "localhost"
		r, err := r.SetStream(bytes.NewReader([]byte("body")))
		if err != nil {
			t.Fatal(err)
		}
		c := &answersEarly{}
		if _, _, err := smithyhttp.NewClientHandlerWithOptions(wrap(c)).Handle(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		return c.rest()
	}
	if err := send(func(c smithyhttp.ClientDo) smithyhttp.ClientDo { return c }); err == nil {
		t.Error("the SDK does it right by now: bodyClient can go")
	}
	if err := send(func(c smithyhttp.ClientDo) smithyhttp.ClientDo { return bodyClient{c} }); err != nil {
		t.Error(err)
	}
}
