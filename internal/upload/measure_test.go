package upload

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

// sparse makes a file that takes no room.
func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	write(t, filepath.Dir(path), map[string]string{filepath.Base(path): ""})
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func TestLargeSourcesAreAnnounced(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	wd := filepath.Join(dir, "wd")
	write(t, wd, map[string]string{"a": "1", ".skyignore": "*.tmp\n", "x/.skyignore": "y\n"})
	for i := range 7 {
		sparse(t, filepath.Join(wd, fmt.Sprintf("f%d", i), "data"), int64(i)<<30)
	}
	sparse(t, filepath.Join(wd, "big.tmp"), 1<<40)
	tk := &task.Task{Workdir: wd, FileMounts: map[string]string{"~/x": wd, "~/none": filepath.Join(dir, "none"), "~/b": "s3://b"}}
	all := MeasureAll(&task.Dag{Tasks: []*task.Task{tk, tk}}, OwnMachine())
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	m := all[0]
	if m.Bytes>>30 != 21 || m.Files != 10 || !m.Large() || !m.Huge() {
		t.Errorf("%+v", m)
	}
	text := m.Announcement(func(n int64) string { return fmt.Sprint(n>>30, " GB") })
	want := wd + " has 21 GB in 10 files to copy. Its largest folders: f6 (6 GB, 1 file), f5 (5 GB, 1 file), f4 (4 GB, 1 file), f3 (3 GB, 1 file), f2 (2 GB, 1 file). " +
		"Ignore files in effect: .skyignore, x/.skyignore; leave out more"
	if !strings.HasPrefix(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	for _, c := range []struct {
		m           Measure
		large, huge bool
	}{
		{Measure{Files: largeFiles, Bytes: largeBytes}, false, false},
		{Measure{Files: largeFiles + 1}, true, false},
		{Measure{Bytes: largeBytes + 1}, true, false},
		{Measure{Bytes: hugeBytes}, true, false},
		{Measure{Bytes: hugeBytes + 1}, true, true},
	} {
		if c.m.Large() != c.large || c.m.Huge() != c.huge {
			t.Errorf("%+v: large %v, huge %v", c.m, c.m.Large(), c.m.Huge())
		}
	}
	none := Measure{Source: filesync.Local("f"), Files: 1, Bytes: 1}
	if text := none.Announcement(func(int64) string { return "1 B" }); !strings.HasPrefix(text, "f has 1 B in 1 file to copy. No ignore file leaves out anything;") {
		t.Error(text)
	}
}
