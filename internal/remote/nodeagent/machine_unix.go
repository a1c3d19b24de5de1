//go:build unix

package nodeagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/skypilot-go/sky/internal/agent"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/local"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/container"
)

// machine is the agent's view of the node it runs on.
func machine(kind string) (agent.Machine, error) {
	switch kind {
	case MachineNone:
		return nil, nil
	case MachineLocal:
		return local.NewSelf(os.Getenv(local.EnvNode)), nil
	case MachineFolder:
		return folderNode(os.Getenv(local.EnvNode)), nil
	case MachineContainer:
		return Container{}, nil
	case MachinePowerOff:
		return PowerOff{}, nil
	case MachineMarksEnd:
		return MarksEnd{cloud.EndMark}, nil
	case MachineInside:
		return container.Inside{}, nil
	}
	return nil, fmt.Errorf("--machine can be %q, %q, %q, %q, %q or %q, not %q", MachineLocal, MachineFolder, MachineContainer, MachineInside, MachinePowerOff, MachineMarksEnd, kind)
}

func folderNode(dir string) folder.Node {
	return folder.Node{Dir: dir, Mark: local.EnvNode, Clear: func(ctx context.Context) error {
		return container.Remove(ctx, filepath.Join(dir, folder.Home))
	}}
}

// Container is a node that is a container whose first process ends on TERM,
// which stops it, and on USR1, which says that it is not wanted any more.
type Container struct{}

func (Container) Stop(context.Context) error      { return syscall.Kill(1, syscall.SIGTERM) }
func (Container) Terminate(context.Context) error { return syscall.Kill(1, syscall.SIGUSR1) }
