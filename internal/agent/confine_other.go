//go:build unix && !linux

package agent

import "syscall"

// confine does nothing: only Linux has cgroups.
func (d rankDir) confine(*syscall.SysProcAttr) (confined bool, release func()) {
	return false, func() {}
}
