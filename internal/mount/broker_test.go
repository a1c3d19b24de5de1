//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
)

// container is a process in a mount namespace of its own.
func container(t *testing.T) (pid int) {
	t.Helper()
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid
}

func startBroker(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ServeBroker(ctx, dir, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "the broker", func() bool { return FindBroker(dir).available() == nil })
	return dir
}

// A process without the right to mount gets its mounts from a broker, in its own mount
// namespace and nowhere else.
func TestABrokerMountsInTheCallersNamespace(t *testing.T) {
	r := newRig(t)
	r.kill(syscall.SIGTERM)
	pid := container(t)
	r.broker = startBroker(t)
	// Without the right to mount, and in the container's namespace.
	r.enter = []string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", pid), "setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--"}
	r.start()
	if did := r.mount(r.request()); did != mountapi.Mounted {
		t.Errorf("the first call %s", did)
	}
	if p, ok, err := mountpoints.At(r.path); ok || err != nil {
		t.Errorf("it is mounted outside, too: %v %v", p, err)
	}
	inside := func(name string) string { return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), r.path, name) }
	if err := os.WriteFile(inside("x"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.content("x"); got != "text" {
		t.Errorf("the bucket has %q", got)
	}
	r.kill(syscall.SIGKILL)
	if _, err := os.Stat(inside("x")); !errors.Is(err, syscall.ENOTCONN) {
		t.Fatalf("the mount of a dead process: %v", err)
	}
	r.start()
	if did := r.mount(r.request()); did != mountapi.Restored {
		t.Errorf("the call after a death %s", did)
	}
	if got, err := os.ReadFile(inside("x")); err != nil || string(got) != "text" {
		t.Errorf("it reads %q, %v", got, err)
	}
	if err := r.client.Unmount(t.Context(), mountapi.UnmountRequest{Path: r.path}); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(inside("")); err != nil || len(names) > 0 {
		t.Errorf("after the end: %v, %v", names, err)
	}
}

func TestWhatABrokerRefuses(t *testing.T) {
	newRig(t) // it skips where nothing can be mounted
	pid := container(t)
	space, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	own, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	network, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	tables, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	roots, theirs := t.TempDir(), t.TempDir()
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(theirs, link); err != nil {
		t.Fatal(err)
	}
	root, nobody := unix.Ucred{}, unix.Ucred{Uid: 65534, Gid: 65534}
	s := &brokerServer{own: own, tables: tables, log: slog.New(slog.DiscardHandler)}
	at := func(path string) order {
		return order{Attach: &fusefs.Attachment{Path: path, Name: "n", Kind: "x", UID: 0, AllowOther: true}}
	}
	for name, c := range map[string]struct {
		o     order
		space *os.File
		peer  unix.Ucred
		says  string
	}{
		"nothing":                     {order{}, space, root, "mounts or unmounts"},
		"both":                        {order{Attach: at(theirs).Attach, Detach: theirs}, space, root, "mounts or unmounts"},
		"no namespace":                {at(theirs), nil, root, "sent no mount namespace"},
		"another kind of namespace":   {at(theirs), network, root, "is no mount namespace"},
		"a file":                      {at(theirs), tables, root, "is no mount namespace"},
		"the broker's own":            {at(theirs), own, root, "broker's own container"},
		"the root":                    {at("/"), space, root, "not absolute and clean"},
		"a relative path":             {at("x"), space, root, "not absolute and clean"},
		"a way around":                {at("/tmp/../etc"), space, root, "not absolute and clean"},
		"the system's":                {at("/etc"), space, root, "belongs to the system"},
		"below the system's":          {at("/proc/self/attr"), space, root, "belongs to the system"},
		"not there":                   {at(theirs + "/missing"), space, root, "no such file"},
		"by a link":                   {at(link), space, nobody, "too many levels"},
		"somebody else's folder":      {at(roots), space, nobody, "belongs to user 0"},
		"to unmount what is not ours": {order{Detach: "/proc"}, space, root, "belongs to the system"},
		"to unmount nothing":          {order{Detach: theirs}, space, root, "has mounted nothing"},
	} {
		f, err := s.follow(c.o, c.space, c.peer)
		if err == nil || !strings.Contains(err.Error(), c.says) || f != nil {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	f, err := s.follow(at(theirs), space, nobody)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)); err != nil || !strings.Contains(string(table), theirs+" rw,nosuid,nodev") || !strings.Contains(string(table), "user_id=65534,group_id=65534") {
		t.Errorf("mounted as\n%s%v", table, err)
	} else if strings.Contains(string(table), "allow_other") {
		t.Error("others can be made to wait for whom they do not trust")
	}
	if _, err := s.follow(order{Detach: theirs, Lazy: true}, space, unix.Ucred{Uid: 1000}); !errors.Is(err, unix.EPERM) {
		t.Errorf("unmounting what is somebody else's: %v", err)
	}
	if _, err := s.follow(order{Detach: theirs, Lazy: true}, space, nobody); err != nil {
		t.Error(err)
	}
	if FindBroker(filepath.Join(theirs, "missing")) != nil {
		t.Error("a broker is found where there is none")
	}
	if err := (&Broker{Socket: filepath.Join(t.TempDir(), "socket")}).available(); err == nil {
		t.Error("a broker that is not there is available")
	}
}
