package granted

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
	"github.com/skypilot-go/sky/internal/storage/stores"
)

// Credentials that the store does not take any more are replaced by newer ones while the
// bucket is used.
func TestRenew(t *testing.T) {
	s := &memory.Store{}
	answer := s.ServeS3("ID")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Security-Token") != "new" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "<Error><Code>ExpiredToken</Code></Error>")
			return
		}
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	if err := s.Bucket("data").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	g := storage.GrantTo(storage.Location{Store: storage.S3, Bucket: "data", Region: "us-east-1"}, srv.URL)
	g.AccessKey, g.SecretKey, g.SessionToken = "ID", "hush-hush", "old"
	h := Hold(g)
	b, err := Open(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	list := func() error { _, err := b.List(t.Context(), storage.ListOptions{}); return err }
	if err := list(); !isCredentials(err) {
		t.Fatalf("with old ones: %v", err)
	}
	g.SessionToken = "new"
	h.Renew(g)
	if err := list(); err != nil {
		t.Errorf("with new ones: %v", err)
	}
}

func isCredentials(err error) bool {
	_, ok := errors.AsType[*storage.CredentialsError](err)
	return ok
}

// A grant opens what the bucket that it is of opens, on a machine without any files.
func TestGrantsOfEveryStore(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "ID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "one-of-the-keys")
	t.Setenv("HF_TOKEN", "token-of-the-hub")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acct1;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:1/acct1")
	for url, secret := range map[string]string{
		"s3://data": "one-of-the-keys", "hf://me/model@v1": "token-of-the-hub", "https://acct1.blob.core.windows.net/data": "c2VjcmV0", "gs://data": "",
	} {
		at, err := storage.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		from, err := stores.Open(t.Context(), at, stores.Options{Endpoint: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		g, err := from.(storage.Granter).Grant(t.Context())
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		wire, err := json.Marshal(g)
		if err != nil || !strings.Contains(string(wire), secret) || !strings.Contains(string(wire), "127.0.0.1:1") {
			t.Errorf("%s: %s, %v", url, wire, err)
		}
		if g.Expires != (time.Time{}) || secret != "" && (!g.Lasting || g.Whose == "") {
			t.Errorf("%s: %+v", url, g)
		}
		var read storage.Grant
		if err := json.Unmarshal(wire, &read); err != nil || read != g {
			t.Errorf("%s: not the same after the way: %v", url, err)
		}
		b, err := Open(t.Context(), Hold(read), nil)
		if err != nil || b.Location() != from.Location() {
			t.Errorf("%s: %v, %v", url, b, err)
		}
		// What is printed or logged has no secret.
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "grant", g)
		for _, text := range []string{fmt.Sprint(g), fmt.Sprintf("%+v", g), fmt.Sprintf("%#v", g), log.String()} {
			if secret != "" && strings.Contains(text, secret) {
				t.Errorf("%s: %s", url, text)
			}
		}
	}
}

func TestForget(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://elsewhere")
	t.Setenv("HF_TOKEN", "x")
	t.Setenv("HOME_OF_MINE", "kept")
	Forget()
	for name, want := range map[string]bool{"AWS_ENDPOINT_URL": false, "HF_TOKEN": false, "HOME_OF_MINE": true} {
		if _, got := os.LookupEnv(name); got != want {
			t.Errorf("%s is there: %v", name, got)
		}
	}
}
