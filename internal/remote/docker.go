package remote

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/nodeagent"
	"github.com/skypilot-go/sky/internal/state"
)

// dockerTransport brings agents into containers of the engine on this machine.
type dockerTransport Connector

// inContainer is where agents' binaries are in a container.
const inContainer = "/opt/sky"

func (t *dockerTransport) start(ctx context.Context, c *state.Cluster, n cloud.Node, _ *spread, _ *Containers) (string, error) {
	r := (*Connector)(t)
	if t.o.Docker == nil {
		return "", errors.New("this server was not set up for containers")
	}
	if address, ok := r.answering(ctx, c, n); ok {
		return address, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	info, err := t.o.Docker.Info(ctx)
	if err != nil {
		return "", fmt.Errorf("asking the container engine: %w", err)
	}
	goos, goarch, err := platform("linux", info.Architecture)
	if err != nil {
		return "", err
	}
	bin, err := r.binary(goos, goarch)
	if err != nil {
		return "", err
	}
	installed := path.Join(inContainer, bin.id, "sky")
	if !t.has(ctx, n, installed, bin) {
		if err := t.upload(ctx, n, installed, bin); err != nil {
			return "", fmt.Errorf("bringing the agent into the container: %w", err)
		}
	}
	return startWithin(c, n, "container "+n.ID, func(stdin *bytes.Reader) (int, []byte, []byte, error) {
		res, err := t.o.Docker.Exec(ctx, n.Reach.Host, []string{installed, "agent", "--start"}, stdin)
		if err != nil {
			return 0, nil, nil, err
		}
		return res.Code, res.Stdout, res.Stderr, nil
	})
}

// startWithin starts the agent that is installed on a node which commands reach
// and connections need not: exec runs "agent --start" there. The agent listens
// on the node's own address. where names the node in errors.
func startWithin(c *state.Cluster, n cloud.Node, where string, exec func(stdin *bytes.Reader) (code int, stdout, stderr []byte, err error)) (string, error) {
	files, err := issue(c, n.ID)
	if err != nil {
		return "", err
	}
	spec, err := json.Marshal(nodeagent.Spec{
		Machine: n.Reach.Machine, Files: files.Files(), WholeEnvironment: true,
		Listen: net.JoinHostPort(n.InternalIP, strconv.Itoa(agentapi.Port)),
	})
	if err != nil {
		return "", err
	}
	code, stdout, stderr, err := exec(bytes.NewReader(spec))
	if err != nil {
		return "", err
	}
	if code != 0 {
		err = fmt.Errorf("exit code %d: %s%s", code, stderr, stdout)
	}
	life, err := started(where, stdout, err)
	return life.Address, err
}

// has reports whether the whole binary is in the container: it says its own hash.
func (t *dockerTransport) has(ctx context.Context, n cloud.Node, installed string, bin *binary) bool {
	res, err := t.o.Docker.Exec(ctx, n.Reach.Host, []string{installed, "agent", "--hash"}, nil)
	return err == nil && res.Code == 0 && strings.TrimSpace(string(res.Stdout)) == bin.hash
}

// upload puts the binary into the container as an archive.
func (t *dockerTransport) upload(ctx context.Context, n cloud.Node, installed string, bin *binary) error {
	in, err := os.Open(bin.path)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(installed, "/"), Mode: 0o755, Size: st.Size(), ModTime: st.ModTime()})
		if err == nil {
			_, err = io.Copy(tw, in)
		}
		w.CloseWithError(errors.Join(err, tw.Close()))
	}()
	err = t.o.Docker.Upload(ctx, n.Reach.Host, r)
	r.Close() // ends the writer, too
	if err != nil {
		return err
	}
	if !t.has(ctx, n, installed, bin) {
		return errors.New("what arrived there does not run or is not what was sent")
	}
	return nil
}

// dialer connects to an agent: directly where containers' addresses belong to
// this machine's network, else through the agent's own program.
func (t *dockerTransport) dialer(n cloud.Node) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if t.o.Docker == nil {
			return nil, errors.New("this server was not set up for containers")
		}
		if runtime.GOOS == "linux" {
			d := net.Dialer{Timeout: 10 * time.Second}
			return d.DialContext(ctx, "tcp", address)
		}
		script := `for b in ` + inContainer + `/*/sky; do exec "$b" agent --connect "$0"; done`
		return t.o.Docker.Pipe(ctx, n.Reach.Host, []string{"/bin/sh", "-c", script, address})
	}
}
