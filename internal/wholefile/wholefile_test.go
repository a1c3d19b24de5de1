package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestNewAndOldContent(t *testing.T) {
	dir := t.TempDir()
	for name, write := range map[string]func(string, []byte, fs.FileMode) error{"write": Write, "synced": WriteSynced, "edit": Edit} {
		file := filepath.Join(dir, name, "sub", "file")
		for _, text := range []string{"one", "two, and longer", ""} {
			if err := write(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != text {
				t.Errorf("%s: %q, %v; want %q", name, got, err, text)
			}
		}
		alone(t, file)
	}
}

func TestAFailureChangesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := Write(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Fill(file, 0o600, func(f *os.File) error {
		f.WriteString("ne")
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "old" {
		t.Errorf("content %q", got)
	}
	alone(t, file)
}

func TestModesAndLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode bits here")
	}
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := Edit(link, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v %v", info, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := Write(file, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	secret := filepath.Join(dir, "new", "secret")
	if err := Write(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(secret)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder of a secret: %v, %v", info.Mode(), err)
	}
}

// alone checks that nothing else lies beside a file.
func alone(t *testing.T, file string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside %s: %v, %v", file, entries, err)
	}
}
