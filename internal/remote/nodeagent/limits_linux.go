package nodeagent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// allowOpenFiles lets what this process starts have that many files open, or as many as the
// kernel allows. What takes root is done with sudo; without it the limit is what it may be.
func allowOpenFiles(ctx context.Context, most uint64) error {
	if text, err := os.ReadFile("/proc/sys/fs/nr_open"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			most = min(most, n)
		}
	}
	var now syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now)
	if err == nil && now.Max < most {
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: most}) == nil {
			return nil
		}
		arg := fmt.Sprintf("--nofile=%d:%d", most, most)
		if out, rerr := exec.CommandContext(ctx, "sudo", "-n", "--", "prlimit", "--pid", strconv.Itoa(os.Getpid()), arg).CombinedOutput(); rerr != nil {
			err = fmt.Errorf("%w: %s", rerr, strings.TrimSpace(string(out)))
		}
		if gerr := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); gerr != nil {
			return gerr
		}
	}
	// Package os/exec gives processes the limit that this one began with, unless it was set here.
	now.Cur = now.Max
	if serr := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); serr != nil {
		return serr
	}
	return err
}
