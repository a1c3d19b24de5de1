package azure

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

const (
	reader      = "the role Storage Blob Data Reader"
	contributor = "the role Storage Blob Data Contributor"
)

// container is a call about the container itself.
func (b *Bucket) container(method, permission string, query ...string) rest.Call {
	c := rest.Call{Method: method, Path: "/" + url.PathEscape(b.At.Bucket), Query: url.Values{"restype": {"container"}}, Header: http.Header{}, Permission: permission}
	for i := 0; i < len(query); i += 2 {
		c.Query.Set(query[i], query[i+1])
	}
	return c
}

// do makes a request whose answer has nothing to read but its headers.
func (b *Bucket) do(ctx context.Context, c rest.Call) (http.Header, error) {
	answer, err := b.Send(ctx, c)
	if err != nil {
		return nil, err
	}
	answer.Body.Close()
	return answer.Header, nil
}

// Head describes the container. Its region is the account's, which is not said.
func (b *Bucket) Head(ctx context.Context) (storage.BucketInfo, error) {
	_, err := b.do(ctx, b.container(http.MethodGet, reader))
	return storage.BucketInfo{}, err
}

// Create makes the container. Names belong to the account, so that one that is there is
// the caller's own.
func (b *Bucket) Create(ctx context.Context, tags map[string]string) error {
	c := b.container(http.MethodPut, contributor)
	setMetadata(c.Header, tags)
	_, err := b.do(ctx, c)
	if invalid, ok := errors.AsType[*storage.InvalidError](err); ok {
		if r, ok := invalid.Err.(rest.Refusal); ok && r.Code == "ContainerAlreadyExists" {
			have, err := b.Tags(ctx)
			if err != nil || len(have) > 0 || len(tags) == 0 {
				return err
			}
			return b.SetTags(ctx, tags)
		}
	}
	return err
}

// Delete deletes the container. The store would delete all that is in it, too.
func (b *Bucket) Delete(ctx context.Context) error {
	page, err := b.Versions(ctx, storage.ListOptions{Max: 1})
	if err == nil && len(page.Objects) > 0 {
		return &storage.BucketNotEmptyError{Bucket: b.At}
	}
	if err == nil {
		_, err = b.do(ctx, b.container(http.MethodDelete, contributor))
	}
	if _, gone := errors.AsType[*storage.NotFoundError](err); gone {
		return nil
	}
	return err
}

// Tags are the container's metadata.
func (b *Bucket) Tags(ctx context.Context) (map[string]string, error) {
	h, err := b.do(ctx, b.container(http.MethodGet, reader, "comp", "metadata"))
	if err != nil {
		return nil, err
	}
	return metadataOf(h), nil
}

// SetTags replaces them.
func (b *Bucket) SetTags(ctx context.Context, tags map[string]string) error {
	c := b.container(http.MethodPut, contributor, "comp", "metadata")
	setMetadata(c.Header, tags)
	_, err := b.do(ctx, c)
	return err
}

// Names of metadata are identifiers here: what is none of a letter, a digit or "_" is
// written as "_" and two hexadecimal digits, and so is a digit at the beginning.

const hexDigits = "0123456789abcdef"

func identifier(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_' && !hexFollows(name[i+1:]), c >= '0' && c <= '9' && i > 0:
			b.WriteByte(c)
		default:
			b.WriteByte('_')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// hexFollows reports whether "_" before the text would be read as the start of a byte.
func hexFollows(text string) bool {
	return len(text) >= 2 && strings.IndexByte(hexDigits, text[0]) >= 0 && strings.IndexByte(hexDigits, text[1]) >= 0
}

func plainName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '_' && hexFollows(name[i+1:]) {
			b.WriteByte(byte(strings.IndexByte(hexDigits, name[i+1])<<4 | strings.IndexByte(hexDigits, name[i+2])))
			i += 2
			continue
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

func setMetadata(h http.Header, m map[string]string) {
	for k, v := range m {
		h.Set("X-Ms-Meta-"+identifier(k), v)
	}
}

func metadataOf(h http.Header) map[string]string {
	m := map[string]string{}
	for k, v := range rest.Metadata(h, "x-ms-meta-") {
		m[plainName(k)] = v
	}
	return m
}

func parseTime(text string) time.Time {
	t, _ := http.ParseTime(text)
	return t
}
