//go:build unix

package jobs

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the command the first of a process group, all of which is killed
// when the command's context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
