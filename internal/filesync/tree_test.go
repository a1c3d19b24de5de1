//go:build unix

package filesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	someName = rapid.SampledFrom([]string{"a", "b", "c.txt", "ü", "日本", "new\nline", " ", "-x", "'\"\\", ".hidden", "\x01\x7f", "~", "a b"})
	someSize = rapid.SampledFrom([]int{0, 1, 100, 5000, smallFile, smallFile + 1, chunkBytes, chunkBytes + 7})
)

// someTime gives times of whole seconds in even seconds and times with
// nanoseconds in odd ones: a whole second at the destination is taken for the
// rounded form of any time within it (see sameTime), so no two times drawn for
// one file may differ only by that.
var someTime = rapid.Custom(func(t *rapid.T) int64 {
	second := rapid.Int64Range(-1e6, 2e9).Draw(t, "second")
	if second%2 == 0 {
		return second * 1e9
	}
	return second*1e9 + rapid.Int64Range(0, 999_999).Draw(t, "micros")*1e3 + rapid.Int64Range(1, 999).Draw(t, "nanos")
})

// grow makes or changes a random tree in dir: never a file into a folder or
// back, since that is an error.
func grow(t *rapid.T, dir string, depth int) {
	names := rapid.SliceOfNDistinct(someName, 0, 4, rapid.ID[string]).Draw(t, "names")
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		isDir := err == nil && info.IsDir()
		if err != nil && depth > 0 {
			isDir = rapid.Bool().Draw(t, "folder")
		}
		if isDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			grow(t, path, depth-1)
			perm := rapid.SampledFrom([]os.FileMode{0o755, 0o700, 0o775, 0o777}).Draw(t, "mode")
			must(t, os.Chmod(path, perm))
			setTime(t, path, someTime.Draw(t, "time"))
			continue
		}
		os.Remove(path)
		if rapid.IntRange(0, 4).Draw(t, "link") == 0 {
			target := rapid.SampledFrom([]string{"a", "/etc/passwd", "../..", "no/where", "."}).Draw(t, "target")
			must(t, os.Symlink(target, path))
			continue
		}
		content := strings.Repeat(rapid.SampledFrom([]string{"x", "abc\n", "\x00"}).Draw(t, "content"), someSize.Draw(t, "size"))
		must(t, os.WriteFile(path, []byte(content), 0o600))
		must(t, os.Chmod(path, rapid.SampledFrom([]os.FileMode{0o644, 0o600, 0o755, 0o444, 0o000}).Draw(t, "mode")))
		setTime(t, path, someTime.Draw(t, "time"))
	}
}

func must(t checker, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func setTime(t checker, path string, ns int64) {
	must(t, os.Chtimes(path, time.Time{}, time.Unix(0, ns)))
}

// TestAnyTree syncs random trees, changes them at random, and syncs again.
func TestAnyTree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("files without any permission are left out, since only root can read them")
	}
	home := t.TempDir()
	conn := serve(t, home)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		src := filepath.Join(t.TempDir(), fmt.Sprint("src", n))
		must(rt, os.Mkdir(src, 0o755))
		defer os.RemoveAll(src)
		o := Options{Src: Local(src), Dst: fmt.Sprint("dst", n)}
		defer os.RemoveAll(filepath.Join(home, o.Dst))
		for range 2 {
			grow(rt, src, 2)
			readable(rt, src)
			st, err := Send(context.Background(), conn, o)
			if err != nil {
				rt.Fatal(err)
			}
			equal(rt, src, filepath.Join(home, o.Dst))
			if st, err = Send(context.Background(), conn, o); err != nil || st.Sent+st.Matched != 0 {
				rt.Fatalf("a second sync of the same: %+v, %v", st, err)
			}
		}
	})
}

func readable(t *rapid.T, dir string) {
	if os.Geteuid() == 0 {
		return
	}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, e := d.Info(); e == nil && info.Mode()&0o400 == 0 {
				return os.Remove(path)
			}
		}
		return err
	}))
}

func TestWhatIsChosen(t *testing.T) {
	tree := map[string]string{
		"a.py": "", "a.log": "", "sub/b.log": "", "sub/keep.log": "", "build/x": "", "sub/build/x": "",
		".git/config": "", ".git/info/exclude": "secret\n", "secret": "", "sub/secret": "", "sub/deep/only": "",
	}
	all := []string{".", ".git", ".git/config", ".git/info", ".git/info/exclude", "a.log", "a.py", "build", "build/x", "secret",
		"sub", "sub/b.log", "sub/build", "sub/build/x", "sub/deep", "sub/deep/only", "sub/keep.log", "sub/secret"}
	without := func(more []string, gone ...string) []string {
		list := slices.Clone(more)
		for _, g := range gone {
			list = slices.DeleteFunc(list, func(p string) bool { return p == g || strings.HasPrefix(p, g+"/") })
		}
		return list
	}
	with := func(list []string, more ...string) []string {
		list = append(slices.Clone(list), more...)
		slices.Sort(list)
		return list
	}
	for _, c := range []struct {
		name  string
		extra map[string]string
		off   bool
		want  []string
	}{
		{"without rules all but what git excludes", nil, false, without(all, "secret", "sub/secret")},
		{"rules can be left aside", map[string]string{".gitignore": "*"}, true, with(all, ".gitignore")},
		{"gitignore", map[string]string{".gitignore": "*.log\n/build\n"}, false,
			with(without(all, "secret", "sub/secret", "a.log", "sub/b.log", "sub/keep.log", "build"), ".gitignore")},
		{"a nearer file takes back", map[string]string{".gitignore": "*.log\n", "sub/.gitignore": "!keep.log\n!secret\n"}, false,
			with(without(all, "secret", "a.log", "sub/b.log"), ".gitignore", "sub/.gitignore")},
		{"skyignore replaces git's rules", map[string]string{".skyignore": "build/\n", ".gitignore": "*"}, false,
			with(without(all, "build", "sub/build"), ".gitignore", ".skyignore")},
		{"skyignore in a folder", map[string]string{".skyignore": "", "sub/.skyignore": "deep\n"}, false,
			with(without(all, "sub/deep"), ".skyignore", "sub/.skyignore")},
		{"nothing below an ignored folder is taken back", map[string]string{".gitignore": "sub\n!sub/keep.log\n"}, false,
			with(without(all, "secret", "sub"), ".gitignore")},
		{"ignore files can ignore themselves, and .git", map[string]string{".gitignore": ".git*\n"}, false,
			without(all, ".git", "secret", "sub/secret")},
		{"unfinished files of a receiver", map[string]string{partName(&item{name: "x"}): "1"}, false, without(all, "secret", "sub/secret")},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := t.TempDir()
			write(t, src, tree)
			write(t, src, c.extra)
			var got []string
			for e, err := range Walk(Local(src), !c.off, nil) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.Path)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("Walk gives %q\nwant       %q", got, c.want)
			}
			home := t.TempDir()
			if _, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "d", Ignore: !c.off}); err != nil {
				t.Fatal(err)
			}
			got = nil
			for e := range Walk(Local(filepath.Join(home, "d")), false, nil) {
				got = append(got, e.Path)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("Send gives %q\nwant       %q", got, c.want)
			}
		})
	}
}

func TestWalkIsSorted(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"b": "12", "a/z": "", "a/y": "", "a.x": ""})
	must(t, os.Symlink("b", filepath.Join(src, "l")))
	var got []string
	for e, err := range Walk(Local(src), true, nil) {
		must(t, err)
		got = append(got, fmt.Sprint(e.Path, " ", e.Mode, " ", e.Size*min(1, int64(len(e.Path)-len(e.Target))), e.Target))
		if e.Path == "b" && (e.Size != 2 || e.ModTime.IsZero()) {
			t.Errorf("%+v", e)
		}
	}
	want := []string{". drwxr-xr-x 0", "a drwxr-xr-x 0", "a/y -rw-r--r-- 0", "a/z -rw-r--r-- 0", "a.x -rw-r--r-- 0", "b -rw-r--r-- 2", "l Lrwxrwxrwx 0b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	for _, err := range Walk(Local(filepath.Join(src, "none")), true, nil) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing source: %v", err)
		}
	}
	for e, err := range Walk(Local(filepath.Join(src, "b")), true, nil) {
		if err != nil || e.Path != "." || e.Size != 2 || !e.Mode.IsRegular() {
			t.Errorf("a file: %+v, %v", e, err)
		}
	}
}

func TestDestinations(t *testing.T) {
	abs := t.TempDir()
	for _, c := range []struct {
		dst  string
		at   string // below the home, or absolute
		fail string
	}{
		{"~/x", "x", ""},
		{"x", "x", ""},
		{"x/y/z/", "x/y/z", ""},
		{"~/", "", ""},
		{"~", "", ""},
		{abs + "/q", abs + "/q", ""},
		{"../x", "", "leads out of the home"},
		{"~/../x", "", "leads out of the home"},
		{"~other/x", "", "another user"},
	} {
		t.Run(c.dst, func(t *testing.T) {
			src, home := t.TempDir(), t.TempDir()
			write(t, src, map[string]string{"f": "1"})
			_, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: c.dst})
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("%v, want something with %q", err, c.fail)
				}
				return
			}
			must(t, err)
			at := c.at
			if !filepath.IsAbs(at) {
				at = filepath.Join(home, at)
			}
			if data, err := os.ReadFile(filepath.Join(at, "f")); string(data) != "1" {
				t.Error(err)
			}
		})
	}
}

func TestSingleFile(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"f": "123", ".gitignore": "*"})
	conn := serve(t, home)
	o := Options{Src: Local(filepath.Join(src, "f")), Dst: "~/new/g", Ignore: true}
	for _, content := range []string{"123", "45678", "45678"} {
		must(t, os.WriteFile(o.Src.String(), []byte(content), 0o750))
		must(t, os.Chmod(o.Src.String(), 0o750))
		_, err := Send(t.Context(), conn, o)
		must(t, err)
		equal(t, o.Src.String(), filepath.Join(home, "new/g"))
	}
	if names, _ := os.ReadDir(filepath.Join(home, "new")); len(names) != 1 {
		t.Errorf("%v", names)
	}
	link := filepath.Join(src, "link")
	must(t, os.Symlink("f", link))
	_, err := Send(t.Context(), conn, Options{Src: Local(link), Dst: "~/of-link"})
	must(t, err)
	equal(t, o.Src.String(), filepath.Join(home, "of-link"))
	if _, err = Send(t.Context(), conn, Options{Src: o.Src, Dst: "x", Contents: true}); err == nil {
		t.Error("a file has no contents to put into a folder")
	}
}

func TestContentsLeaveTheFolderAlone(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"f": "1"})
	write(t, home, map[string]string{"d/mine": "2"})
	dst := filepath.Join(home, "d")
	must(t, os.Chmod(dst, 0o711))
	conn := serve(t, home)
	_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d", Contents: true})
	must(t, err)
	if info, err := os.Stat(dst); err != nil || info.Mode().Perm() != 0o711 {
		t.Error(info.Mode(), err)
	}
	if data, _ := os.ReadFile(filepath.Join(dst, "mine")); string(data) != "2" {
		t.Error("a file that the source does not have was changed")
	}
	_, err = Send(t.Context(), conn, Options{Src: Local(src), Dst: "d"})
	must(t, err)
	if info, err := os.Stat(dst); err != nil || info.Mode().Perm() != 0o755 {
		t.Error(info.Mode(), err)
	}
}

func TestConflictsChangeNothing(t *testing.T) {
	for _, c := range []struct {
		name     string
		src, dst map[string]string
		path     string
	}{
		{"a folder where the source has a file", map[string]string{"a": "", "x": "new"}, map[string]string{"x/": ""}, "x"},
		{"a file where the source has a folder", map[string]string{"a": "", "x/y": "new"}, map[string]string{"x": "old"}, "x"},
		{"further down", map[string]string{"a": "", "x/y/z/f": "new"}, map[string]string{"x/y": "old"}, "x/y"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, home := t.TempDir(), t.TempDir()
			write(t, src, c.src)
			dst := filepath.Join(home, "d")
			write(t, dst, c.dst)
			before := snapshot(t, dst)
			_, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "d"})
			conflict, ok := errors.AsType[*ConflictError](err)
			if !ok || conflict.Path != filepath.Join(dst, c.path) {
				t.Fatalf("%v", err)
			}
			if after := snapshot(t, dst); len(after) != len(before) {
				t.Errorf("before %v, after %v", before, after)
			}
		})
	}
	t.Run("the destination itself", func(t *testing.T) {
		src, home := t.TempDir(), t.TempDir()
		write(t, src, map[string]string{"f": ""})
		write(t, home, map[string]string{"file": "", "folder/": ""})
		conn := serve(t, home)
		if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "file"}); !isConflict(err) {
			t.Error(err)
		}
		if _, err := Send(t.Context(), conn, Options{Src: Local(filepath.Join(src, "f")), Dst: "folder"}); !isConflict(err) {
			t.Error(err)
		}
	})
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*ConflictError](err)
	return ok
}

func TestLinksAtTheDestinationAreNeverFollowed(t *testing.T) {
	src, home, outside := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"dir/f": "1", "file": "2", "big": strings.Repeat("3", smallFile*2)})
	write(t, outside, map[string]string{"keep": "safe"})
	dst := filepath.Join(home, "d")
	must(t, os.Mkdir(dst, 0o755))
	must(t, os.Symlink(outside, filepath.Join(dst, "dir")))
	must(t, os.Symlink(filepath.Join(outside, "keep"), filepath.Join(dst, "file")))
	must(t, os.Symlink(filepath.Join(outside, "keep"), filepath.Join(dst, "big")))
	before := snapshot(t, outside)
	_, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "d"})
	must(t, err)
	equal(t, src, dst)
	if after := snapshot(t, outside); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("before %v, after %v", before, after)
	}
}

func TestLinkedDestinationFolder(t *testing.T) {
	src, home, disk := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"f": "1"})
	must(t, os.Symlink(disk, filepath.Join(home, "d")))
	_, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "d"})
	must(t, err)
	equal(t, src, disk)
}

func TestDifferentKindsOfDifferences(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	big := strings.Repeat("0123456789abcdef", smallFile/4)
	write(t, src, map[string]string{"mode": "1", "time": "2", "bigtime": big, "grown": big, "changed": big, "shrunk": big})
	conn := serve(t, home)
	o := Options{Src: Local(src), Dst: "d", Cache: t.TempDir()}
	_, err := Send(t.Context(), conn, o)
	must(t, err)
	must(t, os.Chmod(filepath.Join(src, "mode"), 0o711))
	setTime(t, filepath.Join(src, "time"), 1e18)
	setTime(t, filepath.Join(src, "bigtime"), 1e18)
	write(t, src, map[string]string{"grown": big + big + "end", "changed": "x" + big[1:], "shrunk": big[:smallFile*2]})
	for _, name := range []string{"grown", "changed", "shrunk"} {
		setTime(t, filepath.Join(src, name), 2e18)
	}
	st, err := Send(t.Context(), conn, o)
	must(t, err)
	equal(t, src, filepath.Join(home, "d"))
	if want := int64(len(big)+3) + int64(len(big)) + smallFile*2; st.SentBytes != want || st.Sent != 3 || st.Matched != 2 {
		t.Errorf("%+v, want %d bytes sent of 3 files", st, want)
	}
}

func TestPermissionsOfFoldersCountInEverySync(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"open/file": "1", "closed/file": "2"})
	conn := serve(t, home)
	for _, mode := range []os.FileMode{0o755, 0o700, 0o750} {
		must(t, os.Chmod(filepath.Join(src, "closed"), mode))
		setTime(t, filepath.Join(src, "closed"), 1e18) // the mode is all that differs
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d"})
		must(t, err)
		equal(t, src, filepath.Join(home, "d"))
		if info, err := os.Stat(filepath.Join(home, "d", "closed")); err != nil || info.Mode().Perm() != mode {
			t.Errorf("want %v, got %v, %v", mode, info, err)
		}
	}
}

func TestHashesSaveReading(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"f": "one", "g": strings.Repeat("x", smallFile*2)})
	conn := serve(t, home)
	o := Options{Src: Local(src), Dst: "d", Cache: t.TempDir()}
	_, err := Send(t.Context(), conn, o)
	must(t, err)
	time.Sleep(10 * time.Millisecond)
	for ns := int64(1e18); ns < 1e18+3e9; ns += 1e9 {
		setTime(t, filepath.Join(src, "f"), ns)
		setTime(t, filepath.Join(src, "g"), ns)
		if st, err := Send(t.Context(), conn, o); err != nil || st.Matched != 2 || st.Sent != 0 {
			t.Fatal(st, err)
		}
		equal(t, src, filepath.Join(home, "d"))
	}
	h := hashesOf(stateDir(home), filepath.Join(home, "d"))
	for _, name := range []string{"f", "g"} {
		f, err := openPath(filepath.Join(home, "d", name))
		must(t, err)
		it, err := f.stat()
		f.close()
		must(t, err)
		if _, ok := h.get(name, &it); !ok {
			t.Errorf("the receiver does not remember the hash of %s", name)
		}
	}
}
