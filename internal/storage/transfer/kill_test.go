package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// mortal is a bucket whose caller may die at each call: before it, or after it had its
// effect.
type mortal struct {
	storage.Bucket
	p *failpoint.Process
}

func (m *mortal) Unwrap() storage.Bucket { return m.Bucket }

func (m *mortal) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return failpoint.Get(m.p, "list", func() (storage.Page, error) { return m.Bucket.List(ctx, o) })
}
func (m *mortal) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return failpoint.Get(m.p, "versions", func() (storage.Page, error) { return m.Bucket.Versions(ctx, o) })
}
func (m *mortal) Uploads(ctx context.Context, o storage.ListOptions) (storage.UploadPage, error) {
	return failpoint.Get(m.p, "uploads", func() (storage.UploadPage, error) { return m.Bucket.Uploads(ctx, o) })
}
func (m *mortal) Stat(ctx context.Context, key string) (storage.Object, error) {
	return failpoint.Get(m.p, "stat", func() (storage.Object, error) { return m.Bucket.Stat(ctx, key) })
}
func (m *mortal) Get(ctx context.Context, key string, o storage.GetOptions) (storage.Reader, error) {
	return failpoint.Get(m.p, "get", func() (storage.Reader, error) { return m.Bucket.Get(ctx, key, o) })
}
func (m *mortal) Put(ctx context.Context, key string, body io.ReadSeeker, o storage.PutOptions) (storage.Object, error) {
	return failpoint.Get(m.p, "put", func() (storage.Object, error) { return m.Bucket.Put(ctx, key, body, o) })
}
func (m *mortal) Copy(ctx context.Context, key string, from storage.Source, o storage.PutOptions) (storage.Object, error) {
	return failpoint.Get(m.p, "copy", func() (storage.Object, error) { return m.Bucket.Copy(ctx, key, from, o) })
}
func (m *mortal) Remove(ctx context.Context, ids []storage.ID) error {
	return m.p.Do("remove", func() error { return m.Bucket.Remove(ctx, ids) })
}
func (m *mortal) Start(ctx context.Context, key string, o storage.PutOptions) (storage.Upload, error) {
	return failpoint.Get(m.p, "start", func() (storage.Upload, error) { return m.Bucket.Start(ctx, key, o) })
}
func (m *mortal) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	return failpoint.Get(m.p, "part", func() (storage.Part, error) { return m.Bucket.PutPart(ctx, u, n, body) })
}
func (m *mortal) CopyPart(ctx context.Context, u storage.Upload, n int, from storage.Source, offset, length int64) (storage.Part, error) {
	return failpoint.Get(m.p, "copy part", func() (storage.Part, error) { return m.Bucket.CopyPart(ctx, u, n, from, offset, length) })
}
func (m *mortal) Parts(ctx context.Context, u storage.Upload) ([]storage.Part, error) {
	return failpoint.Get(m.p, "parts", func() ([]storage.Part, error) { return m.Bucket.Parts(ctx, u) })
}
func (m *mortal) Complete(ctx context.Context, u storage.Upload, parts []storage.Part, o storage.PutOptions) (storage.Object, error) {
	return failpoint.Get(m.p, "complete", func() (storage.Object, error) { return m.Bucket.Complete(ctx, u, parts, o) })
}
func (m *mortal) Abort(ctx context.Context, u storage.Upload) error {
	return m.p.Do("abort", func() error { return m.Bucket.Abort(ctx, u) })
}

// uploadsLeft are the unfinished uploads of a bucket.
func uploadsLeft(t testing.TB, b storage.Bucket) int {
	t.Helper()
	page, err := b.Uploads(context.Background(), storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Uploads)
}

// everyStep runs a transfer whose process dies at its first half step, again in another
// place where it dies at its second one, and so on, until one comes to its end. After each
// death the same transfer is made once more. begin gives the transfer in a new place, and
// a check of what it must have led to; calls are counted over both lives.
func everyStep(t *testing.T, begin func(t *testing.T, p *failpoint.Process) (run func(ctx context.Context, p *failpoint.Process) error, check func(t *testing.T))) {
	for half := 0; ; half++ {
		ended := false
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			p := failpoint.New(context.Background(), half, failpoint.ErrDead)
			run, check := begin(t, p)
			err := run(p.Context(), p)
			if !p.Dead() {
				if err != nil {
					t.Fatalf("without a death: %v", err)
				}
				check(t)
				ended = true
				return
			}
			if !errors.Is(err, failpoint.ErrDead) && err != nil {
				t.Errorf("the end of the process became %v", err)
			}
			again := failpoint.New(context.Background(), failpoint.Endless, failpoint.ErrDead)
			if err := run(t.Context(), again); err != nil {
				t.Fatalf("the second life, after %v: %v", p.Steps(), err)
			}
			check(t)
		})
		if ended || t.Failed() || half > 2000 {
			return
		}
	}
}

func TestUploadsSurviveDeath(t *testing.T) {
	tree := map[string]string{"a": "small", "b/large": content(5<<10, 1), "c/larger": content(7<<10+5, 2), "d": content(100, 3)}
	everyStep(t, func(t *testing.T, p *failpoint.Process) (func(context.Context, *failpoint.Process) error, func(*testing.T)) {
		b := newBucket(t, &memory.Store{}, "b")
		dir, journal := t.TempDir(), filepath.Join(t.TempDir(), "journal")
		write(t, dir, tree)
		var parts []string
		return func(ctx context.Context, p *failpoint.Process) error {
				_, err := Upload(ctx, source(t, dir), &mortal{b, p}, "x", Options{Journal: journal, Workers: 2})
				for _, s := range p.Steps() {
					if s == "part" {
						parts = append(parts, s)
					}
				}
				return err
			}, func(t *testing.T) {
				wantFiles(t, "bucket", objects(t, b), under("x/", tree))
				if n := uploadsLeft(t, b); n > 0 {
					t.Errorf("%d unfinished uploads are left", n)
				}
				if _, err := os.Stat(journal); err == nil {
					t.Error("the journal is left")
				}
				// 13 parts, of which up to as many as there are workers may be lost; and an
				// upload that nobody knew the id of.
				if len(parts) > 13+2+8 {
					t.Errorf("%d parts were uploaded, of 13", len(parts))
				}
			}
	})
}

// Without a journal nothing is remembered, but nothing wrong either.
func TestUploadsWithoutAJournalBeginAgain(t *testing.T) {
	tree := map[string]string{"large": content(3<<10, 1)}
	everyStep(t, func(t *testing.T, p *failpoint.Process) (func(context.Context, *failpoint.Process) error, func(*testing.T)) {
		b := newBucket(t, &memory.Store{}, "b")
		dir := t.TempDir()
		write(t, dir, tree)
		return func(ctx context.Context, p *failpoint.Process) error {
			_, err := Upload(ctx, source(t, dir), &mortal{b, p}, "", Options{})
			return err
		}, func(t *testing.T) { wantFiles(t, "bucket", objects(t, b), tree) }
	})
}

func TestDownloadsSurviveDeath(t *testing.T) {
	tree := map[string]string{"a": "small", "b/large": content(5<<10, 1), "c": content(100, 3), "d/larger": content(9<<10+7, 4)}
	for _, hashed := range []bool{true, false} {
		everyStep(t, func(t *testing.T, p *failpoint.Process) (func(context.Context, *failpoint.Process) error, func(*testing.T)) {
			b := newBucket(t, &memory.Store{}, "b")
			dir, dst := t.TempDir(), t.TempDir()
			write(t, dir, tree)
			if hashed {
				_, err := Upload(t.Context(), source(t, dir), b, "", Options{})
				must(t, err)
			} else {
				for k, v := range tree {
					put(t, b, k, v, nil)
				}
			}
			gets := 0
			return func(ctx context.Context, p *failpoint.Process) error {
					_, _, err := Download(ctx, &mortal{b, p}, "", dst, Options{Workers: 2})
					for _, s := range p.Steps() {
						if s == "get" {
							gets++
						}
					}
					// Whatever is there under its own name is whole.
					for name, text := range files(t, dst) {
						if want, ok := tree[name]; ok && text != want {
							t.Errorf("%q is there with %d bytes of %d", name, len(text), len(want))
						}
					}
					return err
				}, func(t *testing.T) {
					wantFiles(t, "downloaded", files(t, dst), tree)
					// 2 small ones, 5 and 10 pieces, of which up to the number of workers are lost.
					if gets > 17+2 && bootID() != "" {
						t.Errorf("%d requests, of 17", gets)
					}
				}
		})
	}
}

func TestCopiesSurviveDeath(t *testing.T) {
	tree := map[string]string{"a": "small", "b/large": content(5<<10, 1), "c/larger": content(7<<10+5, 2)}
	for _, inside := range []bool{true, false} {
		everyStep(t, func(t *testing.T, p *failpoint.Process) (func(context.Context, *failpoint.Process) error, func(*testing.T)) {
			one := &memory.Store{}
			two := one
			if !inside {
				two = &memory.Store{}
			}
			from, to := newBucket(t, one, "from"), newBucket(t, two, "to")
			dir, journal := t.TempDir(), filepath.Join(t.TempDir(), "journal")
			write(t, dir, tree)
			_, err := Upload(t.Context(), source(t, dir), from, "", Options{})
			must(t, err)
			return func(ctx context.Context, p *failpoint.Process) error {
					_, err := Copy(ctx, &mortal{from, p}, "", &mortal{to, p}, "x", Options{Journal: journal, Workers: 2})
					return err
				}, func(t *testing.T) {
					wantFiles(t, "copied", objects(t, to), under("x/", tree))
					wantFiles(t, "source", objects(t, from), tree)
					if n := uploadsLeft(t, to); n > 0 {
						t.Errorf("%d unfinished uploads are left", n)
					}
				}
		})
	}
}

func TestDeletionsSurviveDeath(t *testing.T) {
	everyStep(t, func(t *testing.T, p *failpoint.Process) (func(context.Context, *failpoint.Process) error, func(*testing.T)) {
		s := &memory.Store{}
		b := newBucket(t, s, "b")
		s.KeepVersions("b")
		for i := range 2500 {
			put(t, b, fmt.Sprintf("p/%d", i%1500), "", nil)
		}
		put(t, b, "stays", "x", nil)
		for i := range 3 {
			_, err := b.Start(t.Context(), fmt.Sprintf("p/up%d", i), storage.PutOptions{})
			must(t, err)
		}
		return func(ctx context.Context, p *failpoint.Process) error {
				_, err := Delete(ctx, &mortal{b, p}, "p/", Options{Workers: 2})
				return err
			}, func(t *testing.T) {
				page, err := b.Versions(context.Background(), storage.ListOptions{})
				must(t, err)
				if len(page.Objects) != 1 || page.Objects[0].Key != "stays" || uploadsLeft(t, b) > 0 {
					t.Errorf("left: %d versions, %d uploads", len(page.Objects), uploadsLeft(t, b))
				}
			}
	})
}

// A file that changed since its upload began is not put together with its old parts.
func TestAChangedFileBeginsAnew(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	dir, journal := t.TempDir(), filepath.Join(t.TempDir(), "journal")
	write(t, dir, map[string]string{"f": content(9<<10, 1)})
	p := failpoint.New(context.Background(), 15, failpoint.ErrDead)
	if _, err := Upload(p.Context(), source(t, dir), &mortal{b, p}, "", Options{Journal: journal, Workers: 1}); !errors.Is(err, failpoint.ErrDead) {
		t.Fatal(err)
	}
	if uploadsLeft(t, b) != 1 {
		t.Fatal("no upload was cut off")
	}
	write(t, dir, map[string]string{"f": content(9<<10, 2)})
	if _, err := Upload(t.Context(), source(t, dir), b, "", Options{Journal: journal}); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, "bucket", objects(t, b), files(t, dir))
	if uploadsLeft(t, b) > 0 {
		t.Error("the old upload is left")
	}
}

// An upload of a file that is not there any more is given up.
func TestForgottenUploadsAreSwept(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	dir, journal := t.TempDir(), filepath.Join(t.TempDir(), "journal")
	write(t, dir, map[string]string{"f": content(9<<10, 1), "g": "1"})
	p := failpoint.New(context.Background(), 15, failpoint.ErrDead)
	if _, err := Upload(p.Context(), source(t, dir), &mortal{b, p}, "", Options{Journal: journal, Workers: 1}); !errors.Is(err, failpoint.ErrDead) {
		t.Fatal(err)
	}
	must(t, os.Remove(filepath.Join(dir, "f")))
	if _, err := Upload(t.Context(), source(t, dir), b, "", Options{Journal: journal}); err != nil {
		t.Fatal(err)
	}
	if uploadsLeft(t, b) > 0 {
		t.Error("the upload is left")
	}
	if _, err := os.Stat(journal); err == nil {
		t.Error("the journal is left")
	}
}

// Somebody else, or a rule of the bucket, ends the upload meanwhile.
func TestAnUploadThatIsAbortedBeginsAnew(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	dir := t.TempDir()
	write(t, dir, map[string]string{"f": content(9<<10, 1)})
	p := failpoint.New(context.Background(), failpoint.Endless, failpoint.ErrDead)
	aborted := false
	p.Tell(func(step string) {
		if step == "complete" && !aborted {
			aborted = true
			page, _ := b.Uploads(context.Background(), storage.ListOptions{})
			b.Abort(context.Background(), page.Uploads[0])
		}
	})
	if _, err := Upload(t.Context(), source(t, dir), &mortal{b, p}, "", Options{}); err != nil || !aborted {
		t.Fatal(err)
	}
	wantFiles(t, "bucket", objects(t, b), files(t, dir))
}

func TestAJournalThatWasCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	b := (&memory.Store{}).Bucket("b")
	j, err := openJournal(path)
	must(t, err)
	for _, r := range []record{{Key: "a", ID: "1", Size: 5}, {Key: "b", ID: "2"}, {Key: "b", Ended: true}, {Key: "c"}} {
		r.Bucket = b.Location().String()
		must(t, j.write(r))
	}
	if _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), "another transfer") {
		t.Errorf("two have one journal: %v", err)
	}
	j.f.Close()
	j.lock.Close()
	text, err := os.ReadFile(path)
	must(t, err)
	for cut := range text {
		must(t, os.WriteFile(path, text[:cut], 0o600))
		j, err := openJournal(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		j.f.Close()
		j.lock.Close()
		for name, r := range j.begun {
			if !strings.HasSuffix(name, r.Key) || r.Ended {
				t.Errorf("cut at %d: %q is %+v", cut, name, r)
			}
		}
	}
	must(t, os.WriteFile(path, text, 0o600))
	j, err = openJournal(path)
	must(t, err)
	if a, ok := j.find(b, "a"); !ok || a.ID != "1" || a.Size != 5 || len(maps.Clone(j.begun)) != 2 {
		t.Errorf("%+v", j.begun)
	}
}
