//go:build unix

package localserver

import (
	"os"
	"syscall"
)

const rootDir = "/"

// detached makes the child survive the terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
