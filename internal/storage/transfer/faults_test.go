package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
	"github.com/skypilot-go/sky/internal/storage/s3"
	"github.com/skypilot-go/sky/internal/storage/storetest"
)

// reach is a bucket behind a server of S3.
func reach(t *testing.T, server http.Handler, name string, keys func(context.Context) (s3.Keys, error)) storage.Bucket {
	t.Helper()
	s := httptest.NewUnstartedServer(server)
	s.Config.ErrorLog = nil
	s.Start()
	t.Cleanup(s.Close)
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	if keys == nil {
		keys = func(context.Context) (s3.Keys, error) { return s3.Keys{AccessKey: "k", SecretKey: "s"}, nil }
	}
	b, err := s3.Open(t.Context(), storage.Location{Store: storage.S3, Bucket: name}, s3.Options{Endpoint: s.URL, Transport: transport, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return smallParts{b}
}

// smallParts is a store that takes parts of any size.
type smallParts struct{ storage.Bucket }

func (s smallParts) Unwrap() storage.Bucket { return s.Bucket }

func (s smallParts) Caps() storage.Caps {
	c := s.Bucket.Caps()
	c.MinPart = 0
	return c
}

// soon retries without much waiting.
var soon = storage.Retries{First: time.Millisecond, Max: 5 * time.Millisecond, Attempts: 20}

// Every sixth request goes wrong, in all ways that pass.
func TestThroughFaults(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			store := &memory.Store{}
			plain, other := newBucket(t, store, "b"), newBucket(t, store, "c")
			faults := storetest.NewFaults(seed, 16, store.ServeS3("k"))
			b, c := reach(t, faults, "b", nil), reach(t, faults, "c", nil)
			dir, dst, want := t.TempDir(), t.TempDir(), someTree()
			for i := range 30 {
				want[fmt.Sprintf("many/%d", i)] = content(i*37, uint64(i))
			}
			want["huge"] = content(40<<10+1, 9)
			write(t, dir, want)
			o := Options{Retries: soon, Journal: filepath.Join(t.TempDir(), "journal")}
			if r, err := Upload(t.Context(), source(t, dir), b, "p", o); err != nil || r.Files != int64(len(want)) {
				t.Fatalf("upload: %+v, %v", r, err)
			}
			wantFiles(t, "bucket", objects(t, plain), under("p/", want))
			if _, r, err := Download(t.Context(), b, "p", dst, o); err != nil || r.Files != int64(len(want)) {
				t.Fatalf("download: %+v, %v", r, err)
			}
			wantFiles(t, "downloaded", files(t, dst), want)
			// Two connections with one key are not known to be of one store.
			if r, err := Copy(t.Context(), b, "p", c, "", o); err != nil || r.Files != int64(len(want)) {
				t.Fatalf("copy: %+v, %v", r, err)
			}
			wantFiles(t, "copied", objects(t, other), want)
			if r, err := Delete(t.Context(), b, "p", o); err != nil {
				t.Fatalf("delete: %+v, %v", r, err)
			}
			wantFiles(t, "after deletion", objects(t, plain), nil)
			count := faults.Count()
			for f := storetest.Refused; f < storetest.Denied; f++ {
				if count[f] == 0 {
					t.Errorf("fault %d did not occur: %v", f, count)
				}
			}
		})
	}
}

// The answers to all puts and completions are lost the first time.
func TestLostAnswers(t *testing.T) {
	store := &memory.Store{}
	plain := newBucket(t, store, "b")
	lost := map[string]bool{}
	faults := storetest.NewFaults(1, 0, store.ServeS3("k"))
	faults.Pick = func(r *http.Request) storetest.Fault {
		if id := r.Method + r.URL.RequestURI(); (r.Method == http.MethodPut || r.Method == http.MethodPost) && !r.URL.Query().Has("uploads") && !lost[id] {
			lost[id] = true
			return storetest.Lost
		}
		return storetest.None
	}
	dir := t.TempDir()
	write(t, dir, someTree())
	if _, err := Upload(t.Context(), source(t, dir), reach(t, faults, "b", nil), "", Options{Retries: soon}); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, "bucket", objects(t, plain), someTree())
	if n := uploadsLeft(t, plain); n > 0 {
		t.Errorf("%d uploads are left", n)
	}
	if len(lost) < len(someTree()) {
		t.Errorf("%d answers were lost", len(lost))
	}
}

// What was allowed is not any more, in the middle of a large file; later it is again.
func TestDeniedMidway(t *testing.T) {
	store := &memory.Store{}
	plain := newBucket(t, store, "b")
	var parts, from atomic.Int64
	from.Store(5)
	faults := storetest.NewFaults(1, 0, store.ServeS3("k"))
	faults.Pick = func(r *http.Request) storetest.Fault {
		if r.URL.Query().Has("partNumber") && parts.Add(1) > from.Load() {
			return storetest.Denied
		}
		return storetest.None
	}
	b := reach(t, faults, "b", nil)
	dir, journal := t.TempDir(), filepath.Join(t.TempDir(), "journal")
	write(t, dir, map[string]string{"large": content(20<<10, 1)})
	o := Options{Retries: soon, Journal: journal, Workers: 1}
	_, err := Upload(t.Context(), source(t, dir), b, "", o)
	denied, ok := errors.AsType[*storage.DeniedError](err)
	if !ok || denied.Permission != "s3:PutObject" || denied.Key != "large" || !strings.Contains(err.Error(), `"large"`) {
		t.Fatalf("error %v", err)
	}
	wantFiles(t, "bucket", objects(t, plain), nil)
	from.Store(1000)
	parts.Store(0)
	if r, err := Upload(t.Context(), source(t, dir), b, "", o); err != nil || r.Files != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	wantFiles(t, "bucket", objects(t, plain), files(t, dir))
	if got := parts.Load(); got != 15 {
		t.Errorf("%d parts the second time, want the 15 that were missing", got)
	}
	if _, err := os.Stat(journal); err == nil {
		t.Error("the journal is left")
	}
}

// Tokens run out every few requests.
func TestTokensRunOut(t *testing.T) {
	store := &memory.Store{}
	plain := newBucket(t, store, "b")
	server := store.ServeS3("k")
	var requests, epoch atomic.Int64
	expiring := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%7 == 0 {
			epoch.Add(1)
		}
		if r.Header.Get("X-Amz-Security-Token") != fmt.Sprint("token", epoch.Load()) {
			w.WriteHeader(http.StatusBadRequest)
			if r.Method != http.MethodHead {
				fmt.Fprint(w, "<Error><Code>ExpiredToken</Code></Error>")
			}
			return
		}
		server.ServeHTTP(w, r)
	})
	b := reach(t, expiring, "b", func(context.Context) (s3.Keys, error) {
		return s3.Keys{AccessKey: "k", SecretKey: "s", SessionToken: fmt.Sprint("token", epoch.Load())}, nil
	})
	dir := t.TempDir()
	write(t, dir, someTree())
	if _, err := Upload(t.Context(), source(t, dir), b, "", Options{Retries: soon, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, "bucket", objects(t, plain), someTree())
	if epoch.Load() < 3 {
		t.Errorf("tokens ran out %d times", epoch.Load())
	}
}

// A store that is away is an error that says so, and nothing is half done.
func TestAStoreThatIsAway(t *testing.T) {
	store := &memory.Store{}
	newBucket(t, store, "b")
	faults := storetest.NewFaults(1, 100, store.ServeS3("k"))
	faults.Pick = func(*http.Request) storetest.Fault { return storetest.Trouble }
	b := reach(t, faults, "b", nil)
	dir := t.TempDir()
	write(t, dir, someTree())
	few := storage.Retries{First: time.Millisecond, Max: time.Millisecond, Attempts: 3}
	_, err := Upload(t.Context(), source(t, dir), b, "", Options{Retries: few})
	if _, ok := errors.AsType[*storage.UnavailableError](err); !ok {
		t.Errorf("upload: %v", err)
	}
	if _, ok := errors.AsType[*FilesError](err); ok {
		t.Errorf("all files were tried: %v", err)
	}
	dst := t.TempDir()
	if _, _, err = Download(t.Context(), b, "", dst, Options{Retries: few}); !storage.Temporary(err) {
		t.Errorf("download: %v", err)
	}
	if got := files(t, dst); len(got) > 0 {
		t.Errorf("left %q", slices.Collect(maps.Keys(got)))
	}
}
