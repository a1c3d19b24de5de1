package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// From <sys/proc.h>.
const (
	zombieState = 5      // SZOMB
	exitingFlag = 0x2000 // P_WEXIT
)

func lookup(pid int) (entry, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return entry{}, os.ErrProcessDone
	}
	return fromKinfo(k), nil
}

func table() []entry {
	ks, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	all := make([]entry, len(ks))
	for i := range ks {
		all[i] = fromKinfo(&ks[i])
	}
	return all
}

func fromKinfo(k *unix.KinfoProc) entry {
	pid := int(k.Proc.P_pid)
	session, err := unix.Getsid(pid)
	if err != nil {
		session = int(k.Eproc.Pgid)
	}
	return entry{
		pid: pid, ppid: int(k.Eproc.Ppid), session: session,
		start:   fmt.Sprintf("%d.%06d", k.Proc.P_starttime.Sec, k.Proc.P_starttime.Usec),
		zombie:  k.Proc.P_stat == zombieState,
		exiting: k.Proc.P_flag&exitingFlag != 0,
		mine:    k.Eproc.Ucred.Uid == uint32(os.Geteuid()),
	}
}

// hasEnv asks ps, which shows the environment of the caller's own processes
// behind their arguments.
func hasEnv(pid int, key, value string) bool {
	out, err := exec.Command("ps", "-Eww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(" "+strings.TrimSpace(string(out))+" ", " "+key+"="+value+" ")
}

func terminate(pid int) {
	_ = syscall.Kill(pid, syscall.SIGTERM)
	_ = syscall.Kill(pid, syscall.SIGCONT) // a stopped process cannot react
}

func kill(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

func waitExit(context.Context, int, string) error { return errors.ErrUnsupported }

var bootID = sync.OnceValue(func() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
})

func killPending(int) bool { return false }
