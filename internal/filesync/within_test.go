//go:build unix

package filesync

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// openPath opens a file of this machine.
func openPath(path string) (*sourceFile, error) {
	t, err := openTree(Local(path), false)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return t.openFile(".")
}

// upload is a folder of somebody who is not trusted, beside a secret.
func upload(t *testing.T) (dir string) {
	top := t.TempDir()
	dir = filepath.Join(top, "upload")
	write(t, top, map[string]string{"secret": "planted", "secrets/key": "planted"})
	write(t, dir, map[string]string{"wd/a": "1", "wd/sub/b": "2", "d/e/f": "3"})
	for name, target := range map[string]string{
		"out": "../secret", "abs": filepath.Join(top, "secret"), "folder": "..", "inside": "wd",
		"d/e/L": "../..", "chain": "d/e/L/../secret", "chained": "d/e/L/..", "hop": "d/e/L",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	return dir
}

// has reports whether the planted secret is anywhere below a folder.
func has(t *testing.T, dir string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			text, rerr := os.ReadFile(p)
			found = found || strings.Contains(string(text), "planted")
			err = rerr
		}
		return err
	})
	must(t, err)
	return found
}

func TestNothingOutsideOfAnUploadIsSent(t *testing.T) {
	dir := upload(t)
	for _, path := range []string{"out", "abs", "folder", "folder/secret", "folder/secrets", "chain", "chained", "chained/secrets", "hop/../secret", "..", "../secret", "wd/../../secret", "/etc/passwd"} {
		home := t.TempDir()
		_, err := Send(t.Context(), serve(t, home), Options{Src: Within(dir, path, "~/x"), Dst: "d", Ignore: true})
		if _, outside := errors.AsType[*OutsideError](err); !outside || !strings.Contains(err.Error(), "~/x") {
			t.Errorf("%s: %v", path, err)
		}
		if has(t, home) {
			t.Errorf("%s brought the secret", path)
		}
		if _, err := Stat(Within(dir, path, "")); err == nil {
			t.Errorf("%s can be looked at", path)
		}
		if f, err := Open(Within(dir, path, ""), "."); err == nil {
			f.Close()
			t.Errorf("%s can be opened", path)
		}
		for e, err := range Walk(Within(dir, path, ""), true, nil) {
			if err == nil {
				t.Errorf("%s can be walked: %v", path, e)
			}
		}
	}
	for path, want := range map[string]string{"wd": "a", "inside": "a", "hop/upload/wd": "", "d/e": "f"} {
		home := t.TempDir()
		_, err := Send(t.Context(), serve(t, home), Options{Src: Within(dir, path, "~/x"), Dst: "d"})
		if want == "" { // the way leads out and in again
			if err == nil {
				t.Errorf("%s was sent", path)
			}
			continue
		}
		must(t, err)
		if _, err := os.Stat(filepath.Join(home, "d", want)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Send(t.Context(), serve(t, t.TempDir()), Options{Dst: "d"}); !errors.Is(err, errNoSource) {
		t.Errorf("no source: %v", err)
	}
}

// Links below what is sent travel as links: their content does not.
func TestLinksInAnUploadTravelAsLinks(t *testing.T) {
	dir, home := upload(t), t.TempDir()
	_, err := Send(t.Context(), serve(t, home), Options{Src: Within(dir, ".", "all"), Dst: "d"})
	must(t, err)
	if has(t, home) {
		t.Error("the secret was sent")
	}
}

// Whoever can change an upload while it is sent puts links in the place of
// files, folders and ignore files: nothing outside is read through them.
func TestALinkPutInPlaceOfAFileWhileItIsSentLeadsNowhere(t *testing.T) {
	for _, what := range []string{"wd/a", "wd/sub", "wd", "wd/.gitignore"} {
		t.Run(what, func(t *testing.T) {
			for _, source := range []string{"wd", "wd/a"} {
				dir, home := upload(t), t.TempDir()
				write(t, dir, map[string]string{"wd/.gitignore": "none"})
				outside := filepath.Join(filepath.Dir(dir), "secrets")
				write(t, filepath.Dir(dir), map[string]string{"secrets/a": "planted", "secrets/b": "planted", "secrets/sub/b": "planted"})
				if what != "wd" && what != "wd/sub" {
					outside = filepath.Join(outside, "a")
				}
				at := filepath.Join(dir, what)
				var once sync.Once
				swap := func() {
					once.Do(func() {
						must(t, os.RemoveAll(at))
						must(t, os.Symlink(outside, at))
					})
				}
				conn := &tap{Conn: serve(t, home), onRead: swap} // between listing and reading
				_, err := Send(t.Context(), conn, Options{Src: Within(dir, source, "x"), Dst: "d", Ignore: true})
				if has(t, home) {
					t.Errorf("%s: the secret was sent (%v)", source, err)
				}
			}
		})
	}
}

// A repository's own ignore file may be a link out of the upload or larger than
// any: the upload is refused, and whoever sends it goes on.
func TestAnExcludeFileThatCannotBeReadIsRefused(t *testing.T) {
	for what, put := range map[string]func(at string) error{
		"a link out":   func(at string) error { return os.Symlink("../../../../secret", at) },
		"a large file": func(at string) error { return os.WriteFile(at, make([]byte, maxRules+1), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			dir, home := upload(t), t.TempDir()
			info := filepath.Join(dir, "wd", ".git", "info")
			must(t, os.MkdirAll(info, 0o700))
			must(t, put(filepath.Join(info, "exclude")))
			_, err := Send(t.Context(), serve(t, home), Options{Src: Within(dir, "wd", "x"), Dst: "d", Ignore: true})
			if err == nil || !strings.Contains(err.Error(), "reading ignore rules") {
				t.Errorf("sent with %v", err)
			}
		})
	}
}

func TestASwapAtAnyMomentSendsNothingOfElsewhere(t *testing.T) {
	dir := upload(t)
	write(t, filepath.Dir(dir), map[string]string{"secrets/a": "planted", "secrets/sub/b": "planted"})
	for i := range 50 {
		write(t, dir, map[string]string{fmt.Sprintf("wd/sub/f%d", i): "x"})
	}
	wd, aside := filepath.Join(dir, "wd"), filepath.Join(dir, "aside")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Rename(wd, aside)
			os.Symlink(filepath.Join(filepath.Dir(dir), "secrets"), wd)
			os.Remove(wd)
			os.Rename(aside, wd)
		}
	})
	for range 200 {
		home := t.TempDir()
		Send(t.Context(), serve(t, home), Options{Src: Within(dir, "wd", "x"), Dst: "d", Ignore: true})
		if has(t, home) {
			t.Fatal("the secret was sent")
		}
		if f, err := Open(Within(dir, "wd", "x"), "a"); err == nil {
			if text, _ := io.ReadAll(f); string(text) == "planted" {
				t.Fatal("the secret was read")
			}
			f.Close()
		}
	}
	close(stop)
	wg.Wait()
}
