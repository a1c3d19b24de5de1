//go:build linux

package mount

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/destination"
	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
)

// Rights mount in place of this process, which may not.
type Rights interface {
	fusefs.Attacher
	// available says why nothing can be mounted, if so.
	available() error
}

// A Helper is a program that may mount, and is started for each call: this one again, by
// sudo. Buckets are served, and credentials held, without its rights.
type Helper struct {
	// Command is the program with its arguments; an order as JSON is added.
	Command []string
}

// BySudo is a helper that sudo starts; nil: there is no sudo that asks for no password.
func BySudo(command ...string) *Helper {
	if exec.Command("sudo", "-n", "true").Run() != nil {
		return nil
	}
	return &Helper{Command: append([]string{"sudo", "-n", "--"}, command...)}
}

// helperTimeout bounds one call of a helper.
const helperTimeout = time.Minute

// An order is what a helper does.
type order struct {
	Attach *fusefs.Attachment `json:"attach,omitempty"`
	Detach string             `json:"detach,omitempty"` // a path
	Lazy   bool               `json:"lazy,omitempty"`
}

// A result is what came of it.
type result struct {
	Error string `json:"error,omitempty"`
	Errno string `json:"errno,omitempty"`
}

var (
	_ Rights = (*Helper)(nil)
	_ Rights = (*Broker)(nil)
)

// Attach mounts, and gets the descriptor over the helper's standard input.
func (h *Helper) Attach(a fusefs.Attachment) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	defer near.Close()
	err = h.do(order{Attach: &a}, far)
	far.Close()
	if err != nil {
		return nil, err
	}
	return receiveDescriptor(near)
}

// receiveDescriptor gets the descriptor of a mount from the program that made it.
func receiveDescriptor(near *os.File) (*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(near.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("no descriptor came from the program that mounts: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("no descriptor came from the program that mounts: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "/dev/fuse"), nil
}

// Detach ends a mount.
func (h *Helper) Detach(path string, lazy bool) error {
	return h.do(order{Detach: path, Lazy: lazy}, nil)
}

func (h *Helper) do(o order, stdin *os.File) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Command[0], append(append([]string{}, h.Command[1:]...), string(text))...)
	var out, said bytes.Buffer
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var r result
	if json.Unmarshal(out.Bytes(), &r) != nil {
		return fmt.Errorf("%s does not mount: %w: %s", h.Command[0], err, bytes.TrimSpace(said.Bytes()))
	}
	if r.Error != "" {
		return fusefs.WithErrno(r.Error, r.Errno)
	}
	return err
}

// Privileged is the helper itself: it follows one order, writes its result to out, and sends
// the descriptor of a mount to the socket in.
func Privileged(text string, in *os.File, out io.Writer) int {
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.follow(in)
	}
	r := result{}
	if err != nil {
		r = result{Error: err.Error(), Errno: fusefs.ErrnoName(err)}
	}
	if json.NewEncoder(out).Encode(r) != nil || err != nil {
		return 1
	}
	return 0
}

func (o order) follow(in *os.File) error {
	switch {
	case o.Attach != nil:
		f, err := o.Attach.Attach()
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Sendmsg(int(in.Fd()), []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
			return errors.Join(err, fusefs.Detach(o.Attach.Path, true))
		}
		return nil
	case o.Detach != "":
		return fusefs.Detach(o.Detach, o.Lazy)
	}
	return errors.New("the order says nothing")
}

// available does not open the device: who may not mount may not do that either.
func (h *Helper) available() error {
	_, err := os.Stat("/dev/fuse")
	return err
}

func (m *Mounts) attacher() fusefs.Attacher {
	if m.o.Rights == nil {
		return nil
	}
	return m.o.Rights
}

// available says why nothing can be mounted here, if so.
func (m *Mounts) available() error {
	if m.o.Rights != nil {
		return m.o.Rights.available()
	}
	return fusefs.Available()
}

func (m *Mounts) clearPath(path string) (restored bool, err error) {
	if m.o.Rights != nil {
		return clearPath(path, m.o.Rights.Detach)
	}
	return clearPath(path, fusefs.Detach)
}

// place makes the folder of a mount, which must be empty.
func (m *Mounts) place(ctx context.Context, s mountapi.Spec) error {
	_, err := place(s.Path, s.UID, s.GID)
	if m.o.Rights == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if _, err := destination.New(os.Getenv("HOME")).Prepare(ctx, s.Path, true); err != nil {
		if why, ok := errors.AsType[*destination.Error](err); ok {
			return failf(mountapi.Invalid, "%w", why)
		}
		return err
	}
	_, err = place(s.Path, s.UID, s.GID)
	return err
}
