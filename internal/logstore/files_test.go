package logstore_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

func TestFilesComeBackWhole(t *testing.T) {
	store := open(t)
	files := logstore.Files{Store: store}
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"empty": nil, "small": []byte("abc"), "large": bytes.Repeat([]byte("0123456789"), state.MaxPiece/3),
	} {
		from, to := filepath.Join(dir, name), filepath.Join(dir, name+"-back")
		ok(t, os.WriteFile(from, content, 0o600))
		ok(t, files.Put(t.Context(), "up/u/"+name, "u", from))
		ok(t, files.Put(t.Context(), "up/u/"+name, "u", from)) // the name has it already
		ok(t, files.Fetch(t.Context(), "up/u/"+name, to))
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(content), err)
		}
	}
	if err := files.Fetch(t.Context(), "up/u/none", filepath.Join(dir, "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	names, err := files.Names(t.Context(), "up/u/")
	ok(t, err)
	if len(names) != 3 || !names["small"] {
		t.Error(names)
	}
	if n, err := store.Blobs().UsedBy(t.Context(), "u"); err != nil || n != int64(3+state.MaxPiece/3*10) {
		t.Error(n, err)
	}
	ok(t, files.Sweep(t.Context(), "up/", time.Hour, func(string) bool { return false }))
	ok(t, files.Sweep(t.Context(), "up/", -time.Hour, func(name string) bool { return name == "up/u/small" }))
	if names, err = files.Names(t.Context(), "up/u/"); err != nil || len(names) != 1 || !names["small"] {
		t.Error(names, err)
	}
}
