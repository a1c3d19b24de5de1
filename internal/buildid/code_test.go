//go:build linux || darwin

package buildid

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// "go run" and then "go build" of the same source are the same build; a change
// between them makes another one.
func TestGoRunAndGoBuildAreTheSameBuild(t *testing.T) {
	dir := t.TempDir()
	source, err := os.ReadFile("testdata/prog/main.go")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := filepath.Abs("testdata/prog/main.go")
	if err != nil {
		t.Fatal(err)
	}
	// with is "-overlay=FILE", which makes the program say something else.
	with := func(name, old, new string) string {
		t.Helper()
		changed := strings.Replace(string(source), old, new, 1)
		if changed == string(source) {
			t.Fatalf("%q is not in the program", old)
		}
		file, overlay := filepath.Join(dir, name+".go"), filepath.Join(dir, name+".json")
		list, _ := json.Marshal(map[string]any{"Replace": map[string]string{whole: file}})
		for path, data := range map[string][]byte{file: []byte(changed), overlay: list} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return "-overlay=" + overlay
	}
	ids := func(name string, args ...string) (id, code string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v", name, args, err)
		}
		f := strings.Fields(string(out))
		if len(f) != 2 {
			t.Fatalf("%s %v printed %q", name, args, out)
		}
		return f[0], f[1]
	}
	build := func(args ...string) (id, code string) {
		t.Helper()
		to := filepath.Join(dir, "prog")
		if out, err := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", to}, args...), "./testdata/prog")...).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return ids(to)
	}

	runID, runCode := ids("go", "run", "./testdata/prog")
	id, code := build()
	if runID == id {
		t.Error("go run and go build make the same file: this test tests nothing")
	}
	if !strings.HasPrefix(runCode, "bare-") || !strings.HasPrefix(code, "full-") {
		t.Errorf("codes: go run %s, go build %s", runCode, code)
	}
	if !Same(runID, runCode, id, code) || !Same(id, code, runID, runCode) {
		t.Errorf("go run made %s %s, go build %s %s", runID, runCode, id, code)
	}
	if stampedID, stamped := build("-ldflags=-X main.stamp=" + strings.Repeat("x", 400)); stampedID == id || !Same(runID, runCode, stampedID, stamped) {
		t.Errorf("go run made %s %s, go build with a stamp %s %s", runID, runCode, stampedID, stamped)
	}
	for name, change := range map[string][2]string{
		"text": {"a message of this program", "a message of that program"},
		"line": {"	if len", "\n	if len"},
		"code": {"len(os.Args) > 1 {", "len(os.Args) > 1 {\n		os.Stdout.Sync()"},
	} {
		otherID, otherCode := build(with(name, change[0], change[1]))
		if Same(runID, runCode, otherID, otherCode) || Same(id, code, otherID, otherCode) {
			t.Errorf("after a change of its %s it is the same build: %s %s", name, otherID, otherCode)
		}
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b [2]string // ID and Code
		want bool
	}{
		{[2]string{"1", "full-x"}, [2]string{"1", "full-x"}, true},
		{[2]string{"1", ""}, [2]string{"1", ""}, true},
		{[2]string{"1", "full-x"}, [2]string{"2", "bare-x"}, true},
		{[2]string{"1", "full-x"}, [2]string{"2", "full-x"}, false}, // the digest misses what differs
		{[2]string{"1", "full-x"}, [2]string{"2", "bare-y"}, false},
		{[2]string{"1", ""}, [2]string{"2", ""}, false},
		{[2]string{"1", "full-x"}, [2]string{"2", ""}, false}, // a server that does not say
		{[2]string{"1", "full-"}, [2]string{"2", "bare-"}, false},
	} {
		if got := Same(c.a[0], c.a[1], c.b[0], c.b[1]); got != c.want {
			t.Errorf("Same(%v, %v) = %v", c.a, c.b, got)
		}
	}
}

func TestDamagedFunctionTables(t *testing.T) {
	if _, err := codeOf(Self()); err != nil {
		t.Fatal(err)
	}
	m, err := readELF(Self())
	if err != nil {
		if m, err = readMachO(Self()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 200 {
		if n < 72 {
			if _, err := stablePart(m.functions[:n]); err == nil {
				t.Errorf("the first %d bytes are a function table", n)
			}
		}
		b := append([]byte{}, m.functions[:200]...)
		b[n] ^= 0xff
		stablePart(b) // must not panic
	}
}
