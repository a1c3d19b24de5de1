package proc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// lookup reads /proc/<pid>/stat. The start time counts ticks since boot, so
// the boot is part of the identity.
func lookup(pid int) (entry, error) {
	var buf [1024]byte
	return readStat(pid, buf[:])
}

func readStat(pid int, buf []byte) (entry, error) {
	data, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf)
	if err != nil {
		return entry{}, os.ErrProcessDone
	}
	e, ok := parseStat(pid, data)
	if !ok {
		return entry{}, os.ErrProcessDone
	}
	return e, nil
}

const pfExiting = 0x4 // PF_EXITING of <linux/sched.h>

// parseStat reads one line of proc(5) stat. The command stands in parentheses
// and may itself contain any byte.
func parseStat(pid int, data []byte) (entry, bool) {
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return entry{}, false
	}
	f := bytes.Fields(data[i+1:]) // f[0] is field 3 of stat, the state
	if len(f) < 20 {
		return entry{}, false
	}
	ppid, err1 := strconv.Atoi(string(f[1]))
	session, err2 := strconv.Atoi(string(f[3]))
	flags, err3 := strconv.ParseUint(string(f[6]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return entry{}, false
	}
	state := f[0][0]
	return entry{
		pid: pid, ppid: ppid, session: session,
		start:   shortBoot() + "." + string(f[19]),
		zombie:  state == 'Z' || state == 'X' || state == 'x',
		exiting: flags&pfExiting != 0,
	}, true
}

// killPending reports whether a process has yet to die of a KILL, by the set of signals that
// wait for its first thread (see proc(5), status).
func killPending(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(status) {
		if set, ok := bytes.CutPrefix(line, []byte("SigPnd:")); ok {
			bits, err := strconv.ParseUint(string(bytes.TrimSpace(set)), 16, 64)
			return err == nil && bits&(1<<(syscall.SIGKILL-1)) != 0
		}
	}
	return false
}

func table() []entry {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	uid := uint32(os.Geteuid())
	var buf [1024]byte
	var all []entry
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		e, err := readStat(pid, buf[:])
		if err != nil {
			continue
		}
		var st unix.Stat_t
		e.mine = unix.Stat("/proc/"+name, &st) == nil && st.Uid == uid
		all = append(all, e)
	}
	return all
}

// environ buffers are shared because a scan reads one for every process.
var environs = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

func hasEnv(pid int, key, value string) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/environ", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	bp := environs.Get().(*[]byte)
	defer environs.Put(bp)
	b := (*bp)[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		b = b[:len(b)+n]
	}
	*bp = b
	want := key + "=" + value
	for rest := b; len(rest) > 0; {
		var item []byte
		item, rest, _ = bytes.Cut(rest, []byte{0})
		if string(item) == want {
			return true
		}
	}
	return false
}

// readSmall reads a file of /proc whose content fits into buf.
func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}

func terminate(pid int) {
	_ = syscall.Kill(pid, syscall.SIGTERM)
	_ = syscall.Kill(pid, syscall.SIGCONT) // a stopped process cannot react
}

func kill(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// waitExit waits through a pidfd in the runtime's poller: a goroutine, no
// thread, for each process waited for.
func waitExit(ctx context.Context, pid int, start string) error {
	fd, err := unix.PidfdOpen(pid, unix.O_NONBLOCK)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return errors.ErrUnsupported
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if !Alive(pid, start) {
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return errors.ErrUnsupported
	}
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	var pollErr error
	err = conn.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if err == unix.EINTR {
				continue
			}
			pollErr = err
			return n > 0 || err != nil
		}
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || pollErr != nil:
		return errors.ErrUnsupported
	}
	return nil
}

var bootID = sync.OnceValue(func() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	// A container that is started again keeps the kernel's boot id, but its
	// first process is another one.
	return strings.TrimSpace(string(data)) + initStart()
})

// initStart identifies process 1 of a container; it is empty on a whole
// machine, where the kernel's boot id says it all.
func initStart() string {
	var buf [1024]byte
	data, err := readSmall("/proc/1/stat", buf[:])
	if err != nil {
		return ""
	}
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return ""
	}
	f := bytes.Fields(data[i+1:])
	if len(f) < 20 {
		return ""
	}
	ticks, err := strconv.ParseInt(string(f[19]), 10, 64)
	if err != nil || ticks < 1000 { // started within 10 s of the kernel: a real init
		return ""
	}
	return "." + string(f[19])
}

var shortBoot = sync.OnceValue(func() string {
	id := bootID()
	if len(id) > 8 {
		id = id[:8]
	}
	return id
})
