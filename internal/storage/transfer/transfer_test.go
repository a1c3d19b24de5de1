package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

func TestMain(m *testing.M) {
	chunk = 1 << 10 // so that small files are large
	flush = func(*os.File) error { return nil }
	os.Exit(m.Run())
}

// newBucket is a bucket in memory that exists.
func newBucket(t testing.TB, s *memory.Store, name string) *memory.Bucket {
	t.Helper()
	b := s.Bucket(name)
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// content is some that repeats nowhere.
func content(size int, seed uint64) string {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1}).Read(data)
	return string(data)
}

// write makes files below a folder, whose times are some while ago.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-time.Hour)
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
	}
}

// files reads all files below a folder.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(p)
			out[filepath.ToSlash(rel)] = "-> " + target
			return err
		}
		text, err := os.ReadFile(p)
		out[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects reads all objects of a bucket.
func objects(t testing.TB, b storage.Bucket) map[string]string {
	t.Helper()
	out := map[string]string{}
	ctx := context.Background()
	o := storage.ListOptions{}
	for {
		page, err := b.List(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page.Objects {
			r, err := b.Get(ctx, x.Key, storage.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			out[x.Key] = string(text)
		}
		if o.Token = page.Next; o.Token == "" {
			return out
		}
	}
}

func put(t testing.TB, b storage.Bucket, key, text string, metadata map[string]string) storage.Object {
	t.Helper()
	o, err := b.Put(t.Context(), key, strings.NewReader(text), storage.PutOptions{Metadata: metadata})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func source(t testing.TB, path string) *Source {
	t.Helper()
	s, err := Local(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func wantFiles(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		text, ok := got[name]
		if !ok {
			t.Errorf("%s: %q is missing", what, name)
		} else if text != want[name] {
			t.Errorf("%s: %q has %d bytes %.30q, want %d bytes %.30q", what, name, len(text), text, len(want[name]), want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q is there", what, name)
		}
	}
}

// someTree are files of all sizes about those of parts.
func someTree() map[string]string {
	return map[string]string{
		"empty": "", "one": "1", "just": content(1<<10, 1), "over": content(1<<10+1, 2), "large": content(10<<10+123, 3), "even": content(4<<10, 4),
		"a/b/c": "deep", "a.b": "before a/", "a-c": "before that", "ünï/文": content(5000, 5), "with space": "x", "%41": "percent",
	}
}

func under(prefix string, files map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range files {
		out[prefix+k] = v
	}
	return out
}

func TestUploadAndDownload(t *testing.T) {
	for _, prefix := range []string{"", "p", "p/q/"} {
		t.Run(prefix, func(t *testing.T) {
			b := newBucket(t, &memory.Store{}, "b")
			src, dst, want := t.TempDir(), filepath.Join(t.TempDir(), "new", "dst"), someTree()
			write(t, src, want)
			put(t, b, "zz/other", "stays", nil)
			r, err := Upload(t.Context(), source(t, src), b, prefix, Options{})
			if err != nil || r.Files != int64(len(want)) || r.Same != 0 {
				t.Fatalf("Upload: %+v, %v", r, err)
			}
			at := folder(prefix)
			all := under(at, want)
			all["zz/other"] = "stays"
			wantFiles(t, "bucket", objects(t, b), all)
			put(t, b, at+"folder/", "", nil)
			isFolder, r, err := Download(t.Context(), b, prefix, dst, Options{})
			if err != nil || !isFolder {
				t.Fatalf("Download: %v, %v", isFolder, err)
			}
			if prefix == "" {
				want["zz/other"] = "stays"
			}
			wantFiles(t, "downloaded", files(t, dst), want)
			if info, err := os.Stat(filepath.Join(dst, "folder")); err != nil || !info.IsDir() {
				t.Errorf("what stands for a folder: %v", err)
			}
			// Times and modes come back, so that nothing is moved the second time.
			info, err := os.Stat(filepath.Join(dst, "large"))
			old, err2 := os.Stat(filepath.Join(src, "large"))
			if err != nil || err2 != nil || !info.ModTime().Equal(old.ModTime()) || info.Mode() != old.Mode() {
				t.Errorf("time and mode %v %v, want %v %v", info.ModTime(), info.Mode(), old.ModTime(), old.Mode())
			}
			if r.Files != int64(len(want)) {
				t.Errorf("Download says %+v", r)
			}
			delete(want, "zz/other")
			if r, err = Upload(t.Context(), source(t, src), b, prefix, Options{}); err != nil || r.Files != 0 || r.Same != int64(len(want)) {
				t.Errorf("Upload again: %+v, %v", r, err)
			}
			if _, r, err = Download(t.Context(), b, prefix, dst, Options{}); err != nil || r.Files != 0 {
				t.Errorf("Download again: %+v, %v", r, err)
			}
		})
	}
}

func TestOneFile(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	dir := t.TempDir()
	write(t, dir, map[string]string{"f": content(3000, 1), "g": "other"})
	for _, c := range []struct{ key, want string }{{"", "f"}, {"d/", "d/f"}, {"as/this", "as/this"}} {
		if r, err := Upload(t.Context(), source(t, filepath.Join(dir, "f")), b, c.key, Options{}); err != nil || r.Files != 1 {
			t.Fatalf("%q: %+v, %v", c.key, r, err)
		}
		if got := objects(t, b); got[c.want] != content(3000, 1) {
			t.Errorf("%q: the bucket has %v", c.key, slices.Collect(maps.Keys(got)))
		}
	}
	out := filepath.Join(t.TempDir(), "x", "y")
	isFolder, r, err := Download(t.Context(), b, "as/this", out, Options{})
	if text, _ := os.ReadFile(out); err != nil || isFolder || r.Files != 1 || string(text) != content(3000, 1) {
		t.Errorf("one object: %v, %+v, %v", isFolder, r, err)
	}
	if _, _, err = Download(t.Context(), b, "as/this", out+"/", Options{}); err == nil {
		t.Error("an object was downloaded as a folder")
	}
	_, _, err = Download(t.Context(), b, "as/thi", out, Options{})
	if missing, ok := errors.AsType[*storage.NotFoundError](err); !ok || missing.Key != "as/thi" {
		t.Errorf("nothing at a key: %v", err)
	}
	_, _, err = Download(t.Context(), (&memory.Store{}).Bucket("none"), "", out, Options{})
	if missing, ok := errors.AsType[*storage.NotFoundError](err); !ok || missing.Key != "" {
		t.Errorf("no bucket: %v", err)
	}
}

// TestRandomTrees moves trees that change, and compares what has come.
func TestRandomTrees(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "a.b", "a-", "c c", "ü", "A"})
	size := rapid.SampledFrom([]int{0, 1, 1023, 1024, 1025, 2048, 5000})
	rapid.Check(t, func(rt *rapid.T) {
		b := newBucket(t, &memory.Store{}, "b")
		src, dst := t.TempDir(), t.TempDir()
		defer os.RemoveAll(src)
		defer os.RemoveAll(dst)
		have := map[string]string{}
		for range 3 {
			n := rapid.IntRange(0, 6).Draw(rt, "files")
			for range n {
				depth := rapid.IntRange(1, 3).Draw(rt, "depth")
				var parts []string
				for range depth {
					parts = append(parts, name.Draw(rt, "name"))
				}
				path := strings.Join(parts, "/")
				// Neither a file in place of a folder nor the other way round.
				clash := slices.ContainsFunc(slices.Collect(maps.Keys(have)), func(k string) bool {
					return strings.HasPrefix(k, path+"/") || strings.HasPrefix(path, k+"/")
				})
				if clash {
					continue
				}
				have[path] = content(size.Draw(rt, "size"), uint64(rapid.IntRange(0, 2).Draw(rt, "seed")))
				write(t, src, map[string]string{path: have[path]})
			}
			if _, err := Upload(t.Context(), source(t, src), b, "p", Options{Memory: 4 << 10}); err != nil {
				rt.Fatal(err)
			}
			if _, _, err := Download(t.Context(), b, "p/", dst, Options{Memory: 4 << 10}); err != nil {
				rt.Fatal(err)
			}
			wantFiles(t, "bucket", objects(t, b), under("p/", have))
			wantFiles(t, "downloaded", files(t, dst), have)
			if t.Failed() {
				rt.FailNow()
			}
		}
	})
}

func TestOnlyWhatDiffersIsMoved(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, file string)
		o      Options
		moved  bool
	}{
		{"nothing", func(*testing.T, string) {}, Options{}, false},
		{"nothing, read again", func(*testing.T, string) {}, Options{Reread: true}, false},
		{"the time", func(t *testing.T, f string) {
			must(t, os.Chtimes(f, time.Now().Add(-time.Minute), time.Now().Add(-time.Minute)))
		}, Options{}, false},
		{"content of the same size", func(t *testing.T, f string) {
			text, _ := os.ReadFile(f)
			text[len(text)-1]++
			must(t, os.WriteFile(f, text, 0o600))
		}, Options{}, true},
		{"content, with the time put back", func(t *testing.T, f string) {
			info, _ := os.Stat(f)
			text, _ := os.ReadFile(f)
			text[len(text)-1]++
			must(t, os.WriteFile(f, text, 0o600))
			must(t, os.Chtimes(f, info.ModTime(), info.ModTime()))
		}, Options{Reread: true}, true},
		{"the size", func(t *testing.T, f string) {
			must(t, os.WriteFile(f, []byte("shorter"), 0o600))
		}, Options{}, true},
	} {
		for _, size := range []int{100, 5000} {
			t.Run(fmt.Sprint(c.name, " ", size), func(t *testing.T) {
				b := newBucket(t, &memory.Store{}, "b")
				dir := t.TempDir()
				write(t, dir, map[string]string{"f": content(size, 1)})
				for i := range 2 {
					if i == 1 {
						c.change(t, filepath.Join(dir, "f"))
					}
					r, err := Upload(t.Context(), source(t, dir), b, "", c.o)
					if want := int64(1); err != nil || i == 1 && (r.Files == want) != c.moved {
						t.Errorf("time %d: %+v, %v", i, r, err)
					}
				}
				wantFiles(t, "bucket", objects(t, b), files(t, dir))
			})
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"keep": "1", "a.log": "2", "build/x": "3", "sub/b.log": "4", "sub/.skyignore": "!b.log\nonly\n", "sub/only": "5", ".git/config": "6", ".git/info/exclude": "keep\n",
		".skyignore": "*.log\n/build\n", ".sky-copy-0011-2233.part": "7",
	})
	must(t, os.Symlink("keep", filepath.Join(dir, "link")))
	must(t, os.Symlink("/etc", filepath.Join(dir, "out")))
	b := newBucket(t, &memory.Store{}, "b")
	r, err := Upload(t.Context(), source(t, dir), b, "", Options{})
	if err != nil || r.Skipped != 3 || len(r.Notes) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	wantFiles(t, "bucket", objects(t, b), map[string]string{"keep": "1", "sub/b.log": "4", ".skyignore": "*.log\n/build\n", "sub/.skyignore": "!b.log\nonly\n"})
	// Git's rules count where there is no .skyignore at the top, and none on request.
	must(t, os.Remove(filepath.Join(dir, ".skyignore")))
	write(t, dir, map[string]string{".gitignore": "build/\n"})
	b = newBucket(t, &memory.Store{}, "b")
	if _, err := Upload(t.Context(), source(t, dir), b, "", Options{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a.log": "2", "sub/b.log": "4", "sub/only": "5", ".gitignore": "build/\n", "sub/.skyignore": "!b.log\nonly\n"}
	wantFiles(t, "with git's rules", objects(t, b), want)
	if _, err := Upload(t.Context(), source(t, dir), b, "", Options{NoIgnore: true}); err != nil {
		t.Fatal(err)
	}
	want["keep"], want["build/x"] = "1", "3"
	wantFiles(t, "without rules", objects(t, b), want)
}

func TestLinksAreKept(t *testing.T) {
	dir, dst := t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	must(t, os.Symlink("../ü x", filepath.Join(dir, "l")))
	b := newBucket(t, &memory.Store{}, "b")
	for i := range 2 {
		r, err := Upload(t.Context(), source(t, dir), b, "", Options{Links: true})
		if err != nil || r.Files != int64(2-2*i) || r.Skipped != 0 {
			t.Errorf("Upload %d: %+v, %v", i, r, err)
		}
	}
	_, r, err := Download(t.Context(), b, "", dst, Options{})
	if err != nil || r.Skipped != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	wantFiles(t, "without links", files(t, dst), map[string]string{"f": "1"})
	for i := range 2 {
		_, r, err = Download(t.Context(), b, "", dst, Options{Links: true})
		if err != nil || r.Files != int64(1-i) {
			t.Errorf("Download %d: %+v, %v", i, r, err)
		}
	}
	wantFiles(t, "with links", files(t, dst), map[string]string{"f": "1", "l": "-> ../ü x"})
}

// A source that somebody else filled leads nowhere else.
func TestSourcesStayWithin(t *testing.T) {
	base := t.TempDir()
	write(t, base, map[string]string{"secret": "s", "up/f": "1"})
	must(t, os.Symlink("../secret", filepath.Join(base, "up", "l")))
	must(t, os.Symlink("..", filepath.Join(base, "up", "d")))
	root, err := os.OpenRoot(filepath.Join(base, "up"))
	must(t, err)
	defer root.Close()
	for _, path := range []string{"l", "d", "d/secret", "../secret", "/etc/passwd", "none"} {
		if s, err := Within(root, path, path); err == nil {
			s.Close()
			t.Errorf("%q was opened", path)
		}
	}
	s, err := Within(root, ".", "up")
	must(t, err)
	defer s.Close()
	b := newBucket(t, &memory.Store{}, "b")
	if _, err := Upload(t.Context(), s, b, "", Options{}); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, "bucket", objects(t, b), map[string]string{"f": "1"})
	// A file that becomes a link between the list and the reading.
	must(t, os.Remove(filepath.Join(base, "up", "f")))
	must(t, os.Symlink("../secret", filepath.Join(base, "up", "f")))
	if f, err := s.open(entry{path: "f"}); err == nil {
		f.Close()
		t.Error("a link out of the root was opened")
	}
}

func TestNamesThatAreNoKeys(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"good": "1"})
	if err := os.WriteFile(filepath.Join(dir, "b\xffd"), nil, 0o600); err != nil {
		t.Skip("the file system takes no such name")
	}
	b := newBucket(t, &memory.Store{}, "b")
	_, err := Upload(t.Context(), source(t, dir), b, "", Options{})
	failed, ok := errors.AsType[*FilesError](err)
	if !ok || failed.Count != 1 || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("error %v", err)
	}
	wantFiles(t, "bucket", objects(t, b), map[string]string{"good": "1"})
}

// Keys are what anybody has written.
func TestHostileKeys(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	good := map[string]string{"a": "file", "a.b": "x", "ok/deep/er": content(3000, 1), "back\\slash": "x", "~": "x", "-rf": "x", "$(id)": "x", "new\nline": "x"}
	bad := []string{
		"../up", "..", ".", "./x", "x/../y", "x/./y", "/abs", "//abs", "x//y", "x/..", "nul\x00", "a/b", "a/c/d", strings.Repeat("n", 256), "d/" + strings.Repeat("n", 300),
		".sky-copy-0011-2233.part",
	}
	for k, v := range good {
		put(t, b, "p/"+k, v, nil)
	}
	for _, k := range bad {
		put(t, b, "p/"+k, "bad", nil)
	}
	put(t, b, "p/full/", "a folder with content", nil)
	put(t, b, "p/", "", nil)
	base := t.TempDir()
	write(t, base, map[string]string{"up": "stays", "y": "stays"})
	dst := filepath.Join(base, "dst")
	_, r, err := Download(t.Context(), b, "p", dst, Options{})
	failed, ok := errors.AsType[*FilesError](err)
	if !ok || failed.Count != int64(len(bad)+1) || r.Files != int64(len(good)) {
		t.Errorf("%+v, %v", r, err)
	}
	if ok {
		var names []string
		for _, f := range failed.Failed {
			names = append(names, strings.TrimPrefix(f.Name, "p/"))
		}
		slices.Sort(names)
		want := append(slices.Clone(bad), "full/")
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("refused %q\nwant    %q", names, want)
		}
	}
	wantFiles(t, "downloaded", files(t, dst), good)
	around := under("dst/", good)
	around["up"], around["y"] = "stays", "stays"
	wantFiles(t, "around", files(t, base), around)
}

func TestDestinationsAreNotLeft(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	put(t, b, "d/f", "new", nil)
	put(t, b, "l", "new", nil)
	put(t, b, "in/f", "new", nil)
	base := t.TempDir()
	dst := filepath.Join(base, "dst")
	write(t, base, map[string]string{"outside/f": "old", "target": "old", "dst/real/x": "1"})
	must(t, os.Symlink("../outside", filepath.Join(dst, "d")))
	must(t, os.Symlink("../target", filepath.Join(dst, "l")))
	must(t, os.Symlink("real", filepath.Join(dst, "in")))
	_, _, err := Download(t.Context(), b, "", dst, Options{})
	failed, ok := errors.AsType[*FilesError](err)
	if !ok || failed.Count != 1 || failed.Failed[0].Name != "d/f" {
		t.Errorf("error %v", err)
	}
	wantFiles(t, "outside", files(t, filepath.Join(base, "outside")), map[string]string{"f": "old"})
	got := files(t, dst)
	if text, _ := os.ReadFile(filepath.Join(base, "target")); string(text) != "old" || got["l"] != "new" || got["real/f"] != "new" {
		t.Errorf("destination %v, target %q", got, text)
	}
}

func TestADestinationIsAFolder(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	put(t, b, "x", "new", nil)
	put(t, b, "y", "new", nil)
	dst := t.TempDir()
	write(t, dst, map[string]string{"x/there": "old"})
	_, r, err := Download(t.Context(), b, "", dst, Options{})
	if failed, ok := errors.AsType[*FilesError](err); !ok || failed.Count != 1 || r.Files != 1 || !strings.Contains(err.Error(), "x is a folder") {
		t.Errorf("%+v, %v", r, err)
	}
	wantFiles(t, "destination", files(t, dst), map[string]string{"x/there": "old", "y": "new"})
}

func TestContentIsCompared(t *testing.T) {
	for _, c := range []struct {
		size  int
		wrong storage.Attributes
	}{{100, storage.Attributes{Hash: "b3:00"}}, {5000, storage.Attributes{Hash: "b3x8m:00"}}, {5000, storage.Attributes{CRC: "00000000"}}} {
		size, wrong := c.size, c.wrong
		b := newBucket(t, &memory.Store{}, "b")
		text := content(size, 1)
		put(t, b, "good", text, nil)
		// Content that is not what its hash says, and whose MD5 nobody knows.
		u, err := b.Start(t.Context(), "bad", storage.PutOptions{Metadata: wrong.Metadata(nil)})
		must(t, err)
		p, err := b.PutPart(t.Context(), u, 1, strings.NewReader(text))
		must(t, err)
		_, err = b.Complete(t.Context(), u, []storage.Part{p}, storage.PutOptions{})
		must(t, err)
		dst := t.TempDir()
		_, r, err := Download(t.Context(), b, "", dst, Options{})
		failed, ok := errors.AsType[*FilesError](err)
		if !ok || failed.Count != 1 || failed.Failed[0].Name != "bad" || !errors.Is(err, errContent) || r.Files != 1 {
			t.Errorf("%d bytes: %+v, %v", size, r, err)
		}
		wantFiles(t, "downloaded", files(t, dst), map[string]string{"good": text})
		if size > 1024 { // neither is it copied through this process
			to := newBucket(t, &memory.Store{}, "to")
			if _, err := Copy(t.Context(), b, "", to, "", Options{}); !errors.Is(err, errContent) {
				t.Errorf("copying %+v: %v", wrong, err)
			}
			wantFiles(t, "copied", objects(t, to), map[string]string{"good": text})
			if n := uploadsLeft(t, to); n > 0 {
				t.Errorf("%d uploads are left", n)
			}
		}
	}
}

// digested is a store whose objects have neither a time nor an MD5, but another checksum.
type digested struct {
	storage.Bucket
	wrong string // key of an object whose content is not what its checksum says
}

func (d digested) with(o storage.Object, text string) storage.Object {
	h := sha256.Sum256([]byte(text))
	o.MD5, o.Modified, o.Metadata, o.Digest = nil, time.Time{}, map[string]string{}, fmt.Sprintf("sha256:%x", h)
	if o.Key == d.wrong {
		o.Digest = "sha256:00"
	}
	return o
}

func (d digested) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	page, err := d.Bucket.List(ctx, o)
	for i, x := range page.Objects {
		r, err := d.Bucket.Get(ctx, x.Key, storage.GetOptions{})
		if err != nil {
			return page, err
		}
		text, _ := io.ReadAll(r)
		page.Objects[i] = d.with(x, string(text))
	}
	return page, err
}

func TestOtherChecksums(t *testing.T) {
	b := digested{Bucket: newBucket(t, &memory.Store{}, "b"), wrong: "wrong"}
	want := map[string]string{"small": "x", "large": content(5000, 1)}
	for k, v := range want {
		put(t, b, k, v, nil)
	}
	dst := t.TempDir()
	for i := range 2 {
		if _, r, err := Download(t.Context(), b, "", dst, Options{}); err != nil || r.Files != int64(2-2*i) || r.Same != int64(2*i) {
			t.Errorf("time %d: %+v, %v", i, r, err)
		}
	}
	wantFiles(t, "downloaded", files(t, dst), want)
	for _, size := range []int{10, 5000} {
		put(t, b, "wrong", content(size, 2), nil)
		if _, _, err := Download(t.Context(), b, "", dst, Options{}); !errors.Is(err, errContent) {
			t.Errorf("%d bytes of wrong content: %v", size, err)
		}
	}
	wantFiles(t, "downloaded", files(t, dst), want)
}

func TestCopyBetweenBuckets(t *testing.T) {
	for _, inside := range []bool{true, false} {
		t.Run(fmt.Sprint("inside ", inside), func(t *testing.T) {
			one := &memory.Store{}
			two := one
			if !inside {
				two = &memory.Store{}
			}
			from, to := newBucket(t, one, "from"), newBucket(t, two, "to")
			dir, want := t.TempDir(), someTree()
			write(t, dir, want)
			if _, err := Upload(t.Context(), source(t, dir), from, "src", Options{}); err != nil {
				t.Fatal(err)
			}
			put(t, from, "src/mark/", "", nil)
			want["mark/"] = ""
			put(t, to, "dst/stays", "x", nil)
			// A large one of another tool, without a hash.
			u, err := from.Start(t.Context(), "src/foreign", storage.PutOptions{Metadata: map[string]string{"team": "a"}})
			must(t, err)
			var parts []storage.Part
			for n := 1; n <= 3; n++ {
				p, err := from.PutPart(t.Context(), u, n, strings.NewReader(content(1000, uint64(n))))
				must(t, err)
				parts = append(parts, p)
				want["foreign"] += content(1000, uint64(n))
			}
			_, err = from.Complete(t.Context(), u, parts, storage.PutOptions{})
			must(t, err)
			r, err := Copy(t.Context(), from, "src", to, "dst", Options{})
			if err != nil || r.Files != int64(len(want)) {
				t.Fatalf("%+v, %v", r, err)
			}
			all := under("dst/", want)
			all["dst/stays"] = "x"
			wantFiles(t, "copied", objects(t, to), all)
			a, _ := from.Stat(t.Context(), "src/large")
			z, _ := to.Stat(t.Context(), "dst/large")
			if storage.AttributesOf(a.Metadata).Hash == "" || storage.AttributesOf(a.Metadata).Hash != storage.AttributesOf(z.Metadata).Hash {
				t.Errorf("metadata %v became %v", a.Metadata, z.Metadata)
			}
			if z, _ := to.Stat(t.Context(), "dst/foreign"); z.Metadata["team"] != "a" {
				t.Errorf("metadata of another tool became %v", z.Metadata)
			}
			if r, err = Copy(t.Context(), from, "src", to, "dst", Options{}); err != nil || r.Files != 0 || r.Same != int64(len(want)) {
				t.Errorf("again: %+v, %v", r, err)
			}
			if r, err = Copy(t.Context(), from, "src/one", to, "single/", Options{}); err != nil || r.Files != 1 || objects(t, to)["single/one"] != "1" {
				t.Errorf("one object: %+v, %v", r, err)
			}
		})
	}
}

// refusing is a bucket that may not be copied from.
type refusing struct {
	storage.Bucket
	copies int
}

func (r *refusing) CopiesFrom(storage.Bucket) bool { return true }
func (r *refusing) Copy(context.Context, string, storage.Source, storage.PutOptions) (storage.Object, error) {
	r.copies++
	return storage.Object{}, &storage.DeniedError{}
}

func TestCopyOutsideWhereTheStoreRefuses(t *testing.T) {
	s := &memory.Store{}
	from, to := newBucket(t, s, "from"), &refusing{Bucket: newBucket(t, s, "to")}
	want := map[string]string{}
	for i := range 40 {
		want[fmt.Sprintf("%02d", i)] = content(100+100*i, uint64(i))
		put(t, from, fmt.Sprintf("%02d", i), want[fmt.Sprintf("%02d", i)], nil)
	}
	if r, err := Copy(t.Context(), from, "", to, "", Options{Workers: 1}); err != nil || r.Files != 40 {
		t.Fatalf("%+v, %v", r, err)
	}
	wantFiles(t, "copied", objects(t, to), want)
	if to.copies > 3 {
		t.Errorf("it was tried %d times", to.copies)
	}
}

func TestDelete(t *testing.T) {
	for _, versioned := range []bool{false, true} {
		s := &memory.Store{}
		b := newBucket(t, s, "b")
		if versioned {
			s.KeepVersions("b")
		}
		ctx := t.Context()
		for i := range 2500 {
			put(t, b, fmt.Sprintf("p/%d", i), "", nil)
		}
		for _, key := range []string{"p", "p", "pq", "p.x", "q/x"} {
			put(t, b, key, "x", nil)
		}
		if versioned {
			must(t, b.Remove(ctx, []storage.ID{{Key: "p"}, {Key: "p/1"}}))
		}
		for _, key := range []string{"p/up", "p", "pq/up"} {
			_, err := b.Start(ctx, key, storage.PutOptions{})
			must(t, err)
		}
		r, err := Delete(ctx, b, "p", Options{})
		if err != nil || r.Files < 2501 {
			t.Fatalf("versioned %v: %+v, %v", versioned, r, err)
		}
		page, err := b.Versions(ctx, storage.ListOptions{})
		must(t, err)
		var left []string
		for _, o := range page.Objects {
			left = append(left, o.Key)
		}
		if !slices.Equal(left, []string{"p.x", "pq", "q/x"}) {
			t.Errorf("versioned %v: left %q", versioned, left)
		}
		if ups, _ := b.Uploads(ctx, storage.ListOptions{}); len(ups.Uploads) != 1 || ups.Uploads[0].Key != "pq/up" {
			t.Errorf("uploads left: %+v", ups)
		}
		if _, err := Delete(ctx, b, "", Options{}); err != nil {
			t.Error(err)
		}
		if err := b.Delete(ctx); err != nil {
			t.Errorf("the bucket: %v", err)
		}
		for range 2 {
			if r, err := Delete(ctx, b, "", Options{}); err != nil || r.Files != 0 {
				t.Errorf("a bucket that is gone: %+v, %v", r, err)
			}
		}
	}
}

// watched counts the bytes that its callers hold.
type watched struct {
	storage.Bucket
	mu         sync.Mutex
	held, most int64
	calls      int
}

func (w *watched) hold(n int64) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	w.held += n
	w.most = max(w.most, w.held)
	return func() {
		w.mu.Lock()
		w.held -= n
		w.mu.Unlock()
	}
}

func (w *watched) Put(ctx context.Context, key string, body io.ReadSeeker, o storage.PutOptions) (storage.Object, error) {
	defer w.hold(int64(body.(*bytes.Reader).Len()))()
	time.Sleep(time.Millisecond)
	return w.Bucket.Put(ctx, key, body, o)
}

func (w *watched) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	defer w.hold(int64(body.(*bytes.Reader).Len()))()
	time.Sleep(time.Millisecond)
	return w.Bucket.PutPart(ctx, u, n, body)
}

func TestMemoryIsBounded(t *testing.T) {
	w := &watched{Bucket: newBucket(t, &memory.Store{}, "b")}
	dir := t.TempDir()
	tree := map[string]string{}
	for i := range 40 {
		tree[fmt.Sprint(i)] = content(1000*(i%8), uint64(i))
	}
	write(t, dir, tree)
	if _, err := Upload(t.Context(), source(t, dir), w, "", Options{Memory: 6 << 10}); err != nil {
		t.Fatal(err)
	}
	if w.most > 6<<10 || w.most < 2<<10 {
		t.Errorf("up to %d bytes were held, want up to %d", w.most, 6<<10)
	}
	wantFiles(t, "bucket", objects(t, w), tree)
}

func TestProgress(t *testing.T) {
	b := newBucket(t, &memory.Store{}, "b")
	dir := t.TempDir()
	write(t, dir, someTree())
	var last Progress
	o := Options{Progress: func(p Progress) { last = p }}
	var total int64
	for _, text := range someTree() {
		total += int64(len(text))
	}
	want := Progress{Files: int64(len(someTree())), Bytes: total, TotalFiles: int64(len(someTree())), TotalBytes: total, Counted: true}
	check := func(what string, err error) {
		t.Helper()
		last.Rate, last.FileRate, last.Left = 0, 0, 0
		if err != nil || last != want {
			t.Errorf("%s: %+v, %v, want %+v", what, last, err, want)
		}
	}
	_, err := Upload(t.Context(), source(t, dir), b, "", o)
	check("upload", err)
	_, err = Upload(t.Context(), source(t, dir), b, "", o)
	check("upload again", err)
	_, _, err = Download(t.Context(), b, "", t.TempDir(), o)
	check("download", err)
	_, err = Copy(t.Context(), b, "", newBucket(t, &memory.Store{}, "c"), "", o)
	check("copy", err)
}

// blocked waits in every call until its context ends.
type blocked struct {
	storage.Bucket
	in chan struct{}
}

func (b *blocked) Put(ctx context.Context, _ string, _ io.ReadSeeker, _ storage.PutOptions) (storage.Object, error) {
	select {
	case b.in <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return storage.Object{}, context.Cause(ctx)
}

func TestCancel(t *testing.T) {
	b := &blocked{Bucket: newBucket(t, &memory.Store{}, "b"), in: make(chan struct{}, 1)}
	dir := t.TempDir()
	write(t, dir, someTree())
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() { <-b.in; cancel(why) }()
	if _, err := Upload(ctx, source(t, dir), b, "", Options{}); !errors.Is(err, why) {
		t.Errorf("error %v, want the cause", err)
	}
}
