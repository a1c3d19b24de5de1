package nodeagent

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
)

var (
	systemdRuns = "/run/systemd/system" // is there while systemd manages the machine
	ownCgroups  = "/proc/self/cgroup"
)

// scopeTimeout is how long systemd may take to move a process into a scope.
const scopeTimeout = 10 * time.Second

// confineToShare puts this process, and so the agent that it starts, into a scope of
// systemd with the share's CPUs and memory. The scope ends with its last process. It takes
// root, or sudo without a password; without them, or without systemd, the error says that
// the share is only counted.
func confineToShare(ctx context.Context, node string, share *folder.Share) error {
	if _, err := os.Stat(systemdRuns); err != nil {
		return fmt.Errorf("the share's CPUs and memory are counted only: systemd does not manage this machine")
	}
	scope, pid := "sky-"+filepath.Base(node)+".scope", strconv.Itoa(os.Getpid())
	manager := []string{"busctl", "call", "--quiet", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"}
	if os.Getuid() != 0 {
		manager = append([]string{"sudo", "-n", "--"}, manager...)
	}
	call := func(args ...string) error {
		all := append(manager[:len(manager):len(manager)], args...)
		out, err := exec.CommandContext(ctx, all[0], all[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	// An earlier agent of the node may have left jobs in the scope.
	if call("AttachProcessesToUnit", "ssau", scope, "", "1", pid) == nil {
		return nil
	}
	err := call("StartTransientUnit", "ssa(sv)a(sa(sv))", scope, "fail", "5",
		"PIDs", "au", "1", pid,
		"Description", "s", "A share of this machine for a cluster of sky",
		"CollectMode", "s", "inactive-or-failed",
		"CPUQuotaPerSecUSec", "t", strconv.FormatInt(int64(math.Ceil(share.CPUs*1e6)), 10),
		"MemoryMax", "t", strconv.FormatInt(int64(share.MemoryGiB*(1<<30)), 10),
		"0")
	if err != nil {
		return fmt.Errorf("the share's CPUs and memory are counted only: %w", err)
	}
	// It has answered before it moves us, and what we start now would stay outside.
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	for {
		if b, err := os.ReadFile(ownCgroups); err == nil && strings.Contains(string(b), scope) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the share's CPUs and memory are counted only: systemd did not move the agent into %s", scope)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
