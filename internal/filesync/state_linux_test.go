package filesync

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stateHome is a home folder with an installation and a local node in it.
func stateHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	write(t, home, map[string]string{
		"project/a.py": "1", "notes": "2", ".config/x": "3",
		".sky/api_server/sky.db": "planted", ".sky/api_server/encryption.key": "planted", ".sky/config.yaml": "planted",
		".sky/local/c/node-0/home/.sky/agent/key.pem": "planted", ".sky/local/c/node-0/home/out": "result",
	})
	return home
}

func TestStateIsNeverSent(t *testing.T) {
	link := func(t *testing.T, target, name string) { must(t, os.Symlink(target, name)) }
	for _, c := range []struct {
		name  string
		make  func(t *testing.T, home string) (src string)
		want  []string // what arrives, among others
		state []string // what is said to be left out
	}{
		{"the home folder", func(t *testing.T, home string) string { return home }, []string{"notes", "project/a.py"}, []string{".sky"}},
		{"through a symlink", func(t *testing.T, home string) string {
			at := filepath.Join(t.TempDir(), "l")
			link(t, home, at)
			return at
		}, []string{"notes"}, []string{".sky"}},
		{"a folder that .sky is a link into", func(t *testing.T, home string) string {
			data := t.TempDir()
			must(t, os.Rename(filepath.Join(home, ".sky"), filepath.Join(data, "other")))
			link(t, filepath.Join(data, "other"), filepath.Join(home, ".sky"))
			write(t, data, map[string]string{"f": "1"})
			return data
		}, []string{"f"}, []string{"other"}},
		{"a folder that api_server is a link into", func(t *testing.T, home string) string {
			data := t.TempDir()
			must(t, os.Rename(filepath.Join(home, ".sky/api_server"), filepath.Join(data, "x")))
			link(t, filepath.Join(data, "x"), filepath.Join(home, ".sky/api_server"))
			return data
		}, nil, []string{"x"}},
		{"another installation, while HOME is elsewhere", func(t *testing.T, home string) string {
			t.Setenv("HOME", t.TempDir())
			return home
		}, []string{"notes"}, []string{".sky"}},
		{"the database under another name", func(t *testing.T, home string) string {
			must(t, os.Link(filepath.Join(home, ".sky/api_server/sky.db"), filepath.Join(home, "project/copy")))
			return filepath.Join(home, "project")
		}, []string{"a.py"}, []string{"copy"}},
		{"the home of a local node", func(t *testing.T, home string) string {
			return filepath.Join(home, ".sky/local/c/node-0/home")
		}, []string{"out"}, []string{".sky"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, to := c.make(t, stateHome(t)), t.TempDir()
			st, err := Send(t.Context(), serve(t, to), Options{Src: Local(src), Dst: "d", Cache: t.TempDir()})
			must(t, err)
			if has(t, to) {
				t.Error("state was sent")
			}
			for _, name := range c.want {
				if _, err := os.Stat(filepath.Join(to, "d", name)); err != nil {
					t.Error(err)
				}
			}
			if !slices.Equal(st.Left.State, c.state) {
				t.Errorf("left out: %q, want %q", st.Left.State, c.state)
			}
			var left Left
			for e, err := range Walk(Local(src), false, &left) {
				must(t, err)
				if strings.Contains(e.Path, "sky") {
					t.Errorf("%s is walked", e.Path)
				}
			}
			if !slices.Equal(left.State, c.state) {
				t.Errorf("a walk leaves out %q", left.State)
			}
		})
	}
}

func TestStateCannotBeNamed(t *testing.T) {
	home := stateHome(t)
	link := filepath.Join(home, "project/link")
	must(t, os.Symlink(filepath.Join(home, ".sky/api_server"), link))
	hard := filepath.Join(home, "project/hard")
	must(t, os.Link(filepath.Join(home, ".sky/api_server/sky.db"), hard))
	for _, c := range []struct{ path, homeFolder string }{
		{".sky", home}, {".sky/api_server", home}, {".sky/api_server/sky.db", home}, {".sky/config.yaml", home}, {".sky/local", home},
		{".sky/local/c", home}, {".sky/local/c/node-0/home/.sky/agent", home}, {"project/link", home}, {"project/link/sky.db", home},
		{"project/hard", home}, {".sky/api_server/sky.db", t.TempDir()}, {".sky", t.TempDir()},
	} {
		t.Setenv("HOME", c.homeFolder)
		src := Local(filepath.Join(home, c.path))
		_, err := Send(t.Context(), serve(t, t.TempDir()), Options{Src: src, Dst: "d", Cache: t.TempDir()})
		if _, ok := errors.AsType[*StateError](err); !ok {
			t.Errorf("%s: %v", c.path, err)
		}
		if _, err := Stat(src); err == nil {
			t.Errorf("%s can be looked at", c.path)
		}
		if f, err := Open(src, "."); err == nil {
			f.Close()
			t.Errorf("%s can be opened", c.path)
		}
	}
}

// A process that opens its own database and closes it again has lost the locks
// that SQLite holds on it.
func TestASyncLeavesTheLocksOfTheDatabase(t *testing.T) {
	home := stateHome(t)
	path := filepath.Join(home, ".sky/api_server/sky.db")
	db, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer db.Close()
	look, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer look.Close()
	must(t, unix.FcntlFlock(db.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	for _, name := range []string{".", ".sky", ".sky/api_server", ".sky/api_server/sky.db"} {
		_, _ = Send(t.Context(), serve(t, t.TempDir()), Options{Src: Local(filepath.Join(home, name)), Dst: "d", Cache: t.TempDir()})
		_, _ = Stat(Local(filepath.Join(home, name)))
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		must(t, unix.FcntlFlock(look.Fd(), unix.F_OFD_GETLK, &lock))
		if lock.Type == unix.F_UNLCK {
			t.Fatalf("a sync of %s dropped the lock", name)
		}
	}
}
