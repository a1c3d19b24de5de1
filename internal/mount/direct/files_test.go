//go:build linux

package direct

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// real has the limits of S3.
func real(t testing.TB) *memory.Bucket {
	t.Helper()
	b := (&memory.Store{MinPart: 5 * mib}).Bucket("bucket")
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func random(n int, seed uint64) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	r.Read(p)
	return p
}

func put(t testing.TB, b storage.Bucket, key string, data []byte) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, bytes.NewReader(data), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, b storage.Bucket, key string) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), key, storage.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func open(t testing.TB, v *Volume, path string, o vfs.OpenOptions) vfs.Handle {
	t.Helper()
	h, err := v.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h
}

func write(t testing.TB, h vfs.Handle, p []byte, off int64) {
	t.Helper()
	for at := 0; at < len(p); {
		n := min(len(p)-at, 128*kib)
		if _, err := h.WriteAt(t.Context(), p[at:at+n], off+int64(at)); err != nil {
			t.Fatal(err)
		}
		at += n
	}
}

// counted counts calls.
type counted struct {
	storage.Bucket
	got, copied atomic.Int64
}

func (c *counted) Unwrap() storage.Bucket { return c.Bucket }

func (c *counted) Get(ctx context.Context, key string, o storage.GetOptions) (storage.Reader, error) {
	r, err := c.Bucket.Get(ctx, key, o)
	if err == nil {
		r.ReadCloser = &reads{r.ReadCloser, &c.got}
	}
	return r, err
}

type reads struct {
	io.ReadCloser
	n *atomic.Int64
}

func (r *reads) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.n.Add(int64(n))
	return n, err
}

func (c *counted) CopyPart(ctx context.Context, u storage.Upload, n int, from storage.Source, off, length int64) (storage.Part, error) {
	c.copied.Add(length)
	return c.Bucket.CopyPart(ctx, u, n, from, off, length)
}

func TestLargeFilesAreReadAndWritten(t *testing.T) {
	b := real(t)
	v := New(b, Options{Memory: 64 * mib})
	data := random(30*mib+12345, 1)
	h := open(t, v, "dir/large", vfs.OpenOptions{Write: true, Create: true})
	write(t, h, data, 0)
	if err := h.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, b, "dir/large"), data) {
		t.Fatal("the object is another one")
	}
	r := open(t, v, "dir/large", vfs.OpenOptions{Read: true})
	got := make([]byte, 0, len(data))
	for p := make([]byte, 128*kib); ; {
		n, err := r.ReadAt(t.Context(), p, int64(len(got)))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p[:n]...)
		if n < len(p) {
			break
		}
	}
	if !bytes.Equal(got, data) {
		t.Fatal("it is read as another one")
	}
	h.Release()
	r.Release()
	waitFor(t, "the memory to be free", func() bool { return v.budget.Left() == v.memory })
}

func waitFor(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s", what)
		}
	}
}

func TestLargeFilesAreChangedByCopiesInTheStore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, h vfs.Handle, data []byte) []byte
	}{
		{"append", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			more := random(100, 2)
			write(t, h, more, int64(len(data)))
			return append(data, more...)
		}},
		{"append much", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			more := random(12*mib, 2)
			write(t, h, more, int64(len(data)))
			return append(data, more...)
		}},
		{"the beginning", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			write(t, h, random(1000, 3), 0)
			copy(data, random(1000, 3))
			return data
		}},
		{"the middle, twice", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			for _, off := range []int64{7 * mib, 20*mib + 5} {
				write(t, h, random(1000, 3), off)
				copy(data[off:], random(1000, 3))
			}
			return data
		}},
		{"behind the end", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			off := int64(len(data) + 100_000)
			write(t, h, []byte("x"), off)
			return append(append(data, make([]byte, 100_000)...), 'x')
		}},
		{"cut", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			if err := h.Truncate(t.Context(), 20*mib); err != nil {
				t.Fatal(err)
			}
			return data[:20*mib]
		}},
		{"cut to nothing", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			if err := h.Truncate(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			write(t, h, []byte("new"), 0)
			return []byte("new")
		}},
		{"longer", func(t *testing.T, h vfs.Handle, data []byte) []byte {
			if err := h.Truncate(t.Context(), int64(len(data)+7*mib)); err != nil {
				t.Fatal(err)
			}
			return append(data, make([]byte, 7*mib)...)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inner := real(t)
			b := &counted{Bucket: inner}
			data := random(22*mib, 1)
			put(t, b, "x", data)
			v := New(b, Options{})
			h := open(t, v, "x", vfs.OpenOptions{Read: true, Write: true})
			want := tt.change(t, h, data)
			if err := h.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := content(t, inner, "x"); !bytes.Equal(got, want) {
				t.Errorf("%d bytes, want %d", len(got), len(want))
			}
			if read := b.got.Load(); read > 18*mib {
				t.Errorf("%d bytes were read for it", read)
			}
		})
	}
}

func TestRandomReadsDoNotReadTheObject(t *testing.T) {
	b := &counted{Bucket: real(t)}
	data := random(32*mib, 1)
	put(t, b, "x", data)
	h := open(t, New(b, Options{}), "x", vfs.OpenOptions{Read: true})
	for i := range int64(20) {
		off := (i*7919%31)*mib + 12345
		p := make([]byte, 4096)
		if _, err := h.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, data[off:off+4096]) {
			t.Fatalf("at %d: %v", off, err)
		}
	}
	if got := b.got.Load(); got > 8*mib {
		t.Errorf("20 reads of 4 KB read %d bytes", got)
	}
}

func TestWritingBackwardsIsRefusedInLargeFiles(t *testing.T) {
	v := New(real(t), Options{})
	h := open(t, v, "x", vfs.OpenOptions{Write: true, Create: true})
	write(t, h, random(20*mib, 1), 0)
	_, err := h.WriteAt(t.Context(), []byte("x"), 0)
	if vfs.Errno(err) != syscall.ENOTSUP || !strings.Contains(err.Error(), "MOUNT_CACHED") {
		t.Errorf("writing at 0 after 20 MB: %v", err)
	}
}

func TestTheSecondOfTwoWritersIsTold(t *testing.T) {
	for _, size := range []int{10, 9 * mib} {
		for _, name := range []string{"conditions", "none"} {
			inner := real(t)
			var b storage.Bucket = inner
			if name == "none" {
				b = plain{inner}
			}
			put(t, b, "x", []byte("old"))
			one, two := New(b, Options{}), New(b, Options{})
			h1 := open(t, one, "x", vfs.OpenOptions{Write: true, Trunc: true})
			h2 := open(t, two, "x", vfs.OpenOptions{Write: true, Trunc: true})
			write(t, h1, random(size, 1), 0)
			write(t, h2, random(size, 2), 0)
			if err := h1.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := h2.Flush(t.Context())
			if vfs.Errno(err) != syscall.EIO || !strings.Contains(err.Error(), "somebody else") {
				t.Errorf("%s, %d bytes: the second one ends with %v", name, size, err)
			}
			if !bytes.Equal(content(t, inner, "x"), random(size, 1)) {
				t.Errorf("%s, %d bytes: the object is not the first one's", name, size)
			}
			if f := two.Failures(func(string) bool { return true }); len(f) != 1 || f[0].Path != "x" {
				t.Errorf("failures: %v", f)
			}
			p, err := inner.Uploads(t.Context(), storage.ListOptions{})
			if err != nil || len(p.Uploads) > 0 {
				t.Errorf("%d uploads are left: %v", len(p.Uploads), err)
			}
		}
	}
}

func TestOneOfSeveralMakesAFileExclusively(t *testing.T) {
	b := real(t)
	one, two := New(b, Options{}), New(b, Options{})
	o := vfs.OpenOptions{Write: true, Create: true, Excl: true}
	if _, err := two.Stat(t.Context(), "lock"); vfs.Errno(err) != syscall.ENOENT {
		t.Fatal(err)
	}
	open(t, one, "lock", o)
	if _, err := two.Open(t.Context(), "lock", o); vfs.Errno(err) != syscall.EEXIST {
		t.Errorf("the second one: %v", err)
	}
}

func TestWhatIsReplacedIsNotReadOn(t *testing.T) {
	b := real(t)
	data := random(24*mib, 1)
	put(t, b, "x", data)
	v := New(b, Options{})
	h := open(t, v, "x", vfs.OpenOptions{Read: true})
	p := make([]byte, 4096)
	if _, err := h.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	put(t, b, "x", random(24*mib, 2))
	if _, err := h.ReadAt(t.Context(), p, 20*mib); vfs.Errno(err) != syscall.ESTALE {
		t.Errorf("reading what was replaced: %v", err)
	}
	again := open(t, v, "x", vfs.OpenOptions{Read: true})
	if n, err := again.ReadAt(t.Context(), p, 20*mib); err != nil || !bytes.Equal(p[:n], random(24*mib, 2)[20*mib:20*mib+4096]) {
		t.Errorf("opened again: %v", err)
	}
}

func TestWhatWasClosedIsSeenWhereItIsOpened(t *testing.T) {
	b := real(t)
	one, two := New(b, Options{}), New(b, Options{})
	for range two.ReadDir(t.Context(), "") { // knows that it is empty
	}
	for _, text := range []string{"first", "the second", ""} {
		h := open(t, one, "x", vfs.OpenOptions{Write: true, Create: true, Trunc: true})
		write(t, h, []byte(text), 0)
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := open(t, two, "x", vfs.OpenOptions{Read: true})
		p := make([]byte, 100)
		n, err := r.ReadAt(t.Context(), p, 0)
		if err != nil || string(p[:n]) != text || r.Attr().Size != int64(len(text)) {
			t.Errorf("%q (size %d): %v, want %q", p[:n], r.Attr().Size, err, text)
		}
	}
}

// refusing refuses writes.
type refusing struct {
	storage.Bucket
	err error
}

func (r *refusing) Unwrap() storage.Bucket { return r.Bucket }

func (r *refusing) Put(context.Context, string, io.ReadSeeker, storage.PutOptions) (storage.Object, error) {
	return storage.Object{}, r.err
}

func (r *refusing) PutPart(context.Context, storage.Upload, int, io.ReadSeeker) (storage.Part, error) {
	return storage.Part{}, r.err
}

func TestCloseReportsTheUploadsFailure(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want syscall.Errno
	}{
		{&storage.DeniedError{Permission: "s3:PutObject"}, syscall.EACCES},
		{&storage.UnavailableError{Err: errors.New("away")}, syscall.EIO},
		{&storage.NotFoundError{}, syscall.EIO},
	} {
		for _, size := range []int{10, 9 * mib} {
			v := New(&refusing{Bucket: real(t), err: tt.err}, Options{Owner: func(pid int) string { return "job" }})
			h := open(t, v, "x", vfs.OpenOptions{Write: true, Create: true})
			for off := int64(0); off < int64(size); off += 10 {
				if _, err := h.WriteAt(t.Context(), make([]byte, min(size, mib)), off); err != nil {
					break // told early
				}
				off += int64(min(size, mib))
			}
			if err := h.Flush(t.Context()); vfs.Errno(err) != tt.want {
				t.Errorf("%d bytes, %v: close fails with %v", size, tt.err, err)
			}
			if f := v.Failures(func(o string) bool { return o == "job" }); len(f) != 1 {
				t.Errorf("%d failures", len(f))
			}
			if _, err := v.Stat(t.Context(), "x"); vfs.Errno(err) != syscall.ENOENT {
				t.Errorf("what was not stored is there: %v", err)
			}
		}
	}
}

func TestManyWritersDoNotWaitForEachOther(t *testing.T) {
	v := New(real(t), Options{Memory: 16 * mib})
	var all []vfs.Handle
	for i := range 12 {
		h := open(t, v, "dir/"+string(rune('a'+i)), vfs.OpenOptions{Write: true, Create: true})
		write(t, h, random(6*mib, 1), 0)
		all = append(all, h)
	}
	for _, h := range all {
		write(t, h, random(6*mib, 1), 6*mib)
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFoldersOfOthers(t *testing.T) {
	b := real(t)
	for _, key := range []string{"implicit/x", "marker/", "both", "both/x", "a//b", "..", "deep/er/"} {
		put(t, b, key, nil)
	}
	v := New(b, Options{})
	names := map[string]vfs.Type{}
	for a, err := range v.ReadDir(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names[a.Name] = a.Type
	}
	for _, name := range []string{"implicit", "marker", "both", "deep", "a"} {
		if names[name] != vfs.Dir {
			t.Errorf("%s is %v", name, names[name])
		}
		if a, err := v.Stat(t.Context(), name); err != nil || a.Type != vfs.Dir {
			t.Errorf("stat of %s: %v, %v", name, a.Type, err)
		}
	}
	if _, ok := names[".."]; ok {
		t.Error("a name that cannot be is listed")
	}
	// A folder stays when the last file in it goes, and goes when it is removed.
	if err := v.Unlink(t.Context(), "implicit/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Stat(t.Context(), "implicit"); err != nil {
		t.Error("the folder went with its file: ", err)
	}
	if err := v.Rmdir(t.Context(), "implicit"); err != nil {
		t.Error(err)
	}
	if _, err := v.Stat(t.Context(), "implicit"); vfs.Errno(err) != syscall.ENOENT {
		t.Errorf("after rmdir: %v", err)
	}
}

func TestAFolderOfTooManyObjectsIsNotRenamed(t *testing.T) {
	b := real(t)
	for i := range 12 {
		put(t, b, "dir/"+string(rune('a'+i)), nil)
	}
	o := Options{}
	o.Tree.Moved = 10
	err := New(b, o).Rename(t.Context(), "dir", "other", false)
	if vfs.Errno(err) != syscall.EXDEV {
		t.Errorf("%v", err)
	}
	o.Tree.Moved = 12
	if err := New(b, o).Rename(t.Context(), "dir", "other", false); err != nil {
		t.Errorf("%v", err)
	}
}
