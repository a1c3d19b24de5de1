package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

func answer(status int, header map[string]string, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
}

func jsonError(status int, reason, message string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"errors":[{"reason":%q,"message":%q}]}}`, status, message, reason, message)
}

func TestErrorsAreTypes(t *testing.T) {
	at := storage.Location{Store: storage.GCS, Bucket: "b", Region: "us-east-1"}
	u := storage.Upload{Key: "k", ID: "u1"}
	list := func(ctx context.Context, b *Bucket) error { _, err := b.List(ctx, storage.ListOptions{}); return err }
	stat := func(ctx context.Context, b *Bucket) error { _, err := b.Stat(ctx, "k"); return err }
	get := func(ctx context.Context, b *Bucket) error {
		_, err := b.Get(ctx, "k", storage.GetOptions{})
		return err
	}
	put := func(ctx context.Context, b *Bucket) error {
		_, err := b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{})
		return err
	}
	part := func(ctx context.Context, b *Bucket) error {
		_, err := b.PutPart(ctx, u, 1, strings.NewReader("x"))
		return err
	}
	const denied = "me@p.iam.gserviceaccount.com does not have storage.objects.list access to the Google Cloud Storage bucket. Permission 'storage.objects.list' denied on resource (or it may not exist)."
	for _, c := range []struct {
		name   string
		call   func(context.Context, *Bucket) error
		status int
		header map[string]string
		body   string
		want   error
	}{
		{"no bucket", list, 404, nil, jsonError(404, "notFound", "The specified bucket does not exist."), &storage.NotFoundError{Bucket: at}},
		{"no bucket, by a put", put, 404, nil, jsonError(404, "notFound", "The specified bucket does not exist."), &storage.NotFoundError{Bucket: at}},
		{"no bucket, in XML", get, 404, nil, "<?xml version='1.0'?><Error><Code>NoSuchBucket</Code></Error>", &storage.NotFoundError{Bucket: at}},
		{"no object", stat, 404, nil, jsonError(404, "notFound", "No such object: b/k"), &storage.NotFoundError{Bucket: at, Key: "k"}},
		{"no object, in XML", get, 404, nil, "<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>", &storage.NotFoundError{Bucket: at, Key: "k"}},
		{"no upload", part, 404, nil, "<?xml version='1.0'?><Error><Code>NoSuchUpload</Code></Error>", &storage.NotFoundError{Bucket: at, Key: "k", Upload: "u1"}},
		{"denied", list, 403, nil, jsonError(403, "forbidden", denied), &storage.DeniedError{Bucket: at, Permission: "storage.objects.list", Account: "me@p.iam.gserviceaccount.com"}},
		{"denied, without words", put, 403, nil, "", &storage.DeniedError{Bucket: at, Key: "k", Permission: "storage.objects.create", Account: "me@example.com"}},
		{"not let in", list, 401, nil, jsonError(401, "authError", "Invalid Credentials"), &storage.CredentialsError{Store: storage.GCS, Fix: fix}},
		{"a condition", put, 412, nil, jsonError(412, "conditionNotMet", "no"), &storage.ConflictError{Bucket: at, Key: "k"}},
		{"too fast", put, 429, map[string]string{"Retry-After": "3"}, jsonError(429, "rateLimitExceeded", "slow"), &storage.ThrottledError{Bucket: at, After: 3 * time.Second}},
		{"too fast, in another way", put, 403, nil, jsonError(403, "rateLimitExceeded", "slow"), &storage.ThrottledError{Bucket: at}},
		{"trouble", put, 503, nil, "x", &storage.UnavailableError{Bucket: at}},
		{"content that changed on its way", put, 400, nil, jsonError(400, "invalid", "Provided CRC32C \"x\" doesn't match calculated CRC32C \"y\"."), &storage.UnavailableError{Bucket: at}},
		{"not empty", func(ctx context.Context, b *Bucket) error { return b.Delete(ctx) }, 409, nil, jsonError(409, "conflict", "not empty"), &storage.BucketNotEmptyError{Bucket: at}},
		{"a bad range", get, 416, nil, "<?xml version='1.0'?><Error><Code>InvalidRange</Code></Error>", &storage.InvalidError{Bucket: at, Key: "k"}},
		{"a bad request", put, 400, nil, jsonError(400, "invalid", "no"), &storage.InvalidError{Bucket: at, Key: "k"}},
		{"an answer that is none", list, 200, nil, "<html>", &storage.UnavailableError{Bucket: at}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call(t.Context(), open(t, answer(c.status, c.header, c.body), "b"))
			if reflect.TypeOf(err) != reflect.TypeOf(c.want) {
				t.Fatalf("%T %v, want %T", err, err, c.want)
			}
			reflect.ValueOf(err).Elem().FieldByName("Err").SetZero()
			if !reflect.DeepEqual(err, c.want) {
				t.Errorf("%+v, want %+v", err, c.want)
			}
		})
	}
}

// A name that is taken is ours if we may describe the bucket.
func TestWhoseBucketItIs(t *testing.T) {
	taken := func(describe int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && describe == 200 {
				fmt.Fprint(w, `{"location":"US"}`)
				return
			}
			if r.Method == http.MethodGet {
				w.WriteHeader(describe)
				return
			}
			w.WriteHeader(409)
			fmt.Fprint(w, jsonError(409, "conflict", "The requested bucket name is not available."))
		})
	}
	if err := open(t, taken(200), "b").Create(t.Context(), nil); err != nil {
		t.Errorf("our own: %v", err)
	}
	err := open(t, taken(403), "b").Create(t.Context(), nil)
	if _, ok := errors.AsType[*storage.BucketExistsError](err); !ok {
		t.Errorf("somebody else's: %v", err)
	}
}

func TestTokensAreRenewed(t *testing.T) {
	calls, asked := 0, 0
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if r.Header.Get("Authorization") != "Bearer token-2" {
			w.WriteHeader(401)
			return
		}
		if r.ContentLength < 1 {
			t.Error("the second request has no body")
		}
		fmt.Fprint(w, `{"name":"k","size":"1","generation":"5"}`)
	}), "b")
	b.use(func(context.Context) (rest.Token, error) {
		asked++
		return rest.Token{Value: fmt.Sprint("token-", asked)}, nil
	})
	if o, err := b.Put(t.Context(), "k", strings.NewReader("x"), storage.PutOptions{}); err != nil || o.ETag != "5" || calls != 2 || asked != 2 {
		t.Errorf("%+v, %v, %d calls, asked %d times", o, err, calls, asked)
	}
}

// An emulator is not shown the user's own credentials.
func TestEmulators(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:4443")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
	b, err := Open(t.Context(), storage.Location{Store: storage.GCS, Bucket: "b"}, Options{})
	if err != nil || b.Endpoint != "http://127.0.0.1:4443" || b.tokens != nil || b.Location().Region != "us-central1" {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestMissingCredentials(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none"))
	_, err := Open(t.Context(), storage.Location{Store: storage.GCS, Bucket: "b"}, Options{})
	if _, ok := errors.AsType[*storage.CredentialsError](err); !ok || !strings.Contains(err.Error(), "gcloud auth application-default login") {
		t.Errorf("error %v", err)
	}
	if b, err := Open(t.Context(), storage.Location{Store: storage.GCS, Bucket: "b"}, Options{Anonymous: true}); err != nil || b.tokens != nil {
		t.Errorf("without credentials: %v", err)
	}
}
