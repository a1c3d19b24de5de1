//go:build unix

package filesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// below lists what is in a folder, folders with a slash.
func below(t checker, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if d.IsDir() {
			rel += "/"
		}
		list = append(list, rel)
		return err
	})
	must(t, err)
	return list
}

func TestWhatASourceHasNoMoreIsRemoved(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	dst := filepath.Join(home, "w")
	conn := serve(t, home)
	o := Options{Src: Local(src), Dst: "w", Contents: true, Mirror: "me", Cache: t.TempDir(), Ignore: true}
	send := func(removed int) {
		t.Helper()
		st, err := Send(t.Context(), conn, o)
		must(t, err)
		if st.Removed != removed {
			t.Errorf("%d removed, want %d", st.Removed, removed)
		}
	}
	write(t, dst, map[string]string{"theirs/out": "of a job", "same": "x"}) // before any sync
	setTime(t, filepath.Join(dst, "same"), 1e18)
	write(t, src, map[string]string{"keep": "1", "old.py": "2", "pkg/a.py": "3", "pkg/b.py": "4", "gone/deep/f": "5", "data": "6", "same": "x", "cache/x": "7", "changed": "8", "theirs/in": "9"})
	setTime(t, filepath.Join(src, "same"), 1e18)
	must(t, os.Symlink("keep", filepath.Join(src, "link")))
	send(0)
	write(t, dst, map[string]string{"pkg/a.pyc": "of a job", "changed": "by a job", "gone/log": "of a job"})
	for _, name := range []string{"old.py", "pkg", "gone", "data", "same", "link", "changed", "theirs"} {
		must(t, os.RemoveAll(filepath.Join(src, name)))
	}
	write(t, src, map[string]string{"new.py": "2", "data/x": "file has become a folder", ".gitignore": "cache\n"})
	send(10) // old.py, two of pkg, gone/deep and its file, the file data, link, cache and its file, theirs/in
	if got, want := below(t, dst), []string{".gitignore", "changed", "data/", "data/x", "gone/", "gone/log", "keep", "new.py", "pkg/", "pkg/a.pyc", "same", "theirs/", "theirs/out"}; !slices.Equal(got, want) {
		t.Errorf("%q,\nwant %q", got, want)
	}
	send(0)
	must(t, os.RemoveAll(filepath.Join(src, "data")))
	write(t, src, map[string]string{"data": "and a file again"})
	send(2)
	must(t, os.Remove(filepath.Join(src, "data")))
	write(t, src, map[string]string{"data/sub/y": "1"})
	send(1)
	write(t, dst, map[string]string{"data/sub/out": "of a job"})
	must(t, os.RemoveAll(filepath.Join(src, "data")))
	write(t, src, map[string]string{"data": "a file in place of a job's"})
	if _, err := Send(t.Context(), conn, o); !errors.As(err, new(*ConflictError)) {
		t.Errorf("a folder with a job's file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dst, "data/sub/out")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dst, "data/sub/y")); err != nil {
		t.Errorf("a refused sync removed something: %v", err)
	}
}

// Tasks from different folders may use one cluster: neither removes what the
// other brought.
func TestSourcesLeaveEachOthersFiles(t *testing.T) {
	a, b, home := t.TempDir(), t.TempDir(), t.TempDir()
	conn := serve(t, home)
	send := func(src string) {
		t.Helper()
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "w", Contents: true, Mirror: src, Cache: t.TempDir()})
		must(t, err)
	}
	write(t, a, map[string]string{"a": "1", "both": "1"})
	write(t, b, map[string]string{"b": "1", "both": "2 of b"})
	send(a)
	send(b)
	must(t, os.Remove(filepath.Join(a, "both"))) // that of b is there
	must(t, os.Remove(filepath.Join(a, "a")))
	write(t, a, map[string]string{"a2": "1"})
	send(a)
	if got := below(t, filepath.Join(home, "w")); !slices.Equal(got, []string{"a2", "b", "both"}) {
		t.Errorf("%q", got)
	}
	_, err := Send(t.Context(), conn, Options{Src: Local(a), Dst: "w", Contents: true}) // without a mirror
	must(t, err)
	if got := below(t, filepath.Join(home, "w")); !slices.Equal(got, []string{"a2", "b", "both"}) {
		t.Errorf("%q", got)
	}
}

// TestAnyChangeConverges changes a source at random, any kind into any other, and
// cuts syncs at random: the one that gets through makes the copy equal, but for
// what a job made.
func TestAnyChangeConverges(t *testing.T) {
	n, home := 0, t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		n++
		src := filepath.Join(t.TempDir(), fmt.Sprint("src", n))
		must(rt, os.Mkdir(src, 0o755))
		defer os.RemoveAll(src)
		dst := filepath.Join(home, fmt.Sprint("dst", n))
		defer os.RemoveAll(dst)
		for range 4 {
			reshape(rt, src, 2)
			o := Options{Src: Local(src), Dst: filepath.Base(dst), Mirror: "x", Cache: filepath.Join(home, "cache")}
			if rapid.Bool().Draw(rt, "cut") {
				conn := &tap{Conn: serve(t, home), cuts: true}
				conn.left.Store(rapid.Int64Range(0, 4000).Draw(rt, "after"))
				_, _ = Send(context.Background(), conn, o)
				if rapid.Bool().Draw(rt, "again") {
					continue
				}
			}
			conn := serve(t, home)
			if _, err := Send(context.Background(), conn, o); err != nil {
				rt.Fatal(err)
			}
			conn.Close()
			equal(rt, src, dst)
		}
	})
}

// reshape removes and makes things in dir at random.
func reshape(t *rapid.T, dir string, depth int) {
	for _, name := range []string{"a", "b", "c"} {
		path := filepath.Join(dir, name)
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			must(t, os.RemoveAll(path))
		case 1:
			must(t, os.RemoveAll(path))
			must(t, os.WriteFile(path, []byte(strings.Repeat("x", someSize.Draw(t, "size"))), 0o644))
			setTime(t, path, someTime.Draw(t, "time"))
		case 2:
			must(t, os.RemoveAll(path))
			must(t, os.Symlink(rapid.SampledFrom([]string{"a", "b", "nowhere"}).Draw(t, "target"), path))
		case 3:
			if depth == 0 {
				continue
			}
			if info, err := os.Lstat(path); err != nil || !info.IsDir() {
				must(t, os.RemoveAll(path))
				must(t, os.Mkdir(path, 0o755))
			}
			reshape(t, path, depth-1)
		}
	}
}

// A manifest that was damaged removes nothing.
func TestDamagedManifestsRemoveNothing(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	o := Options{Src: Local(src), Dst: "w", Mirror: "x", Cache: t.TempDir()}
	write(t, src, map[string]string{"a": "1", "b": "2"})
	_, err := Send(t.Context(), serve(t, home), o)
	must(t, err)
	files, err := filepath.Glob(filepath.Join(stateDir(home), "*"+broughtSuffix))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("%q", files)
	}
	data, err := os.ReadFile(files[0])
	must(t, err)
	data[len(data)/2] ^= 1
	must(t, os.WriteFile(files[0], data, 0o600))
	must(t, os.Remove(filepath.Join(src, "a")))
	st, err := Send(t.Context(), serve(t, home), o)
	must(t, err)
	if got := below(t, filepath.Join(home, "w")); st.Removed != 0 || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%d removed, there are %q", st.Removed, got)
	}
}

func TestReceiversOfVersion1AreKnown(t *testing.T) {
	f := hello{dst: "x"}.frame()
	if h, err := readHello(f[headerLen:]); err != nil || h.mirror != "" || f[headerLen+len(magic)] != 1 {
		t.Errorf("%+v %v", h, err)
	}
	f = hello{dst: "x", mirror: "m"}.frame()
	if h, err := readHello(f[headerLen:]); err != nil || h.mirror != "m" || f[headerLen+len(magic)] != 2 {
		t.Errorf("%+v %v", h, err)
	}
	f[headerLen+len(magic)] = 3
	if _, err := readHello(f[headerLen:]); !NeedsVersion1(err) {
		t.Errorf("a version to come: %v", err)
	}
}

// A later conn speaks a version to come.
type later struct {
	net.Conn
	opened bool
}

func (c *later) Write(p []byte) (int, error) {
	if !c.opened {
		c.opened = true
		p = slices.Clone(p)
		p[headerLen+len(magic)] = version + 1
	}
	return c.Conn.Write(p)
}

func TestASenderHearsThatItsVersionIsUnknown(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"a": "1"})
	_, err := Send(t.Context(), &later{Conn: serve(t, t.TempDir())}, Options{Src: Local(src), Dst: "d", Mirror: "m", Cache: t.TempDir()})
	if !NeedsVersion1(err) {
		t.Errorf("%v", err)
	}
}
