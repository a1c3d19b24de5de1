//go:build unix

package filesync

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestUnreadable runs as somebody who is not root.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("/tmp", "filesync")
		must(t, err)
		defer os.RemoveAll(dir)
		must(t, os.Chmod(dir, 0o777))
		exe := filepath.Join(dir, "test")
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Skip("cannot run as somebody else: ", err)
		}
		must(t, os.WriteFile(exe, self, 0o755))
		cmd := exec.Command(exe, "-test.run=^TestUnreadable$")
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GOCOVERDIR="+dir)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, mode := range []struct {
		path string
		perm os.FileMode
	}{{"d/secret", 0}, {"d/secret", 0o222}, {"d", 0}} {
		src, home := t.TempDir(), t.TempDir()
		write(t, src, map[string]string{"a": "1", "d/secret": "2", "link-only": ""})
		path := filepath.Join(src, mode.path)
		must(t, os.Chmod(path, mode.perm))
		conn := serve(t, home)
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "x"})
		if err == nil || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", mode.path, err)
		}
		if _, err := os.Stat(filepath.Join(home, "x")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something was changed before the error: %v", err)
		}
		write(t, src, map[string]string{".skyignore": "/" + mode.path})
		if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "x", Ignore: true}); err != nil {
			t.Errorf("ignored, but %v", err)
		}
		must(t, os.Chmod(path, 0o700))
	}
	// Folders that their owner may not write to.
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"ro/sub/f": "1"})
	conn := serve(t, home)
	for i := range 3 {
		for _, dir := range []string{"ro/sub", "ro"} {
			must(t, os.Chmod(filepath.Join(src, dir), 0o555))
		}
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "x"})
		must(t, err)
		equal(t, src, filepath.Join(home, "x"))
		for _, dir := range []string{"ro", "ro/sub"} {
			must(t, os.Chmod(filepath.Join(src, dir), 0o755))
		}
		write(t, src, map[string]string{fmt.Sprintf("ro/sub/g%d", i): "2", fmt.Sprintf("ro/new%d/h", i): "3"})
	}
	for _, dir := range []string{"ro", "ro/sub"} {
		must(t, os.Chmod(filepath.Join(home, "x", dir), 0o755)) // for removal
	}
	if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "/not-mine"}); err == nil || !strings.Contains(err.Error(), "/not-mine") {
		t.Error(err)
	}
}

func TestTheSourceChanges(t *testing.T) {
	for _, size := range []int{100, 4 * chunkBytes} {
		t.Run(fmt.Sprint("once ", size), func(t *testing.T) {
			src, home := t.TempDir(), t.TempDir()
			path := filepath.Join(src, "f")
			write(t, src, map[string]string{"f": noise(size), "g": "1"})
			var once sync.Once
			change := func() { once.Do(func() { write(t, src, map[string]string{"f": noise(size - 9)}) }) }
			conn := &tap{Conn: serve(t, home), onRead: change} // between listing and reading
			_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d", Cache: t.TempDir()})
			must(t, err)
			equal(t, path, filepath.Join(home, "d/f"))
		})
		t.Run(fmt.Sprint("always ", size), func(t *testing.T) {
			src, home := t.TempDir(), t.TempDir()
			path := filepath.Join(src, "f")
			write(t, src, map[string]string{"f": noise(size)})
			conn := serve(t, home)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := int64(0); ; i++ {
					select {
					case <-stop:
						return
					default:
						setTime(t, path, i*1e9)
					}
				}
			})
			defer wg.Wait()
			defer close(stop)
			for range 1000 { // it may be at rest at the right moments
				_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d", Cache: t.TempDir()})
				if err == nil {
					continue
				}
				if e, ok := errors.AsType[*ChangedError](err); !ok || e.Path != path {
					t.Error(err)
				}
				return
			}
			t.Error("a file that never rests is not noticed")
		})
	}
	t.Run("while it is sent", func(t *testing.T) {
		src, home := t.TempDir(), t.TempDir()
		path := filepath.Join(src, "f")
		write(t, src, map[string]string{"f": noise(20 * chunkBytes)})
		var writes atomic.Int64
		conn := &tap{Conn: serve(t, home), onWrite: func() {
			if writes.Add(1) == 10 {
				write(t, src, map[string]string{"f": noise(19 * chunkBytes)})
			}
		}}
		var last Progress
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d", Progress: func(p Progress) { last = p }})
		must(t, err)
		equal(t, path, filepath.Join(home, "d/f"))
		if last.Done != 19*chunkBytes {
			t.Errorf("%+v", last)
		}
	})
	t.Run("gone", func(t *testing.T) {
		src, home := t.TempDir(), t.TempDir()
		write(t, src, map[string]string{"f": "1"})
		var once sync.Once
		raw := serve(t, home)
		conn := &tap{Conn: raw, onRead: func() { once.Do(func() { os.Remove(filepath.Join(src, "f")) }) }}
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d"})
		if e, ok := errors.AsType[*ChangedError](err); !ok || !e.Gone {
			t.Error(err)
		}
		if _, err := Send(t.Context(), raw, Options{Src: Local(src), Dst: "d"}); err != nil {
			t.Errorf("the connection cannot be used again: %v", err)
		}
	})
}

func TestErrorsLeaveTheConnectionUsable(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	big := noise(4 << 20)
	write(t, src, map[string]string{"f": big, "g/h": "1"})
	write(t, home, map[string]string{"bad/g": "a file"})
	conn := serve(t, home)
	for range 5 {
		if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "bad"}); !isConflict(err) {
			t.Fatal(err)
		}
		if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "~x/y"}); err == nil {
			t.Fatal("a bad destination is accepted")
		}
		if _, err := Send(t.Context(), conn, Options{Src: Local(filepath.Join(src, "none")), Dst: "y"}); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "good"})
		must(t, err)
	}
	equal(t, src, filepath.Join(home, "good"))
}
