//go:build unix

package destination

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/api/agentapi"
)

// sudoTimeout bounds one call of sudo.
const sudoTimeout = time.Minute

// A Preparer makes destinations writable for the user of this process.
type Preparer struct {
	home     string
	uid, gid int
	root     bool // the user is root
	shared   bool // the node has a share of its machine
	writable func(folder string) bool
	asRoot   func(ctx context.Context, script string, args ...string) error
}

// New returns a preparer that uses sudo where the user may not write.
func New(home string) *Preparer {
	_, shared := os.LookupEnv(agentapi.DevicesEnv)
	return &Preparer{home: home, uid: os.Geteuid(), gid: os.Getegid(), root: os.Geteuid() == 0, shared: shared, asRoot: sudo,
		writable: func(folder string) bool {
			return unix.Faccessat(unix.AT_FDCWD, folder, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
		}}
}

// Prepare makes a file or a folder at an absolute path writable, and returns where to write
// it: at that path, or where a link at that path leads. It may be called again. An
// [*Error] says that it cannot be.
func (p *Preparer) Prepare(ctx context.Context, path string, folder bool) (string, error) {
	if p.root {
		return path, nil
	}
	s, err := p.survey(path, folder)
	if err != nil {
		return "", err
	}
	act, at, why := decide(s)
	if p.shared && act != asIs && act != refuse {
		return "", &Error{Path: s.path, Why: "it takes root, and other clusters have shares of the machine", Hint: "Choose a path below ~/, or take the machine as a whole: name no cpus, memory or accelerators"}
	}
	switch act {
	case create:
		err = p.asRoot(ctx, `umask 022; mkdir -p -- "$1" && chown -h "$2" -- "$1"`, at, p.owner())
	case adopt:
		err = p.asRoot(ctx, `chown -h "$2" -- "$1" && chmod u+rwx -- "$1"`, at, p.owner())
	case link:
		if err := os.MkdirAll(filepath.Dir(s.target), 0o755); err != nil {
			return "", err
		}
		if s.linked != s.target {
			err = p.asRoot(ctx, `ln -sfn -- "$2" "$1"`, path, s.target)
		}
		path = s.target
	case refuse:
		return "", why
	}
	if err != nil {
		why := &Error{Path: s.path, Why: fmt.Sprintf("it takes root, and %s cannot use sudo without a password there (%v)", p.name(), err), Hint: "Choose a path below ~/"}
		if at != "" {
			why.Hint += fmt.Sprintf(", or make the folder yours there: sudo install -d -o %s %s", p.name(), at)
		}
		return "", why
	}
	return path, nil
}

func (p *Preparer) owner() string { return strconv.Itoa(p.uid) + ":" + strconv.Itoa(p.gid) }

func (p *Preparer) name() string {
	if u, err := user.LookupId(strconv.Itoa(p.uid)); err == nil {
		return u.Username
	}
	return "user " + strconv.Itoa(p.uid)
}

// survey looks at a destination. It changes nothing.
func (p *Preparer) survey(path string, folder bool) (state, error) {
	s := state{path: path, folder: folder, target: filepath.Join(p.home, linksDir, path)}
	s.linked, _ = os.Readlink(path)
	info, err := os.Stat(path)
	switch {
	case err == nil:
		s.exists, s.isFolder = true, info.IsDir()
		if s.isFolder {
			s.writable, s.empty = p.writable(path), isEmpty(path)
		}
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		s.exists = true // a file is in the way; whoever writes says so
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return s, err
	}
	for s.above = filepath.Dir(path); ; s.above = filepath.Dir(s.above) {
		if info, err := os.Stat(s.above); err == nil && info.IsDir() || s.above == "/" {
			break
		}
	}
	s.aboveWritable = p.writable(s.above)
	start := s.above
	if s.isFolder {
		start = path
	}
	s.stranger, err = p.stranger(start)
	return s, err
}

func isEmpty(folder string) bool {
	f, err := os.Open(folder)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// stranger finds a folder at or above a path that somebody else than root and the user
// owns, or everybody may change: what is done with root's rights below it could be led
// elsewhere.
func (p *Preparer) stranger(folder string) (string, error) {
	at, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "", err
	}
	for ; ; at = filepath.Dir(at) {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return "", &os.PathError{Op: "stat", Path: at, Err: err}
		}
		if st.Uid != 0 && int(st.Uid) != p.uid || st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return at, nil
		}
		if at == "/" {
			return "", nil
		}
	}
}

// sudo runs a script for a POSIX shell as root.
func sudo(ctx context.Context, script string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, sudoTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sudo", append([]string{"-n", "--", "/bin/sh", "-c", script, "sh"}, args...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	text := bytes.TrimSpace(said.Bytes())
	line := text[bytes.LastIndexByte(text, '\n')+1:] // warnings come first
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("there is no sudo")
	case err != nil && len(line) > 0:
		return errors.New(string(line))
	default:
		return err
	}
}
