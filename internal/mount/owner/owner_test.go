//go:build linux

package owner

import (
	"io"
	"os/exec"
	"testing"
)

func TestAJobsProcessesAreKnown(t *testing.T) {
	// The shell's child has another environment; the shell has the variable.
	cmd := exec.Command("sh", "-c", "env -i sh -c 'echo $$; read x'; true")
	cmd.Env = []string{Variable + "=h-7-run-0", "PATH=/usr/bin:/bin"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	text := make([]byte, 16)
	n, err := out.Read(text)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	pid := 0
	for _, c := range text[:n] {
		if c >= '0' && c <= '9' {
			pid = pid*10 + int(c-'0')
		}
	}
	if got := Of(cmd.Process.Pid); got != "h-7-run-0" {
		t.Errorf("the process itself belongs to %q", got)
	}
	if got := Of(pid); got != "h-7-run-0" {
		t.Errorf("a child without the variable belongs to %q", got)
	}
	if got := Of(1 << 30); got != "" {
		t.Errorf("a process that is not there belongs to %q", got)
	}
}
