package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestTheServersLogIsKeptShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	is := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(name); string(b) != want {
			t.Errorf("%s is %q (%v), want %q", filepath.Base(name), b, err, want)
		}
	}
	write := func(s string, most int64) {
		t.Helper()
		if _, err := log.WriteString(s); err != nil {
			t.Fatal(err)
		}
		if err := shorten(log, path, most); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n", 6)
	is(path, "first\n")
	write("second\n", 6)
	is(path, "")
	is(path+".1", "first\nsecond\n")
	write("third\n", 0) // never
	write("fourth\n", 6)
	is(path+".1", "third\nfourth\n")
	write(strings.Repeat("x", 3), 6)
	is(path, "xxx")

	// Another file of that name, as after somebody's rotation, is not ours.
	if runtime.GOOS == "windows" {
		return // an open file keeps its name there
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	write("long enough", 6)
	is(path, "theirs")
	is(path+".old", "xxxlong enough")
}
