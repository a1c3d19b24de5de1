//go:build unix

package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/crypto/ssh"
)

// session is a login: one command or one shell.
type session struct {
	s   *sshd
	ch  ssh.Channel
	env []string

	size *pty.Winsize // wanted terminal; nil: none
	term string

	mu  sync.Mutex
	tty *os.File
	cmd *exec.Cmd
}

// session serves the requests of a channel until it is closed. A command
// without a terminal that is still running then goes on.
func (s *sshd) session(nc ssh.NewChannel) {
	ch, requests, err := nc.Accept()
	if err != nil {
		return
	}
	x := &session{s: s, ch: ch}
	var done sync.WaitGroup
	for r := range requests {
		ok := x.request(r, &done)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
	}
	ch.Close()
	x.mu.Lock()
	if x.tty != nil {
		x.tty.Close() // hangs up
	}
	x.mu.Unlock()
	done.Wait()
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// request does what one request asks; false refuses it.
func (x *session) request(r *ssh.Request, done *sync.WaitGroup) bool {
	switch r.Type {
	case "env":
		var v struct{ Name, Value string }
		if ssh.Unmarshal(r.Payload, &v) != nil || !variable.MatchString(v.Name) || slices.Contains([]string{"HOME", "PATH", EnvMachine}, v.Name) {
			return false
		}
		x.env = append(x.env, v.Name+"="+v.Value)
		return true
	case "pty-req":
		var p struct {
			Term                      string
			Cols, Rows, Width, Height uint32
			Modes                     string
		}
		if ssh.Unmarshal(r.Payload, &p) != nil {
			return false
		}
		x.term, x.size = p.Term, &pty.Winsize{Cols: uint16(p.Cols), Rows: uint16(p.Rows), X: uint16(p.Width), Y: uint16(p.Height)}
		return true
	case "window-change":
		var w struct{ Cols, Rows, Width, Height uint32 }
		if ssh.Unmarshal(r.Payload, &w) != nil {
			return false
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.tty != nil && pty.Setsize(x.tty, &pty.Winsize{Cols: uint16(w.Cols), Rows: uint16(w.Rows), X: uint16(w.Width), Y: uint16(w.Height)}) == nil
	case "signal":
		var g struct{ Name string }
		if ssh.Unmarshal(r.Payload, &g) != nil {
			return false
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		sig, ok := signals[g.Name]
		return ok && x.cmd != nil && syscall.Kill(-x.cmd.Process.Pid, sig) == nil
	case "exec", "shell":
		var c struct{ Command string }
		if r.Type == "exec" && ssh.Unmarshal(r.Payload, &c) != nil {
			return false
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.cmd != nil {
			return false
		}
		return x.start(r.Type == "exec", c.Command, done) == nil
	}
	return false
}

// start runs the command, or a login shell.
func (x *session) start(command bool, line string, done *sync.WaitGroup) error {
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	cmd := exec.Command(shell)
	if command {
		cmd.Args = []string{shell, "-c", line}
	} else if x.size != nil {
		cmd.Args = []string{"-" + filepath.Base(shell)}
	}
	home := filepath.Join(x.s.dir, "home")
	cmd.Dir = home
	cmd.Env = append([]string{
		"HOME=" + home, "USER=" + x.s.spec.User, "LOGNAME=" + x.s.spec.User, "SHELL=" + shell,
		"PATH=" + filepath.Join(x.s.dir, "bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"TMPDIR=" + filepath.Join(x.s.dir, "tmp"), "LANG=C.UTF-8",
		EnvMachine + "=" + x.s.dir, fmt.Sprintf("FLUFFYCLOUD_SSHD=%d", os.Getpid()),
	}, slices.Concat(x.s.spec.Env, x.env)...)
	if x.size != nil {
		return x.startTerminal(cmd, done)
	}
	return x.startPlain(cmd, done)
}

func (x *session) startTerminal(cmd *exec.Cmd, done *sync.WaitGroup) error {
	cmd.Env = append(cmd.Env, "TERM="+x.term)
	tty, err := pty.StartWithSize(cmd, x.size)
	if err != nil {
		return err
	}
	x.tty, x.cmd = tty, cmd
	go func() { _, _ = io.Copy(tty, x.ch) }()
	done.Go(func() {
		_, _ = io.Copy(x.ch, tty) // ends when the terminal hangs up
		x.finish(cmd.Wait())
		x.ch.Close()
	})
	return nil
}

// startPlain connects the command by pipes. The channel stays open while
// anything holds the output, as with OpenSSH.
func (x *session) startPlain(cmd *exec.Cmd, done *sync.WaitGroup) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		outR.Close()
		outW.Close()
		return err
	}
	cmd.Stdout, cmd.Stderr = outW, errW
	err = cmd.Start()
	outW.Close()
	errW.Close()
	if err != nil {
		outR.Close()
		errR.Close()
		return err
	}
	x.cmd = cmd
	go func() {
		_, _ = io.Copy(in, x.ch)
		in.Close()
	}()
	var output sync.WaitGroup
	output.Go(func() { _, _ = io.Copy(x.ch, outR); outR.Close() })
	output.Go(func() { _, _ = io.Copy(x.ch.Stderr(), errR); errR.Close() })
	// Nobody waits for these: what was started may outlive the connection.
	go func() {
		x.finish(cmd.Wait())
		output.Wait()
		x.ch.Close()
	}()
	return nil
}

// finish reports how the command ended.
func (x *session) finish(err error) {
	status := struct{ Status uint32 }{}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			end := struct {
				Signal   string
				Dumped   bool
				Message  string
				Language string
			}{Signal: signalName(ws.Signal()), Dumped: ws.CoreDump()}
			_, _ = x.ch.SendRequest("exit-signal", false, ssh.Marshal(&end))
			return
		}
		status.Status = uint32(exit.ExitCode())
	} else if err != nil {
		status.Status = 255
	}
	_, _ = x.ch.SendRequest("exit-status", false, ssh.Marshal(&status))
}

var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP, "ILL": syscall.SIGILL,
	"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE, "QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV,
	"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

func signalName(s syscall.Signal) string {
	for name, sig := range signals {
		if sig == s {
			return name
		}
	}
	return strings.ReplaceAll(s.String(), " ", "-") + "@fluffycloud"
}
