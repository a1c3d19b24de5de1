package buildid

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheSameFileHasTheSameID(t *testing.T) {
	if a, err := Of(Self()); err != nil || a != ID() || len(a) != 16 {
		t.Errorf("%q, %v; ID is %q", a, err, ID())
	}
}

func TestFilesWithoutANoteAreToldApartByContent(t *testing.T) {
	dir := t.TempDir()
	ids := map[string]bool{}
	for _, text := range []string{"one", "two"} {
		path := filepath.Join(dir, text)
		os.WriteFile(path, []byte(text), 0o600)
		id, err := Of(path)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if len(ids) != 2 {
		t.Errorf("ids: %v", ids)
	}
	if _, err := Of(filepath.Join(dir, "absent")); err == nil {
		t.Error("an absent file has an id")
	}
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		Of(Self())
	}
}
