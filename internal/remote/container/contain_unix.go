//go:build unix

package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// leaving is how long after an agent has given its machine back the container is
// not started again: the machine is on its way.
const leaving = 3 * time.Minute

// noteFile is where a machine's folder says which container belongs to it. It is
// written before the container is made.
func noteFile(home string) string { return filepath.Join(home, ".sky", "container.json") }

// Contain makes the container run as the specification on in says; what happens
// is told on out, line by line. It is safe to repeat and to call at once with
// others. keep starts the process that waits for the container's end (see
// [Keep]).
func Contain(ctx context.Context, in io.Reader, out io.Writer, keep func(Spec) error) int {
	t := &teller{out: out}
	var s Spec
	err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&s)
	if err == nil {
		err = contain(ctx, s, t, keep)
	}
	if err != nil {
		full := errors.As(err, new(*NoSpaceError)) || errors.Is(err, syscall.ENOSPC) || says(err, "no space left")
		t.say(Line{Done: true, Error: err.Error(), NoSpace: full, Image: errors.As(err, new(*ImageError))})
		return 1
	}
	t.say(Line{Done: true})
	return 0
}

func contain(ctx context.Context, s Spec, t *teller, keep func(Spec) error) error {
	unlock, err := lock(ctx, filepath.Join(s.Home, ".sky", "container.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	e, err := findEngine(ctx, t)
	if err != nil {
		return err
	}
	c, err := e.inspect(ctx, s.Name)
	if err != nil {
		return err
	}
	if c != nil && (c.Status == "dead" || c.Status == "removing") {
		if err := e.remove(ctx, s.Name); err != nil {
			return err
		}
		c = nil
	}
	switch {
	case c == nil && !s.Create:
		return fmt.Errorf("the container of the image %s is not there any more; sky down gives the machine back", s.Image)
	case c == nil:
		if err := e.create(ctx, s, t); err != nil {
			return err
		}
		err = e.start(ctx, s, true)
	case c.Status == "running":
	case c.Status == "paused":
		_, err = e.run(ctx, "unpause", s.Name)
	case wanted(c.ExitCode) != "" && time.Since(c.FinishedAt) < leaving:
		return errors.New("the machine is being given back")
	default:
		err = e.start(ctx, s, c.Status == "created")
	}
	if err != nil {
		return err
	}
	return keep(s)
}

// Exit codes of a container's first process, by which the agent inside tells the
// keeper outside what to do with the machine.
const (
	exitTerminate = 77
	exitStop      = 78
)

// wanted is what an exit code says about the machine.
func wanted(code int) string {
	switch code {
	case exitTerminate:
		return "terminate"
	case exitStop:
		return "stop"
	}
	return ""
}

// first keeps the container alive, lets programs save what they have when it is to
// end, and turns the signals of [Inside] into exit codes.
var first = proc.FirstProcess(proc.AgentOfHome, fmt.Sprintf("trap 'exit %d' USR1\ntrap 'exit %d' USR2\n", exitTerminate, exitStop))

// Inside is the machine as the agent in the container sees it: what its first
// process ends with is done outside.
type Inside struct{}

func (Inside) Stop(context.Context) error      { return syscall.Kill(1, syscall.SIGUSR2) }
func (Inside) Terminate(context.Context) error { return syscall.Kill(1, syscall.SIGUSR1) }

func (e *engine) create(ctx context.Context, s Spec, t *teller) error {
	image, err := e.ensureImage(ctx, s, t)
	if err != nil {
		return err
	}
	note, err := json.Marshal(struct{ Name string }{s.Name})
	if err != nil {
		return err
	}
	if err := wholefile.Write(noteFile(s.Home), note, 0o600); err != nil {
		return err
	}
	programs, err := filepath.EvalSymlinks(filepath.Join(s.Home, ".sky", "runtime")) // a link where homes are noexec
	if err != nil {
		return err
	}
	if err := readable(programs); err != nil {
		return err
	}
	t.doing("making a container of %s", image)
	if _, err := e.run(ctx, arguments(s, image, programs, devices(s.Node))...); err != nil {
		if says(err, "is already in use by container") {
			return nil
		}
		return createError(err, image)
	}
	return nil
}

func createError(err error, image string) error {
	switch {
	case says(err, "no space left"):
		return &NoSpaceError{Image: image, Err: err}
	case says(err, "unknown flag", "unknown shorthand", "invalid argument", "flag needs an argument"):
		return fmt.Errorf("docker.run_options of the configuration are refused: %w", err)
	}
	return fmt.Errorf("making a container of %s: %w", image, err)
}

// start starts the container. One that never ran and does not start is removed,
// so that the next try makes it anew.
func (e *engine) start(ctx context.Context, s Spec, fresh bool) error {
	_, err := e.run(ctx, "start", s.Name)
	if err == nil {
		return nil
	}
	if fresh && ctx.Err() == nil {
		if rerr := e.remove(ctx, s.Name); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	switch {
	case says(err, "could not select device driver", "nvidia-container"):
		return fmt.Errorf("the machine has GPUs, and its Docker cannot give them to containers; install the NVIDIA Container Toolkit there: %w", err)
	case says(err, "exec format error"):
		return fmt.Errorf("the image %s is for another processor than the machine has: %w", s.Image, err)
	case says(err, "/bin/sh"):
		return fmt.Errorf("the image %s has no shell (/bin/sh), which tasks need: %w", s.Image, err)
	}
	return fmt.Errorf("starting the container of %s: %w", s.Image, err)
}

func (e *engine) remove(ctx context.Context, name string) error {
	_, err := e.run(ctx, "rm", "--force", "--volumes", name)
	if says(err, "no such container", "is already in progress") {
		return nil
	}
	return err
}

// hardware is what of a machine's devices containers are given.
type hardware struct {
	neuron     []string // accelerators of AWS
	amd        bool
	infiniband bool
	fuse       bool
	shm        int64         // bytes of shared memory; 0: Docker's 64 MB
	share      *folder.Share // nil: the machine is the cluster's alone
}

func devices(node string) hardware {
	h := hardware{shm: memory() / 2, share: folder.ShareOf(node)}
	if h.share != nil {
		h.shm = min(h.shm, int64(h.share.MemoryGiB*(1<<30))/2)
	}
	h.neuron, _ = filepath.Glob("/dev/neuron[0-9]*")
	slices.Sort(h.neuron)
	_, kfd := os.Stat("/dev/kfd")
	_, nvidia := os.Stat("/dev/nvidiactl")
	h.amd = kfd == nil && nvidia != nil
	_, ib := os.Stat("/dev/infiniband")
	h.infiniband = ib == nil
	_, fuse := os.Stat("/dev/fuse")
	h.fuse = fuse == nil
	return h
}

// arguments are docker's for making the container. What the user says comes last
// and wins.
//
// What is in a share of a machine gets the share's processors, memory and GPUs.
func arguments(s Spec, image, programs string, h hardware) []string {
	args := []string{"create", "--name", s.Name, "--network", "host", "--label", "sky=" + s.Name, "--stop-timeout", strconv.Itoa(int((proc.Grace + 5*time.Second) / time.Second)),
		"--entrypoint", "/bin/sh", "--volume", programs + ":" + Programs + ":ro"}
	has := func(flag string) bool {
		return slices.ContainsFunc(s.Options, func(o string) bool { return o == flag || strings.HasPrefix(o, flag+"=") })
	}
	if h.shm > 0 && !has("--shm-size") && !has("--ipc") {
		args = append(args, fmt.Sprintf("--shm-size=%d", h.shm))
	}
	if h.share != nil {
		if !has("--cpus") {
			args = append(args, "--cpus="+strconv.FormatFloat(h.share.CPUs, 'f', -1, 64))
		}
		if !has("--memory") && !has("-m") {
			args = append(args, fmt.Sprintf("--memory=%d", int64(h.share.MemoryGiB*(1<<30))))
		}
	}
	switch {
	case !s.GPUs || has("--gpus"):
	case h.share != nil:
		if len(h.share.GPUs) > 0 {
			args = append(args, `--gpus="device=`+h.share.Devices()+`"`)
		}
	case len(h.neuron) > 0:
		for _, d := range h.neuron {
			args = append(args, "--device="+d)
		}
	case h.amd:
		args = append(args, "--device=/dev/kfd", "--device=/dev/dri")
	default:
		args = append(args, "--gpus=all")
	}
	if h.infiniband {
		args = append(args, "--cap-add=IPC_LOCK", "--device=/dev/infiniband", "--ulimit=memlock=-1:-1")
	}
	if s.Mounts && h.fuse {
		args = append(args, "--device=/dev/fuse", "--cap-add=SYS_ADMIN", "--security-opt=apparmor=unconfined")
	}
	args = append(args, s.Options...)
	return append(args, image, "-c", first)
}

// memory is the machine's, in bytes; 0: unknown.
func memory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kb int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err != nil {
		return 0
	}
	return kb << 10
}

// readable lets whatever user an image has run the agent's programs, which are
// nothing secret.
func readable(programs string) error {
	return filepath.WalkDir(programs, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || d.Name() == "sky" {
			return os.Chmod(path, 0o755)
		}
		return nil
	})
}

// Remove removes the container that a home folder says belongs to it, if there is
// one.
func Remove(ctx context.Context, home string) error {
	text, err := os.ReadFile(noteFile(home))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var note struct{ Name string }
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err != nil {
		return err
	}
	e, err := findEngine(ctx, &teller{out: io.Discard})
	if err != nil {
		return err
	}
	return e.remove(ctx, note.Name)
}

// lock waits for the lock of a file, which ends with this process.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// StartAgent runs "agent --start" of a build inside the container; stdin says how.
// It returns the exit code.
func StartAgent(ctx context.Context, name, build string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	e, err := askEngine(ctx)
	if err != nil {
		return 0, err
	}
	c := e.exec(ctx, "exec", "--interactive", name, Programs+"/"+build+"/sky", "agent", "--start")
	c.Stdin, c.Stdout, c.Stderr = stdin, stdout, stderr
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
