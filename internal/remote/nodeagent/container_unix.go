//go:build unix

package nodeagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/skypilot-go/sky/internal/cloud/local"
	"github.com/skypilot-go/sky/internal/remote/container"
)

// startWithin is "agent --start" on a machine whose agent runs in a container: the
// same is said there.
func startWithin(ctx context.Context, s Spec, out io.Writer) int {
	name := s.Container
	s.Container = ""
	in, err := json.Marshal(s)
	var said bytes.Buffer
	code := 0
	self, serr := os.Executable()
	if err = errors.Join(err, serr); err == nil {
		// Its folder is mounted into the container under another name.
		code, err = container.StartAgent(ctx, name, filepath.Base(filepath.Dir(self)), bytes.NewReader(in), out, &said)
	}
	if err == nil && code > 1 { // the agent's program did not run; it says why itself else
		json.NewEncoder(out).Encode(Refusal{Error: "the agent does not start in the container: " + said.String()})
	}
	if err != nil {
		json.NewEncoder(out).Encode(Refusal{Error: err.Error()})
		return 1
	}
	return code
}

// spawnKeeper starts the process outside a container that does what the agent
// inside cannot. It outlives us, and is one of the node's processes.
func spawnKeeper(s container.Spec) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.Home, ".sky", "keeper.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(self, "agent", "--keep", s.Name, "--home", s.Home, "--machine", s.Machine)
	cmd.Dir = s.Home
	cmd.Env = environment(Spec{Home: s.Home, Node: s.Node})
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+host)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

func keepContainer(ctx context.Context, home, name, kind string) error {
	m, err := machine(kind)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if kind == MachineFolder && os.Getenv(local.EnvNode) == "" {
		m = nil // whose folder it is, is not known
	}
	return container.Keep(ctx, home, name, m, log)
}
