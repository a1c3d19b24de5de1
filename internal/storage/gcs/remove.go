package gcs

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
	"net/url"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Remove deletes objects: one by its own request, more by one of the batch API.
func (b *Bucket) Remove(ctx context.Context, ids []storage.ID) error {
	if len(ids) > b.Caps().MaxRemove {
		return &storage.InvalidError{Bucket: b.At, Err: fmt.Errorf("%d objects are deleted at once, at most %d can be", len(ids), b.Caps().MaxRemove)}
	}
	failed := &storage.RemoveError{}
	if len(ids) == 1 {
		c := b.deletion(ids[0])
		if err := b.gone(b.JSON(ctx, c, nil, nil)); err != nil {
			if temporaryOrWhole(ctx, err) {
				return err
			}
			failed.Failed = append(failed.Failed, storage.Failed{ID: ids[0], Err: err})
		}
	} else if len(ids) > 1 {
		errs, err := b.batch(ctx, ids)
		if err != nil {
			return err
		}
		for i, err := range errs {
			if err := b.gone(err); err != nil {
				failed.Failed = append(failed.Failed, storage.Failed{ID: ids[i], Err: err})
			}
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

// temporaryOrWhole tells whether an error is none of the object.
func temporaryOrWhole(ctx context.Context, err error) bool {
	if ctx.Err() != nil || storage.Temporary(err) {
		return true
	}
	_, credentials := errors.AsType[*storage.CredentialsError](err)
	return credentials
}

// gone takes an object that is not there for deleted.
func (b *Bucket) gone(err error) error {
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key != "" {
		return nil
	}
	return err
}

func (b *Bucket) deletion(id storage.ID) rest.Call {
	c := rest.Call{Method: http.MethodDelete, Path: b.jsonPath(id.Key), Key: id.Key, Permission: "storage.objects.delete"}
	if id.Version != "" {
		c.Query = url.Values{"generation": {id.Version}}
	}
	return c
}

// batch deletes several objects and gives an error for each. Those that the answer does
// not mention may be there or not.
func (b *Bucket) batch(ctx context.Context, ids []storage.ID) ([]error, error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i, id := range ids {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/http"}, "Content-Id": {fmt.Sprintf("<%d>", i)}})
		if err != nil {
			return nil, err
		}
		c := b.deletion(id)
		path := c.Path
		if len(c.Query) > 0 {
			path += "?" + c.Query.Encode()
		}
		fmt.Fprintf(part, "%s %s HTTP/1.1\r\n\r\n", c.Method, path)
	}
	w.Close()
	answer, err := b.Send(ctx, rest.Call{
		Method: http.MethodPost, Path: "/batch/storage/v1", Length: int64(body.Len()), Permission: "storage.objects.delete",
		Header: http.Header{"Content-Type": {"multipart/mixed; boundary=" + w.Boundary()}},
		Body:   func() io.Reader { return bytes.NewReader(body.Bytes()) },
	})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	errs := make([]error, len(ids))
	for i := range errs {
		errs[i] = &storage.UnavailableError{Bucket: b.At, Err: errors.New("the answer says nothing of it")}
	}
	_, parameters, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		return nil, b.Broken(ctx, err)
	}
	parts := multipart.NewReader(answer.Body, parameters["boundary"])
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return errs, nil
		}
		if err != nil {
			return nil, b.Broken(ctx, fmt.Errorf("reading the answer: %w", err))
		}
		i, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(strings.Trim(part.Header.Get("Content-Id"), "<>"), "response-"), "<>"))
		if err != nil || i < 0 || i >= len(ids) {
			continue
		}
		one, err := http.ReadResponse(bufio.NewReader(part), nil)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(one.Body, 64<<10))
		one.Body.Close()
		if errs[i] = nil; one.StatusCode >= 300 {
			errs[i] = b.classify(b.deletion(ids[i]), rest.Refusal{Status: one.StatusCode, Header: one.Header, Text: text})
		}
	}
}
