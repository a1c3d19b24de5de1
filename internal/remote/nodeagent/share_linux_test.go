package nodeagent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
)

// systemd stands in for the machine's: its busctl notes the calls, and knows no scope yet.
func systemd(t *testing.T, works bool) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	start := "exit 0"
	if !works {
		start = "echo Access denied >&2; exit 1"
	}
	for _, name := range []string{"busctl", "sudo"} {
		script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\ncase \"$*\" in *AttachProcessesToUnit*) echo Unit not found >&2; exit 1 ;; esac\n%s\n", name, log, start)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	cgroups := filepath.Join(dir, "cgroup")
	if err := os.WriteFile(cgroups, []byte("0::/system.slice/sky-0123.scope\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	runs, own := systemdRuns, ownCgroups
	systemdRuns, ownCgroups = dir, cgroups
	t.Cleanup(func() { systemdRuns, ownCgroups = runs, own })
	return func() string {
		b, _ := os.ReadFile(log)
		return string(b)
	}
}

func TestAShareIsEnforcedBySystemd(t *testing.T) {
	calls := systemd(t, true)
	if err := confineToShare(t.Context(), "/home/me/.sky/nodes/m.d/0123", &folder.Share{CPUs: 1.5, MemoryGiB: 4}); err != nil {
		t.Fatal(err)
	}
	got := calls()
	for _, want := range []string{
		fmt.Sprintf("AttachProcessesToUnit ssau sky-0123.scope  1 %d", os.Getpid()),
		fmt.Sprintf("StartTransientUnit ssa(sv)a(sa(sv)) sky-0123.scope fail 5 PIDs au 1 %d ", os.Getpid()),
		"CPUQuotaPerSecUSec t 1500000 MemoryMax t 4294967296 0",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if (os.Getuid() != 0) != strings.Contains(got, "sudo -n -- busctl") {
		t.Errorf("as user %d:\n%s", os.Getuid(), got)
	}
}

func TestAShareIsCountedOnly(t *testing.T) {
	share := &folder.Share{CPUs: 1, MemoryGiB: 1}
	systemd(t, false)
	if err := confineToShare(t.Context(), "/n/1", share); err == nil || !strings.Contains(err.Error(), "counted only: exit status 1: Access denied") {
		t.Errorf("%v", err)
	}
	systemdRuns = filepath.Join(t.TempDir(), "absent")
	if err := confineToShare(t.Context(), "/n/1", share); err == nil || !strings.Contains(err.Error(), "systemd does not manage this machine") {
		t.Errorf("%v", err)
	}
}
