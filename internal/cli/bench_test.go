package cli

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// start runs sky as a process of its own.
func start(b *testing.B, env []string, args ...string) {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Args = append([]string{"sky"}, args...) // testscript.Main looks at the name
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

// BenchmarkHelpProcess is what a user waits for after "sky --help": at most 30 ms.
func BenchmarkHelpProcess(b *testing.B) {
	for b.Loop() {
		start(b, nil, "--help")
	}
}

// BenchmarkStatusProcess is "sky status" against a server that answers at once:
// at most 50 ms.
func BenchmarkStatusProcess(b *testing.B) {
	srv := httptest.NewServer(newFakeAPI())
	defer srv.Close()
	env := []string{"SKYPILOT_API_SERVER_ENDPOINT=" + srv.URL, "HOME=" + b.TempDir()}
	for b.Loop() {
		start(b, env, "status")
	}
}

// BenchmarkCommands builds the tree of all commands, which every run does.
func BenchmarkCommands(b *testing.B) {
	for b.Loop() {
		newApp(Program{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}).root()
	}
}
