package proc

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

const stillActive = 259 // STILL_ACTIVE of GetExitCodeProcess

func lookup(pid int) (entry, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return entry{}, os.ErrProcessDone
	}
	defer windows.CloseHandle(h)
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return entry{}, err
	}
	var code uint32
	if err := windows.GetExitCodeProcess(h, &code); err != nil {
		return entry{}, err
	}
	return entry{pid: pid, start: strconv.FormatInt(created.Nanoseconds(), 10), zombie: code != stillActive}, nil
}

// table knows no sessions and no owners: Windows has no marker in the
// environment that others may read, so trees are found by parents alone.
func table() []entry {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil
	}
	defer windows.CloseHandle(snap)
	var all []entry
	e := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(snap, &e); err == nil; err = windows.Process32Next(snap, &e) {
		all = append(all, entry{pid: int(e.ProcessID), ppid: int(e.ParentProcessID)})
	}
	return all
}

func hasEnv(int, string, string) bool { return false }

// terminate does nothing: a Windows process without a console cannot be asked,
// so it has the grace period to end by itself.
func terminate(int) {}

func kill(pid int) {
	h, err := windows.OpenProcess(windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return
	}
	defer windows.CloseHandle(h)
	_ = windows.TerminateProcess(h, 137)
}

func waitExit(context.Context, int, string) error { return errors.ErrUnsupported }

var bootID = sync.OnceValue(func() string {
	var info struct {
		Boot, Now, Zone int64
		_               [3]int64
	}
	const timeOfDay = 3 // SystemTimeOfDayInformation
	err := windows.NtQuerySystemInformation(timeOfDay, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info)), nil)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(info.Boot/10_000_000, 10) // 100 ns units; clocks are nudged
})

// CloseOnExec has nothing to do: programs inherit what they are given.
func CloseOnExec() {}

func killPending(int) bool { return false }
