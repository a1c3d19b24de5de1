package upload

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/task"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestCollect(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	write(t, home, map[string]string{
		"wd/run.sh": "run", "wd/.gitignore": "*.log\n", "wd/a.log": "x", `wd/back\slash`: "b",
		"big/model": "weights", "big/.gitignore": "*.tmp\n", "big/x.tmp": "x", "wd/.sky/api_server/sky.db": "planted",
	})
	if err := os.Chmod(filepath.Join(home, "wd/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, "/usr/bin/env", filepath.Join(home, "wd/python3"))
	link(t, filepath.Join(home, "big"), filepath.Join(home, "wd/data"))
	wd, data := filepath.Join(home, "wd"), filepath.Join(home, "wd/data")
	tk := &task.Task{Workdir: wd, FileMounts: map[string]string{"~/data": data}}
	files, notes, err := Collect(&task.Dag{Tasks: []*task.Task{tk}}, OwnMachine())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range files {
		if _, twice := got[f.Name]; twice {
			t.Errorf("%s comes twice", f.Name)
		}
		text := f.Target
		if f.Mode.IsRegular() {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(in)
			in.Close()
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		got[f.Name] = f.Mode.String() + " " + text
	}
	at := func(name, below string) string { return tk.FileMountsMapping[name] + "/" + below }
	for name, want := range map[string]string{
		at(wd, "run.sh"):     "-rwxr-xr-x run",
		at(wd, `back\slash`): "-rw-r--r-- b",
		at(wd, "python3"):    (fs.ModeSymlink | 0o777).String() + " /usr/bin/env",
		at(wd, "data"):       (fs.ModeSymlink | 0o777).String() + " " + filepath.Join(home, "big"),
		at(data, "model"):    "-rw-r--r-- weights",
		at(wd, "a.log"):      "",
		at(data, "x.tmp"):    "", // ignore files of mounts count as well
		at(wd, ".sky"):       "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	slices.Sort(notes)
	if len(notes) != 3 || !strings.Contains(notes[0], ".sky") || notes[1] != "Of "+data+": 1 left out by ignore files." || notes[2] != "Of "+wd+": 1 left out by ignore files." {
		t.Errorf("notes: %q", notes)
	}
	tk = &task.Task{Workdir: filepath.Join(wd, ".sky")}
	if _, _, err := Collect(&task.Dag{Tasks: []*task.Task{tk}}, OwnMachine()); err == nil || !strings.Contains(err.Error(), "own state") {
		t.Errorf("state as a workdir: %v", err)
	}
}
