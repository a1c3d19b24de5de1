package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// mountDir is where sky-mount lies on nodes, below the home folder.
const mountDir = ".sky/mount"

// Mount makes sky-mount be on a node of a cluster whose agents run, and returns the shell
// command that starts it, to which arguments are added. Where the agent is the whole sky, it
// is there already.
func (r *Connector) Mount(ctx context.Context, c *state.Cluster, rank int) (command string, err error) {
	client, err := r.Node(c, rank)
	if err != nil {
		return "", err
	}
	info, err := client.Info(ctx)
	if err != nil {
		return "", err
	}
	goos, goarch, _ := strings.Cut(info.Platform, "/")
	b, err := r.mountBinary(goos, goarch)
	if err != nil {
		return "", err
	}
	if b == nil {
		return fmt.Sprintf("exec \"$%s\" sky-mount", agentapi.ProgramEnv), nil
	}
	at := path.Join(mountDir, b.hash[:16], "sky-mount")
	_, err = r.syncNode(ctx, c, rank, filesync.Options{Src: filesync.Within(filepath.Dir(b.path), filepath.Base(b.path), b.path), Dst: "~/" + at})
	return mountCommand(at), err
}

// mountCommand starts the program at a path below the home folder. Where none run from there,
// it is copied to where the agent is; see [executable].
func mountCommand(at string) string {
	copied := strings.ReplaceAll(at, "/", "-")
	return fmt.Sprintf(`p="$HOME"/%s; q="$HOME"/.sky/runtime/%s; [ -x "$p" ] || { [ -x "$q" ] || { cp "$p" "$q.$$" && mv "$q.$$" "$q"; }; p=$q; }; exec "$p"`,
		sshconn.Quote(at), sshconn.Quote(copied))
}

// mountBinary is sky-mount for a kind of machine; nil: its agent is the whole sky.
func (r *Connector) mountBinary(goos, goarch string) (*binary, error) {
	agent, err := r.binary(goos, goarch)
	if err != nil || !agent.small {
		return nil, err
	}
	r.bins.mu.Lock()
	defer r.bins.mu.Unlock()
	key := "mount-" + goos + "-" + goarch
	if b := r.bins.found[key]; b != nil {
		if _, err := os.Stat(b.path); err == nil {
			return b, nil
		}
	}
	b, err := r.findMount(goos, goarch)
	if err != nil {
		return nil, err
	}
	if b.hash, err = fileHash(b.path); err != nil {
		return nil, err
	}
	r.bins.found[key] = b
	return b, nil
}

func (r *Connector) findMount(goos, goarch string) (*binary, error) {
	if r.o.Mounts != nil {
		if packed, ok := r.o.Mounts(goos, goarch); ok {
			return r.unpack(packed, filepath.Join(r.o.RuntimeDir, r.o.BuildID, "mount-"+goos+"-"+goarch))
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(self), "sky-mount-"+goos+"-"+goarch)
	id, err := usable(file, goos, goarch)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the node is a %s/%s machine and its task needs buckets, for which there is no sky-mount: put %s of the same release into %s", goos, goarch, filepath.Base(file), filepath.Dir(file))
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used on nodes: %w", file, err)
	}
	return &binary{path: file, id: id, copies: filepath.Dir(file)}, nil
}

// A MountError is that sky-mount ended without doing what it was asked for.
type MountError struct {
	Code int
	Said string // standard error
}

func (e *MountError) Error() string {
	if e.Said == "" {
		return fmt.Sprintf("sky-mount ended with exit code %d", e.Code)
	}
	return fmt.Sprintf("sky-mount ended with exit code %d: %s", e.Code, e.Said)
}

// TalkToMount runs sky-mount with arguments on a node: in is its standard input, and line
// gets each line that it writes. It ends with the program; a [*MountError] is an exit code
// that is not 0.
func (r *Connector) TalkToMount(ctx context.Context, c *state.Cluster, rank int, args string, in io.Reader, line func([]byte) error) error {
	command, err := r.Mount(ctx, c, rank)
	if err != nil {
		return err
	}
	client, err := r.Node(c, rank)
	if err != nil {
		return err
	}
	said, code, err := client.Talk(ctx, agentapi.ShellQuery{Command: command + " " + args, Node: rank}, in, line)
	if err == nil && code != 0 {
		err = &MountError{Code: code, Said: string(bytes.TrimSpace(said))}
	}
	return err
}
