//go:build linux

package mount

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
)

// A process that may not mount serves what another one has mounted for it.
func TestAnotherProcessMounts(t *testing.T) {
	r := newRig(t)
	r.kill(syscall.SIGTERM)
	r.helped = true
	r.start()
	byAnother(t, r)
}

// So it is with fusermount, where it is installed.
func TestFusermountMounts(t *testing.T) {
	f := FindFusermount()
	if f == nil {
		t.Skip("no fusermount is installed (Debian: fuse3)")
	}
	r := newRig(t)
	r.kill(syscall.SIGTERM)
	t.Setenv(helperProgram, f.Program)
	r.start()
	byAnother(t, r)
}

func byAnother(t *testing.T, r *rig) {
	if did := r.mount(r.request()); did != mountapi.Mounted {
		t.Errorf("the first call %s", did)
	}
	f, err := os.Create(r.file("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.client.Unmount(t.Context(), mountapi.UnmountRequest{Path: r.path}); code(err) != mountapi.InUse {
		t.Errorf("unmounting what is in use: %v", err)
	}
	if _, err := f.WriteString("text"); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got := r.content("x"); got != "text" {
		t.Errorf("the bucket has %q", got)
	}
	r.kill(syscall.SIGKILL)
	if _, err := os.Stat(r.file("x")); !errors.Is(err, syscall.ENOTCONN) {
		t.Fatalf("the mount of a dead process: %v", err)
	}
	r.start()
	if did := r.mount(r.request()); did != mountapi.Restored {
		t.Errorf("the call after a death %s", did)
	}
	if got, err := os.ReadFile(r.file("x")); err != nil || string(got) != "text" {
		t.Errorf("it reads %q, %v", got, err)
	}
	r.kill(syscall.SIGTERM)
	if names, err := os.ReadDir(r.path); err != nil || len(names) > 0 {
		t.Errorf("after the end: %v, %v", names, err)
	}
}

func TestAHelperSaysWhyItDoesNotMount(t *testing.T) {
	h := &Helper{Command: []string{os.Args[0], "privileged"}}
	if err := h.Detach(t.TempDir(), false); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nothing is mounted there: %v", err)
	}
	if err := (&Helper{Command: []string{"/bin/false"}}).Detach("/x", false); err == nil {
		t.Error("a helper that fails is taken for one that did it")
	}
}

func TestSudoMounts(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if BySudo("x") != nil {
		t.Error("there is no sudo")
	}
	fake := "#!/bin/sh\n[ \"$1\" = -n ] || exit 1\nshift\nif [ \"$1\" = true ]; then exit 0; fi\n[ \"$1\" = -- ] || exit 1\nshift\nexec \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "sudo"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	h := BySudo(os.Args[0], "privileged")
	if h == nil {
		t.Fatal("sudo is not found")
	}
	if err := h.Detach(t.TempDir(), false); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nothing is mounted there: %v", err)
	}
}
