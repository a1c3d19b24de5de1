//go:build unix

package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/destination"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/proc"
)

const (
	maxFrame   = 64 << 10
	shellGrace = 2 * time.Second // for what runs in a shell whose other side is gone
)

// upgrade answers that the connection is a raw stream from now on and hands it
// over. The stream ends when the agent does.
func (a *Agent) upgrade(w http.ResponseWriter, r *http.Request, protocol string) (net.Conn, func(), error) {
	if r.Header.Get("Upgrade") != protocol {
		return nil, nil, invalid("this call needs the header \"Upgrade: " + protocol + "\"")
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.conns.Add(1)
	_ = conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(a.ctx, func() { conn.Close() })
	done := func() {
		stop()
		conn.Close()
		a.conns.Done()
	}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		done()
		return nil, nil, errStreamBroken
	}
	return &hijacked{Conn: conn, early: rw.Reader}, done, nil
}

// hijacked gives first what the HTTP server had read already.
type hijacked struct {
	net.Conn
	early interface {
		io.Reader
		Buffered() int
	}
}

func (h *hijacked) Read(p []byte) (int, error) {
	if h.early != nil {
		if h.early.Buffered() > 0 {
			return h.early.Read(p)
		}
		h.early = nil
	}
	return h.Conn.Read(p)
}

func (a *Agent) postSync(w http.ResponseWriter, r *http.Request) error {
	conn, done, err := a.upgrade(w, r, agentapi.SyncProtocol)
	if err != nil {
		return err
	}
	defer done()
	to := filesync.Receiver{Home: a.o.Home}
	if !a.o.SharedMachine {
		to.Place = destination.New(a.o.Home).Prepare
	}
	if err := to.Serve(a.ctx, conn); err != nil {
		a.log.Warn("file sync ended early", "err", err)
	}
	return nil
}

func shellQuery(r *http.Request) agentapi.ShellQuery {
	v := r.URL.Query()
	number := func(name string) int {
		n, err := strconv.Atoi(v.Get(name))
		if err != nil || n < 0 || n > 0xffff {
			return 0
		}
		return n
	}
	return agentapi.ShellQuery{
		Command: v.Get("command"), TTY: v.Get("tty") == "1", Term: v.Get("term"),
		Rows: number("rows"), Cols: number("cols"), Node: number("node"),
	}
}

func (a *Agent) getShell(w http.ResponseWriter, r *http.Request) error {
	q := shellQuery(r)
	spec := a.clusterSpec()
	if q.Node != spec.Self && q.Node < len(spec.Nodes) && a.isHead() {
		return a.forwardShell(w, r, q, spec.Nodes[q.Node].Address)
	}
	if q.Node != spec.Self && q.Node != 0 {
		return invalid(fmt.Sprintf("there is no node %d in the cluster", q.Node))
	}
	conn, done, err := a.upgrade(w, r, agentapi.ShellProtocol)
	if err != nil {
		return err
	}
	defer done()
	defer a.session()()
	if err := a.shell(conn, q); err != nil {
		a.log.Debug("shell ended", "err", err)
	}
	return nil
}

// forwardShell joins the caller with another node.
func (a *Agent) forwardShell(w http.ResponseWriter, r *http.Request, q agentapi.ShellQuery, address string) error {
	a.mu.Lock()
	client := a.clientLocked(address)
	a.mu.Unlock()
	far, err := client.Upgrade(a.ctx, agentapi.PathShell, agentapi.ShellProtocol, agentclient.ShellValues(q))
	if err != nil {
		return err
	}
	defer far.Close()
	near, done, err := a.upgrade(w, r, agentapi.ShellProtocol)
	if err != nil {
		return err
	}
	defer done()
	defer a.session()()
	go func() {
		_, _ = io.Copy(far, near)
		far.Close() // the caller is gone
	}()
	_, _ = io.Copy(near, far)
	return nil
}

// frames writes frames from several goroutines to one connection.
type frames struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frames) send(kind byte, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return agentapi.WriteFrame(f.w, kind, data)
}

// readFrame reads one frame into buf.
func readFrame(r io.Reader, buf []byte) (kind byte, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > uint32(len(buf)) {
		return 0, nil, errors.New("frame is too long")
	}
	_, err = io.ReadFull(r, buf[:n])
	return head[0], buf[:n], err
}

// shellRun numbers the shells of this agent's life, for their markers.
var shellRun atomic.Int64

// shell runs a command or a login shell and joins it with the stream until it
// has exited and its output is sent, or the other side is gone. What is left of
// its session then is ended.
func (a *Agent) shell(conn net.Conn, q agentapi.ShellQuery) error {
	key := a.ranks.own(fmt.Sprintf("shell-%d-%d", os.Getpid(), shellRun.Add(1)))
	cmd := a.shellCommand(q, key)
	out := &frames{w: conn}
	var err error
	var std *shellIO
	if q.TTY {
		std, err = startTTY(cmd, q)
	} else {
		std, err = startPipes(cmd)
	}
	if err != nil {
		_ = out.send(agentapi.FrameStderr, []byte("sky: "+err.Error()+"\n"))
		return out.send(agentapi.FrameExit, binary.BigEndian.AppendUint32(nil, codeNotFound))
	}
	gone := make(chan struct{}) // the other side is
	go func() {
		defer close(gone)
		std.input(conn)
	}()
	var copies sync.WaitGroup
	for kind, r := range std.outputs {
		copies.Go(func() { copyFrames(out, kind, r) })
	}
	// The process, not its output, says when it is over: what it left in the
	// background may hold the terminal for ever.
	exited := make(chan struct{})
	waiting, stop := context.WithCancel(context.WithoutCancel(a.ctx))
	defer stop()
	go func() {
		start, err := proc.StartTime(cmd.Process.Pid)
		if err != nil || proc.Wait(waiting, cmd.Process.Pid, start) == nil {
			close(exited)
		}
	}()
	select {
	case <-exited:
	case <-gone:
	case <-a.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), 3*shellGrace)
	defer cancel()
	select {
	case <-exited: // background processes of a shell may stay, as with ssh
	default:
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP)
		_ = proc.End(ctx, func() []int { return proc.Tree(cmd.Process.Pid, true, markerEnv, key) }, shellGrace)
	}
	waitBriefly(&copies)
	std.close()
	_ = cmd.Wait()
	if std.tty == nil {
		copies.Wait()
	} else { // what left the session may hold the terminal, and a read of that cannot be interrupted
		waitBriefly(&copies)
	}
	return out.send(agentapi.FrameExit, binary.BigEndian.AppendUint32(nil, uint32(int32(exitCode(cmd.ProcessState)))))
}

// waitBriefly waits for output that is still under way.
func waitBriefly(wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(200 * time.Millisecond):
	}
}

func (a *Agent) shellCommand(q agentapi.ShellQuery, key string) *exec.Cmd {
	sh := os.Getenv("SHELL")
	if sh == "" {
		sh = a.ranks.shell
	}
	cmd := exec.Command(sh, "-l")
	if q.Command != "" {
		cmd = exec.Command(a.ranks.shell, "-lc", q.Command)
	}
	vars := map[string]string{"SKY_CLUSTER_NAME": a.clusterSpec().NameOnCloud}
	if q.Command != "" {
		programVar(vars)
	}
	if q.TTY {
		vars["TERM"] = q.Term
		if q.Term == "" {
			vars["TERM"] = "xterm-256color"
		}
	}
	cmd.Env = environment(a.o.Home, vars, key)
	if q.TTY {
		cmd.Env = unmarked(cmd.Env)
	}
	cmd.Dir = a.o.Home
	return cmd
}

// unmarked is an environment without the key by which processes are ended wherever they
// went: what leaves the session of a terminal, such as tmux and screen, does so to outlive it.
func unmarked(env []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, markerEnv+"=") })
}

// programVar names the agent's program in the environment of what it starts.
func programVar(vars map[string]string) {
	if self, err := os.Executable(); err == nil {
		vars[agentapi.ProgramEnv] = self
	}
}

// programEnv is the environment of a program that belongs to no job.
func programEnv(home string) []string {
	vars := map[string]string{}
	programVar(vars)
	return unmarked(environment(home, vars, ""))
}

// shellIO are the ends of a shell's streams on our side.
type shellIO struct {
	stdin   io.WriteCloser
	tty     *os.File // nil without a terminal
	outputs map[byte]*os.File
}

func startTTY(cmd *exec.Cmd, q agentapi.ShellQuery) (*shellIO, error) {
	size := &pty.Winsize{Rows: uint16(q.Rows), Cols: uint16(q.Cols)}
	if q.Rows == 0 || q.Cols == 0 {
		size = &pty.Winsize{Rows: 24, Cols: 80}
	}
	f, err := pty.StartWithSize(cmd, size)
	if err != nil {
		return nil, err
	}
	return &shellIO{stdin: f, tty: f, outputs: map[byte]*os.File{agentapi.FrameStdout: f}}, nil
}

func startPipes(cmd *exec.Cmd) (*shellIO, error) {
	var pipes [6]*os.File // read and write ends of stdin, stdout, stderr
	closeAll := func(fs []*os.File) {
		for _, f := range fs {
			if f != nil {
				f.Close()
			}
		}
	}
	for i := 0; i < len(pipes); i += 2 {
		var err error
		if pipes[i], pipes[i+1], err = os.Pipe(); err != nil {
			closeAll(pipes[:])
			return nil, err
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes[0], pipes[3], pipes[5]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := cmd.Start()
	closeAll([]*os.File{pipes[0], pipes[3], pipes[5]})
	if err != nil {
		closeAll([]*os.File{pipes[1], pipes[2], pipes[4]})
		return nil, err
	}
	return &shellIO{stdin: pipes[1], outputs: map[byte]*os.File{agentapi.FrameStdout: pipes[2], agentapi.FrameStderr: pipes[4]}}, nil
}

// input passes frames of the other side on until it is gone.
func (s *shellIO) input(conn io.Reader) {
	buf := make([]byte, maxFrame)
	for {
		kind, data, err := readFrame(conn, buf)
		if err != nil {
			return
		}
		switch kind {
		case agentapi.FrameStdin:
			_, _ = s.stdin.Write(data) // nobody may read it; the other side sees that
		case agentapi.FrameEOF:
			if s.tty != nil {
				_, _ = s.stdin.Write([]byte{4}) // ^D
			} else {
				s.stdin.Close()
			}
		case agentapi.FrameResize:
			if s.tty != nil && len(data) == 4 {
				_ = pty.Setsize(s.tty, &pty.Winsize{Rows: binary.BigEndian.Uint16(data), Cols: binary.BigEndian.Uint16(data[2:])})
			}
		}
	}
}

func (s *shellIO) close() {
	s.stdin.Close()
	for _, f := range s.outputs {
		f.Close()
	}
}

func copyFrames(out *frames, kind byte, r io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 && out.send(kind, buf[:n]) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}
