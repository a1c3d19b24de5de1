package agent

import (
	"os"
	"syscall"

	"github.com/skypilot-go/sky/internal/proc"
)

// confine makes the rank's process start in a cgroup of its own, if there are
// any. release is to be called after the start.
func (d rankDir) confine(attr *syscall.SysProcAttr) (confined bool, release func()) {
	path, err := proc.NewCgroup(d.key())
	if err != nil {
		return false, func() {}
	}
	dir, err := os.Open(path)
	if err == nil {
		err = os.WriteFile(d.file("cgroup"), []byte(path), 0o600)
	}
	if err != nil {
		dir.Close()
		proc.RemoveCgroup(path)
		return false, func() {}
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return true, func() { dir.Close() }
}
