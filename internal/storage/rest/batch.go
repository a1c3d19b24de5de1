package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
)

// Batch makes several calls in one request, whose path and query outer has, and gives an
// error for each. Those that the answer does not mention may have been made or not. sign
// puts on the inner ones what they need for themselves; it may be nil.
func (c *Client) Batch(ctx context.Context, outer Call, calls []Call, sign func(*http.Request) error) ([]error, error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i, call := range calls {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/http"}, "Content-Transfer-Encoding": {"binary"}, "Content-Id": {fmt.Sprintf(c.BatchID, i)}})
		if err != nil {
			return nil, err
		}
		path := call.Path
		if len(call.Query) > 0 {
			path += "?" + call.Query.Encode()
		}
		r, err := http.NewRequest(call.Method, c.Endpoint+path, nil)
		if err != nil {
			return nil, &storage.InvalidError{Bucket: c.At, Key: call.Key, Err: err}
		}
		for k, v := range call.Header {
			r.Header[k] = v
		}
		if sign != nil {
			if err := sign(r); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(part, "%s %s HTTP/1.1\r\n", call.Method, r.URL.RequestURI())
		r.Header.Write(part)
		io.WriteString(part, "\r\n")
	}
	w.Close()
	outer = outer.With(body.Bytes())
	outer.Method = http.MethodPost
	outer.Header.Set("Content-Type", "multipart/mixed; boundary="+w.Boundary())
	answer, err := c.Send(ctx, outer)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	errs := make([]error, len(calls))
	for i := range errs {
		errs[i] = &storage.UnavailableError{Bucket: c.At, Err: errors.New("the answer says nothing of it")}
	}
	_, parameters, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		return nil, c.Broken(ctx, err)
	}
	parts := multipart.NewReader(answer.Body, parameters["boundary"])
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return errs, nil
		}
		if err != nil {
			return nil, c.Broken(ctx, fmt.Errorf("reading the answer: %w", err))
		}
		i, err := strconv.Atoi(strings.TrimPrefix(strings.Trim(part.Header.Get("Content-Id"), "<>"), "response-"))
		if err != nil || i < 0 || i >= len(calls) {
			continue
		}
		// The end of the headers may be taken for that of the part.
		one, err := http.ReadResponse(bufio.NewReader(io.MultiReader(part, strings.NewReader("\r\n\r\n"))), nil)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(one.Body, maxWords))
		one.Body.Close()
		if errs[i] = nil; one.StatusCode >= 300 {
			errs[i] = c.Refused(calls[i], Refusal{Status: one.StatusCode, Header: one.Header, Text: text})
		}
	}
}

// Removed makes the error of a Remove: what is not there is gone, and an error that is
// none of an object is that of the whole.
func Removed(ids []storage.ID, errs []error) error {
	failed := &storage.RemoveError{}
	for i, err := range errs {
		if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key != "" || err == nil {
			continue
		}
		if _, credentials := errors.AsType[*storage.CredentialsError](err); credentials {
			return err
		}
		failed.Failed = append(failed.Failed, storage.Failed{ID: ids[i], Err: err})
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}
