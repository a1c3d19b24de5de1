package buckets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// bed is a manager with a store of its own.
type bed struct {
	*Manager
	t     *testing.T
	s3    *memory.Store
	call  cluster.Call
	out   *output
	files string
}

type output struct {
	bytes.Buffer
	far []api.TransferProgress
}

func (o *output) Progress(p api.TransferProgress) { o.far = append(o.far, p) }

func (*output) Spin(string) {}
func (*output) StopSpin()   {}

func newBed(t *testing.T) *bed {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_ACCESS_KEY_ID", "ID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
	s3 := &memory.Store{}
	srv := httptest.NewServer(s3.ServeS3("ID"))
	t.Cleanup(srv.Close)
	store, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	b := &bed{t: t, s3: s3, out: &output{}, files: t.TempDir()}
	b.Manager = New(Deps{Store: store, ServerID: "s1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Config: settings(t, map[string]any{"storage": map[string]any{"endpoints": map[string]any{"s3": srv.URL}}})})
	if err := os.WriteFile(filepath.Join(b.files, "a"), []byte("A"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.call = cluster.Call{RequestID: "r1", User: state.User{ID: "u1", Name: "ann"}, Out: b.out, Files: upload.OwnMachine(), Command: "sky launch"}
	return b
}

// with is a task that puts the files into a bucket.
func (b *bed) with(name string, change ...func(*task.StorageMount)) *task.Task {
	m := task.StorageMount{Name: name, Sources: []string{b.files}, Store: "S3", Mode: "COPY", Persistent: true}
	for _, f := range change {
		f(&m)
	}
	return &task.Task{StorageMounts: map[string]task.StorageMount{"~/x": m}}
}

func (b *bed) prepare(t *task.Task) error {
	return b.Prepare(b.t.Context(), b.call, t, state.Holder{Kind: state.HeldByRequest, ID: b.call.RequestID})
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) has(bucket string) bool {
	_, err := b.s3.Bucket(bucket).Head(b.t.Context())
	return err == nil
}

func (b *bed) record(name string) *state.Bucket {
	b.t.Helper()
	rec, err := b.Store.Buckets().Get(b.t.Context(), name)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	b.must(err)
	return rec
}

func kind(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Type
	}
	return fmt.Sprint(err)
}

func temporary(m *task.StorageMount) { m.Persistent = false }

func TestABucketIsMadeFilledAndDeleted(t *testing.T) {
	b := newBed(t)
	b.must(b.Check(t.Context(), b.call, b.with("mine-1"), true))
	if b.has("mine-1") || !strings.Contains(b.out.String(), "is made in us-east-1") {
		t.Errorf("a look has made something, or says nothing: %s", b.out)
	}
	b.must(b.prepare(b.with("mine-1")))
	rec := b.record("mine-1")
	tags, err := b.s3.Bucket("mine-1").Tags(t.Context())
	if err != nil || rec.Status != api.StorageReady || !rec.Managed || tags[storage.MarkerTag] != rec.Hash {
		t.Errorf("%+v, %v, %v", rec, tags, err)
	}
	if _, err := b.s3.Bucket("mine-1").Stat(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	// It stays, although nobody needs it.
	b.must(b.Settle(t.Context()))
	if !b.has("mine-1") {
		t.Error("a bucket that is to stay was deleted")
	}
	// Another store, another workspace.
	if err := b.prepare(b.with("mine-1", func(m *task.StorageMount) { m.Store = "R2" })); kind(err) != api.ErrStorageCreate {
		t.Errorf("another store: %v", err)
	}
	b.call.Scope = &state.Scope{Workspaces: []string{"other"}}
	if err := b.Delete(t.Context(), b.call, "mine-1"); kind(err) != api.ErrValue {
		t.Errorf("deleted from another workspace: %v", err)
	}
	b.call.Scope = nil
	b.must(b.Delete(t.Context(), b.call, "mine-1"))
	if b.has("mine-1") || b.record("mine-1") != nil {
		t.Error("it is still there")
	}
	// Programs heard of both.
	last := map[string]api.TransferProgress{}
	for _, p := range b.out.far {
		last[p.Operation] = p
	}
	if up := last["upload"]; up.Files != 1 || up.Bytes != 1 || up.TotalBytes != 1 || !up.Counted || !strings.Contains(up.What, "mine-1") {
		t.Errorf("of the upload: %+v", up)
	}
	if gone := last["delete"]; gone.Files != 1 || !gone.Counted || gone.What != "s3://mine-1" {
		t.Errorf("of the deletion: %+v", gone)
	}
	if err := b.Delete(t.Context(), b.call, "mine-1"); kind(err) != api.ErrValue {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestABucketOfOthersIsFilledAndStays(t *testing.T) {
	b := newBed(t)
	b.must(b.s3.Bucket("theirs").Create(t.Context(), nil))
	if err := b.Check(t.Context(), b.call, b.with("theirs", func(m *task.StorageMount) { m.Sources = nil }), false); kind(err) != api.ErrStorageSource {
		t.Errorf("without a source: %v", err)
	}
	b.must(b.prepare(b.with("theirs", temporary)))
	page, err := b.s3.Bucket("theirs").List(t.Context(), storage.ListOptions{})
	if err != nil || len(page.Objects) != 1 || b.record("theirs").Managed {
		t.Errorf("%+v, %v, %+v", page, err, b.record("theirs"))
	}
	b.must(b.Settle(t.Context())) // its request never was
	if !b.has("theirs") || b.record("theirs") != nil {
		t.Errorf("there: %v, on record: %+v", b.has("theirs"), b.record("theirs"))
	}
}

func TestABucketThatOthersMadeAgain(t *testing.T) {
	b := newBed(t)
	b.must(b.prepare(b.with("mine-1", func(m *task.StorageMount) { m.Sources = []string{b.files} })))
	again := func(make bool) {
		bucket := b.s3.Bucket("mine-1")
		b.must(bucket.Remove(t.Context(), []storage.ID{{Key: "a"}}))
		b.must(bucket.Delete(t.Context()))
		if make {
			b.must(bucket.Create(t.Context(), nil))
		}
	}
	old := b.record("mine-1").Hash
	again(false)
	b.must(b.prepare(b.with("mine-1"))) // it is made anew, with a mark of its own
	if rec := b.record("mine-1"); rec.Hash == old || !strings.Contains(b.out.String(), "behind sky's back") {
		t.Errorf("%+v\n%s", rec, b.out)
	}
	again(true)
	if err := b.prepare(b.with("mine-1")); kind(err) != api.ErrStorageGet {
		t.Errorf("used: %v", err)
	}
	b.must(b.Delete(t.Context(), b.call, "mine-1"))
	if !b.has("mine-1") || b.record("mine-1") != nil {
		t.Errorf("there: %v, on record: %+v", b.has("mine-1"), b.record("mine-1"))
	}
}

// Whatever a crash left of a bucket's making is removed when its request has ended, and
// nothing else.
func TestWhatWasNeverMadeIsUndone(t *testing.T) {
	for name, c := range map[string]struct {
		there   bool
		tag     func(hash string) string
		content bool
		stays   bool
	}{
		"nothing":                  {},
		"marked":                   {there: true, tag: func(hash string) string { return hash }},
		"not yet marked":           {there: true},
		"another's mark":           {there: true, tag: func(string) string { return "other" }, stays: true},
		"unmarked, with something": {there: true, content: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			rec := &state.Bucket{Name: "half", Hash: "h1", Stage: state.BucketMaking, Status: api.StorageInit, Store: "S3", Region: "us-east-1",
				Endpoint: b.Config().Text("storage", "endpoints", "s3"), Managed: true, Persistent: true, LaunchedAt: time.Now()}
			b.must(b.Store.Buckets().Create(t.Context(), rec, state.Holder{Kind: state.HeldByRequest, ID: "over"}))
			if c.there {
				tags := map[string]string{}
				if c.tag != nil {
					tags[storage.MarkerTag] = c.tag(rec.Hash)
				}
				b.must(b.s3.Bucket("half").Create(t.Context(), tags))
			}
			if c.content {
				_, err := b.s3.Bucket("half").Put(t.Context(), "k", strings.NewReader("v"), storage.PutOptions{})
				b.must(err)
			}
			b.must(b.Settle(t.Context()))
			if b.has("half") != c.stays || b.record("half") != nil {
				t.Errorf("there: %v, on record: %+v", b.has("half"), b.record("half"))
			}
		})
	}
}

func TestABucketOnAnotherServerIsNotTakenForDeleted(t *testing.T) {
	b := newBed(t)
	rec := &state.Bucket{Name: "real", Hash: "h1", Stage: state.BucketThere, Status: api.StorageReady, Store: "S3", Region: "us-east-1", Managed: true, Persistent: true, LaunchedAt: time.Now()}
	b.must(b.Store.Buckets().Create(t.Context(), rec))
	err := b.Delete(t.Context(), b.call, "real")
	if kind(err) != api.ErrStorageDelete || !strings.Contains(err.Error(), "storage.endpoints") || b.record("real") == nil {
		t.Errorf("%v, on record: %+v", err, b.record("real"))
	}
}

// An upload that ends before its time leaves a record that says so, and goes on.
func TestAnUploadThatFailed(t *testing.T) {
	b := newBed(t)
	b.files += "/gone"
	if err := b.prepare(b.with("mine-1")); err == nil {
		t.Fatal("nothing was missed")
	}
	if rec := b.record("mine-1"); rec.Status != api.StorageUploadFailed || rec.Problem == "" {
		t.Errorf("%+v", rec)
	}
	b.must(os.MkdirAll(b.files, 0o700))
	b.must(b.prepare(b.with("mine-1")))
	if rec := b.record("mine-1"); rec.Status != api.StorageReady || rec.Problem != "" {
		t.Errorf("%+v", rec)
	}
}

func TestKeepEnds(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Keep(ctx, func(ctx context.Context, _ time.Duration, _ string, f func(context.Context)) { f(ctx) })
}
