//go:build linux

package cached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// moody is a store in trouble.
type moody struct {
	storage.Bucket
	err  atomic.Pointer[error] // of writes; nil: none
	puts atomic.Int64
	hold chan struct{} // if it is not nil, writes wait until it is closed
}

func (m *moody) Unwrap() storage.Bucket { return m.Bucket }

func (m *moody) fail(err error) {
	if err == nil {
		m.err.Store(nil)
		return
	}
	m.err.Store(&err)
}

func (m *moody) before(ctx context.Context) error {
	m.puts.Add(1)
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if e := m.err.Load(); e != nil {
		return *e
	}
	return nil
}

func (m *moody) Put(ctx context.Context, key string, body io.ReadSeeker, o storage.PutOptions) (storage.Object, error) {
	if err := m.before(ctx); err != nil {
		return storage.Object{}, err
	}
	return m.Bucket.Put(ctx, key, body, o)
}

func (m *moody) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	if err := m.before(ctx); err != nil {
		return storage.Part{}, err
	}
	return m.Bucket.PutPart(ctx, u, n, body)
}

func write(t testing.TB, v *Volume, path, text string) {
	t.Helper()
	if err := rewrite(t.Context(), v, path, text); err != nil {
		t.Fatal(err)
	}
}

func object(t testing.TB, b storage.Bucket, key string) string {
	t.Helper()
	r, err := b.Get(t.Context(), key, storage.GetOptions{})
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func only(job string) func(string) bool { return func(o string) bool { return o == job || o == "" } }

func waitFor(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s", what)
		}
	}
}

func TestAFlushWaitsForItsOwnJobOnly(t *testing.T) {
	b := &moody{Bucket: bucket(t), hold: make(chan struct{})}
	v := opened(t, b, Options{Config: mountapi.Config{WriteBack: time.Hour}})
	v.owner = func(pid int) string { return fmt.Sprint("job", pid) }
	for pid := 1; pid <= 2; pid++ {
		h, err := v.Open(t.Context(), fmt.Sprint("file", pid), vfs.OpenOptions{Write: true, Create: true, By: vfs.Caller{PID: pid}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("text"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pid == 1 {
			defer h.Release() // it stays open
		} else {
			h.Release()
		}
	}
	if n, err := v.Flush(t.Context(), only("job3")); n != 0 || err != nil {
		t.Errorf("of a job that wrote nothing: %d, %v", n, err)
	}
	var s mountapi.Stats
	v.Stats(&s)
	if s.DirtyFiles != 2 || s.DirtyBytes != 8 {
		t.Errorf("stats: %+v", s)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := v.Flush(short, only("job1"))
	if e, _ := errors.AsType[*mountapi.Error](err); e == nil || e.Code != mountapi.TimedOut || len(e.Files) != 1 || e.Files[0].Path != "file1" {
		t.Errorf("a flush that may not wait long enough: %v", err)
	}
	close(b.hold)
	if n, err := v.Flush(t.Context(), only("job1")); n != 1 || err != nil {
		t.Errorf("of the job: %d, %v", n, err)
	}
	if got := object(t, b, "file1"); got != "text" {
		t.Errorf("the bucket has %q", got)
	}
	if _, err := b.Stat(t.Context(), "file2"); err == nil {
		t.Error("the other job's file was uploaded, too")
	}
}

func TestALastingErrorEndsTheFlushAndNamesTheFile(t *testing.T) {
	for _, wrong := range []error{&storage.DeniedError{Permission: "s3:PutObject"}, &storage.NotFoundError{}, &storage.CredentialsError{}} {
		b := &moody{Bucket: bucket(t)}
		b.fail(wrong)
		v := opened(t, b, Options{})
		write(t, v, "dir-file", "text")
		_, err := v.Flush(t.Context(), everyone)
		e, _ := errors.AsType[*mountapi.Error](err)
		if e == nil || e.Code != mountapi.NotStored || len(e.Files) != 1 || e.Files[0].Path != "dir-file" || e.Files[0].State != mountapi.Failed {
			t.Errorf("%T: %+v", wrong, err)
		}
		// Nothing is lost: with other credentials it goes on.
		b.fail(nil)
		v.Kick()
		if _, err := v.Flush(t.Context(), everyone); err != nil {
			t.Error(err)
		}
		if got := object(t, b, "dir-file"); got != "text" {
			t.Errorf("the bucket has %q", got)
		}
	}
}

func TestAStoreThatIsAwayIsWaitedFor(t *testing.T) {
	b := &moody{Bucket: bucket(t)}
	b.fail(&storage.UnavailableError{Err: errors.New("away")})
	v := opened(t, b, Options{})
	want := strings.Repeat("x", smallUpload+100)
	write(t, v, "large", want)
	write(t, v, "small", "text")
	waitFor(t, "several tries", func() bool { return b.puts.Load() > 10 })
	if q := v.Queue(); len(q) != 2 {
		t.Errorf("the queue: %+v", q)
	}
	b.fail(nil)
	if _, err := v.Flush(t.Context(), everyone); err != nil {
		t.Fatal(err)
	}
	if got := object(t, b, "large"); got != want {
		t.Errorf("the bucket has %d bytes", len(got))
	}
	if p, err := b.Uploads(t.Context(), storage.ListOptions{}); err != nil || len(p.Uploads) > 0 {
		t.Errorf("%d uploads are left, %v", len(p.Uploads), err)
	}
}

func TestBothVersionsOfWhatTwoWroteAreKept(t *testing.T) {
	for _, name := range []string{"conditions", "none"} {
		inner := bucket(t)
		var b storage.Bucket = inner
		if name == "none" {
			b = plain{inner}
		}
		put(t, inner, "x", "old")
		v := opened(t, b, Options{Config: mountapi.Config{WriteBack: time.Hour}})
		if got := read(t, v, "x"); got != "old" {
			t.Fatal(got)
		}
		if err := add(t.Context(), v, "x", " and mine"); err != nil {
			t.Fatal(err)
		}
		put(t, inner, "x", "theirs")
		if _, err := v.Flush(t.Context(), everyone); err != nil {
			t.Fatal(err)
		}
		if got := object(t, inner, "x"); got != "theirs" {
			t.Errorf("%s: the object is %q", name, got)
		}
		q := v.Queue()
		if len(q) != 1 || q[0].State != mountapi.Conflict || !strings.HasPrefix(q[0].Path, "x.conflict-node-") {
			t.Fatalf("%s: the queue: %+v", name, q)
		}
		if got := object(t, inner, q[0].Path); got != "old and mine" {
			t.Errorf("%s: the other version is %q", name, got)
		}
		v.Forget()
		if got := read(t, v, "x"); got != "theirs" {
			t.Errorf("%s: it reads %q", name, got)
		}
		// What others deleted is written again.
		if err := add(t.Context(), v, "x", " and mine"); err != nil {
			t.Fatal(err)
		}
		if err := inner.Remove(t.Context(), []storage.ID{{Key: "x"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Flush(t.Context(), everyone); err != nil {
			t.Fatal(err)
		}
		if got := object(t, inner, "x"); got != "theirs and mine" {
			t.Errorf("%s: after a deletion by others: %q", name, got)
		}
		// A deletion here does not delete what others wrote.
		if err := v.Unlink(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		v.Close()
	}
}

func TestADeletionSparesWhatOthersWrote(t *testing.T) {
	b := bucket(t)
	put(t, b, "x", "old")
	hold := &moody{Bucket: b}
	v := opened(t, hold, Options{Config: mountapi.Config{Transfers: 1}})
	// The only transfer waits, so that the deletion comes later.
	hold.hold = make(chan struct{})
	write(t, v, "first", "text")
	waitFor(t, "the transfer", func() bool { return hold.puts.Load() > 0 })
	if err := v.Unlink(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Stat(t.Context(), "x"); vfs.Errno(err) != syscall.ENOENT {
		t.Errorf("what was deleted is there: %v", err)
	}
	put(t, b, "x", "theirs")
	close(hold.hold)
	if _, err := v.Flush(t.Context(), everyone); err != nil {
		t.Fatal(err)
	}
	if got := object(t, b, "x"); got != "theirs" {
		t.Errorf("the object: %q", got)
	}
}

func put(t testing.TB, b storage.Bucket, key, text string) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, strings.NewReader(text), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, v vfs.Volume, path string) string {
	t.Helper()
	h, err := v.Open(t.Context(), path, vfs.OpenOptions{Read: true})
	if err != nil {
		return err.Error()
	}
	defer h.Release()
	p := make([]byte, h.Attr().Size+1)
	n, err := h.ReadAt(t.Context(), p, 0)
	if err != nil {
		return err.Error()
	}
	return string(p[:n])
}

func TestTheCacheStaysInItsLimit(t *testing.T) {
	b := bucket(t)
	for i := range 10 {
		put(t, b, fmt.Sprint("file", i), strings.Repeat(fmt.Sprint(i), 2<<20))
	}
	dir := t.TempDir()
	v := opened(t, b, Options{Dir: dir, Config: mountapi.Config{CacheMaxSize: 5 << 20, WriteBack: time.Hour}})
	write(t, v, "mine", strings.Repeat("m", 3<<20))
	for i := range 10 {
		if got := read(t, v, fmt.Sprint("file", i)); got != strings.Repeat(fmt.Sprint(i), 2<<20) {
			t.Fatalf("file %d has %d bytes: %.40q", i, len(got), got)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 3 { // the file that is not uploaded, and at most two
		t.Errorf("the cache holds %d files", len(entries))
	}
	if got := read(t, v, "mine"); got != strings.Repeat("m", 3<<20) {
		t.Error("what is not uploaded was dropped")
	}
}

func TestOnlyWhatIsReadIsFetched(t *testing.T) {
	b := bucket(t)
	data := make([]byte, 64<<20)
	for i := range data {
		data[i] = byte(i >> 16)
	}
	if _, err := b.Put(t.Context(), "x", bytes.NewReader(data), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	v := opened(t, b, Options{Config: mountapi.Config{BufferSize: 1 << 20, ReadChunkStreams: 1}})
	h, err := v.Open(t.Context(), "x", vfs.OpenOptions{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	for _, off := range []int64{50 << 20, 10<<20 + 5, 30 << 20} {
		p := make([]byte, 4096)
		if n, err := h.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p[:n], data[off:off+4096]) {
			t.Fatalf("at %d: %v", off, err)
		}
	}
	if got := v.bytes.Load(); got > 8<<20 {
		t.Errorf("three reads of 4 KB fetched %d bytes", got)
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("a small disk cannot be mounted: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	b := bucket(t)
	put(t, b, "theirs", strings.Repeat("t", 3<<20))
	v := opened(t, b, Options{Dir: dir, Config: mountapi.Config{WriteBack: time.Hour}})
	if got := read(t, v, "theirs"); len(got) != 3<<20 {
		t.Fatalf("%.100q", got)
	}
	kept := strings.Repeat("k", 3<<20)
	write(t, v, "kept", kept)
	// Content that the bucket has makes room, then there is none.
	write(t, v, "more", kept)
	err := rewrite(t.Context(), v, "too much", kept)
	if vfs.Errno(err) != syscall.ENOSPC || !strings.Contains(err.Error(), "not uploaded") {
		t.Errorf("writing to a full disk: %v", err)
	}
	if err := v.Unlink(t.Context(), "too much"); err != nil && vfs.Errno(err) != syscall.ENOENT {
		t.Fatal(err)
	}
	for _, path := range []string{"kept", "more"} {
		if got := read(t, v, path); got != kept {
			t.Errorf("%s has %d bytes", path, len(got))
		}
	}
	if _, err := v.Flush(t.Context(), everyone); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"kept", "more"} {
		if got := object(t, b, path); got != kept {
			t.Errorf("the bucket has %d bytes of %s", len(got), path)
		}
	}
	// When it is uploaded, there is room again.
	if err := rewrite(t.Context(), v, "later", kept); err != nil {
		t.Error(err)
	}
	if got := read(t, v, "theirs"); got != strings.Repeat("t", 3<<20) {
		t.Errorf("the others' file has %d bytes", len(got))
	}
}

func TestVictimsAreTheLeastUsed(t *testing.T) {
	at := func(m int) time.Time { return time.Date(2026, 1, 1, 0, m, 0, 0, time.UTC) }
	all := []candidate{{"new", 10, at(9)}, {"old", 10, at(1)}, {"middle", 10, at(5)}}
	names := func(c []candidate) string {
		var out []string
		for _, x := range c {
			out = append(out, x.path)
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct {
		total, limit int64
		oldest       time.Time
		want         string
	}{
		{30, 30, at(0), ""},
		{30, 25, at(0), "old"},
		{30, 10, at(0), "old middle"},
		{100, 10, at(0), "old middle new"},
		{30, 30, at(6), "old middle"},
	} {
		if got := names(victims(append([]candidate(nil), all...), tt.total, tt.limit, tt.oldest)); got != tt.want {
			t.Errorf("%d of %d, since %v: %q, want %q", tt.total, tt.limit, tt.oldest, got, tt.want)
		}
	}
}

// After a loss of power, content that was never synced may have holes: it is not uploaded
// over what the bucket has. After a kill it has none.
func TestWhatWasNotSyncedDoesNotSurviveALossOfPower(t *testing.T) {
	for _, boot := range []string{"", "another"} {
		b, dir := bucket(t), t.TempDir()
		put(t, b, "x", "theirs")
		p := failpoint.New(t.Context(), failpoint.Endless, errors.New("killed"))
		v := opened(t, b, Options{Dir: dir, Step: p.Do, Config: mountapi.Config{WriteBack: time.Hour}})
		write(t, v, "closed", "safe")
		h, err := v.Open(t.Context(), "x", vfs.OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("T"), 0); err != nil {
			t.Fatal(err)
		}
		p.Kill()
		v.Close()
		want := "Theirs"
		if boot != "" {
			want = "theirs"
			j, err := openJournal(dir, func(_ string, f func() error) error { return f() })
			if err != nil {
				t.Fatal(err)
			}
			all, err := j.load()
			if err != nil {
				t.Fatal(err)
			}
			changes := map[string]*record{}
			for path, r := range all {
				r.Boot = boot
				changes[path] = &r
			}
			if err := errors.Join(j.put(changes), j.close()); err != nil {
				t.Fatal(err)
			}
		}
		v = opened(t, b, Options{Dir: dir})
		if _, err := v.Flush(t.Context(), everyone); err != nil {
			t.Fatal(err)
		}
		if got := object(t, b, "x"); got != want {
			t.Errorf("boot %q: the bucket has %q, want %q", boot, got, want)
		}
		if got := object(t, b, "closed"); got != "safe" {
			t.Errorf("boot %q: what was closed is %q", boot, got)
		}
	}
}
