package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// hooked is a bucket before whose calls a function is asked: its error is that of the
// call.
type hooked struct {
	storage.Bucket
	mu   sync.Mutex
	hook func(op, key string) error
}

func (h *hooked) Unwrap() storage.Bucket { return h.Bucket }

func (h *hooked) ask(op, key string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hook(op, key)
}

func (h *hooked) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	if err := h.ask("list", o.Prefix); err != nil {
		return storage.Page{}, err
	}
	return h.Bucket.List(ctx, o)
}

func (h *hooked) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	if err := h.ask("versions", o.Prefix); err != nil {
		return storage.Page{}, err
	}
	return h.Bucket.Versions(ctx, o)
}

func (h *hooked) Uploads(ctx context.Context, o storage.ListOptions) (storage.UploadPage, error) {
	if err := h.ask("uploads", o.Prefix); err != nil {
		return storage.UploadPage{}, err
	}
	return h.Bucket.Uploads(ctx, o)
}

func (h *hooked) Stat(ctx context.Context, key string) (storage.Object, error) {
	if err := h.ask("stat", key); err != nil {
		return storage.Object{}, err
	}
	return h.Bucket.Stat(ctx, key)
}

func (h *hooked) Get(ctx context.Context, key string, o storage.GetOptions) (storage.Reader, error) {
	if err := h.ask("get", key); err != nil {
		return storage.Reader{}, err
	}
	return h.Bucket.Get(ctx, key, o)
}

func (h *hooked) Put(ctx context.Context, key string, body io.ReadSeeker, o storage.PutOptions) (storage.Object, error) {
	if err := h.ask("put", key); err != nil {
		return storage.Object{}, err
	}
	return h.Bucket.Put(ctx, key, body, o)
}

func (h *hooked) Start(ctx context.Context, key string, o storage.PutOptions) (storage.Upload, error) {
	if err := h.ask("start", key); err != nil {
		return storage.Upload{}, err
	}
	return h.Bucket.Start(ctx, key, o)
}

func (h *hooked) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	if err := h.ask(fmt.Sprint("part ", n), u.Key); err != nil {
		return storage.Part{}, err
	}
	return h.Bucket.PutPart(ctx, u, n, body)
}

func (h *hooked) Abort(ctx context.Context, u storage.Upload) error {
	if err := h.ask("abort", u.Key); err != nil {
		return err
	}
	return h.Bucket.Abort(ctx, u)
}

func (h *hooked) Remove(ctx context.Context, ids []storage.ID) error {
	failed := &storage.RemoveError{}
	var rest []storage.ID
	for _, id := range ids {
		if err := h.ask("remove", id.Key); err != nil {
			failed.Failed = append(failed.Failed, storage.Failed{ID: id, Err: err})
		} else {
			rest = append(rest, id)
		}
	}
	if err := h.Bucket.Remove(ctx, rest); err != nil {
		return err
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

func hook(t *testing.T, f func(op, key string) error) *hooked {
	t.Helper()
	return &hooked{Bucket: newBucket(t, &memory.Store{}, "b"), hook: f}
}

// wantFailed checks which files are named by a FilesError.
func wantFailed(t *testing.T, err error, names ...string) {
	t.Helper()
	failed, ok := errors.AsType[*FilesError](err)
	if !ok {
		t.Errorf("error %T %v, want a FilesError with %q", err, err, names)
		return
	}
	var got []string
	for _, f := range failed.Failed {
		got = append(got, f.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Errorf("failed %q, want %q: %v", got, names, err)
	}
}

var denied = &storage.DeniedError{Err: errors.New("no")}

// A refusal by the store is none of a file, whichever call it is.
func TestRefusalsEndATransfer(t *testing.T) {
	for _, op := range []string{"list", "stat", "put", "start", "part 2"} {
		b := hook(t, func(o, _ string) error {
			if o == op {
				return denied
			}
			return nil
		})
		dir := t.TempDir()
		write(t, dir, someTree())
		if op == "list" {
			for i := range fewFiles {
				write(t, dir, map[string]string{fmt.Sprint("more/", i): ""})
			}
		}
		if _, err := Upload(t.Context(), source(t, dir), b, "", Options{}); !errors.Is(err, denied) {
			t.Errorf("upload, %s: %v", op, err)
		}
		if n := uploadsLeft(t, b.Bucket); n > 0 {
			t.Errorf("%s: %d uploads are left", op, n)
		}
	}
	for _, op := range []string{"list", "stat", "get"} {
		b := hook(t, func(o, key string) error {
			if o == op && (op == "list" || key == "large") {
				return denied
			}
			return nil
		})
		put(t, b.Bucket, "large", content(5000, 1), nil)
		put(t, b.Bucket, "small", "x", nil)
		if _, _, err := Download(t.Context(), b, "", t.TempDir(), Options{}); !errors.Is(err, denied) {
			t.Errorf("download, %s: %v", op, err)
		}
		to := newBucket(t, &memory.Store{}, "to")
		if _, err := Copy(t.Context(), b, "", to, "", Options{}); !errors.Is(err, denied) {
			t.Errorf("copy, %s: %v", op, err)
		}
		if n := uploadsLeft(t, to); n > 0 {
			t.Errorf("copy, %s: %d uploads are left", op, n)
		}
	}
}

// Who may not list may still read one object.
func TestOneObjectWithoutListing(t *testing.T) {
	b := hook(t, func(op, _ string) error {
		if op == "list" {
			return denied
		}
		return nil
	})
	put(t, b.Bucket, "d/k", "x", nil)
	file := filepath.Join(t.TempDir(), "f")
	if _, _, err := Download(t.Context(), b, "d/k", file, Options{}); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(file); string(text) != "x" {
		t.Errorf("content %q", text)
	}
	if _, _, err := Download(t.Context(), b, "d/none", file, Options{}); !errors.Is(err, denied) {
		t.Errorf("an object that is not there: %v", err)
	}
}

// What is wrong with one file or object keeps no other from being moved.
func TestOneBadFileAmongGood(t *testing.T) {
	tree := map[string]string{"bad": "x", "badlarge": content(5000, 1), "good": "y", "goodlarge": content(5000, 2)}
	bad := func(ops ...string) func(string, string) error {
		return func(op, key string) error {
			if slices.Contains(ops, op) && strings.HasPrefix(key, "bad") {
				return &storage.InvalidError{Key: key}
			}
			return nil
		}
	}
	dir := t.TempDir()
	write(t, dir, tree)
	b := hook(t, bad("put", "start"))
	r, err := Upload(t.Context(), source(t, dir), b, "", Options{})
	if wantFailed(t, err, "bad", "badlarge"); r.Files != 2 {
		t.Errorf("%+v", r)
	}
	wantFiles(t, "bucket", objects(t, b.Bucket), map[string]string{"good": "y", "goodlarge": content(5000, 2)})

	b = hook(t, bad("get"))
	for k, v := range tree {
		put(t, b.Bucket, k, v, nil)
	}
	dst := t.TempDir()
	r, _, err2 := func() (Report, bool, error) {
		f, r, err := Download(t.Context(), b, "", dst, Options{})
		return r, f, err
	}()
	if wantFailed(t, err2, "bad", "badlarge"); r.Files != 2 {
		t.Errorf("%+v", r)
	}
	to := newBucket(t, &memory.Store{}, "to")
	r, err = Copy(t.Context(), b, "", to, "", Options{})
	if wantFailed(t, err, "bad", "badlarge"); r.Files != 2 {
		t.Errorf("%+v", r)
	}
	if n := uploadsLeft(t, to); n > 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// A file that goes, or that is written to, between the list and its upload.
func TestFilesThatChange(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	write(t, dir, map[string]string{"a": "1", "gone": "2", "grown": "3", "large": content(5000, 1), "largegone": content(5000, 2)})
	b := hook(t, func(op, key string) error {
		switch {
		case op == "stat" && key == "gone":
			must(t, os.Remove(name("gone")))
		case op == "stat" && key == "largegone":
			must(t, os.Remove(name("largegone")))
		case op == "stat" && key == "grown": // before it is opened
			must(t, os.WriteFile(name("grown"), []byte("now it is longer"), 0o600))
		case op == "start" && key == "large": // after it was hashed
			text := []byte(content(5000, 1))
			text[4999]++
			must(t, os.WriteFile(name("large"), text, 0o600))
		}
		return nil
	})
	_, err := Upload(t.Context(), source(t, dir), b, "", Options{Journal: filepath.Join(t.TempDir(), "journal")})
	wantFailed(t, err, "gone", "large", "largegone")
	if !errors.Is(err, errChanged) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	wantFiles(t, "bucket", objects(t, b.Bucket), map[string]string{"a": "1", "grown": "now it is longer"})
	if n := uploadsLeft(t, b.Bucket); n > 1 {
		t.Errorf("%d uploads are left", n)
	}
}

func TestReadingAFileThatChanges(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"f": "before"})
	s := source(t, dir)
	u := &uploader{engine: newEngine(t.Context(), Options{}), src: s, dst: newBucket(t, &memory.Store{}, "b")}
	f, err := s.open(entry{path: "f"})
	must(t, err)
	defer f.Close()
	// It is read again, and is what it has become.
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("after that"), 0o600))
	if text, err := u.read(f); err != nil || string(text) != "after that" || f.e.size != 10 {
		t.Errorf("%q, %v", text, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("less"), 0o600))
	if text, err := u.read(f); err != nil || string(text) != "less" {
		t.Errorf("%q, %v", text, err)
	}
	// It has become too large for that.
	f.e.size = chunk + 1
	if _, err := u.read(f); !errors.Is(err, errChanged) {
		t.Errorf("a file that has grown: %v", err)
	}
	f.Close()
	if _, err := u.read(f); err == nil {
		t.Error("a closed file was read")
	}
	u.finish()
}

func TestAFullDiskEndsATransfer(t *testing.T) {
	for err, of := range map[error]bool{
		&localError{syscall.ENOSPC}: false, &localError{fmt.Errorf("writing: %w", syscall.EDQUOT)}: false, &localError{os.ErrPermission}: true, &localError{errContent}: true,
		&storage.ConflictError{}: true, &storage.InvalidError{}: true, &storage.NotFoundError{Key: "k"}: true, &storage.NotFoundError{}: false, denied: false,
		&storage.UnavailableError{}: false, errors.New("anything else"): false,
	} {
		if got := ofTheFile(fmt.Errorf("wrapped: %w", err)); got != of {
			t.Errorf("%v is of the file: %v", err, got)
		}
	}
}

func TestDeletionsThatAreRefused(t *testing.T) {
	fill := func(b *hooked) {
		for i := range 20 {
			put(t, b.Bucket, fmt.Sprintf("k%02d", i), "", nil)
		}
		_, err := b.Bucket.Start(t.Context(), "up", storage.PutOptions{})
		must(t, err)
	}
	// Some are protected: the others go.
	b := hook(t, func(op, key string) error {
		if op == "remove" && key < "k03" {
			return denied
		}
		return nil
	})
	fill(b)
	r, err := Delete(t.Context(), b, "", Options{})
	wantFailed(t, err, "k00", "k01", "k02")
	if r.Files != 17 || len(objects(t, b.Bucket)) != 3 {
		t.Errorf("%+v, left %v", r, objects(t, b.Bucket))
	}
	// All are.
	b.hook = func(op, _ string) error {
		if op == "remove" {
			return denied
		}
		return nil
	}
	if _, err := Delete(t.Context(), b, "", Options{}); !errors.Is(err, denied) {
		t.Errorf("error %v", err)
	}
	// Without the right to list versions and uploads, what can be seen goes.
	b = hook(t, func(op, _ string) error {
		if op == "versions" || op == "uploads" {
			return denied
		}
		return nil
	})
	fill(b)
	r, err = Delete(t.Context(), b, "", Options{})
	if err != nil || r.Files != 20 || len(r.Notes) != 2 || len(objects(t, b.Bucket)) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	b.hook = func(op, _ string) error {
		if op == "list" || op == "versions" {
			return denied
		}
		return nil
	}
	if _, err := Delete(t.Context(), b, "", Options{}); !errors.Is(err, denied) {
		t.Errorf("without the right to list: %v", err)
	}
}

// A list that goes on for ever ends.
func TestListsThatDoNotGoOn(t *testing.T) {
	again := func(context.Context, storage.ListOptions) (storage.Page, error) {
		return storage.Page{Next: "same"}, nil
	}
	if err := pageAfterPage(t.Context(), again, storage.ListOptions{}, func(storage.Page) bool { return true }); !errors.Is(err, errEndless) {
		t.Errorf("error %v", err)
	}
}

func TestNotesAreCounted(t *testing.T) {
	e := newEngine(t.Context(), Options{})
	for i := range 5 {
		e.note("a link is left out", fmt.Sprint(i), true)
	}
	e.note("something else", "x", false)
	r, err := e.finish()
	want := []string{"a link is left out: 0", "a link is left out: 1", "a link is left out: 2", "something else: x", "a link is left out: 2 more"}
	if err != nil || r.Skipped != 5 || !slices.Equal(r.Notes, want) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFailuresAreCounted(t *testing.T) {
	e := newEngine(t.Context(), Options{})
	for i := range 150 {
		e.result(fmt.Sprint(i), &localError{os.ErrPermission})
	}
	_, err := e.finish()
	failed, ok := errors.AsType[*FilesError](err)
	if !ok || failed.Count != 150 || len(failed.Failed) != 100 {
		t.Fatalf("%+v", failed)
	}
	if text := err.Error(); !strings.HasPrefix(text, "150 of the files could not be transferred; \"0\": permission denied;") || !strings.HasSuffix(text, "; and 145 more") {
		t.Errorf("%s", text)
	}
}

// The first fatal error counts, not what follows from it.
func TestTheFirstErrorCounts(t *testing.T) {
	e := newEngine(t.Context(), Options{})
	e.result("f", denied)
	e.result("g", errors.New("later"))
	if e.small("h", 1, func(context.Context) error { t.Error("it goes on"); return nil }) {
		t.Error("it goes on")
	}
	if e.inParts("i", func() error { t.Error("it goes on"); return nil }) {
		t.Error("it goes on")
	}
	if _, err := e.finish(); !errors.Is(err, denied) || !strings.Contains(err.Error(), `"f"`) {
		t.Errorf("error %v", err)
	}
}

func TestAStoreThatAsksForFewer(t *testing.T) {
	calls := 0
	b := hook(t, func(op, _ string) error {
		if calls++; op == "put" && calls == 3 {
			return &storage.ThrottledError{}
		}
		return nil
	})
	e := newEngine(t.Context(), Options{Retries: soon})
	u := &uploader{engine: e, dst: e.wrap(b)}
	for i := range 10 {
		e.small("k", 1, func(ctx context.Context) error {
			_, err := u.dst.Put(ctx, fmt.Sprint(i), strings.NewReader("x"), storage.PutOptions{})
			return err
		})
	}
	e.wg.Wait()
	if e.slots.tuner.limit >= firstLimit {
		t.Errorf("the limit is %d", e.slots.tuner.limit)
	}
	if _, err := e.finish(); err != nil {
		t.Error(err)
	}
}

// Of what has no bytes, such as deletions, objects are counted.
func TestRatesWithoutBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []Progress
		m := startMeter(func(p Progress) { all = append(all, p) })
		for range 1000 {
			m.saw(0)
		}
		time.Sleep(reportEvery / 2)
		m.files.Add(50)
		for range 3 { // 100 objects a second
			time.Sleep(reportEvery)
			m.files.Add(50)
		}
		m.counted.Store(true)
		time.Sleep(reportEvery)
		synctest.Wait()
		m.stop()
		p := all[3]
		if p.FileRate < 99 || p.FileRate > 101 || p.Left < 7*time.Second || p.Left > 9*time.Second || p.Rate != 0 {
			t.Errorf("%+v", p)
		}
		if all[1].Left != 0 {
			t.Errorf("time is left although not all was seen: %+v", all[1])
		}
	})
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []Progress
		m := startMeter(func(p Progress) { all = append(all, p) })
		m.saw(1000)
		time.Sleep(reportEvery / 2) // between two reports
		m.bytes(50)                 // of the first
		for range 3 {               // 100 bytes a second
			time.Sleep(reportEvery)
			m.bytes(50)
		}
		m.counted.Store(true)
		time.Sleep(2 * reportEvery)
		synctest.Wait()
		m.bytes(800)
		m.file()
		m.stop()
		if len(all) < 5 {
			t.Fatalf("%d reports", len(all))
		}
		p := all[3]
		if p.Rate < 99 || p.Rate > 101 || p.Left < 7*time.Second || p.Left > 9*time.Second || p.Bytes != 200 || p.TotalBytes != 1000 {
			t.Errorf("%+v", p)
		}
		for _, p := range all[:3] {
			if p.Left != 0 {
				t.Errorf("time is left although not all was seen: %+v", p)
			}
		}
		if last := all[len(all)-1]; last.Bytes != 1000 || last.Files != 1 || last.Left != 0 {
			t.Errorf("the last report is %+v", last)
		}
	})
}

// Nothing is uploaded that an ignore file may name which cannot be read.
func TestIgnoreFilesThatAreTooLarge(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"secret": "x", "d/f": "y"})
	must(t, os.WriteFile(filepath.Join(dir, ".gitignore"), make([]byte, maxRules+1), 0o600))
	b := newBucket(t, &memory.Store{}, "b")
	if _, err := Upload(t.Context(), source(t, dir), b, "", Options{}); err == nil || !strings.Contains(err.Error(), ".gitignore is larger") {
		t.Errorf("error %v", err)
	}
	wantFiles(t, "bucket", objects(t, b), nil)
	// A folder of that name has no rules.
	must(t, os.Remove(filepath.Join(dir, ".gitignore")))
	must(t, os.Mkdir(filepath.Join(dir, ".gitignore"), 0o755))
	if _, err := Upload(t.Context(), source(t, dir), newBucket(t, &memory.Store{}, "b"), "", Options{}); err != nil {
		t.Error(err)
	}
}

// Parts that are too large for the memory are read from the file as they are sent.
func TestPartsLargerThanTheMemory(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	dir := t.TempDir()
	write(t, dir, map[string]string{"f": content(20<<10, 1)})
	if _, err := Upload(t.Context(), source(t, dir), b, "", Options{Part: 8 << 10, Memory: 9 << 10}); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, "bucket", objects(t, b), files(t, dir))
	if o, _ := b.Stat(t.Context(), "f"); !strings.HasSuffix(o.ETag, "-3") {
		t.Errorf("ETag %s, want one of three parts", o.ETag)
	}
}

func TestManyFoldersAreOpen(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	want := map[string]string{}
	for i := range 3 * mostOpen {
		want[fmt.Sprintf("%03d/x/y", i)] = fmt.Sprint(i)
		put(t, b, fmt.Sprintf("%03d/x/y", i), fmt.Sprint(i), nil)
	}
	e := newEngine(t.Context(), Options{})
	dst := t.TempDir()
	dest, err := openDest(dst)
	must(t, err)
	d := &downloader{engine: e, src: b, dest: dest}
	for k := range want {
		o, err := b.Stat(t.Context(), k)
		must(t, err)
		if !d.one(o, k) {
			break
		}
	}
	_, err = e.finish()
	if n := len(dest.open); err != nil || n > mostOpen+firstLimit {
		t.Errorf("%d folders are open, %v", n, err)
	}
	dest.close()
	wantFiles(t, "downloaded", files(t, dst), want)
}

// A large file is fetched by few requests, whose ranges become shorter towards its end, and
// what an interrupted download has fetched is not fetched again.
func TestRangesOfLargeFiles(t *testing.T) {
	const n = 64
	text := content(n*int(chunk)-100, 7)
	var requests, fetched int64
	fail := errors.New("")
	b := &ranges{Bucket: newBucket(t, &memory.Store{}, "b"), see: func(o storage.GetOptions) error {
		requests++
		if fail != nil && requests == 3 {
			return fail
		}
		if o.Length > mostPieces*chunk || o.Offset%chunk != 0 {
			t.Errorf("asked for %d bytes at %d", o.Length, o.Offset)
		}
		fetched += o.Length
		return nil
	}}
	put(t, b.Bucket, "large", text, nil)
	dir := t.TempDir()
	o := Options{Workers: 4}
	if _, _, err := Download(t.Context(), b, "large", filepath.Join(dir, "large"), o); !errors.Is(err, fail) {
		t.Fatal(err)
	}
	fail = nil
	if _, _, err := Download(t.Context(), b, "large", filepath.Join(dir, "large"), o); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, "folder", files(t, dir), map[string]string{"large": text})
	if requests > n/2 {
		t.Errorf("%d requests for %d pieces", requests, n)
	}
	// What was on its way when the first download failed is asked for again.
	if most := int64(len(text)) + 3*mostPieces*chunk; fetched > most {
		t.Errorf("%d bytes were asked for, want at most %d", fetched, most)
	}
	for left, want := range map[int]int{64: 8, 33: 8, 15: 3, 4: 1, 1: 1} {
		d := &downloader{engine: newEngine(t.Context(), o)}
		if got := d.span(make([]bool, left)); got != want {
			t.Errorf("%d pieces of %d are fetched at once, want %d", got, left, want)
		}
		d.finish()
	}
	d := &downloader{engine: newEngine(t.Context(), o)}
	defer d.finish()
	have := make([]bool, 64)
	have[5] = true
	if got := d.span(have); got != 5 {
		t.Errorf("%d pieces are fetched before one that is there, want 5", got)
	}
}

// ranges is a bucket that sees what is read of it, one at a time.
type ranges struct {
	storage.Bucket
	mu  sync.Mutex
	see func(storage.GetOptions) error
}

func (r *ranges) Unwrap() storage.Bucket { return r.Bucket }

func (r *ranges) Get(ctx context.Context, key string, o storage.GetOptions) (storage.Reader, error) {
	r.mu.Lock()
	err := r.see(o)
	r.mu.Unlock()
	if err != nil {
		return storage.Reader{}, err
	}
	return r.Bucket.Get(ctx, key, o)
}

// A bucket that others delete while something is moved ends that with one error, which says
// so; deleting what is in it is done then.
func TestABucketThatIsDeletedMeanwhile(t *testing.T) {
	vanishing := func(at string) (*hooked, *atomic.Int64) {
		var calls atomic.Int64 // of those after it is gone
		var gone atomic.Bool
		var b *hooked
		b = hook(t, func(op, key string) error {
			if op == at {
				gone.Store(true)
			}
			if gone.Load() {
				calls.Add(1)
				return &storage.NotFoundError{Bucket: b.Location()}
			}
			return nil
		})
		return b, &calls
	}
	isGone := func(what string, err error) {
		t.Helper()
		missing, ok := errors.AsType[*storage.NotFoundError](err)
		if _, files := errors.AsType[*FilesError](err); !ok || missing.Key != "" || files {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir := t.TempDir()
	write(t, dir, someTree())
	for i := range 200 {
		write(t, dir, map[string]string{fmt.Sprint("more/", i): "x"})
	}
	for _, op := range []string{"put", "start", "part 2"} {
		b, calls := vanishing(op)
		_, err := Upload(t.Context(), source(t, dir), b, "", Options{})
		isGone("upload, "+op, err)
		if n := calls.Load(); n > 150 {
			t.Errorf("upload, %s: %d calls after the bucket was gone", op, n)
		}
	}
	for _, op := range []string{"list", "get"} {
		b, calls := vanishing(op)
		for i := range 200 {
			put(t, b.Bucket, fmt.Sprint("k", i), "x", nil)
		}
		_, _, err := Download(t.Context(), b, "", t.TempDir(), Options{})
		isGone("download, "+op, err)
		_, err = Copy(t.Context(), b, "", newBucket(t, &memory.Store{}, "to"), "", Options{})
		isGone("copy, "+op, err)
		if n := calls.Load(); n > 150 {
			t.Errorf("%s: %d calls after the bucket was gone", op, n)
		}
	}
	for _, op := range []string{"uploads", "versions", "remove"} {
		b, _ := vanishing(op)
		put(t, b.Bucket, "k", "x", nil)
		if _, err := Delete(t.Context(), b, "", Options{}); err != nil {
			t.Errorf("delete, %s: %v", op, err)
		}
	}
}
