//go:build linux

package mount

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
)

// Fusermount is the program of that name, which mounts for users without rights where the
// administrator of a machine has installed it: on the nodes of many Slurm clusters, say.
// It mounts at folders of the user's and lets nobody else in.
type Fusermount struct{ Program string }

var _ Rights = (*Fusermount)(nil)

// FindFusermount is the program of this machine; nil: there is none, or no device.
func FindFusermount() *Fusermount {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return nil
	}
	for _, name := range []string{"fusermount3", "fusermount"} {
		if path, err := exec.LookPath(name); err == nil {
			return &Fusermount{path}
		}
	}
	return nil
}

// Attach mounts, and gets the descriptor over a socket of the program's.
func (f *Fusermount) Attach(a fusefs.Attachment) (*os.File, error) {
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace
	options := []string{"nosuid", "nodev", "default_permissions", "fsname=" + escape(a.Name), "subtype=" + escape(a.Kind)}
	if a.ReadOnly {
		options = append(options, "ro")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	defer near.Close()
	err = f.run(far, "-o", strings.Join(options, ","), "--", a.Path)
	far.Close()
	if err != nil {
		return nil, err
	}
	return receiveDescriptor(near)
}

// Detach ends a mount.
func (f *Fusermount) Detach(path string, lazy bool) error {
	args := []string{"-u", "-q"}
	if lazy {
		args = append(args, "-z")
	}
	err := f.run(nil, append(args, "--", path)...)
	if err == nil {
		return nil
	}
	if _, mounted, _ := mountpoints.At(path); mounted {
		return fmt.Errorf("%w: %w", unix.EBUSY, err)
	}
	return err
}

func (f *Fusermount) run(socket *os.File, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.Program, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if socket != nil {
		cmd.ExtraFiles = []*os.File{socket}
		cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", f.Program, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func (f *Fusermount) available() error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil { // fusermount opens it as the user
		return fmt.Errorf("/dev/fuse cannot be opened: %w", err)
	}
	return unix.Close(fd)
}
