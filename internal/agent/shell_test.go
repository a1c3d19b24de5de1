//go:build unix

package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/proc"
)

// terminal is the caller's side of a shell.
type terminal struct {
	t    *testing.T
	conn io.ReadWriteCloser
	out  *frames
	seen string // output that until has not passed yet
}

func openShell(t *testing.T, c *testCluster, q agentapi.ShellQuery) *terminal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	conn, err := c.head.Shell(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
	})
	return &terminal{t: t, conn: conn, out: &frames{w: conn}}
}

func (s *terminal) send(kind byte, data string) {
	s.t.Helper()
	if err := s.out.send(kind, []byte(data)); err != nil {
		s.t.Fatal(err)
	}
}

// until reads output up to the end of want.
func (s *terminal) until(want string) {
	s.t.Helper()
	buf := make([]byte, maxFrame)
	for !strings.Contains(s.seen, want) {
		_, data, err := readFrame(s.conn, buf)
		if err != nil {
			s.t.Fatalf("%v after %q", err, s.seen)
		}
		s.seen += string(data)
	}
	_, s.seen, _ = strings.Cut(s.seen, want)
}

// rest reads until the shell has exited.
func (s *terminal) rest() (stdout, stderr string, code int) {
	s.t.Helper()
	var outs [2]bytes.Buffer
	buf := make([]byte, maxFrame)
	for {
		kind, data, err := readFrame(s.conn, buf)
		if err != nil {
			s.t.Fatalf("%v after %q, %q", err, outs[0].String(), outs[1].String())
		}
		switch kind {
		case agentapi.FrameStdout:
			outs[0].Write(data)
		case agentapi.FrameStderr:
			outs[1].Write(data)
		case agentapi.FrameExit:
			return outs[0].String(), outs[1].String(), int(int32(binary.BigEndian.Uint32(data)))
		}
	}
}

func TestShellWithoutTerminal(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	s := openShell(t, c, agentapi.ShellQuery{Command: `cat; echo $SKY_CLUSTER_NAME $HOME; echo oops >&2; exit 9`})
	s.send(agentapi.FrameStdin, "one\n")
	s.send(agentapi.FrameStdin, "two\n")
	s.send(agentapi.FrameEOF, "")
	stdout, stderr, code := s.rest()
	if stdout != "one\ntwo\nc1-0000 "+c.nodes[0].home+"\n" || stderr != "oops\n" || code != 9 {
		t.Errorf("%q, %q, %d", stdout, stderr, code)
	}
}

func TestShellOnAnotherNode(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	s := openShell(t, c, agentapi.ShellQuery{Command: "echo $HOME; kill -9 $$", Node: 1})
	stdout, _, code := s.rest()
	if stdout != c.nodes[1].home+"\n" || code != 137 {
		t.Errorf("%q, %d", stdout, code)
	}
	if _, err := c.head.Shell(t.Context(), agentapi.ShellQuery{Node: 2}); !isCode(err, agentapi.CodeInvalid) {
		t.Errorf("node that is not there: %v", err)
	}
}

func TestShellWithTerminal(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	s := openShell(t, c, agentapi.ShellQuery{TTY: true, Term: "dumb", Rows: 31, Cols: 97})
	s.send(agentapi.FrameStdin, "PS1=rea''dy:; stty size; tty; echo $TERM\n")
	s.until("31 97")
	s.until("dumb")
	s.send(agentapi.FrameResize, "\x00\x28\x00\x64")
	s.send(agentapi.FrameStdin, "stty size\n")
	s.until("40 100")
	// A program that has begun: a shell between fork and exec may lose the signal.
	s.send(agentapi.FrameStdin, "sh -c 'echo sleep\"\"ing; exec sleep 1000'\n")
	s.until("sleeping")
	s.send(agentapi.FrameStdin, "\x03") // ^C also drops what was typed ahead
	s.until("^C")
	s.until("ready:")
	s.send(agentapi.FrameStdin, "exit 4\n")
	if _, _, code := s.rest(); code != 4 {
		t.Errorf("code %d", code)
	}
}

func TestShellEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	s := openShell(t, c, agentapi.ShellQuery{Command: "trap '' HUP TERM; echo $$; while :; do sleep 1; done"})
	var pid int
	buf := make([]byte, maxFrame)
	_, data, err := readFrame(s.conn, buf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(data), &pid); err != nil || !proc.Alive(pid, "") {
		t.Fatalf("pid %q: %v", data, err)
	}
	s.conn.Close()
	for end := time.Now().Add(time.Minute); proc.Alive(pid, ""); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the shell goes on without its caller")
		}
	}
}

// What has left the session of a terminal, as tmux and screen do, outlives a connection
// that breaks; the rest of the session ends.
func TestWhatLeftATerminalsSessionOutlivesIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	s := openShell(t, c, agentapi.ShellQuery{TTY: true, Command: "(setsid sh -c 'echo $$ >left; exec sleep 1000' &); sleep 1000 & echo $! >stays; until [ -s left ]; do sleep 0.01; done; echo ready; wait"})
	s.until("ready")
	pid := func(name string) (pid int) {
		b, err := os.ReadFile(filepath.Join(c.nodes[0].home, name))
		if err == nil {
			_, err = fmt.Sscan(string(b), &pid)
		}
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	left, stays := pid("left"), pid("stays")
	t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
	s.conn.Close()
	for end := time.Now().Add(time.Minute); proc.Alive(stays, ""); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process of the session goes on")
		}
	}
	c.nodes[0].stop() // it has ended what it ends
	if !proc.Alive(left, "") {
		t.Error("a process that left the session was ended with it")
	}
}

// An agent that ends leaves no shell behind, and does not wait for one.
func TestShellEndsWithItsAgent(t *testing.T) {
	for range 10 { // each time something else is noticed first
		c := newCluster(t, 1, twoCPUs, true)
		s := openShell(t, c, agentapi.ShellQuery{Command: "echo $$; exec sleep 1000"})
		_, data, err := readFrame(s.conn, make([]byte, maxFrame))
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		if _, err := fmt.Sscan(string(data), &pid); err != nil {
			t.Fatalf("pid %q: %v", data, err)
		}
		c.nodes[0].stop()
		if proc.Alive(pid, "") {
			t.Fatal("the shell goes on without its agent")
		}
	}
}

// An open shell keeps the cluster from stopping; its end starts the clock.
func TestShellCountsAsActivity(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	s := openShell(t, c, agentapi.ShellQuery{Command: "cat", Node: 1})
	s.send(agentapi.FrameStdin, "x")
	s.until("x")
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 0, WaitFor: api.WaitForJobsAndSSH}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if info, err := c.head.Info(t.Context()); err != nil || info.State != agentapi.AgentRunning {
		t.Fatalf("with an open shell: %+v, %v", info, err)
	}
	s.send(agentapi.FrameEOF, "")
	s.rest()
	machineTime(t, c.nodes[0], "stop")
}

func TestSyncIsServed(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "f"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := c.head.Sync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := filesync.Send(ctx, conn, filesync.Options{Src: filesync.Local(src), Dst: "~/got", Contents: true}); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, c.nodes[0].home, "got", "f"); got != "data" {
		t.Errorf("got %q", got)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 'h', 'i'})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		buf := make([]byte, 64)
		kind, payload, err := readFrame(bytes.NewReader(data), buf)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := (&frames{w: &again}).send(kind, payload); err != nil || !bytes.HasPrefix(data, again.Bytes()) {
			t.Errorf("%q reads as %d %q", data, kind, payload)
		}
	})
}
