package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// fixedOptions reach a server in this process.
func fixedOptions(endpoint string) Options {
	return Options{Endpoint: endpoint, Keys: func(context.Context) (Keys, error) {
		return Keys{AccessKey: "AKIAEXAMPLE", SecretKey: "secret-of-sky", Account: "123456789012"}, nil
	}}
}

func open(t *testing.T, at storage.Location, o Options) *Bucket {
	t.Helper()
	if o.Transport == nil {
		transport := storage.NewTransport()
		t.Cleanup(transport.CloseIdleConnections)
		o.Transport = transport
	}
	b, err := Open(t.Context(), at, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// answer is a server that says one thing.
func answer(t *testing.T, status int, header map[string]string, code, message string) *Bucket {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead && code != "" {
			fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
		}
	}))
	t.Cleanup(server.Close)
	return open(t, storage.Location{Store: storage.S3, Bucket: "b"}, fixedOptions(server.URL))
}

func TestErrorsAreTypes(t *testing.T) {
	at := storage.Location{Store: storage.S3, Bucket: "b", Region: "us-east-1"}
	u := storage.Upload{Key: "k", ID: "u1"}
	stat := func(ctx context.Context, b *Bucket) error { _, err := b.Stat(ctx, "k"); return err }
	get := func(ctx context.Context, b *Bucket) error {
		_, err := b.Get(ctx, "k", storage.GetOptions{})
		return err
	}
	head := func(ctx context.Context, b *Bucket) error { _, err := b.Head(ctx); return err }
	list := func(ctx context.Context, b *Bucket) error { _, err := b.List(ctx, storage.ListOptions{}); return err }
	create := func(ctx context.Context, b *Bucket) error { return b.Create(ctx, nil) }
	put := func(ctx context.Context, b *Bucket) error {
		_, err := b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{})
		return err
	}
	putIf := func(ctx context.Context, b *Bucket) error {
		_, err := b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{IfMatch: "e"})
		return err
	}
	part := func(ctx context.Context, b *Bucket) error {
		_, err := b.PutPart(ctx, u, 1, strings.NewReader("x"))
		return err
	}
	complete := func(ctx context.Context, b *Bucket) error {
		_, err := b.Complete(ctx, u, []storage.Part{{Number: 1, ETag: "e"}}, storage.PutOptions{})
		return err
	}
	account := "account 123456789012"
	for _, c := range []struct {
		name    string
		call    func(context.Context, *Bucket) error
		status  int
		header  map[string]string
		code    string
		message string
		want    error
	}{
		{"no bucket, by a list", list, 404, nil, "NoSuchBucket", "", &storage.NotFoundError{Bucket: at}},
		{"no bucket, by HEAD", head, 404, nil, "", "", &storage.NotFoundError{Bucket: at}},
		{"no bucket, by a put", put, 404, nil, "NoSuchBucket", "", &storage.NotFoundError{Bucket: at}},
		{"no object", get, 404, nil, "NoSuchKey", "", &storage.NotFoundError{Bucket: at, Key: "k"}},
		{"no object, by HEAD", stat, 404, nil, "", "", &storage.NotFoundError{Bucket: at, Key: "k"}},
		{"a deleted object", get, 405, map[string]string{"X-Amz-Delete-Marker": "true"}, "MethodNotAllowed", "", &storage.NotFoundError{Bucket: at, Key: "k"}},
		{"no upload", part, 404, nil, "NoSuchUpload", "", &storage.NotFoundError{Bucket: at, Key: "k", Upload: "u1"}},
		{"no upload to complete", complete, 404, nil, "NoSuchUpload", "", &storage.NotFoundError{Bucket: at, Key: "k", Upload: "u1"}},
		{"denied", put, 403, nil, "AccessDenied", "Access Denied", &storage.DeniedError{Bucket: at, Key: "k", Permission: "s3:PutObject", Account: account}},
		{"denied, in AWS's words", list, 403, nil, "AccessDenied", "User: arn:aws:iam::1:user/me is not authorized to perform: s3:ListBucket on resource: x", &storage.DeniedError{Bucket: at, Permission: "s3:ListBucket", Account: "arn:aws:iam::1:user/me"}},
		{"denied, by HEAD", head, 403, nil, "", "", &storage.DeniedError{Bucket: at, Permission: "s3:ListBucket", Account: account}},
		{"another region", list, 301, map[string]string{"X-Amz-Bucket-Region": "eu-west-1"}, "PermanentRedirect", "", &storage.WrongRegionError{Bucket: at, Region: "eu-west-1"}},
		{"another region, by HEAD", head, 301, map[string]string{"X-Amz-Bucket-Region": "eu-west-1"}, "", "", &storage.WrongRegionError{Bucket: at, Region: "eu-west-1"}},
		{"another region, by HEAD without words", head, 400, map[string]string{"X-Amz-Bucket-Region": "eu-west-1"}, "", "", &storage.WrongRegionError{Bucket: at, Region: "eu-west-1"}},
		{"another region, by the signature", list, 400, nil, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'ap-east-1'", &storage.WrongRegionError{Bucket: at, Region: "ap-east-1"}},
		{"another region, by creation", create, 400, nil, "IllegalLocationConstraintException", "", &storage.WrongRegionError{Bucket: at}},
		{"the name is taken", create, 409, nil, "BucketAlreadyExists", "", &storage.BucketExistsError{Bucket: at}},
		{"it is ours", create, 409, nil, "BucketAlreadyOwnedByYou", "", nil},
		{"not empty", func(ctx context.Context, b *Bucket) error { return b.Delete(ctx) }, 409, nil, "BucketNotEmpty", "", &storage.BucketNotEmptyError{Bucket: at}},
		{"deleted before", func(ctx context.Context, b *Bucket) error { return b.Delete(ctx) }, 404, nil, "NoSuchBucket", "", nil},
		{"aborted before", func(ctx context.Context, b *Bucket) error { return b.Abort(ctx, u) }, 404, nil, "NoSuchUpload", "", nil},
		{"a condition", putIf, 412, nil, "PreconditionFailed", "", &storage.ConflictError{Bucket: at, Key: "k"}},
		{"a condition on what is gone", putIf, 404, nil, "NoSuchKey", "", &storage.ConflictError{Bucket: at, Key: "k"}},
		{"two at once", putIf, 409, nil, "ConditionalRequestConflict", "", &storage.UnavailableError{Bucket: at}},
		{"too fast", put, 503, nil, "SlowDown", "", &storage.ThrottledError{Bucket: at}},
		{"too fast, with a time", put, 429, map[string]string{"Retry-After": "7"}, "TooManyRequests", "", &storage.ThrottledError{Bucket: at, After: 7 * time.Second}},
		{"too fast, by HEAD", stat, 429, nil, "", "", &storage.ThrottledError{Bucket: at}},
		{"trouble", put, 500, nil, "InternalError", "", &storage.UnavailableError{Bucket: at}},
		{"trouble without words", put, 502, nil, "", "", &storage.UnavailableError{Bucket: at}},
		{"trouble of HEAD", stat, 503, nil, "", "", &storage.UnavailableError{Bucket: at}},
		{"a slow body", put, 400, nil, "RequestTimeout", "", &storage.UnavailableError{Bucket: at}},
		{"bytes that changed on the way", put, 400, nil, "BadDigest", "", &storage.UnavailableError{Bucket: at}},
		{"trouble inside a success", complete, 200, nil, "InternalError", "", &storage.UnavailableError{Bucket: at}},
		{"no such call", list, 501, nil, "NotImplemented", "", &storage.UnsupportedError{Store: storage.S3, Op: "do this"}},
		{"unknown keys", list, 403, nil, "InvalidAccessKeyId", "", &storage.CredentialsError{Store: storage.S3, Fix: family[0].fix}},
		{"a wrong secret", list, 403, nil, "SignatureDoesNotMatch", "", &storage.CredentialsError{Store: storage.S3, Fix: family[0].fix}},
		{"a wrong secret, by HEAD", head, 403, nil, "SignatureDoesNotMatch", "", &storage.CredentialsError{Store: storage.S3, Fix: family[0].fix}},
		{"denied, by HEAD, in AWS's words", head, 403, nil, "AccessDenied", "User: arn:aws:iam::1:user/me is not authorized to perform: s3:ListBucket on resource: x", &storage.DeniedError{Bucket: at, Permission: "s3:ListBucket", Account: "arn:aws:iam::1:user/me"}},
		{"a wrong clock", list, 403, nil, "RequestTimeTooSkewed", "", &storage.CredentialsError{Store: storage.S3, Fix: "set the clock of this machine"}},
		{"a bad range", get, 416, nil, "InvalidRange", "", &storage.InvalidError{Bucket: at, Key: "k"}},
		{"a bad key", put, 400, nil, "KeyTooLongError", "", &storage.InvalidError{Bucket: at, Key: "k"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call(t.Context(), answer(t, c.status, c.header, c.code, c.message))
			if c.want == nil {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			if reflect.TypeOf(err) != reflect.TypeOf(c.want) {
				t.Fatalf("%T %v, want %T", err, err, c.want)
			}
			if c.message != "" && !strings.Contains(fmt.Sprint(errors.Unwrap(err)), c.message) {
				t.Errorf("%v does not hold the store's words %q", errors.Unwrap(err), c.message)
			}
			cause := reflect.ValueOf(err).Elem().FieldByName("Err")
			cause.SetZero()
			if !reflect.DeepEqual(err, c.want) {
				t.Errorf("%+v, want %+v", err, c.want)
			}
			if strings.Contains(err.Error(), "secret-of-sky") {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
}

func TestTroubleWithTheConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("uploadId") { // an error whose words do not come through
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "<Error><Code>NoSuch")
			http.NewResponseController(w).Flush()
		}
		if r.URL.Path == "/b/cut" { // half of what was promised
			w.Header().Set("Content-Length", "1000")
			w.Write(make([]byte, 500))
			http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}))
	b := open(t, storage.Location{Store: storage.S3, Bucket: "b"}, fixedOptions(server.URL))
	_, err := b.Stat(t.Context(), "k")
	if _, ok := errors.AsType[*storage.UnavailableError](err); !ok || !storage.Temporary(err) {
		t.Errorf("a connection that ends: %T %v", err, err)
	}
	_, err = b.Complete(t.Context(), storage.Upload{Key: "k", ID: "u"}, []storage.Part{{Number: 1}}, storage.PutOptions{})
	if _, ok := errors.AsType[*storage.UnavailableError](err); !ok {
		t.Errorf("an error that breaks off: %T %v", err, err)
	}
	r, err := b.Get(t.Context(), "cut", storage.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for err == nil {
		var m int
		m, err = r.Read(make([]byte, 64))
		n += m
	}
	if _, ok := errors.AsType[*storage.UnavailableError](err); !ok || n != 500 {
		t.Errorf("content that ends early: %d bytes, %T %v", n, err, err)
	}
	r.Close()
	server.Close()
	_, err = b.Head(t.Context())
	if !storage.Temporary(err) {
		t.Errorf("nobody listens: %T %v", err, err)
	}
}

// A part of an object that is not the one that was asked for is no answer.
func TestWrongRanges(t *testing.T) {
	for _, given := range []string{"", "bytes 0-9/100", "bytes 10-18/100", "bytes */100"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", given)
			w.WriteHeader(http.StatusPartialContent)
			w.Write(make([]byte, 10))
		}))
		t.Cleanup(server.Close)
		b := open(t, storage.Location{Store: storage.S3, Bucket: "b"}, fixedOptions(server.URL))
		if _, err := b.Get(t.Context(), "k", storage.GetOptions{Offset: 10, Length: 10}); !storage.Temporary(err) {
			t.Errorf("%q: %v", given, err)
		}
	}
}

// Keys that run out while something goes on are renewed, and the call is made
// again with its whole body.
func TestKeysThatRunOut(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Header.Get("X-Amz-Security-Token") != "token-2" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "<Error><Code>ExpiredToken</Code></Error>")
			return
		}
		if r.ContentLength != 7 {
			t.Errorf("the second request has %d bytes", r.ContentLength)
		}
		w.Header().Set("ETag", `"e"`)
	}))
	t.Cleanup(server.Close)
	asked := 0
	b := open(t, storage.Location{Store: storage.S3, Bucket: "b"}, Options{Endpoint: server.URL, Keys: func(context.Context) (Keys, error) {
		asked++
		return Keys{AccessKey: "AKIAEXAMPLE", SecretKey: "secret", SessionToken: fmt.Sprint("token-", asked)}, nil
	}})
	if _, err := b.Put(t.Context(), "k", strings.NewReader("content"), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if asked != 2 || calls.Load() != 2 {
		t.Errorf("asked for keys %d times, called %d times; want 2 and 2", asked, calls.Load())
	}
	// Keys that stay wrong are an error after a few renewals.
	asked = 10
	b.keys.renew("token-2")
	_, err := b.List(t.Context(), storage.ListOptions{})
	if _, ok := errors.AsType[*storage.CredentialsError](err); !ok || asked != 11+rest.Renewals {
		t.Errorf("keys that stay wrong: %v, asked %d times, want %d", err, asked-10, 1+rest.Renewals)
	}
	// The answer to HEAD does not say why.
	if _, err = b.Stat(t.Context(), "k"); err == nil || asked != 11+2*rest.Renewals {
		t.Errorf("keys that stay wrong, by HEAD: %v, asked %d times in all, want %d", err, asked-10, 1+2*rest.Renewals)
	}
}

// A late refusal of keys that have run out does not cost those that another call has
// renewed meanwhile.
func TestKeysAreRenewedOnce(t *testing.T) {
	asked := 0
	r := newKeys(&family[0], func(context.Context) (Keys, error) {
		asked++
		return Keys{AccessKey: "a", SecretKey: "s", SessionToken: fmt.Sprint("token-", asked)}, nil
	})
	for range 10 {
		if _, err := r.Retrieve(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !r.renew("token-1") {
			t.Error("the keys do not run out")
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
}

func TestKeysAreRenewedBeforeTheyEnd(t *testing.T) {
	asked := 0
	r := newKeys(&family[0], func(context.Context) (Keys, error) {
		asked++
		return Keys{AccessKey: "a", SecretKey: "s", Expires: time.Now().Add(early / 2)}, nil
	})
	for range 3 {
		if _, err := r.Retrieve(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 {
		t.Errorf("keys that end within a minute were asked for %d times, want each time", asked)
	}
	r.keys.Expires = time.Now().Add(time.Hour)
	if _, err := r.Retrieve(t.Context()); err != nil || asked != 3 {
		t.Errorf("keys that last were asked for again: %v", err)
	}
}
