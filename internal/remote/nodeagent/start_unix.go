//go:build unix

package nodeagent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud/local"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/proc"
)

// endGrace is how long an agent of another build has to go.
const endGrace = 5 * time.Second

// Running returns the agent that runs for a home folder.
func Running(home string) (Life, bool) {
	l, ok := readLife(Dir(home))
	return l, ok && proc.Alive(l.PID, l.Start)
}

// Start makes an agent of the given build run as s says, and returns when it
// listens. One of this build that runs is left alone; one of another build, or with
// another authority's certificates, is replaced, and its jobs go on. It is safe to
// repeat and to call at once with others.
func Start(ctx context.Context, binary, build string, s Spec) (Life, error) {
	if l, ok := Running(s.Home); ok {
		if l.BuildID == build && knows(s) {
			return l, nil
		}
		// Its jobs go on and the new agent adopts them.
		if err := end(ctx, l); err != nil {
			return Life{}, fmt.Errorf("replacing the agent of build %s: %w", l.BuildID, err)
		}
	}
	dir := Dir(s.Home)
	if err := writeFiles(dir, s.Files); err != nil {
		return Life{}, err
	}
	s.Listen = freeAddress(s.Listen)
	return spawn(ctx, binary, dir, s)
}

// knows reports whether the agent of a home folder has certificates of the cluster's
// authority as it is now. It has not if the cluster's record was lost and made anew.
func knows(s Spec) bool {
	ca, err := os.ReadFile(filepath.Join(Dir(s.Home), "ca.pem"))
	return err != nil || len(s.Files["ca.pem"]) == 0 || bytes.Equal(ca, s.Files["ca.pem"])
}

func writeFiles(dir string, files map[string][]byte) error {
	var n pki.NodeFiles
	for name, into := range map[string]*[]byte{"ca.pem": &n.CA, "node.pem": &n.Cert, "node.key": &n.Key} {
		if *into = files[name]; len(*into) == 0 {
			return fmt.Errorf("the node's certificates are incomplete: %s is missing", name)
		}
	}
	return n.Write(dir)
}

// freeAddress is address, or its host with any port if somebody listens there.
func freeAddress(address string) string {
	l, err := net.Listen("tcp", address)
	if err == nil {
		l.Close()
		return address
	}
	host, _, serr := net.SplitHostPort(address)
	if serr != nil || !errors.Is(err, syscall.EADDRINUSE) {
		return address // the agent will say what is wrong with it
	}
	return net.JoinHostPort(host, "0")
}

// spawn starts the agent in a session of its own, so that it outlives us, and
// waits until it listens.
func spawn(ctx context.Context, binary, dir string, s Spec) (Life, error) {
	logPath := filepath.Join(dir, "agent.log")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return Life{}, err
	}
	defer logFile.Close()
	said, _ := logFile.Seek(0, io.SeekEnd)
	start := func() (*exec.Cmd, error) {
		cmd := exec.Command(binary, "agent", "--home", s.Home, "--listen", s.Listen, "--machine", s.Machine)
		cmd.Dir = s.Home
		cmd.Env = environment(s)
		cmd.Stdout, cmd.Stderr = logFile, logFile
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd, cmd.Start()
	}
	cmd, err := start()
	// A process that was forked while the binary was being written holds it open
	// for a moment, until it executes something else.
	for pause := time.Millisecond; errors.Is(err, syscall.ETXTBSY) && pause < time.Second; pause *= 2 {
		time.Sleep(pause)
		cmd, err = start()
	}
	if err != nil {
		return Life{}, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	for {
		if l, ok := Running(s.Home); ok {
			return l, nil
		}
		select {
		case err := <-exited:
			// Another starter may have been quicker.
			if l, ok := Running(s.Home); ok {
				return l, nil
			}
			return Life{}, fmt.Errorf("it ended at once (%v): %s", err, tail(logPath, said))
		case <-ctx.Done():
			cmd.Process.Kill()
			return Life{}, fmt.Errorf("it did not listen in time: %w: %s", ctx.Err(), tail(logPath, said))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// environment is what a node's processes start with: nothing of ours that could
// hold a credential.
func environment(s Spec) []string {
	env := []string{"HOME=" + s.Home}
	if s.WholeEnvironment {
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "SSH_") { // of a connection that will be gone
				env = append(env, v)
			}
		}
		env = append(env, "HOME="+s.Home) // the last one counts
	}
	if s.Node != "" {
		env = append(env, local.EnvNode+"="+s.Node)
		if share := folder.ShareOf(s.Node); share != nil {
			env = append(env, agentapi.DevicesEnv+"="+share.Devices())
		}
	}
	for _, key := range []string{"PATH", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

func end(ctx context.Context, l Life) error {
	return proc.End(ctx, func() []int {
		if proc.Alive(l.PID, l.Start) {
			return []int{l.PID}
		}
		return nil
	}, endGrace)
}

// tail is the end of what was written to a log since offset.
func tail(path string, offset int64) string {
	b, err := os.ReadFile(path)
	if err != nil || int64(len(b)) <= offset {
		return "it wrote nothing to " + path
	}
	b = bytes.TrimSpace(b[offset:])
	if len(b) > 2000 {
		b = b[len(b)-2000:]
	}
	return cmp.Or(string(b), "it wrote nothing to "+path)
}
