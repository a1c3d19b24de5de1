//go:build linux

package fusefs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An Attacher mounts for a process that may not.
type Attacher interface {
	// Attach mounts a file system and returns the descriptor by which it is served.
	Attach(a Attachment) (*os.File, error)
	// Detach ends a mount; see [Mount.Unmount].
	Detach(path string, lazy bool) error
}

// itself is this process, which may mount.
type itself struct{}

func (itself) Attach(a Attachment) (*os.File, error) { return a.Attach() }
func (itself) Detach(path string, lazy bool) error   { return Detach(path, lazy) }

// An Attachment says what is mounted where.
type Attachment struct {
	Path       string `json:"path"`
	Name       string `json:"name"` // shown by df: the bucket's URL
	Kind       string `json:"kind"` // "fuse." and this is the type of the file system
	ReadOnly   bool   `json:"read_only,omitempty"`
	AllowOther bool   `json:"allow_other,omitempty"` // others than the server's user may use it
	UID        uint32 `json:"uid"`                   // of the process that serves it
	GID        uint32 `json:"gid"`
}

// Attach opens /dev/fuse and mounts it, which takes the right to mount.
func (a Attachment) Attach() (*os.File, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/fuse cannot be opened: %w", err)
	}
	f := os.NewFile(uintptr(fd), "/dev/fuse")
	if err := a.AttachTo(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// AttachTo mounts /dev/fuse, which is open.
func (a Attachment) AttachTo(f *os.File) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if a.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,default_permissions,max_read=%d", f.Fd(), a.UID, a.GID, maxRequest)
	if a.AllowOther {
		data += ",allow_other"
	}
	if err := unix.Mount(a.Name, a.Path, "fuse."+a.Kind, flags, data); err != nil {
		return fmt.Errorf("mounting at %s: %w", a.Path, err)
	}
	return nil
}

// Detach ends the mount at a path.
func Detach(path string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	if err := unix.Unmount(path, flags); err != nil {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	return nil
}

// errnos are the errors that callers of an attacher in another process tell apart.
var errnos = map[string]unix.Errno{"EBUSY": unix.EBUSY, "EINVAL": unix.EINVAL, "EPERM": unix.EPERM, "ENOENT": unix.ENOENT}

// ErrnoName is the name of an error's number, for a process that gets it as text; "" if it
// does not matter.
func ErrnoName(err error) string {
	for name, n := range errnos {
		if errors.Is(err, n) {
			return name
		}
	}
	return ""
}

// WithErrno is an error from another process, with the number that has the name.
func WithErrno(text, name string) error {
	if n, ok := errnos[name]; ok {
		return &numbered{text, n}
	}
	return errors.New(text)
}

type numbered struct {
	text string
	n    unix.Errno
}

func (e *numbered) Error() string { return e.text }
func (e *numbered) Unwrap() error { return e.n }
