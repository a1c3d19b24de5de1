package sky

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
)

// Request is a call in flight on the server; T is its result. It lives on when
// the client ends.
type Request[T any] struct {
	c  *Client
	id string
}

// RequestOf names a request that was made elsewhere. id may be a prefix.
func RequestOf[T any](c *Client, id string) *Request[T] { return &Request[T]{c, id} }

// ID is the request's id.
func (r *Request[T]) ID() string { return r.id }

// Stream copies the request's log to w until the request has ended. It takes
// broken connections up again without repeating a line. The request goes on when
// ctx ends.
func (r *Request[T]) Stream(ctx context.Context, w io.Writer, o StreamOptions) error {
	return r.c.StreamRequest(ctx, r.id, w, o)
}

// Get waits until the request has ended and returns its result, or its failure
// as [*api.Error]; a request that was cancelled fails with the type
// RequestCancelled.
func (r *Request[T]) Get(ctx context.Context) (T, error) {
	var v T
	p, err := r.c.Payload(ctx, r.id)
	if err != nil {
		return v, err
	}
	if p.ReturnValue == "" {
		return v, nil
	}
	if err := decodeResult([]byte(p.ReturnValue), &v); err != nil {
		return v, fmt.Errorf("the result of request %s (%s) is not understood: %w", r.id, p.Name, err)
	}
	return v, nil
}

// decodeResult reads a result. Other servers put pickles (texts) where ours puts
// objects; such a field is left empty.
func decodeResult(raw []byte, v any) error {
	const pickledFields = 4 // more than any result has
	for range pickledFields {
		err := json.Unmarshal(raw, v)
		bad, ok := errors.AsType[*json.UnmarshalTypeError](err)
		if !ok || bad.Value != "string" {
			return err
		}
		var all any
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		field := bad.Field[strings.LastIndexByte(bad.Field, '.')+1:]
		if raw, err = json.Marshal(withoutTexts(all, field)); err != nil {
			return err
		}
	}
	return json.Unmarshal(raw, v)
}

// withoutTexts makes the texts under a key null, everywhere; with the key "" the
// value itself.
func withoutTexts(v any, key string) any {
	switch x := v.(type) {
	case string:
		if key == "" {
			return nil
		}
	case []any:
		for i := range x {
			x[i] = withoutTexts(x[i], cmp.Or(key, "-"))
		}
	case map[string]any:
		for k := range x {
			if _, text := x[k].(string); text && k == key {
				x[k] = nil
				continue
			}
			x[k] = withoutTexts(x[k], cmp.Or(key, "-"))
		}
	}
	return v
}

// Wait is Stream, then Get.
func (r *Request[T]) Wait(ctx context.Context, w io.Writer, o StreamOptions) (T, error) {
	o.Follow = true
	if err := r.Stream(ctx, w, o); err != nil {
		var none T
		return none, err
	}
	return r.Get(ctx)
}

// Cancel asks the server to end the request.
func (r *Request[T]) Cancel(ctx context.Context) error {
	req, err := r.c.CancelRequests(ctx, api.APICancelBody{RequestIDs: []string{r.id}})
	if err != nil {
		return err
	}
	_, err = req.Get(ctx)
	return err
}

// submitTimeout bounds how long a server may take to accept a call. What the
// call asks for takes its time afterwards.
const submitTimeout = time.Minute

// submit sends a call and returns the future of its result.
func submit[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (*Request[T], error) {
	k := call{method: method, path: path, query: query, id: uuid.NewString()}
	if body != nil {
		var err error
		if k.body, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	id, err := c.submit(ctx, k)
	if err != nil {
		return nil, err
	}
	if id == "" {
		return nil, &StatusError{http.StatusOK, fmt.Sprintf("the API server answered %s without a request id", path)}
	}
	return &Request[T]{c, id}, nil
}

// submit makes a call that is answered with a request's id.
func (c *Client) submit(ctx context.Context, k call) (id string, err error) {
	k.limit = submitTimeout
	err = c.exchange(ctx, k, func(res *http.Response) error {
		id = res.Header.Get(api.HeaderRequestID)
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20)) // so that the connection is used again
		return nil
	})
	return id, err
}

func post[T any](ctx context.Context, c *Client, path string, body any) (*Request[T], error) {
	return submit[T](ctx, c, http.MethodPost, path, nil, body)
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*Request[T], error) {
	return submit[T](ctx, c, http.MethodGet, path, query, nil)
}

// Payload waits until a request (id or prefix) has ended and returns its record.
// Its failure is returned as an error; lost connections are taken up again.
func (c *Client) Payload(ctx context.Context, id string) (*api.RequestPayload, error) {
	var p *api.RequestPayload
	var failed error
	k := call{method: http.MethodGet, path: "/api/get", query: url.Values{"request_id": {id}}, recorded: true}
	err := c.exchange(ctx, k, func(res *http.Response) (err error) {
		p, failed, err = readPayload(res)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, failed
}

// readPayload reads the record of a request that has ended. failed is how the
// request failed; err is that the answer is no record.
func readPayload(res *http.Response) (p *api.RequestPayload, failed, err error) {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, err
	}
	p = new(api.RequestPayload)
	if res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, p); err != nil {
			return nil, nil, fmt.Errorf("the API server's answer to /api/get is not understood: %w", err)
		}
	} else {
		wrapped := struct {
			Detail *api.RequestPayload `json:"detail"`
		}{p}
		if json.Unmarshal(body, &wrapped) != nil || p.RequestID == "" {
			return nil, nil, &StatusError{res.StatusCode, detailText(body, "")}
		}
	}
	if e := decodeError(p.Error); e != nil {
		return p, e, nil
	}
	if p.Status == api.RequestCancelled {
		return p, &api.Error{Type: api.ErrRequestCancelled, Message: fmt.Sprintf("Request %s was cancelled.", p.RequestID)}, nil
	}
	return p, nil, nil
}
