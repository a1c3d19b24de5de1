package localserver

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

const rootDir = `C:\`

// detached makes the child survive the console.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS, HideWindow: true}
}

// terminate ends the process; Windows has no gentler way for one without a
// console.
func terminate(p *os.Process) error { return p.Kill() }
