package execution

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestCommandsForNewNodesRunOnce(t *testing.T) {
	if firstRunScript(nil) != "" || firstRunScript([]any{}) != "" {
		t.Error("no commands are a script")
	}
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".sky/agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(commands ...any) (string, error) {
		cmd := exec.Command("sh", "-c", firstRunScript(commands))
		cmd.Env, cmd.Dir = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, home
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("echo begun", "false; echo on; exit 3", "echo never"); err == nil || out != "begun\non\n" {
		t.Errorf("a command that fails: %q, %v", out, err)
	}
	if out, err := run("x='a b'; echo \"$x\"", []any{"echo", "c  d", "$HOME", "it's"}); err != nil || out != "a b\nc  d $HOME it's\n" {
		t.Errorf("the second time: %q, %v", out, err)
	}
	if out, err := run("echo again"); err != nil || out != "" {
		t.Errorf("they ran again: %q, %v", out, err)
	}
}
