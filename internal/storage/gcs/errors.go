package gcs

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// jsonPath is the path of the bucket in the JSON API, or of an object in it.
func (b *Bucket) jsonPath(key string) string {
	path := "/storage/v1/b/" + url.PathEscape(b.At.Bucket)
	if key != "" {
		path += "/o/" + rest.Escaped(key)
	}
	return path
}

// xmlPath is the same in the XML API.
func (b *Bucket) xmlPath(key string) string {
	path := "/" + url.PathEscape(b.At.Bucket)
	if key != "" {
		path += "/" + rest.Escaped(key)
	}
	return path
}

// words reads those of the JSON API or of the XML API.
func words(r rest.Refusal) rest.Refusal {
	var j struct {
		Error struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	var x struct{ Code, Message, Details string }
	switch {
	case json.Unmarshal(r.Text, &j) == nil:
		r.Message = j.Error.Message
		if len(j.Error.Errors) > 0 {
			r.Code = j.Error.Errors[0].Reason
		}
	case xml.Unmarshal(r.Text, &x) == nil:
		r.Code, r.Message = x.Code, x.Message
		if x.Details != "" {
			r.Message += " " + x.Details
		}
	}
	return r
}

// lacking is how the store says what is missing.
var lacking = lazyregexp.New(`(\S+) does not have (\S+) (?:access|permission)`)

func (b *Bucket) classify(c rest.Call, r rest.Refusal) error {
	r = words(r)
	switch {
	case r.Code == "NoSuchUpload", r.Status == http.StatusNotFound && c.Upload != "" && r.Code != "NoSuchBucket":
		return &storage.NotFoundError{Bucket: b.At, Key: c.Key, Upload: c.Upload, Err: r}
	case r.Status == http.StatusNotFound:
		if c.Key == "" || r.Code == "NoSuchBucket" || strings.Contains(r.Message, "bucket does not exist") {
			return &storage.NotFoundError{Bucket: b.At, Err: r}
		}
		if c.Conditional {
			return &storage.ConflictError{Bucket: b.At, Key: c.Key, Err: r}
		}
		return &storage.NotFoundError{Bucket: b.At, Key: c.Key, Err: r}
	case c.Key == "" && c.Method == http.MethodDelete && (r.Status == http.StatusConflict || r.Status == http.StatusPreconditionFailed):
		return &storage.BucketNotEmptyError{Bucket: b.At, Err: r}
	case r.Status == http.StatusPreconditionFailed, r.Status == http.StatusNotModified:
		return &storage.ConflictError{Bucket: b.At, Key: c.Key, Err: r}
	case r.Status == http.StatusTooManyRequests, r.Code == "rateLimitExceeded", r.Code == "userRateLimitExceeded", r.Code == "SlowDown":
		return &storage.ThrottledError{Bucket: b.At, After: r.After(), Err: r}
	case r.Status == http.StatusUnauthorized:
		if b.tokens == nil {
			return &storage.DeniedError{Bucket: b.At, Key: c.Key, Permission: c.Permission, Account: b.tokens.Account(), Err: r}
		}
		return &storage.CredentialsError{Store: storage.GCS, Err: r, Fix: fix}
	case r.Status == http.StatusForbidden:
		e := &storage.DeniedError{Bucket: b.At, Key: c.Key, Permission: c.Permission, Account: b.tokens.Account(), Err: r}
		if m := lacking.FindStringSubmatch(r.Message); m != nil {
			e.Account, e.Permission = m[1], m[2]
		}
		return e
	case r.Status == http.StatusConflict && c.Key == "" && c.Method == http.MethodPost:
		return &storage.BucketExistsError{Bucket: b.At, Err: r}
	case r.Status == http.StatusNotImplemented:
		return &storage.UnsupportedError{Store: storage.GCS, Op: "do this", Err: r}
	case r.Status >= 500, r.Status == http.StatusRequestTimeout, r.Status < 400, r.Status == http.StatusConflict:
		return &storage.UnavailableError{Bucket: b.At, Err: r}
	case r.Status == http.StatusBadRequest && strings.Contains(r.Message, "doesn't match calculated"), r.Code == "BadDigest", r.Code == "InvalidDigest":
		return &storage.UnavailableError{Bucket: b.At, Err: r} // the content changed on its way
	}
	return &storage.InvalidError{Bucket: b.At, Key: c.Key, Err: r}
}
