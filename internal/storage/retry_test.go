package storage_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

var (
	away = &storage.UnavailableError{Err: errors.New("trouble")}
	busy = &storage.ThrottledError{Err: errors.New("slow down")}
)

// flaky is a bucket whose calls fail, in turn, with errs: before they have an
// effect, or after it where lost says so.
type flaky struct {
	storage.Bucket
	errs  []error
	lost  bool
	calls int
}

func (f *flaky) Unwrap() storage.Bucket { return f.Bucket }

func try[T any](f *flaky, call func() (T, error)) (v T, err error) {
	f.calls++
	if len(f.errs) == 0 {
		return call()
	}
	next := f.errs[0]
	f.errs = f.errs[1:]
	if f.lost {
		call()
	}
	return v, next
}

func (f *flaky) Stat(ctx context.Context, key string) (storage.Object, error) {
	return f.Bucket.Stat(ctx, key)
}

func (f *flaky) Put(ctx context.Context, key string, body io.ReadSeeker, o storage.PutOptions) (storage.Object, error) {
	return try(f, func() (storage.Object, error) { return f.Bucket.Put(ctx, key, body, o) })
}

func (f *flaky) Complete(ctx context.Context, u storage.Upload, parts []storage.Part, o storage.PutOptions) (storage.Object, error) {
	return try(f, func() (storage.Object, error) { return f.Bucket.Complete(ctx, u, parts, o) })
}

func (f *flaky) Copy(ctx context.Context, key string, from storage.Source, o storage.PutOptions) (storage.Object, error) {
	return try(f, func() (storage.Object, error) { return f.Bucket.Copy(ctx, key, from, o) })
}

func (f *flaky) Remove(ctx context.Context, ids []storage.ID) error {
	_, err := try(f, func() (any, error) { return nil, f.Bucket.Remove(ctx, ids) })
	return err
}

func (f *flaky) Get(ctx context.Context, key string, o storage.GetOptions) (storage.Reader, error) {
	r, err := try(f, func() (storage.Reader, error) { return f.Bucket.Get(ctx, key, o) })
	if err == nil {
		r.ReadCloser = &breaking{r.ReadCloser, 100}
	}
	return r, err
}

// breaking gives some bytes and fails.
type breaking struct {
	io.ReadCloser
	left int
}

func (b *breaking) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, away
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func bucket(t *testing.T, errs ...error) *flaky {
	t.Helper()
	b := (&memory.Store{}).Bucket("b")
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &flaky{Bucket: b, errs: errs}
}

func TestRetryWhileErrorsAreTemporary(t *testing.T) {
	denied := &storage.DeniedError{}
	for _, c := range []struct {
		name  string
		errs  []error
		want  error
		calls int
	}{
		{"none", nil, nil, 1},
		{"trouble", []error{away, away, busy}, nil, 4},
		{"a refusal", []error{denied}, denied, 1},
		{"trouble, then a refusal", []error{away, denied}, denied, 2},
		{"trouble that stays", slices.Repeat([]error{away}, 20), away, 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, told := bucket(t, c.errs...), 0
			r := storage.Retry(f, storage.Retries{On: func(error, time.Duration) { told++ }})
			_, err := r.Put(t.Context(), "k", strings.NewReader("x"), storage.PutOptions{})
			if !errors.Is(err, c.want) || f.calls != c.calls || told != c.calls-1 {
				t.Errorf("%s: %v after %d calls, told of %d; want %v after %d", c.name, err, f.calls, told, c.want, c.calls)
			}
		})
	}
}

func TestRetryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bucket(t, away, away, &storage.ThrottledError{After: time.Minute})
		began := time.Now()
		if _, err := storage.Retry(f, storage.Retries{}).Put(t.Context(), "k", strings.NewReader("x"), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute+375*time.Millisecond || took > time.Minute+750*time.Millisecond {
			t.Errorf("it took %v: the waits are up to 250 ms, up to 500 ms, and what the store asks for", took)
		}
		// The end of the context ends the wait.
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(why) })
		f.errs = []error{&storage.ThrottledError{After: time.Hour}}
		began = time.Now()
		_, err := storage.Retry(f, storage.Retries{}).Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{})
		if !errors.Is(err, why) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// An answer that was lost is not taken for a refusal.
func TestLostAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(context.Context, storage.Bucket, *flaky) error
		want bool
	}{
		{"a put where nothing is", func(ctx context.Context, b storage.Bucket, f *flaky) error {
			_, err := b.Put(ctx, "k", strings.NewReader("mine"), storage.PutOptions{IfAbsent: true})
			return err
		}, true},
		{"a put where somebody else was faster", func(ctx context.Context, b storage.Bucket, f *flaky) error {
			f.lost = false
			f.Bucket.Put(ctx, "k", strings.NewReader("theirs"), storage.PutOptions{})
			_, err := b.Put(ctx, "k", strings.NewReader("mine"), storage.PutOptions{IfAbsent: true})
			return err
		}, false},
		{"a put over what is known", func(ctx context.Context, b storage.Bucket, f *flaky) error {
			o, _ := f.Bucket.Put(ctx, "k", strings.NewReader("before"), storage.PutOptions{})
			_, err := b.Put(ctx, "k", strings.NewReader("mine"), storage.PutOptions{IfMatch: o.ETag, Metadata: map[string]string{"a": "b"}})
			return err
		}, true},
		{"a copy", func(ctx context.Context, b storage.Bucket, f *flaky) error {
			f.Bucket.Put(ctx, "from", strings.NewReader("mine"), storage.PutOptions{})
			_, err := b.Copy(ctx, "k", storage.Source{Bucket: b, ID: storage.ID{Key: "from"}}, storage.PutOptions{IfAbsent: true})
			return err
		}, true},
		{"an upload", func(ctx context.Context, b storage.Bucket, f *flaky) error {
			o := storage.PutOptions{Metadata: map[string]string{"skyhash": "1"}}
			u, _ := b.Start(ctx, "k", o)
			p, _ := b.PutPart(ctx, u, 1, strings.NewReader("mine"))
			_, err := b.Complete(ctx, u, []storage.Part{p}, o)
			return err
		}, true},
		{"an upload that somebody aborted", func(ctx context.Context, b storage.Bucket, f *flaky) error {
			f.lost = false
			f.Bucket.Put(ctx, "k", strings.NewReader("else"), storage.PutOptions{})
			o := storage.PutOptions{Metadata: map[string]string{"skyhash": "1"}}
			u, _ := b.Start(ctx, "k", o)
			p, _ := b.PutPart(ctx, u, 1, strings.NewReader("mine"))
			b.Abort(ctx, u)
			_, err := b.Complete(ctx, u, []storage.Part{p}, o)
			return err
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := bucket(t, away)
			f.lost = true
			err := c.do(t.Context(), storage.Retry(f, storage.Retries{}), f)
			if (err == nil) != c.want {
				t.Errorf("%s: %v", c.name, err)
			}
			if r, err := f.Bucket.Get(t.Context(), "k", storage.GetOptions{}); c.want && err == nil {
				if text, _ := io.ReadAll(r); string(text) != "mine" {
					t.Errorf("%s: it is %q", c.name, text)
				}
			}
		})
	}
}

func TestRemoveRepeatsWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := &storage.DeniedError{}
		f := bucket(t, &storage.RemoveError{Failed: []storage.Failed{{ID: storage.ID{Key: "a"}, Err: busy}, {ID: storage.ID{Key: "b"}, Err: denied}}})
		for _, key := range []string{"a", "b"} {
			f.Bucket.Put(t.Context(), key, strings.NewReader(""), storage.PutOptions{})
		}
		err := storage.Retry(f, storage.Retries{}).Remove(t.Context(), []storage.ID{{Key: "a"}, {Key: "b"}, {Key: "c"}})
		some, ok := errors.AsType[*storage.RemoveError](err)
		if !ok || len(some.Failed) != 1 || some.Failed[0].Key != "b" {
			t.Errorf("error %v, want b only", err)
		}
		page, _ := f.Bucket.List(t.Context(), storage.ListOptions{})
		if f.calls != 2 || len(page.Objects) != 1 || page.Objects[0].Key != "b" {
			t.Errorf("%d calls, left %v", f.calls, page.Objects)
		}
	})
}

func TestReadersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bucket(t)
		content := bytes.Repeat([]byte("0123456789"), 95) // 950 bytes, in pieces of 100
		f.Bucket.Put(t.Context(), "k", bytes.NewReader(content), storage.PutOptions{})
		read := func(o storage.GetOptions) ([]byte, error) {
			r, err := storage.Retry(f, storage.Retries{}).Get(t.Context(), "k", o)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(r)
		}
		for _, o := range []storage.GetOptions{{}, {Offset: 3}, {Offset: 3, Length: 500}, {Offset: 900, Length: 500}} {
			want := content[o.Offset:]
			if o.Length > 0 {
				want = want[:min(o.Length, int64(len(want)))]
			}
			if got, err := read(o); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%+v: %d bytes, %v, want %d", o, len(got), err, len(want))
			}
		}
		f.errs = slices.Repeat([]error{away}, 9)
		if _, err := read(storage.GetOptions{}); !errors.Is(err, away) {
			t.Errorf("trouble that stays: %v", err)
		}
		// Content that changes meanwhile is not mixed.
		f.errs = nil
		r, err := storage.Retry(f, storage.Retries{}).Get(t.Context(), "k", storage.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		io.ReadFull(r, make([]byte, 50))
		f.Bucket.Put(t.Context(), "k", bytes.NewReader(append(content, 'x')), storage.PutOptions{})
		_, err = io.ReadAll(r)
		if _, ok := errors.AsType[*storage.ConflictError](err); !ok {
			t.Errorf("content that changes: %v", err)
		}
	})
}
