//go:build linux

package mount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
)

// BrokerDir is the folder of the broker's socket, on machines and in the containers that
// may use it.
const BrokerDir = "/run/sky-mount"

// BrokerSocket is the path of the socket in the folder of a broker.
func BrokerSocket(dir string) string { return filepath.Join(dir, "socket") }

// A Broker is a process outside this container that may mount, and mounts in it. Like a
// [Helper], it serves no bucket and gets no credentials.
//
// With each order goes a descriptor of the caller's own mount namespace: that it could be
// opened is the proof that the caller is in it. No process of the broker enters the
// container, so that nothing there can be traced or ended from inside. For the same reason
// the kernel does not tell the broker's mounts which process opens a file: a barrier waits
// for all files of a mount, and not for those of one job.
type Broker struct{ Socket string }

// FindBroker is the broker that this container was made for, whether or not it runs; nil:
// there is none.
func FindBroker(dir string) *Broker {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	return &Broker{BrokerSocket(dir)}
}

// MayMount reports whether this process can mount file systems by itself.
func MayMount() bool {
	if os.Geteuid() != 0 || fusefs.Available() != nil {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// brokerTimeout bounds one call of a broker.
const brokerTimeout = 30 * time.Second

// maxOrder bounds an order to a broker and its answer, in bytes.
const maxOrder = 64 << 10

// Attach mounts, and gets the descriptor with the answer.
func (b *Broker) Attach(a fusefs.Attachment) (*os.File, error) {
	f, err := b.do(order{Attach: &a})
	if err == nil && f == nil {
		err = errors.New("the broker has mounted, and sent no descriptor")
	}
	return f, err
}

// Detach ends a mount.
func (b *Broker) Detach(path string, lazy bool) error {
	f, err := b.do(order{Detach: path, Lazy: lazy})
	if f != nil {
		f.Close()
	}
	return err
}

func (b *Broker) available() error {
	c, err := net.DialTimeout("unix", b.Socket, brokerTimeout)
	if err != nil {
		return fmt.Errorf("the broker of sky-mount does not answer on this machine: %w", err)
	}
	return c.Close()
}

func (b *Broker) do(o order) (*os.File, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	space, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	defer space.Close()
	dialed, err := net.DialTimeout("unix", b.Socket, brokerTimeout)
	if err != nil {
		return nil, fmt.Errorf("the broker of mounts on this machine does not answer: %w", err)
	}
	defer dialed.Close()
	c := dialed.(*net.UnixConn)
	_ = c.SetDeadline(time.Now().Add(brokerTimeout))
	if err := send(c, text, space); err != nil {
		return nil, fmt.Errorf("asking the broker of mounts: %w", err)
	}
	answer, f, err := receive(c)
	if err != nil {
		return nil, fmt.Errorf("the broker of mounts does not answer: %w", err)
	}
	var r result
	if err = json.Unmarshal(answer, &r); err != nil {
		err = fmt.Errorf("the answer of the broker of mounts: %w", err)
	} else if r.Error != "" {
		err = fusefs.WithErrno(r.Error, r.Errno)
	}
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, err
}

// send writes one line, and a descriptor with it; nil: none.
func send(c *net.UnixConn, text []byte, f *os.File) error {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := c.WriteMsgUnix(append(text, '\n'), rights, nil)
	return err
}

// receive reads one line, and the descriptor that came with it; nil: none.
func receive(c *net.UnixConn) (text []byte, f *os.File, err error) {
	defer func() {
		if err != nil && f != nil {
			f.Close()
			f = nil
		}
	}()
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(16*4))
	for {
		n, m, _, _, err := c.ReadMsgUnix(buf, oob)
		if err != nil {
			return nil, f, err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:m])
		if err != nil {
			return nil, f, err
		}
		for _, x := range messages {
			fds, err := unix.ParseUnixRights(&x)
			if err != nil {
				return nil, f, err
			}
			for _, fd := range fds { // Go's ReadMsgUnix sets close-on-exec
				if f != nil {
					f.Close()
				}
				f = os.NewFile(uintptr(fd), "received")
			}
		}
		text = append(text, buf[:n]...)
		if len(text) > 0 && text[len(text)-1] == '\n' {
			return text[:len(text)-1], f, nil
		}
		if n == 0 || len(text) > maxOrder {
			return nil, f, errors.New("it is cut off, or too long")
		}
	}
}

// ServeBroker mounts for processes of other containers on this machine until the context
// ends. Its socket is in dir, and everybody who can reach it may use it: what it does for a
// caller is done in the caller's own mount namespace only.
func ServeBroker(ctx context.Context, dir string, log *slog.Logger) error {
	if !MayMount() {
		return errors.New("the broker has to be root with the right to mount, and needs /dev/fuse: run its container privileged")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	own, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	defer own.Close()
	tables, err := os.Open("/proc") // of the broker's own container
	if err != nil {
		return err
	}
	defer tables.Close()
	next := BrokerSocket(dir) + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(next, 0o666); err == nil {
		err = os.Rename(next, BrokerSocket(dir))
	}
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	log.Info("mounting for containers", "socket", BrokerSocket(dir))
	s := &brokerServer{own: own, tables: tables, log: log, room: make(chan struct{}, brokerCalls)}
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			s.calls.Wait()
			return nil
		}
		if err != nil {
			return err
		}
		s.room <- struct{}{}
		s.calls.Go(func() {
			defer func() { <-s.room }()
			s.answer(c)
		})
	}
}

// brokerCalls is how many callers are served at once.
const brokerCalls = 64

type brokerServer struct {
	own    *os.File // its mount namespace, in which nothing is mounted
	tables *os.File // /proc
	log    *slog.Logger
	room   chan struct{}
	calls  sync.WaitGroup
}

func (s *brokerServer) answer(c *net.UnixConn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(brokerTimeout))
	text, space, err := receive(c)
	if err != nil {
		return // who looks only whether it is there
	}
	if space != nil {
		defer space.Close()
	}
	var o order
	var f *os.File
	peer, err := peerOf(c)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err == nil {
		f, err = s.follow(o, space, peer)
	}
	r := result{}
	if err != nil {
		r = result{Error: err.Error(), Errno: fusefs.ErrnoName(err)}
		s.log.Warn("refused", "uid", peer.Uid, "err", err)
	}
	if f != nil {
		defer f.Close()
	}
	out, err := json.Marshal(r)
	if err == nil {
		err = send(c, out, f)
	}
	if err == nil || f == nil {
		return
	}
	// Nobody has the descriptor, so nobody serves the mount.
	s.log.Warn("the caller of a mount has gone", "path", o.Attach.Path)
	if _, err := s.follow(order{Detach: o.Attach.Path, Lazy: true}, space, peer); err != nil {
		s.log.Warn("its mount stays", "path", o.Attach.Path, "err", err)
	}
}

// peerOf is who a connection is from, as the kernel says.
func peerOf(c *net.UnixConn) (unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var peer *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return unix.Ucred{}, cerr
	}
	if err != nil {
		return unix.Ucred{}, err
	}
	return *peer, nil
}

// follow does what a caller asks for, in the mount namespace that it sent.
func (s *brokerServer) follow(o order, space *os.File, peer unix.Ucred) (f *os.File, err error) {
	if (o.Attach == nil) == (o.Detach == "") {
		return nil, errors.New("a broker mounts or unmounts")
	}
	if err := s.foreign(space); err != nil {
		return nil, err
	}
	path := o.Detach
	if o.Attach != nil {
		path = o.Attach.Path
	}
	if err := brokered(path); err != nil {
		return nil, err
	}
	onThread(func() { f, err = s.within(o, space, peer) })
	return f, err
}

// onThread runs f on a thread that ends afterwards.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the first thread does not end, and /proc/self is about it
			onThread(f)
			runtime.UnlockOSThread()
			return
		}
		f() // the thread is never unlocked: it ends with the goroutine
	}()
	<-done
}

// foreign refuses what is no mount namespace of somebody else.
func (s *brokerServer) foreign(space *os.File) error {
	if space == nil {
		return errors.New("the caller has sent no mount namespace")
	}
	kind, err := unix.IoctlRetInt(int(space.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNS {
		return errors.New("what the caller has sent is no mount namespace")
	}
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Fstat(int(s.own.Fd()), &own), unix.Fstat(int(space.Fd()), &theirs)); err != nil {
		return err
	}
	if own.Dev == theirs.Dev && own.Ino == theirs.Ino {
		return errors.New("nothing is mounted in the broker's own container")
	}
	return nil
}

// systemFolders are where a mount could deceive programs with more rights than the caller.
var systemFolders = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run/secrets", "/sbin", "/sys", "/usr", "/var/run/secrets", BrokerDir}

// brokered refuses paths at which a broker mounts nothing. It is pure.
func brokered(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || strings.ContainsRune(path, 0) {
		return fmt.Errorf("the path %q is not absolute and clean", path)
	}
	if slices.ContainsFunc(systemFolders, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }) {
		return fmt.Errorf("%w: the broker mounts nothing at %s, which belongs to the system; use a path below the home folder, say", unix.EPERM, path)
	}
	return nil
}

// within follows an order on a thread that ends afterwards.
func (s *brokerServer) within(o order, space *os.File, peer unix.Ucred) (*os.File, error) {
	var f *os.File
	if o.Attach != nil { // before the caller's own /dev is what this thread sees
		fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("the broker cannot open /dev/fuse: %w", err)
		}
		f = os.NewFile(uintptr(fd), "/dev/fuse")
	}
	err := s.enter(space)
	if err == nil {
		if o.Attach != nil {
			err = attachFor(*o.Attach, f, peer)
		} else {
			err = s.detachFor(o.Detach, o.Lazy, peer)
		}
	}
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, err
}

func (s *brokerServer) enter(space *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the caller's mount namespace: %w", err)
	}
	return nil
}

// folderOf opens a folder without following links.
func folderOf(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// attachFor mounts at a folder of the caller's. The file system belongs to the caller, who
// the kernel says that it is.
func attachFor(a fusefs.Attachment, f *os.File, peer unix.Ucred) error {
	dir, err := folderOf(a.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if peer.Uid != 0 && st.Uid != peer.Uid {
		return fmt.Errorf("%w: the folder %s belongs to user %d, and not to user %d who wants to mount there", unix.EPERM, a.Path, st.Uid, peer.Uid)
	}
	if err := unix.Fchdir(dir); err != nil {
		return err
	}
	a.Path, a.Kind, a.UID, a.GID = ".", mountpoints.Kind, peer.Uid, peer.Gid
	a.AllowOther = a.AllowOther && peer.Uid == 0 // others wait for whom they trust only
	if strings.ContainsRune(a.Name, 0) {
		return errors.New("the name of the file system is none")
	}
	return a.AttachTo(f)
}

// detachFor takes away a mount of sky-mount that belongs to the caller.
func (s *brokerServer) detachFor(path string, lazy bool, peer unix.Ucred) error {
	fd, err := unix.Openat(int(s.tables.Fd()), "thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	table := os.NewFile(uintptr(fd), "mountinfo")
	defer table.Close()
	p, ok, err := mountpoints.In(table, path)
	if err != nil {
		return err
	}
	if !ok || !p.Ours() {
		return fmt.Errorf("%w: sky-mount has mounted nothing at %s", unix.EINVAL, path)
	}
	if peer.Uid != 0 && !slices.Contains(strings.Split(p.Options, ","), fmt.Sprintf("user_id=%d", peer.Uid)) {
		return fmt.Errorf("%w: the mount at %s belongs to somebody else", unix.EPERM, path)
	}
	dir, err := folderOf(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Fchdir(dir); err != nil {
		return err
	}
	return fusefs.Detach(filepath.Base(path), lazy)
}
