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
	res, err := c.callAs(ctx, uuid.NewString(), method, path, query, body, submitTimeout)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	id := res.Header.Get(api.HeaderRequestID)
	if res.StatusCode != http.StatusOK || id == "" {
		return nil, &StatusError{res.StatusCode, fmt.Sprintf("the API server answered %s to %s without a request id", res.Status, path)}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20)) // so that the connection is used again
	return &Request[T]{c, id}, nil
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
	var tries attempts
	for {
		p, err := c.payload(ctx, id)
		if err == nil || !tries.again(ctx, err) {
			return p, err
		}
	}
}

func (c *Client) payload(ctx context.Context, id string) (*api.RequestPayload, error) {
	res, err := c.do(ctx, http.MethodGet, "/api/get", url.Values{"request_id": {id}}, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var p api.RequestPayload
	switch res.StatusCode {
	case http.StatusOK:
		if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
			return nil, &ConnectError{c.Endpoint(), err}
		}
	case http.StatusInternalServerError:
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return nil, &ConnectError{c.Endpoint(), err}
		}
		wrapped := struct {
			Detail *api.RequestPayload `json:"detail"`
		}{&p}
		if json.Unmarshal(body, &wrapped) != nil || p.RequestID == "" {
			return nil, &StatusError{res.StatusCode, detailText(body, "")}
		}
	default:
		return nil, answerError(res)
	}
	if e := decodeError(p.Error); e != nil {
		return &p, e
	}
	if p.Status == api.RequestCancelled {
		return &p, &api.Error{Type: api.ErrRequestCancelled, Message: fmt.Sprintf("Request %s was cancelled.", p.RequestID)}
	}
	return &p, nil
}
